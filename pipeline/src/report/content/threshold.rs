//! The scaling threshold of a ladder: the question, the answer of each arm, and the fit behind it.

use axmem_eval::estimate::{Place, Threshold};

use super::{arm_name, arm_order};
use crate::report::figure;
use crate::report::format::{
    NONE, count, number, optional, p_value, parameters, percent, with_interval,
};
use crate::report::interval::methods;
use crate::report::page::{Block, Table, Text};
use crate::report::study::{SIZE, Study};

/// Those at the primary settings, arms in their order; none in a study of one model.
fn of_primary(study: &Study) -> Vec<&Threshold> {
    let primary = &study.primary;
    let rows = study.thresholds.iter();
    let mut rows: Vec<&Threshold> = rows
        .filter(|row| row.suffix == primary.suffix && row.prefix == primary.prefix)
        .collect();
    rows.sort_by_key(|row| arm_order(study, &row.arm));
    rows
}

/// The answer of each arm.
pub(super) fn answers(study: &Study) -> Vec<Text> {
    let rows = of_primary(study);
    rows.into_iter().map(|row| sentence(row).into()).collect()
}

/// Nothing in a study of one model.
pub(super) fn threshold(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    let rows = of_primary(study);
    let Some(first) = rows.first() else {
        return;
    };
    let is_inside = |row: &&Threshold| row.low.is_some() || row.high.is_some();
    let shaded = if rows.iter().any(is_inside) {
        format!(
            "; shaded: the interval of the size from which {} presentations reach it",
            first.exposures
        )
    } else {
        String::new()
    };
    blocks.push(Block::Section("threshold", "From which size on"));
    blocks.push(Block::Figure {
        file: figure::SCALING,
        alternative: "Exact match and log-probability by number of parameters, per number of exposures".to_owned(),
        caption: Text::from(format!(
            "Left: exact match of the last {} tokens at time {} by number of parameters, a line for each number of presentations, \
             the control among them, with {} intervals over clusters; open markers are the same documents at time {}, before they \
             were trained on. Dashed: the rate asked for{shaded}. Right: the change of the suffix's log-probability from {} to {} minus that of the control (which may \
             itself have fallen), and shows effects too small for exact match. {} Under one recipe.",
            primary.suffix,
            primary.to,
            percent(primary.level),
            primary.from,
            primary.from,
            primary.to,
            if study.random {
                "From random weights, not continued training."
            } else {
                "Continued training of published weights."
            }
        )),
    });
    let mut table = Table::new(
        format!(
            "Share of documents gained between warm and after, among those not reproduced at warm, by presentations e (0 for \
             control; what the loss kept of them is in the tables of rates). logit p = a + b (log10 N − {}) + c ln(1 + e) + d \
             (log10 N − {}) ln(1 + e), and a term for each family after the first, by penalised maximum likelihood (Firth \
             1993); intervals at level {} from resampled clusters (percentile), or, where nothing or everything was gained, \
             from the exact interval of the end of the ladder; there is then no curve. Where the fitted shares are far from those gained, \
             the curve, which rises or falls evenly with size, does not hold, and only what the rungs themselves show does. N counts all parameters. Under one recipe; nothing is \
             extrapolated.",
            number(first.centre),
            number(first.centre),
            percent(first.level)
        ),
        2,
        &[
            "Arm",
            "Family",
            "Answer",
            "Parameters",
            "Lower end",
            "Upper end",
            "Resamples that place it",
            "Clusters",
            "Gained by rung",
            "Fitted by rung",
            "Control gained by rung",
            "a",
            "b",
            "c",
            "d",
        ],
    );
    for row in &rows {
        let mut line: Vec<Text> = vec![
            arm_name(&row.arm),
            row.family.as_str().into(),
            row.place.as_str().into(),
            row.parameters
                .map_or_else(|| NONE.to_owned(), |at| parameters(at.round() as u64))
                .into(),
            size(row.low_place, row.low).into(),
            size(row.high_place, row.high).into(),
            placed(row).into(),
            count(row.clusters).into(),
            by_rung(row, &row.gained, &row.documents).into(),
            fitted(row).into(),
            by_rung(row, &row.control_gained, &row.control_documents).into(),
        ];
        let coefficient = |index: usize| curve(row).and_then(|curve| curve.get(index).copied());
        line.extend((0..4).map(|index| optional(coefficient(index)).into()));
        table.row(line);
    }
    blocks.push(Block::Table(table));
    sizes(study, blocks);
}

