//! The Llama: which layers there are, under the published names, and the order in which they run.
//!
//! Nothing here computes or communicates; that is in [`kernels`](crate::kernels) and the layers.

mod builder;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use self::builder::Builder;
use crate::cache::KvCache;
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::kernels::narrow::{self, Narrow};
use crate::kernels::rotary::{self, RotaryTable};
use crate::layers::{
    Block, Embedding, Head, LayerCache, Layout, RmsNorm, SavedBlock, Span, Split, Targets,
};
use crate::param::Param;
use crate::pass::{ParamIndex, Pass};
use crate::pool::Buffer;
use crate::random::Stream;
use crate::rank::Rank;
use crate::reduction::Reduction;
use crate::schedule::{AttentionSplit, Recompute, Schedule};

/// Standard deviation of freshly drawn matrices, the published default of Llama.
const INITIAL_DEVIATION: f64 = 0.02;

/// Rows whose logits are held at one time, unless set otherwise.
pub(crate) const LOSS_CHUNK_ROWS: usize = 256;

/// Sequences of one micro-batch, back to back without padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids of all documents, `[m]`.
    pub ids: Vec<u32>,
    /// Length of each document, in order; attention and positions restart at each.
    pub segments: Vec<usize>,
    /// Whether the id at this place is a target that counts, `[m]`. It is predicted by the place before it, so the
    /// first id of a document never counts.
    pub keep: Vec<bool>,
}

/// A Llama-family model on one rank.
#[derive(Debug)]
pub struct Llama {
    config: ModelConfig,
    params: Vec<Param>,
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Head,
    /// Grows with the longest sequence seen.
    rotary: Mutex<Arc<RotaryTable>>,
    /// Made when one or two rows are decoded, and forgotten when weights may change.
    narrow: OnceLock<Vec<Option<Narrow>>>,
}

/// What a block left for its backward.
#[expect(
    clippy::large_enum_variant,
    reason = "one for each block, on a list that lives as long as the buffers"
)]
enum Saved {
    Everything(SavedBlock),
    Input(Buffer),
}

impl Llama {
    /// A model with random weights: matrices normal with deviation 0.02, gains 1, biases 0. The same on every grid.
    pub fn initialise(config: &ModelConfig, rank: &Rank, seed: u64) -> Result<Self> {
        Self::from_values(config, rank, |name, [_, columns]| {
            let stream = Stream::new(seed, name);
            let constant = match name.rsplit_once('.') {
                Some((_, "bias")) => Some(0.0),
                Some((layer, _)) if layer.ends_with("norm") => Some(1.0),
                _ => None,
            };
            Box::new(move |row, column| {
                constant.unwrap_or_else(|| {
                    (stream.normal((row * columns + column) as u64) * INITIAL_DEVIATION) as f32
                })
            })
        })
    }

    /// A model whose weights are all zero, to be loaded into.
    pub fn zeros(config: &ModelConfig, rank: &Rank) -> Result<Self> {
        Self::from_values(config, rank, |_, _| Box::new(|_, _| 0.0))
    }

