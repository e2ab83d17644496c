//! The figures, as SVG, from tables only.
//!
//! Here: memorisation by exposures of the ledger, rate with intervals beside the graded response. Each arm has its
//! own colour and marker. One row of panels per model.

mod dose;
mod forest;
mod lines;
mod overlap;
mod prompt;
mod scaling;
mod training;

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::{BLACK, ChartBuilder, Circle, Color, PathElement, Text, WHITE};
use plotters::style::text_anchor::HPos;

use super::chart::{
    Axis, Canvas, LABEL_SIZE, TICK_SIZE, TITLE_SIZE, WIDTH, colour, draw, marker, text_style,
};
use super::interval::method;
use super::study::Study;

const LEGEND_HEIGHT: i32 = 44;
const ROW_HEIGHT: i32 = 400;
/// Least distance of two points along the axis, in pixels; with dots of single trials beside them.
const APART: f64 = 15.0;
const APART_WITH_TRIALS: f64 = 22.0;

/// What stands in the panels besides lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks<'a> {
    /// Nothing.
    Lines,
    /// Markers.
    Markers,
    /// Markers, and open ones with this meaning.
    Before(&'a str),
}

/// Legend in a strip of its own above the panels, so that it never lies over data.
fn legend<'a>(
    canvas: &Canvas<'_>,
    names: impl Iterator<Item = &'a str>,
    marks: Marks<'_>,
) -> Result<()> {
    let mut x = 78;
    let y = LEGEND_HEIGHT / 2 + 2;
    let label = |x: i32, text: String| {
        canvas.draw(&Text::new(
            text,
            (x, y),
            text_style(LABEL_SIZE, BLACK, HPos::Left),
        ))
    };
    // Room for a word in the average sans-serif face.
    let advance = |text: &str| 40 + text.chars().count() as i32 * 9;
    let mut shown = 0;
    for (index, name) in names.enumerate() {
        shown = index as i32 + 1;
        let line = colour(index).stroke_width(2);
        canvas.draw(&PathElement::new(vec![(x - 12, y), (x + 12, y)], line))?;
        if marks != Marks::Lines {
            marker(canvas, index, (x, y), 6, false)?;
        }
        label(x + 20, name.to_owned())?;
        x += advance(name);
    }
    if let Marks::Before(text) = marks {
        for index in 0..shown.min(2) {
            marker(canvas, index as usize, (x + index * 18, y), 7, true)?;
        }
        label(x + 20 + (shown.min(2) - 1) * 18, text.to_owned())?;
    }
    Ok(())
}

/// One value at one level for one arm.
struct Point {
    /// Exposures by the ledger; the nominal ones where there is none.
    exposures: f64,
    arm: usize,
    value: f64,
    interval: Option<(f64, f64)>,
    baseline: Option<f64>,
    /// Values of single trials, where there are several.
    trials: Vec<f64>,
}

/// The horizontal axis of exposures: log(1 + e), so that the control at 0 has its place.
fn exposure_scale(exposures: f64) -> f64 {
    exposures.max(0.0).ln_1p()
}

/// Levels whose labels have room beside each other, of `width` pixels for `span` of the scale: the
/// control and the highest always, the others from left to right.
fn labelled(levels: &[u32], span: f64, width: f64) -> Vec<u32> {
    let place = |level: u32| exposure_scale(f64::from(level)) / span * width;
    let half = |level: u32| tick_name(level).chars().count() as f64 * 4.6 + 5.0;
    let free = |kept: &[u32], level: u32| {
        kept.iter()
            .all(|&other| (place(other) - place(level)).abs() >= half(other) + half(level))
    };
    let mut kept: Vec<u32> = levels.first().copied().into_iter().collect();
    for &level in levels.last().into_iter().chain(levels) {
        if free(&kept, level) {
            kept.push(level);
        }
    }
    kept
}

fn tick_name(level: u32) -> String {
    if level == 0 {
        "control".to_owned()
    } else {
        level.to_string()
    }
}

/// A bucket by its nominal presentations, such as `8 ×`.
fn bucket_name(level: u32) -> String {
    if level == 0 {
        tick_name(0)
    } else {
        format!("{level} ×")
    }
}

