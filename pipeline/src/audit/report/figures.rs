//! The figures of an audit and what the page says of them.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::{Color, PathElement};

use super::curves::{HEIGHT, Line, Panel, falling, pixels};
use super::{Cell, cells};
use crate::audit::findings::{Findings, Scored};
use crate::report::chart::{self, colour, marker, round_ticks};
use crate::report::format::{count, number, percent, plural};
use crate::report::interval::method;
use crate::report::page::{Block, Text};

/// A figure and what stands under it.
pub(super) struct Figure {
    pub file: &'static str,
    pub svg: String,
    title: &'static str,
    caption: String,
}

/// Draws all figures there are numbers for.
pub(super) fn draw(findings: &Findings) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if !findings.scored.is_empty() {
        figures.push(matched_prefix(findings)?);
        figures.push(log_probability(findings)?);
    }
    if findings.settings.prefix.len() > 1 && !findings.rates.is_empty() {
        figures.push(prompt_length(findings)?);
    }
    Ok(figures)
}

pub(super) fn push(findings: &Findings, figures: &[Figure], blocks: &mut Vec<Block>) {
    if figures.is_empty() {
        return;
    }
    blocks.push(Block::Section("figures", "How near the documents come"));
    for figure in figures {
        blocks.push(Block::Figure {
            file: figure.file,
            alternative: format!("{} ({})", figure.title, findings.model.name),
            caption: Text::new()
                .strong(format!("{}. ", figure.title))
                .plain(&*figure.caption),
        });
    }
}

/// Longest suffix and first prefix: what the scored documents stand for.
fn measured(findings: &Findings) -> (u32, String) {
    let settings = &findings.settings;
    let suffix = settings.suffix.iter().max().copied().unwrap_or(1);
    let prefix = settings.prefix.first().map_or_else(
        || "all".to_owned(),
        |prefix| match prefix.parse::<u64>() {
            Ok(length) => plural(length, "id"),
            Err(_) => prefix.clone(),
        },
    );
    (suffix as u32, prefix)
}

/// One falling curve for each set.
fn lines(findings: &Findings, range: &Range<f64>, value: impl Fn(&Scored) -> f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for (place, set) in ["documents", "control"].into_iter().enumerate() {
        let rows = findings.scored.iter().filter(|scored| scored.set == set);
        let values: Vec<f64> = rows.map(&value).collect();
        if !values.is_empty() {
            lines.push(Line {
                place,
                label: format!("{set} ({})", count(values.len() as u64)),
                points: falling(&values, range),
            });
        }
    }
    lines
}

fn draw_lines(panel: &Panel<'_, '_>, lines: &[Line]) -> Result<()> {
    for line in lines.iter().rev() {
        panel.path(line.place, &pixels(panel, &line.points))?;
    }
    panel.labels(lines)
}

/// Ticks with their numbers as names.
fn named(ticks: Vec<f64>) -> Vec<(f64, String)> {
    ticks.into_iter().map(|tick| (tick, number(tick))).collect()
}

fn matched_prefix(findings: &Findings) -> Result<Figure> {
    let title = "Matched prefix";
    let (suffix, prefix) = measured(findings);
    let range = 0.0..f64::from(suffix);
    let lines = lines(findings, &range, |scored| f64::from(scored.matched_prefix));
    let mut ticks = round_ticks(&range, 10.0);
    ticks.retain(|tick| tick.fract() == 0.0);
    if ticks.last() != Some(&range.end) {
        ticks.push(range.end);
    }
    let svg = chart::draw(HEIGHT, title, |canvas| {
        let titles = (
            "ids reproduced before the first difference",
            "share of documents",
        );
        let panel = Panel::new(canvas, range, &named(ticks), titles, 1.0, false)?;
        draw_lines(&panel, &lines)
    })?;
    Ok(Figure {
        file: "matched-prefix.svg",
        svg,
        title,
        caption: format!(
            "Share of documents of which at least so many ids are reproduced before the first that \
             differs; the right end is the rate of exact match of {suffix} ids (prefix {prefix}). A \
             higher line is more reproduction."
        ),
    })
}

fn log_probability(findings: &Findings) -> Result<Figure> {
    let title = "Probability of the true suffix";
    let (suffix, prefix) = measured(findings);
    let finite = findings.scored.iter().map(|scored| scored.log_probability);
    let lowest = finite.filter(|log| log.is_finite()).fold(-1.0, f64::min);
    let range = lowest * 1.02..0.0;
    let lines = lines(findings, &range, |scored| scored.log_probability);
    let nats = named(round_ticks(&range, 7.0));
    let ten = std::f64::consts::LN_10;
    let decades = round_ticks(&(range.start / ten..0.0), 7.0);
    let probabilities: Vec<(f64, String)> = decades
        .into_iter()
        .filter(|power| power.fract() == 0.0)
        .map(|power| (power * ten, power_of_ten(power)))
        .collect();
    let svg = chart::draw(HEIGHT, title, |canvas| {
        let titles = ("log p of the suffix (nats)", "share of documents");
        let panel = Panel::new(canvas, range, &nats, titles, 1.0, true)?;
        panel.second_axis(&probabilities, "p of the suffix")?;
        draw_lines(&panel, &lines)
    })?;
    Ok(Figure {
        file: "log-probability.svg",
        svg,
        title,
        caption: format!(
            "Share of documents whose last {suffix} ids have at least so high a probability p when sampled \
             at temperature 1 (prefix {prefix}); about 1/p samples are needed to see one. It also tells \
             documents apart that are not reproduced."
        ),
    })
}

