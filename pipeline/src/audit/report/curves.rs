//! Panels of the audit's figures: axes, falling curves, labels beside their lines.

use std::ops::Range;

use anyhow::Result;
use plotters::element::DashedPathElement;
use plotters::prelude::{BLACK, ChartBuilder, Color, PathElement, Text, WHITE};
use plotters::style::text_anchor::HPos;

use crate::report::chart::{
    Axis, Canvas, LABEL_SIZE, TICK_SIZE, TITLE_SIZE, WIDTH, colour, round_ticks, text_style,
};
use crate::report::format::percent;

pub(super) const HEIGHT: i32 = 400;
/// Rows above a panel: without and with a second axis.
const ABOVE: i32 = 20;
const ABOVE_AXIS: i32 = 62;
const BELOW: i32 = 68;
const LEFT: i32 = 92;
/// Room for the labels beside the lines.
const RIGHT: i32 = 224;
/// Least distance of two labels.
const LABELS_APART: i32 = 24;
/// Least distance of two names along the horizontal axis, from middle to middle.
const NAMES_APART: i32 = 68;

/// One line of a figure with its label; the place decides on colour and dashes.
pub(super) struct Line {
    pub place: usize,
    pub label: String,
    /// Rising along the horizontal axis.
    pub points: Vec<(f64, f64)>,
}

/// A panel with its axes drawn; places in it are pixels.
pub(super) struct Panel<'a, 'b> {
    pub canvas: &'a Canvas<'b>,
    x: Range<f64>,
    y: Range<f64>,
    columns: Range<i32>,
    rows: Range<i32>,
}

impl<'a, 'b> Panel<'a, 'b> {
    /// Draws axes and grid: `x` holds the ticks with their names, of which those without room are
    /// left out; shares go up to `highest`.
    pub(super) fn new(
        canvas: &'a Canvas<'b>,
        x: Range<f64>,
        ticks: &[(f64, String)],
        titles: (&str, &str),
        highest: f64,
        second_axis: bool,
    ) -> Result<Self> {
        let above = if second_axis { ABOVE_AXIS } else { ABOVE };
        let y = 0.0..highest * 1.04;
        let panel = Panel {
            canvas,
            x: x.clone(),
            y: y.clone(),
            columns: LEFT..WIDTH - RIGHT,
            rows: above..HEIGHT - BELOW,
        };
        let y_ticks = round_ticks(&y, 6.0);
        let mut chart = ChartBuilder::on(canvas)
            .margin_top(above)
            .margin_right(RIGHT)
            .margin_left(8)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT - 8)
            .build_cartesian_2d(
                Axis {
                    range: x,
                    ticks: ticks.iter().map(|(tick, _)| *tick).collect(),
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
            .x_label_formatter(&|_| String::new())
            .y_label_formatter(&|share| percent(*share))
            .label_style(text_style(TICK_SIZE, BLACK, HPos::Center))
            .axis_desc_style(text_style(TITLE_SIZE, BLACK, HPos::Center))
            .y_desc(titles.1)
            .draw()?;
        panel.names(ticks, panel.rows.end + 20)?;
        let middle = i32::midpoint(panel.columns.start, panel.columns.end);
        panel.text(titles.0, (middle, HEIGHT - 20), TITLE_SIZE, HPos::Center)?;
        Ok(panel)
    }

    /// Pixel of a value.
    pub(super) fn pixel(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let along = |value: f64, range: &Range<f64>, pixels: &Range<i32>| {
            (value - range.start) / (range.end - range.start) * f64::from(pixels.end - pixels.start)
        };
        (
            self.columns.start + along(x, &self.x, &self.columns).round() as i32,
            self.rows.end - along(y, &self.y, &self.rows).round() as i32,
        )
    }

    fn text(&self, text: &str, place: (i32, i32), size: i32, anchor: HPos) -> Result<()> {
        let style = text_style(size, BLACK, anchor);
        self.canvas
            .draw(&Text::new(text.to_owned(), place, style))?;
        Ok(())
    }

    /// Names of ticks in a row, the last one first: it is the one that matters.
    fn names(&self, ticks: &[(f64, String)], row: i32) -> Result<()> {
        let mut taken: Option<i32> = None;
        for (tick, name) in ticks.iter().rev() {
            let column = self.pixel((*tick, 0.0)).0;
            if taken.is_none_or(|taken| taken - column >= NAMES_APART) {
                self.text(name, (column, row), TICK_SIZE, HPos::Center)?;
                taken = Some(column);
            }
        }
        Ok(())
    }

    /// An axis along the upper edge.
    pub(super) fn second_axis(&self, ticks: &[(f64, String)], title: &str) -> Result<()> {
        let top = self.rows.start;
        let line = BLACK.mix(0.8).stroke_width(1);
        let mut paths = vec![vec![(self.columns.start, top), (self.columns.end, top)]];
        for (tick, _) in ticks {
            let column = self.pixel((*tick, 0.0)).0;
            paths.push(vec![(column, top - 5), (column, top)]);
        }
        for path in paths {
            self.canvas.draw(&PathElement::new(path, line))?;
        }
        self.names(ticks, top - 18)?;
        self.text(
            title,
            (self.columns.end + 16, top - 18),
            LABEL_SIZE,
            HPos::Left,
        )
    }

    /// Draws a line through the values; that of the first place is solid, others are dashed.
    pub(super) fn path(&self, place: usize, points: &[(i32, i32)]) -> Result<()> {
        let style = colour(place).stroke_width(3);
        let points = points.to_vec();
        match place {
            0 => self.canvas.draw(&PathElement::new(points, style))?,
            1 => self
                .canvas
                .draw(&DashedPathElement::new(points, 9, 5, style))?,
            _ => self
                .canvas
                .draw(&DashedPathElement::new(points, 3, 4, style))?,
        }
        Ok(())
    }

    /// Names each line beside its right end, with a piece of it; labels keep apart.
    pub(super) fn labels(&self, lines: &[Line]) -> Result<()> {
        let mut wanted: Vec<(i32, &Line)> = lines
            .iter()
            .filter_map(|line| Some((self.pixel(*line.points.last()?).1, line)))
            .collect();
        wanted.sort_by_key(|(row, line)| (*row, line.place));
        let rows: Vec<i32> = wanted.iter().map(|(row, _)| *row).collect();
        for (row, (_, line)) in apart(&rows, self.rows.end).into_iter().zip(&wanted) {
            let start = self.columns.end + 12;
            self.path(line.place, &[(start, row), (start + 28, row)])?;
            self.canvas.draw(&Text::new(
                line.label.clone(),
                (start + 36, row),
                text_style(LABEL_SIZE, colour(line.place), HPos::Left),
            ))?;
        }
        Ok(())
    }
}

/// Rows of labels, rising, moved so that they keep apart and none lies below `bottom`.
fn apart(rows: &[i32], bottom: i32) -> Vec<i32> {
    let mut placed = rows.to_vec();
    for index in 1..placed.len() {
        placed[index] = placed[index].max(placed[index - 1] + LABELS_APART);
    }
    let mut limit = bottom;
    for row in placed.iter_mut().rev() {
        *row = (*row).min(limit);
        limit = *row - LABELS_APART;
    }
    placed
}

/// The share of `values` that are at least x, from `range.start` to `range.end`, as the corners of
/// its steps.
pub(super) fn falling(values: &[f64], range: &Range<f64>) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = values
        .iter()
        .map(|value| {
            if value.is_nan() {
                f64::NEG_INFINITY
            } else {
                *value
            }
        })
        .collect();
    sorted.sort_by(f64::total_cmp);
    let share = |rank: usize| (sorted.len() - rank) as f64 / sorted.len().max(1) as f64;
    let mut rank = sorted.partition_point(|value| *value < range.start);
    let mut points = vec![(range.start, share(rank))];
    while let Some(value) = sorted.get(rank).filter(|value| **value < range.end) {
        points.push((*value, share(rank)));
        rank += sorted[rank..].partition_point(|other| other <= value);
        points.push((*value, share(rank)));
    }
    points.push((range.end, share(rank)));
    points
}

