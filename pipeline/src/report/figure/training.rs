//! Loss by step, one curve per arm and trial.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::{
    BLACK, ChartBuilder, Color, PathElement, RGBColor, Rectangle, Text, WHITE,
};
use plotters::style::text_anchor::HPos;

use super::{LEGEND_HEIGHT, Marks, legend};
use crate::report::chart::{
    self, Axis, Canvas, LABEL_SIZE, TITLE_SIZE, WIDTH, colour, round_ticks, text_style,
};
use crate::report::format;
use crate::report::study::Study;

/// Steps of one curve, the training steps counted on from the warm-up.
struct Curve {
    arm: Option<usize>,
    points: Vec<(f64, f64)>,
}

/// Most points drawn of one curve; longer ones are thinned evenly.
const MOST_POINTS: usize = 3000;

/// Curves of one model, the shared warm-up first, and the step where it ends.
fn curves(study: &Study, model: &str) -> (Vec<Curve>, Option<f64>) {
    let rows = || study.steps.iter().filter(|row| row.model == model);
    let last_warmup = rows()
        .filter(|row| row.phase == "warmup")
        .map(|row| row.step)
        .max();
    let mut keys: Vec<(bool, &str, u32)> = Vec::new();
    for row in rows() {
        let key = (row.phase != "warmup", row.arm.as_str(), row.trial);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.sort_unstable();
    let mut curves = Vec::new();
    for (train, arm, trial) in keys {
        let mut points: Vec<(f64, f64)> = rows()
            .filter(|row| {
                (row.phase != "warmup", row.arm.as_str(), row.trial) == (train, arm, trial)
            })
            .filter(|row| row.loss.is_finite())
            .map(|row| (row.step as f64, row.loss))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stride = points.len().div_ceil(MOST_POINTS).max(1);
        curves.push(Curve {
            arm: train
                .then(|| study.arms.iter().position(|name| name == arm))
                .flatten(),
            points: points.into_iter().step_by(stride).collect(),
        });
    }
    (curves, last_warmup.map(|last| last as f64 + 0.5))
}

/// Loss by step, one curve per arm and trial, the warm-up drawn once.
pub(super) fn draw(study: &Study) -> Result<String> {
    const HEIGHT: i32 = 360;
    let height = LEGEND_HEIGHT + HEIGHT * study.models.len() as i32;
    chart::draw(height, "Training loss by step", |canvas| {
        legend(canvas, study.arms.iter().map(String::as_str), Marks::Lines)?;
        for (index, model) in study.models.iter().enumerate() {
            let top = LEGEND_HEIGHT + HEIGHT * index as i32;
            loss_panel(canvas, study, model, top..top + HEIGHT)?;
        }
        Ok(())
    })
}

fn loss_panel(canvas: &Canvas<'_>, study: &Study, model: &str, rows: Range<i32>) -> Result<()> {
    let (curves, warmup_end) = curves(study, model);
    let all = || curves.iter().flat_map(|curve| curve.points.iter());
    let steps = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(0.1, f64::max);
    let x = 0.0..steps * 1.01;
    let y = 0.0..highest * 1.05;
    let area = canvas
        .clone()
        .shrink((0, rows.start), (WIDTH as u32, rows.len() as u32));
    let (x_ticks, y_ticks) = (round_ticks(&x, 8.0), round_ticks(&y, 6.0));
    let mut chart = ChartBuilder::on(&area)
        .margin_top(30)
        .margin_right(20)
        .margin_bottom(6)
        .margin_left(8)
        .x_label_area_size(58)
        .y_label_area_size(62)
        .build_cartesian_2d(
            Axis {
                range: x,
                ticks: x_ticks,
            },
            Axis {
                range: y,
                ticks: y_ticks,
            },
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.8).stroke_width(1))
        .x_label_formatter(&|value| format!("{value}"))
        .y_label_formatter(&|value| format::number(*value))
        .label_style(text_style(LABEL_SIZE, BLACK, HPos::Center))
        .axis_desc_style(text_style(TITLE_SIZE, BLACK, HPos::Center))
        .x_desc("optimizer step")
        .y_desc("loss (nats per kept token)")
        .draw()?;
    let pixel = |point: &(f64, f64)| chart.backend_coord(point);
    if study.models.len() > 1 {
        canvas.draw(&Text::new(
            model.to_owned(),
            (78, rows.start + 14),
            text_style(TITLE_SIZE, BLACK, HPos::Left),
        ))?;
    }
    let grey = RGBColor(110, 110, 110);
    if let Some(end) = warmup_end.filter(|end| *end < steps) {
        let (x, top) = pixel(&(end, highest * 1.05));
        let (_, bottom) = pixel(&(end, 0.0));
        canvas.draw(&Rectangle::new(
            [(x, top), (x + 1, bottom)],
            grey.mix(0.5).filled(),
        ))?;
        canvas.draw(&Text::new(
            "end of warm-up".to_owned(),
            (x + 8, top + 12),
            text_style(LABEL_SIZE, grey, HPos::Left),
        ))?;
    }
    for curve in &curves {
        let style = curve.arm.map_or(grey.mix(0.9), |arm| colour(arm).mix(0.85));
        let line: Vec<(i32, i32)> = curve.points.iter().map(pixel).collect();
        canvas.draw(&PathElement::new(line, style.stroke_width(2)))?;
    }
    Ok(())
}
