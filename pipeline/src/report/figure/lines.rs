//! A panel of lines with intervals over a few places of a numeric axis.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::{BLACK, ChartBuilder, Color, PathElement, Rectangle, Text, WHITE};
use plotters::style::text_anchor::HPos;

use crate::report::chart::{
    Axis, Canvas, LABEL_SIZE, TICK_SIZE, TITLE_SIZE, colour, marker, text_style,
};
use crate::report::format::number;

/// Distance of neighbouring lines at the same place, in pixels.
const APART: i32 = 9;
/// Pixels of one character of a tick's label.
const CHARACTER: f64 = 9.2;

/// One point of a line, in the units of the axes.
pub(super) struct Dot {
    pub x: f64,
    pub y: f64,
    pub interval: Option<(f64, f64)>,
    /// The same before training.
    pub before: Option<f64>,
}

/// A line with its place in the legend.
pub(super) struct Line {
    pub index: usize,
    pub dots: Vec<Dot>,
}

/// The axes, and what stands in the panel besides its lines.
#[derive(Default)]
pub(super) struct Frame {
    pub title: String,
    /// Ticks of the horizontal axis with their labels, rising.
    pub x_ticks: Vec<(f64, String)>,
    pub x_name: String,
    pub y: Range<f64>,
    pub y_ticks: Vec<f64>,
    pub y_name: String,
    /// A dashed horizontal line.
    pub level: Option<f64>,
    /// A shaded span of the horizontal axis.
    pub span: Option<(f64, f64)>,
    /// Dots stand at their exact places, not beside each other.
    pub exact_places: bool,
}

/// Draws a panel into `columns` x `rows` of the canvas.
pub(super) fn panel(
    canvas: &Canvas<'_>,
    (columns, rows): (Range<i32>, Range<i32>),
    frame: &Frame,
    lines: &[Line],
) -> Result<()> {
    let area = canvas.clone().shrink(
        (columns.start, rows.start),
        (columns.len() as u32, rows.len() as u32),
    );
    let ends = (frame.x_ticks.first(), frame.x_ticks.last());
    let (first, last) = match ends {
        (Some((first, _)), Some((last, _))) if last > first => (*first, *last),
        (Some((only, _)), _) => (only - 0.5, only + 0.5),
        _ => (0.0, 1.0),
    };
    let margin = 0.08 * (last - first);
    let x = Axis {
        range: first - margin..last + margin,
        ticks: frame.x_ticks.iter().map(|(at, _)| *at).collect(),
    };
    let y = Axis {
        range: frame.y.clone(),
        ticks: frame.y_ticks.clone(),
    };
    let mut chart = ChartBuilder::on(&area)
        .margin_top(40)
        .margin_right(14)
        .margin_bottom(6)
        .margin_left(8)
        .x_label_area_size(58)
        .y_label_area_size(66)
        .build_cartesian_2d(x, y)?;
    let width = f64::from(chart.plotting_area().dim_in_pixel().0 as i32);
    let shown = roomy(&frame.x_ticks, width / (last - first + 2.0 * margin));
    let name = |position: &f64| {
        let shown = shown
            .iter()
            .copied()
            .find(|(at, _)| (at - position).abs() < 1e-9);
        shown.map_or_else(String::new, |(_, name)| name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.8).stroke_width(1))
        .x_label_formatter(&name)
        .y_label_formatter(&|value| number(*value))
        .label_style(text_style(TICK_SIZE, BLACK, HPos::Center))
        .axis_desc_style(text_style(TITLE_SIZE, BLACK, HPos::Center))
        .y_desc(frame.y_name.as_str())
        .draw()?;
    canvas.draw(&Text::new(
        frame.title.clone(),
        (columns.start + 78, rows.start + 22),
        text_style(TITLE_SIZE, BLACK, HPos::Left),
    ))?;
    let middle = columns.start + 74 + (columns.len() as i32 - 88) / 2;
    canvas.draw(&Text::new(
        frame.x_name.clone(),
        (middle, rows.end - 18),
        text_style(LABEL_SIZE, BLACK, HPos::Center),
    ))?;

    let pixel = |x: f64, y: f64| chart.backend_coord(&(x, y));
    if let Some((low, high)) = frame.span {
        let corners = [pixel(low, frame.y.end), pixel(high, frame.y.start)];
        canvas.draw(&Rectangle::new(corners, BLACK.mix(0.08).filled()))?;
    }
    if let Some(level) = frame.level {
        let (left, y) = pixel(first - margin, level);
        let (right, _) = pixel(last + margin, level);
        for start in (left..right).step_by(12) {
            let dash = vec![(start, y), ((start + 6).min(right), y)];
            canvas.draw(&PathElement::new(dash, BLACK.mix(0.6).stroke_width(1)))?;
        }
    }
    for (order, line) in lines.iter().enumerate() {
        let aside = if frame.exact_places {
            0
        } else {
            APART * (2 * order as i32 - lines.len() as i32 + 1) / 2
        };
        let place = |x: f64, y: f64| {
            let (x, y) = pixel(x, y);
            (x + aside, y)
        };
        draw_line(canvas, line, place)?;
    }
    Ok(())
}