/// Places of points along the axis in pixels, each at least `apart` from the next and otherwise as
/// near to its true place as that allows (least squares, by pooling of neighbours that are too
/// near). Points of arms at the same place stand in the order of the arms.
fn set_apart(points: &[Point], apart: f64, place: impl Fn(f64) -> i32) -> Vec<i32> {
    let mut order: Vec<(i32, usize, usize)> = points
        .iter()
        .enumerate()
        .map(|(index, point)| (place(point.exposures), point.arm, index))
        .collect();
    order.sort_unstable();
    // Without the distances, what is left has to rise; a pool holds its sum and its size.
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (rank, (x, _, _)) in order.iter().enumerate() {
        let mut pool = (f64::from(*x) - rank as f64 * apart, 1);
        while let Some(last) = pools.last()
            && last.0 / last.1 as f64 > pool.0 / pool.1 as f64
        {
            pool = (pool.0 + last.0, pool.1 + last.1);
            pools.pop();
        }
        pools.push(pool);
    }
    let rising = pools
        .into_iter()
        .flat_map(|(sum, size)| std::iter::repeat_n(sum / size as f64, size));
    let mut places = vec![0; points.len()];
    for (rank, ((_, _, index), base)) in order.into_iter().zip(rising).enumerate() {
        places[index] = (base + rank as f64 * apart).round() as i32;
    }
    places
}

/// The panel of one response, 0 to 1, over exposures.
fn panel(
    canvas: &Canvas<'_>,
    study: &Study,
    place: (Range<i32>, Range<i32>),
    title: &str,
    response: &str,
    points: &[Point],
) -> Result<()> {
    let (columns, rows) = place;
    let area = canvas.clone().shrink(
        (columns.start, rows.start),
        (columns.len() as u32, rows.len() as u32),
    );
    let levels: Vec<u32> = study.levels.iter().map(|(level, _)| *level).collect();
    let highest = levels.iter().map(|level| f64::from(*level));
    let highest = highest.chain(points.iter().map(|point| point.exposures));
    let span = exposure_scale(highest.fold(1.0, f64::max));
    let x = Axis {
        range: -0.09 * span..1.07 * span,
        ticks: levels
            .iter()
            .map(|level| exposure_scale(f64::from(*level)))
            .collect(),
    };
    let y = Axis {
        range: -0.04..1.04,
        ticks: (0..=5).map(|tick| f64::from(tick) / 5.0).collect(),
    };
    let mut chart = ChartBuilder::on(&area)
        .margin_top(40)
        .margin_right(14)
        .margin_bottom(6)
        .margin_left(8)
        .x_label_area_size(78)
        .y_label_area_size(62)
        .build_cartesian_2d(x, y)?;
    let shown = labelled(
        &levels,
        1.16 * span,
        f64::from(chart.plotting_area().dim_in_pixel().0 as i32),
    );
    let name = |position: &f64| {
        shown
            .iter()
            .find(|level| (exposure_scale(f64::from(**level)) - position).abs() < 1e-9)
            .map_or_else(String::new, |level| tick_name(*level))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.12))
        .axis_style(BLACK.mix(0.8).stroke_width(1))
        .x_label_formatter(&name)
        .y_label_formatter(&|value| format!("{value:.1}"))
        .label_style(text_style(TICK_SIZE, BLACK, HPos::Center))
        .axis_desc_style(text_style(TITLE_SIZE, BLACK, HPos::Center))
        .y_desc(response)
        .draw()?;
    canvas.draw(&Text::new(
        title.to_owned(),
        (columns.start + 78, rows.start + 22),
        text_style(TITLE_SIZE, BLACK, HPos::Left),
    ))?;

    let middle = columns.start + 70 + (columns.len() as i32 - 84) / 2;
    let lines = [
        "exposures (presentations × share of",
        "suffix tokens in the loss), log scale",
    ];
    for (line, text) in lines.into_iter().enumerate() {
        canvas.draw(&Text::new(
            text.to_owned(),
            (middle, rows.end - 42 + 22 * line as i32),
            text_style(LABEL_SIZE, BLACK, HPos::Center),
        ))?;
    }

    let pixel = |exposures: f64, y: f64| chart.backend_coord(&(exposure_scale(exposures), y));
    let trials = points.iter().any(|point| !point.trials.is_empty());
    let room = f64::from(columns.len() as u32) / (points.len() + 1) as f64;
    let apart = if trials { APART_WITH_TRIALS } else { APART };
    let places = set_apart(points, apart.min(0.8 * room), |exposures| {
        pixel(exposures, 0.0).0
    });
    let height = |y: f64| pixel(0.0, y).1;
    marks(canvas, study.arms.len(), points, &places, height)
}

