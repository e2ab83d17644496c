//! The schedule: in which batch after the warm-up each document is presented.
//!
//! Presentation j (from 0) of a document of level e has a position in [0, 1):
//!
//! - `spread`: (j + u) / e, one in each of e equal segments of the decay phase;
//! - `first`:  (j + u) / max(e), the first e of max(e) passes;
//! - `last`:   (max(e) - e + j + u) / max(e), the last e of them;
//!
//! u uniform in [0, 1) from (seed, trial, document, j). The document rows in the order of their
//! positions, each followed by `mix` background rows, are cut into batches; a last short batch
//! is kept. Where a document comes twice into one batch, it changes places with a row of the
//! nearest batch that allows it. Nothing depends on the arm, on the grid or on the order of the
//! input.

use std::ops::Range;

use crate::bucket::Assignment;
use crate::error::{Error, Result};
use crate::random;

/// Where in the decay phase the presentations of a document are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Over the whole phase.
    Spread,
    /// In its first passes.
    First,
    /// In its last passes.
    Last,
}

/// The shape of the decay phase.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// Rows of a batch.
    pub batch: usize,
    /// The training step of the first batch: one more than the steps of the warm-up.
    pub first_step: u32,
    /// Background rows that come with each document row.
    pub mix: u32,
    /// Where the presentations are.
    pub placement: Placement,
    /// Seed of the positions.
    pub seed: u64,
    /// Presentations of a document are its level times this, rounded: 1, or k/(k-1) to make up
    /// for the targets that Goldfish drops.
    pub presentations_factor: f64,
}

/// One row of one batch: a document or a background row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The trial.
    pub trial: u32,
    /// The training step, from 1, the warm-up included.
    pub step: u32,
    /// The row within the batch, from 0.
    pub row: u32,
    /// The document presented.
    pub document: Option<String>,
    /// Or the background row, numbered from 0 after those of the warm-up.
    pub background: Option<u32>,
    /// Which presentation of the document this is, from 1; 0 for background.
    pub presentation: u32,
}

/// The slots of one trial in the order of step and row; `assignments` of other trials are passed
/// over. `background_rows` is how many are left after the warm-up: none is used twice.
///
/// Fails if a document has more presentations than there are batches, or if the background does
/// not suffice.
pub fn schedule(
    assignments: &[Assignment],
    background_rows: usize,
    settings: &ScheduleSettings,
    trial: u32,
) -> Result<Vec<Slot>> {
    check(settings)?;
    let mut levels: Vec<(&str, u64)> = assignments
        .iter()
        .filter(|assignment| assignment.trial == trial)
        .map(|assignment| {
            let presentations = f64::from(assignment.epochs) * settings.presentations_factor;
            (assignment.document.as_str(), presentations.round() as u64)
        })
        .collect();
    levels.sort_unstable();
    if let Some(twice) = levels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::data(format!(
            "document {} is in two buckets of trial {trial}",
            twice[0].0
        )));
    }
    let stride = settings.mix as usize + 1;
    let treated = count_rows(&levels, settings)?;
    let background = treated * settings.mix as usize;
    if background > background_rows {
        return Err(Error::usage(format!(
            "train.mix {} needs {background} background rows after the warm-up, {} are there; \
             raise background.rows or lower train.mix",
            settings.mix, background_rows
        )));
    }

    let mut order = in_order_of_position(&levels, settings, trial);
    let batches = document_rows_of_batches(treated, stride, settings.batch);
    separate(&mut order, &batches, &levels)?;

    let mut presented = vec![0; levels.len()];
    let mut slots = Vec::with_capacity(treated * stride);
    for (number, &document) in order.iter().enumerate() {
        presented[document] += 1;
        for companion in 0..stride {
            let place = number * stride + companion;
            let is_document = companion == 0;
            slots.push(Slot {
                trial,
                step: settings.first_step + (place / settings.batch) as u32,
                row: (place % settings.batch) as u32,
                document: is_document.then(|| levels[document].0.to_owned()),
                background: companion
                    .checked_sub(1)
                    .map(|extra| (number * (stride - 1) + extra) as u32),
                presentation: if is_document { presented[document] } else { 0 },
            });
        }
    }
    Ok(slots)
}

fn check(settings: &ScheduleSettings) -> Result<()> {
    if settings.batch == 0 {
        return Err(Error::usage("train.batch must be at least 1"));
    }
    let factor = settings.presentations_factor;
    if !factor.is_finite() || factor < 1.0 {
        return Err(Error::usage(format!(
            "the factor of presentations is {factor}, it must be at least 1"
        )));
    }
    Ok(())
}

/// The document rows of the phase, if they can be numbered together with their background.
fn count_rows(levels: &[(&str, u64)], settings: &ScheduleSettings) -> Result<usize> {
    let sum = levels
        .iter()
        .try_fold(0_u64, |sum, level| sum.checked_add(level.1));
    sum.filter(|&sum| {
        sum.checked_mul(u64::from(settings.mix) + 1)
            .is_some_and(|rows| u32::try_from(rows).is_ok())
    })
    .map(|sum| sum as usize)
    .ok_or_else(|| {
        Error::usage(format!(
            "the schedule would have more than {} rows; lower buckets.epochs or train.mix",
            u32::MAX
        ))
    })
}

