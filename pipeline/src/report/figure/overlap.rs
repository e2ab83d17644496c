//! What happened to the documents: reproduced before and after, only after, only before, never.

use anyhow::Result;
use plotters::prelude::{BLACK, Color, RGBColor, Rectangle, Text, WHITE};
use plotters::style::text_anchor::HPos;

use super::{LEGEND_HEIGHT, bucket_name};
use crate::report::chart::{self, Canvas, LABEL_SIZE, TICK_SIZE, WIDTH, colour, text_style};
use crate::report::format::count;
use crate::report::study::Study;

const BAR: i32 = 26;
const LEFT: i32 = 300;
const RIGHT: i32 = WIDTH - 20;
const FOOT: i32 = 12;

/// Names of the parts, in the order of the bars.
const PARTS: [&str; 4] = ["kept", "gained", "lost", "never reproduced"];

pub(super) fn draw(study: &Study) -> Result<String> {
    let primary = &study.primary;
    let mut bars: Vec<(String, [u64; 4])> = Vec::new();
    for model in &study.models {
        for arm in &study.arms {
            for (level, bucket) in &study.levels {
                // The table has a row for each trial.
                let rows = study.overlap.iter().filter(|row| {
                    row.model == *model
                        && row.arm == *arm
                        && row.bucket == *bucket
                        && (row.suffix, &row.prefix) == (primary.suffix, &primary.prefix)
                        && (&row.from, &row.to) == (&primary.from, &primary.to)
                });
                let mut parts = [0; 4];
                for row in rows {
                    for (part, documents) in parts
                        .iter_mut()
                        .zip([row.kept, row.gained, row.lost, row.never])
                    {
                        *part += documents;
                    }
                }
                if parts == [0; 4] {
                    continue;
                }
                let bucket = bucket_name(*level);
                let name = if study.models.len() > 1 {
                    format!("{model}, {arm}, {bucket}")
                } else {
                    format!("{arm}, {bucket}")
                };
                bars.push((name, parts));
            }
        }
    }
    let height = LEGEND_HEIGHT + BAR * bars.len() as i32 + FOOT;
    chart::draw(
        height,
        "Documents kept, gained, lost and never reproduced",
        |canvas| {
            key(canvas)?;
            for (index, (name, parts)) in bars.iter().enumerate() {
                let top = LEGEND_HEIGHT + BAR * index as i32;
                canvas.draw(&Text::new(
                    name.clone(),
                    (LEFT - 12, top + BAR / 2),
                    text_style(TICK_SIZE, BLACK, HPos::Right),
                ))?;
                bar(canvas, top, parts)?;
            }
            Ok(())
        },
    )
}

/// Fill and text of a part.
fn colours(part: usize) -> (RGBColor, RGBColor) {
    match part {
        0 => (colour(0), WHITE),
        1 => (colour(1), WHITE),
        2 => (colour(5), BLACK),
        _ => (RGBColor(225, 225, 225), BLACK),
    }
}

fn key(canvas: &Canvas<'_>) -> Result<()> {
    let y = LEGEND_HEIGHT / 2 + 2;
    let mut x = 78;
    for (part, name) in PARTS.into_iter().enumerate() {
        let square = [(x - 12, y - 8), (x + 6, y + 8)];
        canvas.draw(&Rectangle::new(square, colours(part).0.filled()))?;
        let style = text_style(LABEL_SIZE, BLACK, HPos::Left);
        canvas.draw(&Text::new(name, (x + 16, y), style))?;
        x += 50 + name.chars().count() as i32 * 9;
    }
    Ok(())
}

fn bar(canvas: &Canvas<'_>, top: i32, parts: &[u64; 4]) -> Result<()> {
    let all: u64 = parts.iter().sum();
    let place = |documents: u64| {
        LEFT + (documents as f64 / all.max(1) as f64 * f64::from(RIGHT - LEFT)).round() as i32
    };
    let mut before = 0;
    for (part, &documents) in parts.iter().enumerate() {
        let (start, end) = (place(before), place(before + documents));
        before += documents;
        let (fill, ink) = colours(part);
        let corners = [(start, top + 3), (end, top + BAR - 3)];
        canvas.draw(&Rectangle::new(corners, fill.filled()))?;
        let label = count(documents);
        if documents > 0 && end - start > 12 * label.chars().count() as i32 {
            let style = text_style(TICK_SIZE, ink, HPos::Center);
            canvas.draw(&Text::new(
                label,
                (i32::midpoint(start, end), top + BAR / 2),
                style,
            ))?;
        }
    }
    Ok(())
}