/// Each rung against the next smaller one.
fn sizes(study: &Study, blocks: &mut Vec<Block>) {
    let primary = &study.primary;
    let mut table = Table::new(
        format!(
            "Each model against the next smaller one: the change from {} to {} of the larger minus that of the smaller, on the same \
             documents, of exact match (difference of rates) and of the suffix's log-probability (nats). Models with different \
             tokenizers see other spans of the same articles, so they are not paired, which the method says.",
            primary.from, primary.to
        ),
        5,
        &[
            "Smaller",
            "Larger",
            "Of",
            "Arm",
            "Bucket",
            "Method",
            "Difference",
            "Level",
            "p",
            "p adjusted",
            "Family",
            "Clusters",
        ],
    );
    let rows = study.contrasts.iter().filter(|row| {
        row.kind == SIZE && row.suffix == primary.suffix && row.prefix == primary.prefix
    });
    for row in rows {
        let difference = with_interval(row.estimate.unwrap_or(f64::NAN), row.low, row.high);
        table.row(vec![
            row.from.as_str().into(),
            row.to.as_str().into(),
            row.measure.replace('_', " ").into(),
            arm_name(&row.arm),
            row.bucket.as_str().into(),
            methods(&row.method).into(),
            difference.into(),
            percent(row.level).into(),
            p_value(row.p).into(),
            p_value(row.p_adjusted).into(),
            row.family.as_str().into(),
            count(row.clusters).into(),
        ]);
    }
    if !table.rows.is_empty() {
        let title = "Each size against the next smaller one".to_owned();
        blocks.push(Block::Details(title, vec![Block::Table(table)]));
    }
}

/// A size, or the place of one that is not between rungs.
fn size(place: Place, at: Option<f64>) -> String {
    at.map_or_else(
        || place.as_str().to_owned(),
        |at| parameters(at.round() as u64),
    )
}

fn sentence(row: &Threshold) -> String {
    let presented = format!("presented {}", times(row.exposures));
    let asked = format!("{} of the documents {presented}", percent(row.rate));
    let rung = |rung: Option<&u64>| rung.map_or_else(String::new, |&rung| parameters(rung));
    let answer = match row.place {
        Place::Below => format!(
            "every model comes to reproduce {asked}; the threshold is below the smallest rung, {}",
            rung(row.rungs.first())
        ),
        Place::Between => format!(
            "by the fitted curve models come to reproduce {asked} from {} parameters on, between the rungs of {} and {}",
            size(row.place, row.parameters),
            rung(row.rung_below.as_ref()),
            rung(row.rung_above.as_ref())
        ),
        Place::Above => format!(
            "no model up to {} parameters comes to reproduce {asked}",
            rung(row.rungs.last())
        ),
        Place::Unidentified => format!(
            "from which size on {asked} are reproduced is not identified: {}",
            why_unidentified(row)
        ),
    };
    format!(
        "{}, {}: {answer} ({}; {}).",
        row.arm,
        row.family,
        interval(row),
        evidence(row)
    )
}

/// What the ends of the ladder show by themselves.
fn evidence(row: &Threshold) -> String {
    let last = row.rungs.len() - 1;
    let own = if row.documents.iter().sum::<u64>() == 0 {
        "no document was presented so often, so the curve between other numbers of presentations answers".to_owned()
    } else {
        format!(
            "of those documents the smallest rung gained {}, the largest {}",
            gained(row, 0),
            gained(row, last)
        )
    };
    let control = if row.control_gained.iter().sum::<u64>() > 0 {
        let of = |rung| of(&row.control_gained, &row.control_documents, rung);
        format!(
            "; of the control, never presented, the smallest gained {}, the largest {}: the rate counts all gains, not those beyond the control",
            of(0),
            of(last)
        )
    } else {
        String::new()
    };
    own + &control
}

fn by_rung(row: &Threshold, gained: &[u64], documents: &[u64]) -> String {
    let rungs = 0..row.rungs.len();
    let each = rungs.map(|rung| of(gained, documents, rung));
    each.collect::<Vec<_>>().join(", ")
}

/// Coefficients of the curve, if some but not all documents were gained: else they are the penalty's alone.
fn curve(row: &Threshold) -> Option<&[f64]> {
    let all = |counts: &[u64]| counts.iter().sum::<u64>();
    let is_settled = all(&row.gained) == 0 && all(&row.control_gained) == 0;
    (!is_settled && row.coefficients.len() >= 4).then_some(row.coefficients.as_slice())
}

/// The share that the curve gives each rung at the presentations asked for; only with one family.
fn fitted(row: &Threshold) -> String {
    let Some(&[a, b, c, d]) = curve(row) else {
        return NONE.to_owned();
    };
    let presented = f64::from(row.exposures).ln_1p();
    let share = |&rung: &u64| {
        let size = (rung as f64).log10() - row.centre;
        let logit = a + b * size + (c + d * size) * presented;
        number(1.0 / (1.0 + (-logit).exp()))
    };
    row.rungs.iter().map(share).collect::<Vec<_>>().join(", ")
}