/// Corners of a line in pixels; what falls into one column is drawn as one stroke.
pub(super) fn pixels(panel: &Panel<'_, '_>, points: &[(f64, f64)]) -> Vec<(i32, i32)> {
    let mut corners: Vec<(i32, i32)> = Vec::new();
    for point in points {
        let corner = panel.pixel(*point);
        if let [.., before, last] = corners.as_mut_slice()
            && before.0 == corner.0
            && last.0 == corner.0
        {
            *last = corner;
        } else if corners.last() != Some(&corner) {
            corners.push(corner);
        }
    }
    corners
}

#[cfg(test)]
mod tests {
    use super::{apart, falling};

    #[test]
    fn a_falling_curve_counts_what_is_at_least_so_much() {
        let points = falling(&[0.0, 2.0, 2.0, 4.0], &(0.0..4.0));
        let expected = [
            (0.0, 1.0),
            (0.0, 1.0),
            (0.0, 0.75),
            (2.0, 0.75),
            (2.0, 0.25),
            (4.0, 0.25),
        ];
        assert_eq!(points, expected);
        let points = falling(&[f64::NEG_INFINITY, -1.0], &(-2.0..0.0));
        assert_eq!(points, [(-2.0, 0.5), (-1.0, 0.5), (-1.0, 0.0), (0.0, 0.0)]);
    }

    #[test]
    fn labels_keep_apart_and_inside() {
        assert_eq!(apart(&[10, 100], 300), [10, 100]);
        assert_eq!(apart(&[100, 100], 300), [100, 124]);
        assert_eq!(apart(&[299, 299, 300], 300), [252, 276, 300]);
    }
}
