//! Documents with their texts: prefix, true suffix and generated text side by side.

use crate::audit::findings::{Findings, Shown};
use crate::report::format::{count, number, optional, plural};
use crate::report::page::{Block, Comparison, Passage, Text};

pub(super) fn push(findings: &Findings, blocks: &mut Vec<Block>) {
    let (reproduced, missed): (Vec<&Shown>, Vec<&Shown>) =
        findings.shown.iter().partition(|shown| shown.exact);
    blocks.push(Block::Section("reproduced", "Reproduced documents"));
    if reproduced.is_empty() && findings.not_shown == 0 {
        let what = findings.settings.suffix.iter().max().copied().unwrap_or(0);
        blocks.push(Block::Paragraph(
            format!("No document has its last {what} ids reproduced.").into(),
        ));
    } else {
        blocks.push(Block::Paragraph(explanation(findings)));
    }
    if findings.not_shown > 0 {
        blocks.push(Block::Callout(Text::from(format!(
            "{} more reproduced, not shown here for their number.",
            plural(findings.not_shown as u64, "document")
        ))));
    }
    blocks.extend(reproduced.into_iter().map(comparison));
    if missed.is_empty() {
        return;
    }
    blocks.push(Block::Section("misses", "Nearest misses"));
    blocks.push(Block::Paragraph(
        Text::new()
            .plain(
                "Documents that are not reproduced, those nearest to it first. The first difference is \
                 underlined and marked ",
            )
            .mark("▲")
            .plain(" in both texts."),
    ));
    blocks.extend(missed.into_iter().map(comparison));
}

fn explanation(findings: &Findings) -> Text {
    let text = Text::from(
        "What stands in the document and what greedy decoding gives after the prefix. p is the \
         probability of the true suffix when sampled at temperature 1; top 40: when each id is drawn \
         from the 40 likeliest; samples for an even chance: so many at temperature 1 until it comes \
         with probability 1/2. Edit distance is in ids. Control characters and marks of direction are \
         shown by their number in a box. ",
    );
    match findings.settings.words {
        Some(words) if findings.shown.iter().any(|shown| shown.target_elided) => text
            .plain(format!(
                "At most {} of true text are shown of a document, and as many of what the model wrote; … stands for the rest, and ",
                plural(words as u64, "word")
            ))
            .code("--show-text")
            .plain(" shows all of it."),
        _ => text,
    }
}

fn comparison(shown: &Shown) -> Block {
    let mut title = Text::new().source(&*shown.document);
    if shown.set != "documents" {
        title = title.faint(format!(" ({})", shown.set));
    }
    let parts = |same: bool, rest: &String| (!same || !rest.is_empty()).then(|| rest.clone());
    let same = shown.target_rest.is_empty() && shown.generated_rest.is_empty();
    Block::Comparison(Comparison {
        title,
        facts: facts(shown),
        passages: vec![
            Passage {
                label: "End of the prefix",
                faint: true,
                cut: (shown.prefix_elided, false),
                same: shown.prefix_text.clone(),
                rest: None,
            },
            Passage {
                label: "True suffix",
                faint: false,
                cut: (shown.same_elided, shown.target_elided),
                same: shown.target_same.clone(),
                rest: parts(same, &shown.target_rest),
            },
            Passage {
                label: "Generated",
                faint: false,
                cut: (shown.same_elided, shown.generated_elided),
                same: shown.generated_same.clone(),
                rest: parts(same, &shown.generated_rest),
            },
        ],
    })
}

fn facts(shown: &Shown) -> Vec<(&'static str, Text)> {
    let mut facts: Vec<(&'static str, Text)> = vec![
        (
            "reproduced",
            Text::new().strong(format!(
                "{} of {}",
                count(u64::from(shown.matched_prefix)),
                plural(u64::from(shown.suffix), "id")
            )),
        ),
        ("log p", number(shown.log_probability).into()),
        ("p", probability(shown.p_z, shown.log_probability).into()),
        ("p, top 40", number(shown.p_z_top_k).into()),
        (
            "samples for an even chance",
            number(shown.queries.ceil()).into(),
        ),
    ];
    if let Some(distance) = shown.edit_distance {
        facts.push(("edit distance", count(u64::from(distance)).into()));
    }
    if shown.rouge_l_words.is_some() {
        facts.push(("ROUGE-L of words", optional(shown.rouge_l_words).into()));
    }
    if shown.cluster != shown.document {
        facts.push(("cluster", Text::new().source(&*shown.cluster)));
    }
    if shown.fragile {
        facts.push((
            "fragile:",
            Text::new().strong("rounding could decide whether it is reproduced"),
        ));
    }
    facts
}

/// A probability that may be too small for a float; its logarithm then says it.
fn probability(p: f64, log: f64) -> String {
    if p >= f64::MIN_POSITIVE || !log.is_finite() {
        return number(p);
    }
    let decimal = log / std::f64::consts::LN_10;
    let exponent = decimal.floor();
    format!("{}e−{}", number(10f64.powf(decimal - exponent)), -exponent)
}

#[cfg(test)]
mod tests {
    use super::probability;

    #[test]
    fn a_probability_below_the_range_of_floats_is_not_zero() {
        assert_eq!(probability(0.25, 0.25f64.ln()), "0.25");
        assert_eq!(probability(0.0, -1000.0 * 10f64.ln()), "1e−1000");
        assert_eq!(probability(0.0, f64::NEG_INFINITY), "0");
    }
}
