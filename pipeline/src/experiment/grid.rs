//! `grid`: how the ranks are laid out and what they do behind each other's backs, as typed and as
//! resolved.
//!
//! None of this changes a result beyond rounding, so no stage's key has it unless the study is
//! `strict`. A grid that can't hold the model is refused here, before anything is started.

use std::fmt;

use axmem_trainer::{AttentionSplit, Axis, Error, Grid, Overlap, Recompute, Schedule, launch};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::limits::{self, within};
use super::resolve::{Refusal, Resolved, refuse};
use super::resolved::{Model, Weights};

/// `grid`: `auto`, or a layout.
#[derive(Debug, Default)]
pub enum GridFile {
    /// (1, 1, n, 1) with the n of the launcher, 1 without one.
    #[default]
    Auto,
    /// As set.
    Layout(LayoutFile),
}

/// A layout; every key has a default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LayoutFile {
    /// Splits out-features, heads and the vocabulary.
    pub x: usize,
    /// Splits in-features and the residual stream.
    pub y: usize,
    /// Splits rows of the batch and the flat weights.
    pub z: usize,
    /// Replicates the weights and splits rows of the batch.
    pub data: usize,
    /// Axes from innermost (neighbouring ranks) to outermost.
    pub order: Vec<Axis>,
    /// What runs behind computation.
    pub overlap: OverlapFile,
    /// What the ranks along Y do in the core of the attention.
    pub attention: AttentionSplit,
    /// Whether the optimizer's state and work are split over Data.
    pub shard_optimizer: bool,
    /// Seconds that a rank waits for the others before it names them.
    pub timeout: u64,
    /// Whether processes compare what they bring before every collective; threads always do.
    pub check: bool,
}

impl Default for LayoutFile {
    fn default() -> Self {
        let Grid {
            x,
            y,
            z,
            data,
            order,
        } = Grid::single();
        Self {
            x,
            y,
            z,
            data,
            order: order.to_vec(),
            overlap: OverlapFile::On,
            attention: AttentionSplit::default(),
            shard_optimizer: false,
            timeout: launch::TIMEOUT.as_secs(),
            check: false,
        }
    }
}

/// `grid.overlap`: all, nothing, or each by itself.
#[derive(Debug)]
pub enum OverlapFile {
    /// Every switch on.
    On,
    /// Every switch off.
    Off,
    /// As set.
    Each(Switches),
}

/// What runs behind computation, and how buffers are cut for it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the switches of the trainer, each by itself"
)]
pub struct Switches {
    /// The sum of an input's gradient, during the product for the weight's gradient.
    pub all_reduce: bool,
    /// The reduction of a weight's gradient over Z, during the backward of the next block.
    pub reduce_scatter: bool,
    /// How many weights are gathered over Z ahead of their use.
    #[serde(deserialize_with = "ahead")]
    pub all_gather: usize,
    /// The sum of a forward product, during the products that don't need it.
    pub forward: bool,
    /// Chunks that the rows of a forward product are cut into; a numerical setting.
    pub row_chunks: usize,
    /// The reduction of gradients over Data, during the backward of earlier layers.
    pub data: bool,
    /// Size of the buckets of that reduction in MiB.
    pub bucket_mb: usize,
}

impl Default for Switches {
    fn default() -> Self {
        let Overlap {
            all_reduce,
            reduce_scatter,
            all_gather,
            forward,
            row_chunks,
            data,
            bucket_bytes,
        } = Overlap::default();
        Self {
            all_reduce,
            reduce_scatter,
            all_gather,
            forward,
            row_chunks,
            data,
            bucket_mb: bucket_bytes >> 20,
        }
    }
}

