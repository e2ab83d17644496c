//! Dose and forgetting: what is reproduced by step of training, and by steps since a document was last presented. For each model
//! and arm a row of rates and a row of log-probabilities.

use std::ops::Range;

use anyhow::Result;
use axmem_eval::estimate::{Axis, Curve};

use super::lines::{Dot, Frame, Line, extent, panel};
use super::{LEGEND_HEIGHT, Marks, bucket_name, legend};
use crate::report::chart::{self, Canvas, WIDTH, round_ticks};
use crate::report::study::Study;

const ROW_HEIGHT: i32 = 340;

pub(super) fn draw(study: &Study) -> Result<String> {
    let pairs: Vec<(&str, &str)> = study
        .models
        .iter()
        .flat_map(|model| {
            study
                .arms
                .iter()
                .map(move |arm| (model.as_str(), arm.as_str()))
        })
        .filter(|(model, arm)| {
            let mut curves = study.curves.iter();
            curves.any(|row| (&*row.model, &*row.arm) == (*model, *arm))
        })
        .collect();
    let names: Vec<String> = study
        .levels
        .iter()
        .map(|(level, _)| bucket_name(*level))
        .collect();
    let height = LEGEND_HEIGHT + 2 * ROW_HEIGHT * pairs.len() as i32;
    chart::draw(height, "Memorisation over training", |canvas| {
        legend(canvas, names.iter().map(String::as_str), Marks::Markers)?;
        for (index, (model, arm)) in pairs.iter().enumerate() {
            let top = LEGEND_HEIGHT + 2 * ROW_HEIGHT * index as i32;
            let name = if study.models.len() > 1 {
                format!("{model}: {arm}")
            } else {
                (*arm).to_owned()
            };
            let rows = [
                top..top + ROW_HEIGHT,
                top + ROW_HEIGHT..top + 2 * ROW_HEIGHT,
            ];
            response(canvas, study, (model, arm), &name, rows[0].clone(), false)?;
            response(canvas, study, (model, arm), &name, rows[1].clone(), true)?;
        }
        Ok(())
    })
}

/// The two panels of one response.
fn response(
    canvas: &Canvas<'_>,
    study: &Study,
    (model, arm): (&str, &str),
    name: &str,
    rows: Range<i32>,
    logs: bool,
) -> Result<()> {
    let of = |axis| lines(study, model, arm, axis, logs);
    let both = [of(Axis::Step), of(Axis::SinceLast)];
    // One scale for both, so that they can be read against each other.
    let (y, y_ticks, y_name) = if logs {
        let y = extent(both.iter().flatten());
        let ticks = round_ticks(&y, 6.0);
        (y, ticks, "log-probability, nats".to_owned())
    } else {
        let ticks = (0..=5).map(|tick| f64::from(tick) / 5.0).collect();
        let name = format!("exact match, last {} tokens", study.primary.suffix);
        (-0.04..1.04, ticks, name)
    };
    let axes = ["optimizer step", "steps since the last presentation"];
    for (column, (lines, x_name)) in both.iter().zip(axes).enumerate() {
        let mut places: Vec<f64> = lines
            .iter()
            .flat_map(|line| line.dots.iter().map(|dot| dot.x))
            .collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let frame = Frame {
            title: name.to_owned(),
            x_ticks: places
                .into_iter()
                .map(|at| (at, format!("{at:.0}")))
                .collect(),
            x_name: x_name.to_owned(),
            y: y.clone(),
            y_ticks: y_ticks.clone(),
            y_name: y_name.clone(),
            exact_places: true,
            ..Frame::default()
        };
        let column = column as i32;
        let columns = column * WIDTH / 2..(column + 1) * WIDTH / 2;
        panel(canvas, (columns, rows.clone()), &frame, lines)?;
    }
    Ok(())
}

fn lines(study: &Study, model: &str, arm: &str, axis: Axis, logs: bool) -> Vec<Line> {
    let levels = study.levels.iter().enumerate();
    levels
        .map(|(index, (_, bucket))| {
            let own = |row: &&Curve| {
                (&*row.model, &*row.arm, &row.bucket) == (model, arm, bucket)
                    && row.axis == axis
                    && row.suffix == study.primary.suffix
            };
            let dot = |row: &Curve| Dot {
                x: f64::from(row.at),
                y: if logs { row.log_probability } else { row.rate },
                interval: if logs {
                    row.log_probability_low.zip(row.log_probability_high)
                } else {
                    Some((row.low, row.high))
                },
                before: None,
            };
            Line {
                index,
                dots: study.curves.iter().filter(own).map(dot).collect(),
            }
        })
        .filter(|line| !line.dots.is_empty())
        .collect()
}
