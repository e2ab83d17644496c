//! What every figure is drawn with: canvas, axes, marks, colours.
//!
//! Colours are the Okabe-Ito set, which colour-blind readers can tell apart.

use std::ops::Range;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::{
    Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, PathElement, Polygon, RGBAColor,
    RGBColor, SVGBackend, ShapeStyle, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What is drawn on.
pub(crate) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "Helvetica, Arial, 'DejaVu Sans', sans-serif";
/// Sizes are in SVG units of a figure 960 wide, printed about 17 cm wide.
pub(crate) const WIDTH: i32 = 960;
pub(crate) const LABEL_SIZE: i32 = 19;
pub(crate) const TITLE_SIZE: i32 = 21;
pub(crate) const TICK_SIZE: i32 = 17;

const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Colour of the arm or set of that place.
pub(crate) fn colour(arm: usize) -> RGBColor {
    COLOURS[arm % COLOURS.len()]
}

/// An axis over a range of numbers with its ticks stated.
pub(crate) struct Axis {
    pub range: Range<f64>,
    pub ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.start) / (self.range.end - self.range.start);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Ticks at multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
pub(crate) fn round_ticks(range: &Range<f64>, wanted: f64) -> Vec<f64> {
    let raw = (range.end - range.start) / wanted;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= raw)
        .unwrap_or(power * 10.0);
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Style of a text that stands at a point: left of it, right of it or around it.
pub(crate) fn text_style(size: i32, colour: RGBColor, horizontal: HPos) -> TextStyle<'static> {
    TextStyle {
        color: colour.to_backend_color(),
        ..TextStyle::from((FONT, size).into_font())
    }
    .pos(Pos::new(horizontal, VPos::Center))
}

/// Draws into a new SVG of the given height; `title` is for readers who can't see it.
pub(crate) fn draw(
    height: i32,
    title: &str,
    paint: impl FnOnce(&Canvas<'_>) -> Result<()>,
) -> Result<String> {
    let mut svg = String::new();
    {
        let canvas =
            SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        canvas.fill(&WHITE)?;
        paint(&canvas)?;
        canvas.present()?;
    }
    let named = format!("<svg role=\"img\" aria-label=\"{title}\" ");
    Ok(svg.replacen("<svg ", &named, 1))
}

/// A marker of the arm at a pixel; open ones stand for the baseline.
pub(crate) fn marker(
    canvas: &Canvas<'_>,
    arm: usize,
    (x, y): (i32, i32),
    size: i32,
    open: bool,
) -> Result<()> {
    let edge: RGBAColor = colour(arm).mix(if open { 0.55 } else { 1.0 });
    let line = edge.stroke_width(2);
    let solid: ShapeStyle = if open { WHITE.filled() } else { edge.filled() };
    let corners: Vec<(i32, i32)> = match arm % 5 {
        0 => {
            canvas.draw(&Circle::new((x, y), size, solid))?;
            if open {
                canvas.draw(&Circle::new((x, y), size, line))?;
            }
            return Ok(());
        }
        1 => vec![(-size, -size), (size, -size), (size, size), (-size, size)],
        2 => vec![(0, -size - 1), (size + 1, size), (-size - 1, size)],
        3 => vec![(0, -size - 2), (size + 2, 0), (0, size + 2), (-size - 2, 0)],
        _ => vec![(-size - 1, -size), (size + 1, -size), (0, size + 1)],
    };
    let mut points: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    canvas.draw(&Polygon::new(points.clone(), solid))?;
    if open {
        points.push(points[0]);
        canvas.draw(&PathElement::new(points, line))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::round_ticks;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            round_ticks(&(0.0..410.0), 8.0),
            [0.0, 100.0, 200.0, 300.0, 400.0]
        );
        assert_eq!(round_ticks(&(0.0..7.9), 6.0), [0.0, 2.0, 4.0, 6.0]);
    }
}