/// Lines, baselines, intervals and markers of a panel, one arm after the other; `height` is the
/// pixel of a response.
fn marks(
    canvas: &Canvas<'_>,
    arms: usize,
    points: &[Point],
    places: &[i32],
    height: impl Fn(f64) -> i32,
) -> Result<()> {
    for arm in 0..arms {
        let own = || {
            let placed = points.iter().zip(places.iter().copied());
            placed.filter(move |(point, _)| point.arm == arm)
        };
        let line: Vec<(i32, i32)> = own().map(|(point, x)| (x, height(point.value))).collect();
        let faint = colour(arm).mix(0.45).stroke_width(2);
        canvas.draw(&PathElement::new(line, faint))?;
        for (point, x) in own() {
            if let Some(baseline) = point.baseline {
                marker(canvas, arm, (x, height(baseline)), 7, true)?;
            }
        }
        for (point, x) in own() {
            if let Some((low, high)) = point.interval {
                let style = colour(arm).stroke_width(2);
                let (bottom, top) = (height(low), height(high));
                let bars = [
                    vec![(x, bottom), (x, top)],
                    vec![(x - 6, bottom), (x + 6, bottom)],
                    vec![(x - 6, top), (x + 6, top)],
                ];
                for bar in bars {
                    canvas.draw(&PathElement::new(bar, style))?;
                }
            }
            for value in &point.trials {
                let dot = colour(arm).mix(0.5).filled();
                canvas.draw(&Circle::new((x + 12, height(*value)), 3, dot))?;
            }
            marker(canvas, arm, (x, height(point.value)), 6, false)?;
        }
    }
    Ok(())
}

/// Points of one model; `value` picks the response out of an estimate.
fn points(
    study: &Study,
    model: &str,
    value: impl Fn(&super::tables::Estimate) -> Option<f64>,
    with_interval: bool,
) -> Vec<Point> {
    let trials = study.trials(model);
    let mut points = Vec::new();
    for (arm, name) in study.arms.iter().enumerate() {
        for (level, bucket) in &study.levels {
            let Some(row) = study.estimate(model, name, bucket, &study.primary.to) else {
                continue;
            };
            let Some(after) = value(row).filter(|value| value.is_finite()) else {
                continue;
            };
            let single = |trial: &String| {
                let cell = study.cell(model, name, trial, bucket, &study.primary.to);
                cell.first().and_then(|row| value(row))
            };
            points.push(Point {
                exposures: row.exposures_ledger.unwrap_or(f64::from(*level)),
                arm,
                value: after,
                interval: row.low.zip(row.high).filter(|_| with_interval),
                baseline: study
                    .estimate(model, name, bucket, &study.primary.from)
                    .and_then(&value),
                trials: if trials.len() > 1 {
                    trials.iter().filter_map(single).collect()
                } else {
                    Vec::new()
                },
            });
        }
    }
    points
}

/// Names of the interval methods drawn, for the caption.
pub(super) fn interval_methods(study: &Study) -> String {
    let mut names: Vec<&str> = Vec::new();
    for model in &study.models {
        for arm in &study.arms {
            for (_, bucket) in &study.levels {
                if let Some(row) = study.estimate(model, arm, bucket, &study.primary.to)
                    && row.low.is_some()
                    && !names.contains(&method(&row.method))
                {
                    names.push(method(&row.method));
                }
            }
        }
    }
    names.join("; ")
}