/// The share of resamples that give the threshold a place; none were needed where the end of the ladder answers.
fn placed(row: &Threshold) -> String {
    if row.identified == 0.0 && row.low_place != Place::Unidentified {
        NONE.to_owned()
    } else {
        percent(row.identified)
    }
}

/// `3 of 96`.
fn gained(row: &Threshold, rung: usize) -> String {
    of(&row.gained, &row.documents, rung)
}

fn of(gained: &[u64], documents: &[u64], rung: usize) -> String {
    let at = |counts: &[u64]| counts.get(rung).copied().map_or_else(String::new, count);
    format!("{} of {}", at(gained), at(documents))
}

fn times(presentations: u32) -> String {
    match presentations {
        1 => "once".to_owned(),
        more => format!("{more} times"),
    }
}

/// Nothing or everything gained leaves no curve; else the curve falls.
fn why_unidentified(row: &Threshold) -> &'static str {
    let (gained, documents): (u64, u64) = (row.gained.iter().sum(), row.documents.iter().sum());
    if documents == 0 {
        "no document was presented so often"
    } else if row.identified > 0.0 || (gained > 0 && gained < documents) {
        "the curve does not rise through that rate as models grow"
    } else if gained == 0 {
        "nothing was gained, by too few documents to exclude that rate"
    } else {
        "everything was gained, by too few documents to exclude a lower rate"
    }
}

fn interval(row: &Threshold) -> String {
    let level = percent(row.level);
    if row.low_place == Place::Unidentified {
        return format!(
            "no interval: {} of the resamples have an answer",
            percent(row.identified)
        );
    }
    let ends = if row.low_place == row.high_place && row.low.is_none() {
        row.low_place.to_string()
    } else {
        format!(
            "{} to {}",
            size(row.low_place, row.low),
            size(row.high_place, row.high)
        )
    };
    // Where all outcomes are the same no resample differs.
    let method = if row.identified > 0.0 {
        "percentile bootstrap over clusters"
    } else {
        "Clopper-Pearson at the end of the ladder"
    };
    format!("{level} interval: {ends}, {method}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        place: Place,
        at: Option<f64>,
        low: (Place, Option<f64>),
        high: (Place, Option<f64>),
    ) -> Threshold {
        Threshold {
            arm: "standard".to_owned(),
            suffix: 50,
            prefix: "all".to_owned(),
            family: "llama".to_owned(),
            rate: 0.05,
            exposures: 1,
            rungs: vec![1_000_000, 4_000_000, 21_000_000],
            place,
            parameters: at,
            documents: vec![96; 3],
            gained: vec![0, 2, 11],
            control_documents: vec![96; 3],
            control_gained: vec![0; 3],
            rung_below: at.map(|_| 4_000_000),
            rung_above: at.map(|_| 21_000_000),
            low_place: low.0,
            low: low.1,
            high_place: high.0,
            high: high.1,
            level: 0.95,
            identified: 0.5,
            coefficients: vec![],
            centre: 6.5,
            clusters: 96,
        }
    }

    #[test]
    fn an_answer_never_goes_beyond_the_rungs() {
        let above = (Place::Above, None);
        let between = row(
            Place::Between,
            Some(9.04e6),
            (Place::Between, Some(5e6)),
            above,
        );
        assert_eq!(
            sentence(&between),
            "standard, llama: by the fitted curve models come to reproduce 5 % of the documents presented once from 9.04 \
             million parameters on, between the rungs of 4 million and 21 million (95 % interval: 5 million to above the \
             largest rung, percentile bootstrap over clusters; of those documents the smallest rung gained 0 of 96, the \
             largest 11 of 96)."
        );
        let settled = Threshold {
            identified: 0.0,
            gained: vec![0; 3],
            ..row(Place::Above, None, above, above)
        };
        assert_eq!(
            sentence(&settled),
            "standard, llama: no model up to 21 million parameters comes to reproduce 5 % of the documents presented once (95 \
             % interval: above the largest rung, Clopper-Pearson at the end of the ladder; of those documents the smallest \
             rung gained 0 of 96, the largest 0 of 96)."
        );
        let nowhere = (Place::Unidentified, None);
        let none = Threshold {
            place: Place::Unidentified,
            low_place: nowhere.0,
            high_place: nowhere.0,
            ..settled
        };
        assert!(
            sentence(&none)
                .contains("is not identified: nothing was gained, by too few documents to exclude")
        );
        assert!(
            sentence(&row(Place::Above, None, nowhere, nowhere))
                .contains("(no interval: 50 % of the resamples have an answer;")
        );
    }
}