fn draw_line(
    canvas: &Canvas<'_>,
    line: &Line,
    place: impl Fn(f64, f64) -> (i32, i32),
) -> Result<()> {
    let path = line.dots.iter().map(|dot| place(dot.x, dot.y)).collect();
    let faint = colour(line.index).mix(0.45).stroke_width(2);
    canvas.draw(&PathElement::<(i32, i32)>::new::<Vec<_>, _>(path, faint))?;
    for dot in &line.dots {
        if let Some(before) = dot.before {
            marker(canvas, line.index, place(dot.x, before), 7, true)?;
        }
        if let Some((low, high)) = dot.interval {
            let (x, bottom) = place(dot.x, low);
            let (_, top) = place(dot.x, high);
            whisker(canvas, line.index, [(x, bottom), (x, top)])?;
        }
    }
    for dot in &line.dots {
        marker(canvas, line.index, place(dot.x, dot.y), 6, false)?;
    }
    Ok(())
}

/// An interval, upright or lying, with its ends.
pub(super) fn whisker(canvas: &Canvas<'_>, index: usize, ends: [(i32, i32); 2]) -> Result<()> {
    let style = colour(index).stroke_width(2);
    let upright = ends[0].0 == ends[1].0;
    canvas.draw(&PathElement::new(ends.to_vec(), style))?;
    for (x, y) in ends {
        let (dx, dy) = if upright { (5, 0) } else { (0, 5) };
        let cap = vec![(x - dx, y - dy), (x + dx, y + dy)];
        canvas.draw(&PathElement::new(cap, style))?;
    }
    Ok(())
}

/// The vertical axis that holds all points and intervals of some lines.
pub(super) fn extent<'a>(lines: impl Iterator<Item = &'a Line>) -> Range<f64> {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for dot in lines.flat_map(|line| &line.dots) {
        let (bottom, top) = dot.interval.unwrap_or((dot.y, dot.y));
        low = low.min(dot.y).min(bottom);
        high = high.max(dot.y).max(top);
    }
    if low > high {
        return 0.0..1.0;
    }
    let margin = 0.05 * (high - low).max(1e-3);
    low - margin..high + margin
}

/// Ticks whose labels have room beside each other: the ends always, the others from left to right.
fn roomy(ticks: &[(f64, String)], pixels: f64) -> Vec<&(f64, String)> {
    let half = |name: &str| name.chars().count() as f64 * CHARACTER / 2.0 + 4.0;
    let mut kept: Vec<&(f64, String)> = ticks.first().into_iter().collect();
    for tick in ticks.last().into_iter().chain(ticks) {
        let free = kept
            .iter()
            .all(|other| (other.0 - tick.0).abs() * pixels >= half(&other.1) + half(&tick.1));
        if free {
            kept.push(tick);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::roomy;

    #[test]
    fn labels_that_would_touch_give_way() {
        let ticks = [0.0, 0.1, 1.0].map(|at| (at, "20 M".to_owned()));
        let kept: Vec<f64> = roomy(&ticks, 300.0).iter().map(|tick| tick.0).collect();
        assert_eq!(kept, [0.0, 1.0]);
        assert_eq!(roomy(&ticks, 3000.0).len(), 3);
    }
}