    /// A model whose elements are given: `values(name, shape)` gives the function of (row, column) for one parameter.
    /// Vectors have shape `[1, n]`. Only the rank's own elements are asked for.
    pub fn from_values<'a>(
        config: &ModelConfig,
        rank: &Rank,
        values: impl Fn(&str, [usize; 2]) -> Box<dyn Fn(usize, usize) -> f32 + 'a>,
    ) -> Result<Self> {
        config.validate()?;
        config.check_grid(&rank.grid)?;
        let mut builder = Builder {
            config,
            rank,
            values,
            params: Vec::new(),
        };
        let embedding = builder.embedding();
        let blocks = (0..config.layers).map(|i| builder.block(i)).collect();
        let norm = builder.norm("model.norm");
        let weight = if config.tied {
            embedding.weight
        } else {
            builder.vocabulary("lm_head.weight")
        };
        Ok(Self {
            params: builder.params,
            embedding,
            blocks,
            norm,
            head: Head {
                weight,
                chunk: LOSS_CHUNK_ROWS,
            },
            rotary: Mutex::new(Arc::new(RotaryTable::new(0, &frequencies(config)))),
            narrow: OnceLock::new(),
            config: config.clone(),
        })
    }

    /// Sizes and constants.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// This rank's shards of all parameters, in the order of the forward pass; a tied head is not listed twice.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// As [`Llama::params`], for the optimizer and for loading.
    pub fn params_mut(&mut self) -> &mut [Param] {
        // They may change.
        self.narrow = OnceLock::new();
        &mut self.params
    }

    /// Sets the number of rows whose logits exist at one time in the loss; a numerical setting (sums change their order).
    #[must_use]
    pub fn with_loss_chunk_rows(mut self, rows: usize) -> Self {
        self.head.chunk = rows.max(1);
        self
    }

    /// Forgets the gradients of the last step: each is empty until a backward reaches its parameter.
    pub fn forget_gradients(&mut self) {
        for param in &mut self.params {
            param.gradient = param.weight.pool().take(0);
        }
    }

    /// Forward and backward of one micro-batch: adds the gradient of `inverse_count · Σ loss` to the parameters and
    /// gives this rank's `Σ loss` over its kept targets (not divided, not yet summed over Z and Data).
    ///
    /// All ranks call it together, also one whose batch has no rows or no kept target.
    pub fn loss_and_gradients(
        &mut self,
        rank: &Rank,
        batch: &Batch,
        inverse_count: f64,
        schedule: &Schedule,
    ) -> Result<f64> {
        self.accumulate(rank, batch, inverse_count, schedule, None)
    }

    /// As [`Llama::loss_and_gradients`]; in the last micro-batch of a step, gradients that are complete go to `reduction`.
    pub(crate) fn accumulate(
        &mut self,
        rank: &Rank,
        batch: &Batch,
        inverse_count: f64,
        schedule: &Schedule,
        reduction: Option<&mut Reduction>,
    ) -> Result<f64> {
        let targets = self.targets(batch)?;
        let layout = self.layout(rank, &batch.segments, schedule.attention);
        // The pass reads weights while it writes gradients.
        let mut shards: Vec<Buffer> = self
            .params
            .iter_mut()
            .map(|param| std::mem::replace(&mut param.gradient, rank.pool.take(0)))
            .collect();
        let order = self.training_order(schedule.recompute);
        let params = &self.params;
        let overlap = schedule.overlap;
        let pass = Pass::with_gradients(rank, params, overlap, order, &mut shards, reduction);
        let recompute = schedule.recompute;
        let loss = self.train(
            pass,
            &batch.ids,
            &layout,
            &targets,
            inverse_count,
            recompute,
        );
        for (param, shard) in self.params.iter_mut().zip(shards) {
            param.gradient = shard;
        }
        loss
    }

    fn train(
        &self,
        mut pass: Pass<'_>,
        ids: &[u32],
        layout: &Layout,
        targets: &Targets,
        inverse_count: f64,
        recompute: Recompute,
    ) -> Result<f64> {
        let pass = &mut pass;
        let mut stream = self.embedding.forward(pass, ids)?; // [m, H/y]
        let mut stack = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            let (out, saved) = block.forward(pass, stream, layout)?;
            stream = out;
            stack.push(match recompute {
                Recompute::None => Saved::Everything(saved.lightened()),
                Recompute::Block => Saved::Input(saved.into_input()),
            });
        }
        let (normed, inverse_rms) = self.norm.forward(pass, &stream)?;
        let (loss, dnormed) = self
            .head
            .loss_and_gradient(pass, &normed, targets, inverse_count)?;
        drop(normed);

        let mut gradient = pass.rank.pool.zeros(stream.len());
        let gain = self.norm.gain(pass)?;
        self.norm
            .backward(pass, gain, &stream, &inverse_rms, &dnormed, &mut gradient)?;
        drop((stream, inverse_rms, dnormed));
        pass.end_block()?;
        for block in self.blocks.iter().rev() {
            let saved = match stack.pop().expect("one entry for each block") {
                Saved::Everything(saved) => saved,
                Saved::Input(input) => {
                    pass.keep_weights();
                    block.recompute(pass, input, layout)?
                }
            };
            gradient = block.backward(pass, saved, gradient, layout)?;
            pass.end_block()?;
        }
        self.embedding.backward(pass, ids, &gradient)?;
        pass.end()?;
        Ok(loss)
    }

    /// How often the gradient of each parameter is added to in a backward: a tied head is the embedding once more.
    pub(crate) fn contributions(&self) -> Vec<usize> {
        let mut contributions = vec![1; self.params.len()];
        if self.head.weight == self.embedding.weight {
            contributions[self.head.weight] = 2;
        }
        contributions
    }

    /// Weights in the order in which a forward without the head asks for them.
    fn forward_order(&self) -> Vec<ParamIndex> {
        let mut order = vec![self.embedding.weight];
        order.extend(self.blocks.iter().flat_map(Block::order));
        order.push(self.norm.gain);
        order
    }

    /// Weights in the order in which a forward and a backward ask for them.
    fn training_order(&self, recompute: Recompute) -> Vec<ParamIndex> {
        let mut order = self.forward_order();
        order.push(self.head.weight);
        order.push(self.norm.gain);
        for block in self.blocks.iter().rev() {
            match recompute {
                Recompute::None => order.extend(block.backward_order()),
                Recompute::Block => {
                    order.extend(block.recompute_order());
                    order.push(block.only_in_backward());
                }
            }
        }
        order
    }

    /// This rank's `Σ loss` over the kept targets, without gradients.
    pub fn loss(&self, rank: &Rank, batch: &Batch) -> Result<f64> {
        let targets = self.targets(batch)?;
        let mut order = self.forward_order();
        order.push(self.head.weight);
        let mut pass = Pass::forward_only(rank, &self.params, order);
        let normed = self.normed(&mut pass, &batch.ids, &batch.segments)?;
        self.head.loss(&mut pass, &normed, &targets)
    }

    /// Normed hidden states `[Σ len, H/y]` of sequences that do not see each other; input of [`Llama::logits`].
    pub fn hidden(&self, rank: &Rank, sequences: &[&[u32]]) -> Result<Vec<f32>> {
        let ids = sequences.concat();
        let segments: Vec<usize> = sequences.iter().map(|ids| ids.len()).collect();
        self.check(&ids, &segments)?;
        let mut pass = Pass::forward_only(rank, &self.params, self.forward_order());
        Ok(self.normed(&mut pass, &ids, &segments)?.to_vec())
    }

    /// Logits `[rows, V]` in f32 of rows of hidden states `[rows, H/y]`. Row r of a sequence predicts its id r + 1.
    pub fn logits(&self, rank: &Rank, hidden_rows: &[f32]) -> Result<Vec<f32>> {
        let narrow = self.narrow.get().map_or(&[][..], Vec::as_slice);
        let mut pass =
            Pass::forward_only(rank, &self.params, [self.head.weight]).with_narrow(narrow);
        self.head.logits(&mut pass, hidden_rows)
    }

    /// An empty cache for `sequences` sequences of at most `capacity` tokens.
    pub fn cache(&self, rank: &Rank, sequences: usize, capacity: usize) -> KvCache {
        let layers = self
            .blocks
            .iter()
            .map(|block| {
                let heads = block.attention.heads;
                let len = sequences * capacity * heads.key_value * heads.dim;
                LayerCache {
                    keys: rank.pool.take(len),
                    values: rank.pool.take(len),
                }
            })
            .collect();
        KvCache::new(layers, sequences, capacity)
    }

    /// Reads the next tokens of each cached sequence (any number each) and gives their normed hidden states
    /// `[Σ new, H/y]`. On an error the cache is as before.
    pub fn extend(&self, rank: &Rank, cache: &mut KvCache, new: &[&[u32]]) -> Result<Vec<f32>> {
        let segments = cache.segments(new)?;
        let ids = new.concat();
        let lengths: Vec<usize> = segments.iter().map(|segment| segment.keys).collect();
        self.check_ids(&ids)?;
        self.check_lengths(&lengths)?;
        let layout = Layout {
            whole: Span::new(segments),
            split: None,
            rotary: self.rotary(lengths.iter().copied().max().unwrap_or(0)),
        };
        let mut pass = Pass::forward_only(rank, &self.params, self.forward_order());
        if ids.len() <= narrow::MOST_ROWS && rank.grid.z == 1 {
            pass = pass.with_narrow(self.narrow.get_or_init(|| self.narrow()));
        }
        let mut stream = self.embedding.forward(&mut pass, &ids)?;
        for (block, layer) in self.blocks.iter().zip(&mut cache.layers) {
            stream = block.extend(&mut pass, stream, &layout, layer)?;
        }
        cache.grow(new);
        Ok(self.norm.forward(&mut pass, &stream)?.0.to_vec())
    }

    /// Those matrices of the linear layers that are bf16 numbers, in half the memory.
    fn narrow(&self) -> Vec<Option<Narrow>> {
        let narrow = |(index, param): (ParamIndex, &Param)| {
            let is_read = index == self.head.weight || index != self.embedding.weight;
            let [rows, columns] = param.block.shape;
            (is_read && rows > 1)
                .then(|| Narrow::new(&param.weight, columns))
                .flatten()
        };
        self.params.iter().enumerate().map(narrow).collect()
    }

    /// Embedding, blocks and final norm, keeping nothing for a backward.
    fn normed(&self, pass: &mut Pass<'_>, ids: &[u32], segments: &[usize]) -> Result<Buffer> {
        let layout = self.layout(pass.rank, segments, AttentionSplit::Replicated);
        let mut stream = self.embedding.forward(pass, ids)?;
        for block in &self.blocks {
            stream = block.forward(pass, stream, &layout)?.0;
        }
        Ok(self.norm.forward(pass, &stream)?.0)
    }

    /// Checks a batch and lists its targets.
    fn targets(&self, batch: &Batch) -> Result<Targets> {
        self.check(&batch.ids, &batch.segments)?;
        if batch.keep.len() != batch.ids.len() {
            return Err(Error::Data(format!(
                "the batch has {} ids and {} marks of kept targets",
                batch.ids.len(),
                batch.keep.len()
            )));
        }
        let mut start = 0;
        for (document, &length) in batch.segments.iter().enumerate() {
            if length > 0 && batch.keep[start] {
                return Err(Error::Data(format!(
                    "the first id of document {document} of the batch is marked as a target; nothing predicts it"
                )));
            }
            start += length;
        }
        let kept = (1..batch.ids.len()).filter(|&at| batch.keep[at]);
        Ok(Targets {
            rows: kept.clone().map(|at| at - 1).collect(),
            ids: kept.map(|at| batch.ids[at]).collect(),
        })
    }

    /// Refuses ids and lengths that the model cannot read.
    pub(crate) fn check(&self, ids: &[u32], segments: &[usize]) -> Result<()> {
        let total: usize = segments.iter().sum();
        if total != ids.len() {
            return Err(Error::Data(format!(
                "the documents of the batch have {total} ids by their lengths, {} were given",
                ids.len()
            )));
        }
        self.check_ids(ids)?;
        self.check_lengths(segments)
    }

    fn check_ids(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().find(|&&id| id as usize >= self.config.vocab) {
            Some(id) => Err(Error::Data(format!(
                "token id {id} does not exist in a model with a vocabulary of {}; was another tokenizer used?",
                self.config.vocab
            ))),
            None => Ok(()),
        }
    }

    fn check_lengths(&self, lengths: &[usize]) -> Result<()> {
        match lengths.iter().max() {
            Some(&longest) if longest > self.config.max_positions => Err(Error::Data(format!(
                "a sequence of {longest} tokens does not fit the model's max_positions of {}",
                self.config.max_positions
            ))),
            _ => Ok(()),
        }
    }

    /// The layout of documents that attend to themselves.
    fn layout(&self, rank: &Rank, lengths: &[usize], attention: AttentionSplit) -> Layout {
        let y = &rank.groups.y;
        Layout {
            whole: Span::self_attending(lengths),
            split: (attention == AttentionSplit::YSharded && y.size() > 1)
                .then(|| Split::new(lengths, y.size(), y.place())),
            rotary: self.rotary(lengths.iter().copied().max().unwrap_or(0)),
        }
    }

    /// Angles for at least `positions` positions.
    fn rotary(&self, positions: usize) -> Arc<RotaryTable> {
        let mut table = self.rotary.lock().unwrap_or_else(PoisonError::into_inner);
        if table.positions() < positions {
            *table = Arc::new(RotaryTable::new(
                positions.next_power_of_two(),
                &frequencies(&self.config),
            ));
        }
        Arc::clone(&table)
    }
}

/// Rotary frequencies of a model, `[D/2]`.
fn frequencies(config: &ModelConfig) -> Vec<f64> {
    let scaling = config.rope_scaling.as_ref();
    rotary::frequencies(config.head_dim, config.rope_theta, scaling)
}
