//! Layers of the model on one rank: each `forward` beside its `backward`, with every collective written out.
//!
//! A layer holds the places of its parameters in the model's list, and its axes; it holds no weights and no buffers.
//! Rows (tokens) are split over Z and Data before a layer sees them, so only X and Y (activations) appear here. Weights
//! come from the [`Pass`](crate::pass::Pass), which gathers them over Z, and gradients go back to it. The sum of
//! gradients over Data belongs to the engine.

mod attention;
mod block;
mod embedding;
mod head;
mod layout;
mod linear;
mod mlp;
mod norm;

pub(crate) use attention::{Attention, LayerCache};
pub(crate) use block::{Block, SavedBlock};
pub(crate) use embedding::Embedding;
pub(crate) use head::{Head, Targets};
pub(crate) use layout::{Layout, Span, Split};
pub(crate) use linear::Linear;
pub(crate) use mlp::Mlp;
pub(crate) use norm::RmsNorm;
