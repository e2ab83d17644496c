//! The Parquet tables of this crate, read and written by [`axmem_datasets::table`].
//!
//! | table | record | columns |
//! |---|---|---|
//! | `scores` | [`ScoreRow`] | model, arm: text; trial: u32; time: text; epochs: u32; document, cluster, prefix: text; then lists along suffix: u32; exact: bool; matched_prefix: u32; log_probability, p_z, log_probability_top_k, p_z_top_k, mean_rank, mean_entropy: f64; margin: f32; fragile: bool; token_accuracy: f64; lists along the ids of the longest suffix: target, predicted: u32; log_probabilities: f32; ranks: u32; entropies: f32; and, null where no text was generated, generated: list of u32; generated_matched: u32; generated_accuracy: f64; edit_distance, longest_run: u32; rouge_l, rouge_l_words: f64 |
//! | `estimates` | [`Estimate`] | a column for each field |
//! | `contrasts` | [`Contrast`] | a column for each field |
//! | `overlap` | [`Overlap`] | a column for each field |
//! | `transitions` | [`Transition`] | a column for each field |
//! | `thresholds` | [`Threshold`] | a column for each field |
//! | `hazards` | [`Hazard`] | a column for each field |
//! | `probes` | [`ProbeRow`] | a column for each field; lists along suffix |
//! | `curves` | [`Curve`] | a column for each field |

use axmem_datasets::record;
use axmem_datasets::table::{Array, Batch, Cell, Column, Record};

use crate::estimate::{
    Axis, Contrast, ContrastKind, Curve, Estimate, Hazard, Measure, Overlap, Place, ProbeRow,
    State, Threshold, Transition,
};
use crate::{Score, ScoreRow, Time};

/// Values that are stored by their names.
macro_rules! word {
    ($word:ty) => {
        impl Cell for $word {
            const NULLABLE: bool = false;

            fn data_type() -> arrow::datatypes::DataType {
                String::data_type()
            }

            fn array(cells: &[&Self]) -> Array {
                let words: Vec<String> = cells.iter().map(ToString::to_string).collect();
                String::array(&words.iter().collect::<Vec<_>>())
            }

            fn read(column: &dyn arrow::array::Array, row: usize) -> Result<Self, String> {
                let word = String::read(column, row)?;
                word.parse().map_err(|error| format!("row {row}: {error}"))
            }
        }
    };
}

word!(Time);
word!(ContrastKind);
word!(Measure);
word!(State);
word!(Place);
word!(Axis);

record!(Score as "scores" {
    document: String, cluster: String, prefix: String, suffix: Vec<u32>, exact: Vec<bool>,
    matched_prefix: Vec<u32>, log_probability: Vec<f64>, p_z: Vec<f64>,
    log_probability_top_k: Vec<f64>, p_z_top_k: Vec<f64>, mean_rank: Vec<f64>,
    mean_entropy: Vec<f64>, margin: Vec<f32>, fragile: Vec<bool>, token_accuracy: Vec<f64>,
    target: Vec<u32>, predicted: Vec<u32>, log_probabilities: Vec<f32>, ranks: Vec<u32>,
    entropies: Vec<f32>, generated: Option<Vec<u32>>, generated_matched: Option<u32>,
    generated_accuracy: Option<f64>, edit_distance: Option<u32>, longest_run: Option<u32>,
    rouge_l: Option<f64>, rouge_l_words: Option<f64>,
});
record!(Estimate as "estimates" {
    model: String, parameters: u64, family: String, tokenizer: String, arm: String, trial: String,
    bucket: String, exposures_nominal: u32, exposures_ledger: Option<f64>, time: Time, suffix: u32,
    prefix: String, documents: u64, clusters: u64, hits: u64, fragile: u64,
    hits_without_fragile: u64, hits_with_fragile: u64, token_accuracy: f64,
    mean_log_probability: f64, rate: f64, low: f64, high: f64, level: f64, method: String,
    dtype: String,
});
record!(Contrast as "contrasts" {
    model: String, arm: String, bucket: String, kind: ContrastKind, measure: Measure, suffix: u32, prefix: String,
    from: String, to: String, estimate: f64, low: f64, high: f64, level: f64, p: Option<f64>,
    p_adjusted: Option<f64>, family: String, method: String, detectable: Option<f64>,
    z: Option<f64>, clusters: u64,
});
record!(Overlap as "overlap" {
    model: String, arm: String, trial: String, bucket: String, suffix: u32, prefix: String,
    from: Time, to: Time, kept: u64, gained: u64, lost: u64, never: u64, jaccard: Option<f64>,
});
record!(Transition as "transitions" {
    model: String, arm: String, trial: String, bucket: String, document: String, suffix: u32,
    prefix: String, from: Time, to: Time, state: State,
});