/// Exact match and token accuracy by exposures, arms side by side.
fn memorisation(study: &Study) -> Result<String> {
    let height = LEGEND_HEIGHT + ROW_HEIGHT * study.models.len() as i32;
    draw(height, "Memorisation by exposures", |canvas| {
        legend(
            canvas,
            study.arms.iter().map(String::as_str),
            Marks::Before(&format!("open: before ({})", study.primary.from)),
        )?;
        for (index, model) in study.models.iter().enumerate() {
            let top = LEGEND_HEIGHT + ROW_HEIGHT * index as i32;
            let rows = top..top + ROW_HEIGHT;
            let (left, right) = if study.models.len() > 1 {
                (
                    format!("{model}: exact match"),
                    format!("{model}: token accuracy"),
                )
            } else {
                (
                    "a   exact match".to_owned(),
                    "b   graded response".to_owned(),
                )
            };
            let rate = points(study, model, |row| Some(row.rate), true);
            let response = format!("exact match, last {} tokens", study.primary.suffix);
            panel(
                canvas,
                study,
                (0..WIDTH / 2, rows.clone()),
                &left,
                &response,
                &rate,
            )?;
            let graded = points(study, model, |row| row.token_accuracy, false);
            panel(
                canvas,
                study,
                (WIDTH / 2..WIDTH, rows),
                &right,
                "mean token accuracy",
                &graded,
            )?;
        }
        Ok(())
    })
}

/// File of the main figure.
pub(super) const MEMORISATION: &str = "memorisation.svg";
/// File of the training curves.
pub(super) const TRAINING: &str = "training.svg";
/// File of the scaling threshold.
pub(super) const SCALING: &str = "threshold.svg";
/// File of the arms beside their matched baselines.
pub(super) const GOLDFISH: &str = "goldfish.svg";
/// File of what was kept, gained, lost and never reproduced.
pub(super) const OVERLAP: &str = "overlap.svg";
/// File of memorisation by length of the prompt.
pub(super) const PROMPT: &str = "prompt-length.svg";

/// File of the curves over training.
pub(super) const DOSE: &str = "dose.svg";

/// All figures that a study has, by file name.
pub(super) fn all(study: &Study) -> Result<Vec<(&'static str, String)>> {
    let mut figures = vec![
        (MEMORISATION, memorisation(study)?),
        (TRAINING, training::draw(study)?),
        (OVERLAP, overlap::draw(study)?),
    ];
    if study.models.len() > 1 {
        figures.push((SCALING, scaling::draw(study)?));
    }
    if !study.goldfish.is_empty() {
        figures.push((GOLDFISH, forest::draw(study)?));
    }
    if !study.curves.is_empty() {
        figures.push((DOSE, dose::draw(study)?));
    }
    if study.prefixes.len() > 1 {
        figures.push((PROMPT, prompt::draw(study)?));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::{Point, labelled, set_apart};

    #[test]
    fn labels_of_near_levels_give_way_and_the_ends_stay() {
        let of = |levels: &[u32]| {
            let span = f64::from(levels[levels.len() - 1]).ln_1p() * 1.16;
            let mut kept = labelled(levels, span, 380.0);
            kept.sort_unstable();
            kept
        };
        for levels in [&[0, 1, 4, 6][..], &[0, 1, 2], &[0, 8, 32, 64]] {
            assert_eq!(of(levels), levels);
        }
        assert_eq!(of(&[0, 62, 63, 64]), [0, 64]);
    }

    #[test]
    fn points_are_set_apart_only_where_they_would_lie_on_each_other() {
        let point = |(arm, exposures)| Point {
            exposures,
            arm,
            value: 0.0,
            interval: None,
            baseline: None,
            trials: Vec::new(),
        };
        let place = |exposures: f64| exposures as i32 * 10;
        let points = [(0, 0.0), (0, 64.0), (1, 0.0), (1, 33.0)].map(point);
        assert_eq!(set_apart(&points, 16.0, place), [-8, 640, 8, 330]);
        // Three arms, of which one stands at the level below.
        let points = [(0, 4.0), (0, 6.0), (1, 4.0), (2, 2.0), (2, 3.0)].map(point);
        let places = set_apart(&points, 22.0, place);
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(
            sorted.windows(2).all(|pair| pair[1] - pair[0] >= 21),
            "{places:?}"
        );
        assert_eq!(places.iter().sum::<i32>(), 190);
    }
}
