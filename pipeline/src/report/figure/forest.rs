//! Every arm beside its own baseline: one row per model and bucket, rates from left to right.

use anyhow::Result;
use plotters::prelude::{BLACK, Color, PathElement, Text};
use plotters::style::text_anchor::HPos;

use super::lines::whisker;
use super::{LEGEND_HEIGHT, Marks, bucket_name, legend};
use crate::report::chart::{self, LABEL_SIZE, TICK_SIZE, WIDTH, marker, text_style};
use crate::report::study::Study;

/// Pixels of one arm in a row, and between rows.
const ARM_HEIGHT: i32 = 20;
const GAP: i32 = 14;
/// Where rates of 0 and 1 lie.
const LEFT: i32 = 270;
const RIGHT: i32 = WIDTH - 40;
const FOOT: i32 = 58;

pub(super) fn draw(study: &Study) -> Result<String> {
    let row_height = ARM_HEIGHT * study.arms.len() as i32 + GAP;
    let rows: Vec<(&str, u32, &str)> = study
        .models
        .iter()
        .flat_map(|model| {
            let levels = study.levels.iter();
            levels.map(move |(level, bucket)| (model.as_str(), *level, bucket.as_str()))
        })
        .collect();
    let bottom = LEGEND_HEIGHT + row_height * rows.len() as i32;
    let place = |rate: f64| LEFT + (rate * f64::from(RIGHT - LEFT)).round() as i32;
    chart::draw(bottom + FOOT, "Arms beside their baselines", |canvas| {
        let before = format!("open: before ({})", study.primary.from);
        legend(
            canvas,
            study.arms.iter().map(String::as_str),
            Marks::Before(&before),
        )?;
        for tick in 0..=5 {
            let x = place(f64::from(tick) / 5.0);
            let grid = vec![(x, LEGEND_HEIGHT), (x, bottom)];
            canvas.draw(&PathElement::new(grid, BLACK.mix(0.12).stroke_width(1)))?;
            let label = format!("{:.1}", f64::from(tick) / 5.0);
            let style = text_style(TICK_SIZE, BLACK, HPos::Center);
            canvas.draw(&Text::new(label, (x, bottom + 14), style))?;
        }
        canvas.draw(&Text::new(
            format!("exact match, last {} tokens", study.primary.suffix),
            (i32::midpoint(LEFT, RIGHT), bottom + 40),
            text_style(LABEL_SIZE, BLACK, HPos::Center),
        ))?;
        for (index, (model, level, bucket)) in rows.iter().enumerate() {
            let top = LEGEND_HEIGHT + row_height * index as i32;
            let bucket_name = bucket_name(*level);
            let name = if study.models.len() > 1 {
                format!("{model}: {bucket_name}")
            } else {
                bucket_name
            };
            canvas.draw(&Text::new(
                name,
                (LEFT - 22, top + row_height / 2),
                text_style(LABEL_SIZE, BLACK, HPos::Right),
            ))?;
            for (order, arm) in study.arms.iter().enumerate() {
                let y = top + GAP / 2 + ARM_HEIGHT * order as i32 + ARM_HEIGHT / 2;
                if let Some(row) = study.estimate(model, arm, bucket, &study.primary.from) {
                    marker(canvas, order, (place(row.rate), y), 7, true)?;
                }
                let Some(row) = study.estimate(model, arm, bucket, &study.primary.to) else {
                    continue;
                };
                if let Some((low, high)) = row.low.zip(row.high) {
                    whisker(canvas, order, [(place(low), y), (place(high), y)])?;
                }
                marker(canvas, order, (place(row.rate), y), 6, false)?;
            }
        }
        Ok(())
    })
}