record!(Threshold as "thresholds" {
    arm: String, suffix: u32, prefix: String, family: String, rate: f64, exposures: u32, rungs: Vec<u64>, documents: Vec<u64>,
    gained: Vec<u64>, control_documents: Vec<u64>, control_gained: Vec<u64>, place: Place,
    parameters: Option<f64>, rung_below: Option<u64>, rung_above: Option<u64>, low_place: Place, low: Option<f64>,
    high_place: Place, high: Option<f64>, level: f64, identified: f64, coefficients: Vec<f64>, centre: f64, clusters: u64,
});
record!(ProbeRow as "probes" {
    model: String, arm: String, trial: u32, step: u32, document: String, cluster: String, epochs: u32, prefix: String,
    suffix: Vec<u32>, exact: Vec<bool>, log_probability: Vec<f64>,
});
record!(Curve as "curves" {
    model: String, arm: String, bucket: String, prefix: String, suffix: u32, axis: Axis, at: u32, documents: u64, clusters: u64, rate: f64,
    low: f64, high: f64, log_probability: f64, log_probability_low: Option<f64>, log_probability_high: Option<f64>,
    level: f64,
});
record!(Hazard as "hazards" {
    model: String, arm: String, mask: String, bucket: String, time: Time, suffix: u32, prefix: String, dropped: u64,
    dropped_left: u64, kept: u64, kept_left: u64, dropped_hazard: Option<f64>, kept_hazard: Option<f64>,
    difference: Option<f64>, low: Option<f64>, high: Option<f64>, level: f64, clusters: u64,
});

/// The place of a score in the experiment, then the columns of the score itself.
impl Record for ScoreRow {
    const TABLE: &'static str = Score::TABLE;

    fn columns() -> Vec<Column> {
        let mut columns = vec![
            Column::of::<String>("model"),
            Column::of::<String>("arm"),
            Column::of::<u32>("trial"),
            Column::of::<Time>("time"),
            Column::of::<u32>("epochs"),
        ];
        columns.extend(Score::columns());
        columns
    }

    fn arrays(rows: &[&Self]) -> Vec<Array> {
        fn array<'a, C: Cell + 'a>(cells: impl Iterator<Item = &'a C>) -> Array {
            C::array(&cells.collect::<Vec<_>>())
        }
        let scores: Vec<&Score> = rows.iter().map(|row| &row.score).collect();
        let mut arrays = vec![
            array(rows.iter().map(|row| &row.model)),
            array(rows.iter().map(|row| &row.arm)),
            array(rows.iter().map(|row| &row.trial)),
            array(rows.iter().map(|row| &row.time)),
            array(rows.iter().map(|row| &row.epochs)),
        ];
        arrays.extend(Score::arrays(&scores));
        arrays
    }

    fn rows(batch: &Batch) -> axmem_datasets::Result<Vec<Self>> {
        let mut model = batch.cells::<String>("model")?;
        let mut arm = batch.cells::<String>("arm")?;
        let mut trial = batch.cells::<u32>("trial")?;
        let mut time = batch.cells::<Time>("time")?;
        let mut epochs = batch.cells::<u32>("epochs")?;
        let scores = Score::rows(batch)?.into_iter();
        Ok(scores
            .map_while(|score| {
                Some(Self {
                    model: model.next()?,
                    arm: arm.next()?,
                    trial: trial.next()?,
                    time: time.next()?,
                    epochs: epochs.next()?,
                    score,
                })
            })
            .collect())
    }
}