/// `1e−20`; 1 for a power of 0.
fn power_of_ten(power: f64) -> String {
    if power == 0.0 {
        "1".to_owned()
    } else {
        format!("1e{}", number(power))
    }
}

/// A rate with its interval at one prefix.
struct Point {
    x: f64,
    rate: f64,
    low: f64,
    high: f64,
}

/// Places of the prefixes: lengths on a log scale, then `all` at the right end.
fn places(prefixes: &[String]) -> Vec<(&str, f64)> {
    let log = |prefix: &str| {
        prefix
            .parse::<f64>()
            .ok()
            .map(|length| length.max(1.0).ln())
    };
    let mut places: Vec<(&str, f64)> = prefixes
        .iter()
        .filter_map(|prefix| Some((prefix.as_str(), log(prefix)?)))
        .collect();
    places.sort_by(|a, b| a.1.total_cmp(&b.1));
    let first = places.first().map_or(0.0, |place| place.1);
    let last = places.last().map_or(0.0, |place| place.1);
    let apart = (0.3 * (last - first)).max(0.5);
    let others = prefixes.iter().filter(|prefix| log(prefix).is_none());
    for (index, prefix) in others.enumerate() {
        places.push((prefix, last + apart * (index + 1) as f64));
    }
    places
}

/// The sets and models of the curve, with their labels.
const CURVES: [(&str, &str, &str); 3] = [
    ("documents", "model", "documents"),
    ("control", "model", "control"),
    ("documents", "baseline", "baseline"),
];

fn prompt_length(findings: &Findings) -> Result<Figure> {
    let title = "Exact match by prefix length";
    let places = places(&findings.settings.prefix);
    let cells = cells(findings);
    let suffix = cells[0].main().suffix;
    let point = |cell: &Cell<'_>| {
        let row = cell.main();
        let place = places.iter().find(|(name, _)| *name == row.prefix)?;
        Some(Point {
            x: place.1,
            rate: row.rate,
            low: row.low,
            high: row.high,
        })
    };
    let mut curves: Vec<(usize, &str, Vec<Point>)> = Vec::new();
    for (place, (set, model, label)) in CURVES.into_iter().enumerate() {
        let own = cells
            .iter()
            .filter(|cell| cell.is(set, model) && cell.main().suffix == suffix);
        let mut points: Vec<Point> = own.filter_map(&point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !points.is_empty() {
            curves.push((place, label, points));
        }
    }
    let ends = curves.iter().flat_map(|(_, _, points)| points);
    let highest = ends.map(|point| point.high).fold(0.01, f64::max);
    let (first, last) = (places[0].1, places[places.len() - 1].1);
    let margin = (0.06 * (last - first)).max(0.05);
    let range = first - margin..last + margin;
    let ticks: Vec<(f64, String)> = places
        .iter()
        .map(|(name, place)| (*place, (*name).to_owned()))
        .collect();
    let lengths = places
        .iter()
        .filter(|(name, _)| name.parse::<f64>().is_ok());
    let lengths = lengths.map(|(_, place)| *place).fold(f64::MIN, f64::max);
    let svg = chart::draw(HEIGHT, title, |canvas| {
        let titles = ("ids before the suffix (log scale)", "exact match");
        let panel = Panel::new(canvas, range, &ticks, titles, highest.min(1.0), false)?;
        for (index, (place, _, points)) in curves.iter().enumerate() {
            let aside = 14 * index as i32 - 7 * (curves.len() as i32 - 1);
            draw_points(&panel, (*place, aside), points, lengths)?;
        }
        let lines: Vec<Line> = curves
            .iter()
            .map(|(place, label, points)| Line {
                place: *place,
                label: (*label).to_owned(),
                points: points.iter().map(|point| (point.x, point.rate)).collect(),
            })
            .collect();
        panel.labels(&lines)
    })?;
    Ok(Figure {
        file: "prompt-length.svg",
        svg,
        title,
        caption: format!(
            "Rate of exact match of the last {suffix} ids after prefixes of different length; “all” is \
             everything before them. Bars are intervals at level {} ({}).",
            percent(findings.settings.level),
            method(&cells[0].main().method)
        ),
    })
}

/// Points with their bars, `aside` pixels from their place; a line joins those of a stated length.
fn draw_points(
    panel: &Panel<'_, '_>,
    (place, aside): (usize, i32),
    points: &[Point],
    lengths: f64,
) -> Result<()> {
    let pixel = |x: f64, y: f64| {
        let (column, row) = panel.pixel((x, y));
        (column + aside, row)
    };
    let joined = points.iter().filter(|point| point.x <= lengths);
    let line: Vec<(i32, i32)> = joined.map(|point| pixel(point.x, point.rate)).collect();
    panel.path(place, &line)?;
    for point in points {
        let (column, top) = pixel(point.x, point.high);
        let (_, bottom) = pixel(point.x, point.low);
        let style = colour(place).stroke_width(2);
        for bar in [
            vec![(column, bottom), (column, top)],
            vec![(column - 6, bottom), (column + 6, bottom)],
            vec![(column - 6, top), (column + 6, top)],
        ] {
            panel.canvas.draw(&PathElement::new(bar, style))?;
        }
        marker(panel.canvas, place, pixel(point.x, point.rate), 6, false)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn lengths_rise_and_all_stands_at_the_right_end() {
        let prefixes = ["all", "200", "50", "100"].map(str::to_owned);
        let names: Vec<&str> = places(&prefixes).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["50", "100", "200", "all"]);
        let places = places(&prefixes);
        assert!(places.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }
}
