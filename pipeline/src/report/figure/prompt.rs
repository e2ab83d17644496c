//! Memorisation by length of the prompt: one line per bucket, one panel per model and arm.

use anyhow::Result;

use super::lines::{Dot, Frame, Line, panel};
use super::{LEGEND_HEIGHT, Marks, bucket_name, legend};
use crate::report::chart::{self, WIDTH};
use crate::report::study::Study;

const ROW_HEIGHT: i32 = 360;

pub(super) fn draw(study: &Study) -> Result<String> {
    let panels: Vec<(&str, &str)> = study
        .models
        .iter()
        .flat_map(|model| {
            study
                .arms
                .iter()
                .map(move |arm| (model.as_str(), arm.as_str()))
        })
        .collect();
    let rows = panels.len().div_ceil(2) as i32;
    let names = study.levels.iter().map(|(level, _)| bucket_name(*level));
    let names: Vec<String> = names.collect();
    let height = LEGEND_HEIGHT + ROW_HEIGHT * rows;
    chart::draw(height, "Memorisation by length of the prompt", |canvas| {
        legend(canvas, names.iter().map(String::as_str), Marks::Markers)?;
        for (index, (model, arm)) in panels.iter().enumerate() {
            let (row, column) = (index as i32 / 2, index as i32 % 2);
            let top = LEGEND_HEIGHT + ROW_HEIGHT * row;
            let frame = Frame {
                title: if study.models.len() > 1 {
                    format!("{model}: {arm}")
                } else {
                    (*arm).to_owned()
                },
                x_ticks: prefixes(study)
                    .into_iter()
                    .map(|(at, name)| (at, name.to_owned()))
                    .collect(),
                x_name: "ids of the prompt".to_owned(),
                y: -0.04..1.04,
                y_ticks: (0..=5).map(|tick| f64::from(tick) / 5.0).collect(),
                y_name: format!("exact match, last {} tokens", study.primary.suffix),
                ..Frame::default()
            };
            let columns = column * WIDTH / 2..(column + 1) * WIDTH / 2;
            panel(
                canvas,
                (columns, top..top + ROW_HEIGHT),
                &frame,
                &lines(study, model, arm),
            )?;
        }
        Ok(())
    })
}

/// Prefixes at equal distances, from short to long; all that stands before the suffix is the longest.
fn prefixes(study: &Study) -> Vec<(f64, &str)> {
    let mut names: Vec<&str> = study.prefixes.iter().map(String::as_str).collect();
    names.sort_by_key(|name| name.parse::<u32>().unwrap_or(u32::MAX));
    (0..).map(f64::from).zip(names).collect()
}

fn lines(study: &Study, model: &str, arm: &str) -> Vec<Line> {
    let levels = study.levels.iter().enumerate();
    levels
        .map(|(index, (_, bucket))| Line {
            index,
            dots: prefixes(study)
                .into_iter()
                .filter_map(|(x, prefix)| {
                    let row =
                        study.estimate_behind(prefix, model, arm, bucket, &study.primary.to)?;
                    Some(Dot {
                        x,
                        y: row.rate,
                        interval: row.low.zip(row.high),
                        before: None,
                    })
                })
                .collect(),
        })
        .collect()
}