impl<'de> Deserialize<'de> for GridFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = GridFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto` or a mapping with keys such as x, y, z, data")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<GridFile, E> {
                match text {
                    "auto" => Ok(GridFile::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<GridFile, A::Error> {
                let layout = LayoutFile::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(GridFile::Layout(layout))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

impl<'de> Deserialize<'de> for OverlapFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = OverlapFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a mapping with keys such as all_reduce")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<OverlapFile, E> {
                Ok(if on {
                    OverlapFile::On
                } else {
                    OverlapFile::Off
                })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<OverlapFile, A::Error> {
                let each = Switches::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(OverlapFile::Each(each))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

/// A number of weights; `true` is 1 and `false` is 0.
fn ahead<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct Ahead;
    impl Visitor<'_> for Ahead {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("true, false, or a whole number of weights")
        }

        fn visit_bool<E: de::Error>(self, on: bool) -> Result<usize, E> {
            Ok(usize::from(on))
        }

        fn visit_u64<E: de::Error>(self, weights: u64) -> Result<usize, E> {
            Ok(usize::try_from(weights).unwrap_or(usize::MAX))
        }
    }
    deserializer.deserialize_any(Ahead)
}

/// The layout of the ranks with nothing left open, but for `auto` before the launcher is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Whether the launcher decides on the size of Z.
    pub auto: bool,
    /// Sizes and order of the axes.
    #[serde(flatten)]
    pub grid: Grid,
    /// What the ranks along Y do in the core of the attention.
    pub attention: AttentionSplit,
    /// What runs behind computation.
    pub overlap: Overlap,
    /// Whether the optimizer is split over Data.
    pub shard_optimizer: bool,
    /// Seconds that a rank waits for the others before it names them.
    pub timeout: u64,
    /// Whether processes compare what they bring before every collective; threads always do.
    pub check: bool,
}

impl Layout {
    /// A grid with all else at its default; with `auto` the launcher decides on its size.
    pub fn of_grid(grid: Grid, auto: bool) -> Self {
        let LayoutFile {
            attention,
            shard_optimizer,
            timeout,
            check,
            ..
        } = LayoutFile::default();
        Self {
            auto,
            grid,
            attention,
            overlap: Overlap::default(),
            shard_optimizer,
            timeout,
            check,
        }
    }

    /// Gives all `processes` of the launcher to Z if the file leaves that open.
    pub fn fill(&mut self, processes: usize) {
        if self.auto {
            self.grid.z = processes;
        }
    }

    /// How a step runs on the grid.
    pub fn schedule(&self, recompute: Recompute) -> Schedule {
        Schedule {
            recompute,
            attention: self.attention,
            overlap: self.overlap,
            shard_optimizer: self.shard_optimizer,
        }
    }

    /// What may change the last digits of a result.
    pub fn hashed(&self) -> Value {
        json!({
            "grid": self.grid, "attention": self.attention, "overlap": self.overlap,
            "shard_optimizer": self.shard_optimizer,
        })
    }
}

/// The layout as the trainer takes it, if it can hold the models that have none of their own.
pub(super) fn resolve(file: GridFile, models: &[Model]) -> Resolved<Layout> {
    let (auto, file) = match file {
        GridFile::Auto => (true, LayoutFile::default()),
        GridFile::Layout(file) => (false, file),
    };
    for (axis, size) in [
        ("x", file.x),
        ("y", file.y),
        ("z", file.z),
        ("data", file.data),
    ] {
        within(&format!("grid.{axis}"), size, &limits::AXIS)?;
    }
    let Ok(order) = <[Axis; 4]>::try_from(file.order) else {
        return refuse(
            "grid.order",
            "must name each of x, y, z and data once, neighbouring ranks first",
        );
    };
    let grid = Grid {
        order,
        ..Grid::new(file.x, file.y, file.z, file.data)
    };
    within("grid", grid.ranks(), &limits::RANKS)?;
    grid.validate().map_err(refusal)?;
    for model in models.iter().filter(|model| model.grid.is_none()) {
        if let Weights::Random(shape) = &model.weights {
            // No grid is refused for the vocabulary, which may not be known yet.
            shape
                .config(shape.vocab.unwrap_or(1))
                .check_grid(&grid)
                .map_err(refusal)?;
        }
    }
    within("grid.timeout", file.timeout, &limits::TIMEOUT)?;
    Ok(Layout {
        auto,
        grid,
        attention: file.attention,
        overlap: overlap(file.overlap)?,
        shard_optimizer: file.shard_optimizer,
        timeout: file.timeout,
        check: file.check,
    })
}

fn overlap(file: OverlapFile) -> Resolved<Overlap> {
    let each = match file {
        OverlapFile::On => return Ok(Overlap::default()),
        OverlapFile::Off => return Ok(Overlap::default().off()),
        OverlapFile::Each(each) => each,
    };
    let field = |name: &str| format!("grid.overlap.{name}");
    within(&field("all_gather"), each.all_gather, &limits::AHEAD)?;
    within(&field("row_chunks"), each.row_chunks, &limits::CHUNKS)?;
    within(&field("bucket_mb"), each.bucket_mb, &limits::BUCKET)?;
    Ok(Overlap {
        all_reduce: each.all_reduce,
        reduce_scatter: each.reduce_scatter,
        all_gather: each.all_gather,
        forward: each.forward,
        row_chunks: each.row_chunks,
        data: each.data,
        bucket_bytes: each.bucket_mb << 20,
    })
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::Setting { field, message } => Refusal { field, message },
        other => Refusal {
            field: "grid".to_owned(),
            message: other.to_string(),
        },
    }
}
