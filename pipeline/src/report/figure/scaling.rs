//! The scaling threshold: memorisation by number of parameters, one line per number of exposures, one row of panels per arm.

use anyhow::Result;
use axmem_eval::estimate::{Place, Threshold};

use super::lines::{Dot, Frame, Line, extent, panel};
use super::{LEGEND_HEIGHT, Marks, bucket_name, legend};
use crate::report::chart::{self, WIDTH, round_ticks};
use crate::report::format::number;
use crate::report::study::{LOG_PROBABILITY, Study};

const ROW_HEIGHT: i32 = 380;

pub(super) fn draw(study: &Study) -> Result<String> {
    let height = LEGEND_HEIGHT + ROW_HEIGHT * study.arms.len() as i32;
    let names: Vec<String> = study
        .levels
        .iter()
        .map(|(level, _)| match level {
            0 => bucket_name(0),
            1 => "1 presentation".to_owned(),
            _ => format!("{level} presentations"),
        })
        .collect();
    chart::draw(height, "Memorisation by number of parameters", |canvas| {
        let before = format!("open: before ({})", study.primary.from);
        legend(
            canvas,
            names.iter().map(String::as_str),
            Marks::Before(&before),
        )?;
        for (row, arm) in study.arms.iter().enumerate() {
            let top = LEGEND_HEIGHT + ROW_HEIGHT * row as i32;
            let rows = top..top + ROW_HEIGHT;
            let asked = asked(study, arm);
            let frame = Frame {
                title: format!("{arm}: exact match"),
                x_ticks: ticks(study),
                x_name: "parameters, log scale".to_owned(),
                y: -0.04..1.04,
                y_ticks: (0..=5).map(|tick| f64::from(tick) / 5.0).collect(),
                y_name: format!("exact match, last {} tokens", study.primary.suffix),
                level: asked.map(|threshold| threshold.rate),
                span: asked.and_then(|threshold| span(study, threshold)),
                ..Frame::default()
            };
            panel(
                canvas,
                (0..WIDTH / 2, rows.clone()),
                &frame,
                &rates(study, arm),
            )?;
            let gains = gains(study, arm);
            // The line of no effect belongs to the picture.
            let y = extent(gains.iter());
            let y = y.start.min(-0.5)..y.end.max(0.5);
            let frame = Frame {
                title: format!("{arm}: log-probability"),
                x_ticks: ticks(study),
                x_name: "parameters, log scale".to_owned(),
                y_ticks: round_ticks(&y, 6.0),
                y,
                y_name: "change over control, nats".to_owned(),
                level: Some(0.0),
                ..Frame::default()
            };
            panel(canvas, (WIDTH / 2..WIDTH, rows), &frame, &gains)?;
        }
        Ok(())
    })
}

fn place(study: &Study, model: &str) -> f64 {
    (study.parameters(model).max(1) as f64).log10()
}

/// The rungs, rising.
fn ticks(study: &Study) -> Vec<(f64, String)> {
    let models = study.models.iter();
    models
        .map(|model| (place(study, model), short(study.parameters(model))))
        .collect()
}

/// Such as `3.7M`.
fn short(parameters: u64) -> String {
    let count = parameters as f64;
    let two = |value: f64| {
        if value < 10.0 {
            number((value * 10.0).round() / 10.0)
        } else {
            format!("{value:.0}")
        }
    };
    match parameters {
        0..1_000_000 => format!("{}k", two(count / 1e3)),
        1_000_000..1_000_000_000 => format!("{}M", two(count / 1e6)),
        _ => format!("{}B", two(count / 1e9)),
    }
}

fn rates(study: &Study, arm: &str) -> Vec<Line> {
    let levels = study.levels.iter().enumerate();
    levels
        .map(|(index, (_, bucket))| {
            let dot = |model: &String| {
                let row = study.estimate(model, arm, bucket, &study.primary.to)?;
                let before = study.estimate(model, arm, bucket, &study.primary.from);
                Some(Dot {
                    x: place(study, model),
                    y: row.rate,
                    interval: row.low.zip(row.high),
                    before: before.map(|row| row.rate),
                })
            };
            Line {
                index,
                dots: study.models.iter().filter_map(dot).collect(),
            }
        })
        .collect()
}

/// Differences in differences of the suffix's log-probability.
fn gains(study: &Study, arm: &str) -> Vec<Line> {
    let levels = study.levels.iter().enumerate();
    levels
        .filter(|(_, (level, _))| *level > 0)
        .map(|(index, (_, bucket))| {
            let dot = |model: &String| {
                let row = study.contrast("did", model, arm, bucket, LOG_PROBABILITY)?;
                Some(Dot {
                    x: place(study, model),
                    y: row.estimate?,
                    interval: row.low.zip(row.high),
                    before: None,
                })
            };
            Line {
                index,
                dots: study.models.iter().filter_map(dot).collect(),
            }
        })
        .collect()
}

/// The threshold that the figure marks for an arm.
fn asked<'a>(study: &'a Study, arm: &str) -> Option<&'a Threshold> {
    let primary = &study.primary;
    study
        .thresholds
        .iter()
        .find(|row| row.arm == arm && row.suffix == primary.suffix && row.prefix == primary.prefix)
}

/// Its interval within the ladder; none if it lies beyond one end altogether.
fn span(study: &Study, threshold: &Threshold) -> Option<(f64, f64)> {
    let ticks = ticks(study);
    let ends = (ticks.first()?.0, ticks.last()?.0);
    if threshold.low_place == threshold.high_place && threshold.low.is_none() {
        return None;
    }
    let end = |place: Place, at: Option<f64>| match place {
        Place::Below => Some(ends.0),
        Place::Above => Some(ends.1),
        Place::Between => at.map(f64::log10),
        Place::Unidentified => None,
    };
    end(threshold.low_place, threshold.low).zip(end(threshold.high_place, threshold.high))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn sizes_are_short() {
        let sizes = [
            638_000,
            1_700_000,
            20_000_000,
            7_000_000_000,
            405_000_000_000,
        ];
        assert_eq!(sizes.map(short), ["638k", "1.7M", "20M", "7B", "405B"]);
    }
}