/// The document (as an index of `levels`) of each document row, by position.
fn in_order_of_position(
    levels: &[(&str, u64)],
    settings: &ScheduleSettings,
    trial: u32,
) -> Vec<usize> {
    let most = levels.iter().map(|level| level.1).max().unwrap_or(0);
    let mut positions = Vec::new();
    for (document, &(name, presentations)) in levels.iter().enumerate() {
        let (skipped, segments) = match settings.placement {
            Placement::Spread => (0, presentations),
            Placement::First => (0, most),
            Placement::Last => (most - presentations, most),
        };
        for presentation in 0..presentations {
            let within = random::uniform(
                settings.seed,
                "axmem schedule",
                &[
                    &trial.to_le_bytes(),
                    name.as_bytes(),
                    &presentation.to_le_bytes(),
                ],
            );
            let segment = (skipped + presentation) as f64;
            positions.push(((segment + within) / segments as f64, document));
        }
    }
    positions.sort_unstable_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    positions
        .into_iter()
        .map(|(_, document)| document)
        .collect()
}

/// The document rows of each batch that has any: row number k stands at place k × `stride`.
fn document_rows_of_batches(treated: usize, stride: usize, batch: usize) -> Vec<Range<usize>> {
    let steps = (treated * stride).div_ceil(batch);
    (0..steps)
        .map(|step| {
            let from = (step * batch).div_ceil(stride);
            let to = ((step + 1) * batch).div_ceil(stride);
            from..to.min(treated)
        })
        .filter(|rows| !rows.is_empty())
        .collect()
}

/// Changes `order` until no batch holds a document twice.
///
/// All batches but the last have equally many document rows, give or take one. Then, if no
/// document has more presentations than there are batches, and no more documents than the last
/// batch holds are due in every batch, an exchange that leaves fewer repeats always exists: of
/// two rows, or, when only the short last batch lacks the document, of three.
fn separate(order: &mut [usize], batches: &[Range<usize>], levels: &[(&str, u64)]) -> Result<()> {
    let count = batches.len() as u64;
    if let Some((name, presentations)) = levels.iter().find(|level| level.1 > count) {
        return Err(Error::usage(format!(
            "document {name} has {presentations} presentations, but only {count} batches hold \
             documents, and none may hold it twice; lower the highest of buckets.epochs, lower \
             train.batch or add documents"
        )));
    }
    for batch in 0..batches.len() {
        for place in batches[batch].clone() {
            // An exchange may bring in another repeat, for two that it takes from elsewhere.
            while order[batches[batch].start..place].contains(&order[place]) {
                if exchange_two(order, batches, batch, place)
                    || exchange_three(order, batches, batch, place)
                {
                    continue;
                }
                return Err(Error::usage(format!(
                    "document {} cannot be kept from coming twice into one batch: {} documents \
                     are due in each of the {count} batches, and the last batch holds {}; choose \
                     a train.batch that divides the rows of the schedule, or a smaller one",
                    levels[order[place]].0,
                    levels.iter().filter(|level| level.1 == count).count(),
                    batches.last().map_or(0, ExactSizeIterator::len)
                )));
            }
        }
    }
    Ok(())
}

/// Whether taking `document` into a batch of `home`, for one that leaves `rows`, makes up for
/// the repeat it may cause there: it is new there, or a repeat where it comes from.
fn helps(order: &[usize], home: &Range<usize>, rows: &Range<usize>, document: usize) -> bool {
    let repeats = |rows: &Range<usize>| {
        order[rows.clone()]
            .iter()
            .filter(|&&other| other == document)
            .count()
    };
    repeats(home) == 0 || repeats(rows) > 1
}

/// Exchanges the row at `place` of `batch` with one of the nearest batch without its document.
fn exchange_two(order: &mut [usize], batches: &[Range<usize>], batch: usize, place: usize) -> bool {
    let home = &batches[batch];
    for distance in 1..batches.len() {
        let near = [batch.checked_add(distance), batch.checked_sub(distance)];
        for rows in near
            .into_iter()
            .flatten()
            .filter_map(|other| batches.get(other))
        {
            if order[rows.clone()].contains(&order[place]) {
                continue;
            }
            let found = rows
                .clone()
                .find(|&other| helps(order, home, rows, order[other]));
            if let Some(other) = found {
                order.swap(place, other);
                return true;
            }
        }
    }
    false
}

/// Sends the row at `place` of `batch` to a batch without its document, a row from there to a
/// third batch, and a row from the third one back.
fn exchange_three(
    order: &mut [usize],
    batches: &[Range<usize>],
    batch: usize,
    place: usize,
) -> bool {
    let home = &batches[batch];
    let lacks = |order: &[usize], rows: &Range<usize>, document: usize| {
        !order[rows.clone()].contains(&document)
    };
    for second in batches
        .iter()
        .filter(|rows| lacks(order, rows, order[place]))
    {
        for moved in second.clone() {
            for third in batches
                .iter()
                .filter(|rows| lacks(order, rows, order[moved]))
            {
                let found = third
                    .clone()
                    .find(|&row| helps(order, home, third, order[row]));
                if let Some(row) = found {
                    let document = order[place];
                    order[place] = order[row];
                    order[row] = order[moved];
                    order[moved] = document;
                    return true;
                }
            }
        }
    }
    false
}
