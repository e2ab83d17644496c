//! `axmem-trainer`: weights and batches in, weights out, on any grid of ranks.
//!
//! The crate holds the model (a Llama with explicit backward), the Goldfish keep-mask, the optimizer, checkpoints
//! and the 4D engine. It knows nothing of text, documents, YAML, Parquet or the network.
//!
//! # Legend of shapes
//! B batch, T tokens, H hidden, F feed-forward, N heads, K key-value heads, D head size, V vocabulary;
//! x, y, z, d the sizes of the grid's axes (see [`grid`]); m the rows of one product, that is the tokens of the
//! sequences a rank holds. Matrices are row-major `f32`.
//!
//! # Order inside the crate (edges point down)
//! ```text
//! launch   certify
//! engine
//! published
//! llama    checkpoint  optim
//! layers   goldfish
//! pass     reduction
//! kernels  param  rank  batch  schedule
//! comm  pool  grid  config  random  files
//! error
//! ```

pub mod batch;
pub mod cache;
pub mod certify;
pub mod checkpoint;
pub mod comm;
pub mod config;
pub mod engine;
pub mod error;
mod files;
pub mod goldfish;
pub mod grid;
pub mod kernels;
pub mod launch;
mod layers;
pub mod llama;
pub mod memory;
pub mod metrics;
pub mod optim;
pub mod param;
mod pass;
pub mod pool;
pub mod products;
pub mod published;
pub mod random;
pub mod rank;
mod reduction;
mod safetensors;
pub mod schedule;

pub use batch::Row;
pub use cache::KvCache;
pub use config::{ModelConfig, RopeScaling};
pub use engine::{TrainConfig, Trainer};
pub use error::{Error, Kind, Result};
pub use goldfish::{Goldfish, Hash};
pub use grid::{Axis, Coord, Grid};
pub use llama::{Batch, Llama};
pub use metrics::{Exposed, StepRecord};
pub use optim::{AdamW, Decay, Optimizer, RateSchedule};
pub use param::{Param, Placement};
pub use pool::{Buffer, Pool};
pub use published::Published;
pub use rank::Rank;
pub use schedule::{AttentionSplit, Overlap, Recompute, Schedule};
