//! One pass of a micro-batch through the model on one rank: hands out gathered weights and takes gradients back, at the
//! times that the [`Overlap`] says.
//!
//! Layers say *what* they need next; this module alone decides *when* the collective over Z starts and is waited for.
//! Collectives on one axis start in the same order on every rank, because every rank makes the same calls here.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::comm::{Collective, Pending};
use crate::error::Result;
use crate::grid::Axis;
use crate::kernels::elementwise;
use crate::kernels::narrow::Narrow;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;
use crate::reduction::Reduction;
use crate::schedule::Overlap;

/// Place of a parameter in the model's list.
pub(crate) type ParamIndex = usize;

/// The gathered block of a weight, `[rows, columns]` row-major.
pub(crate) enum Weight<'a> {
    /// The rank's shard is the whole block: nothing to gather, so nothing is copied.
    Own(&'a [f32]),
    /// Gathered over Z, and the length without padding.
    Gathered(Arc<Buffer>, usize),
}

impl Deref for Weight<'_> {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(block) => block,
            Self::Gathered(buffer, len) => &buffer[..*len],
        }
    }
}

/// A buffer that is there, or will be.
#[must_use = "a started collective must be waited for"]
pub(crate) enum Later {
    Ready(Buffer),
    Pending(Pending),
}

impl Later {
    pub(crate) fn wait(self) -> Result<Buffer> {
        match self {
            Self::Ready(buffer) => Ok(buffer),
            Self::Pending(pending) => pending.wait(),
        }
    }
}

/// A buffer for the gradient of a whole block, zero-padded to what the reduce-scatter over Z wants.
pub(crate) struct BlockGradient {
    buffer: Buffer,
    len: usize,
}

impl Deref for BlockGradient {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.buffer[..self.len]
    }
}

impl DerefMut for BlockGradient {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[..self.len]
    }
}

/// A forward pass, or a forward and a backward one.
pub(crate) struct Pass<'a> {
    pub(crate) rank: &'a Rank,
    pub(crate) params: &'a [Param],
    pub(crate) overlap: Overlap,
    gathers: Gathers,
    gradients: Option<Gradients<'a>>,
    /// Weights in half the memory, one place for each parameter; empty if there are none.
    narrow: &'a [Option<Narrow>],
}

/// Weights on their way (OAG).
struct Gathers {
    /// Weights in the order of use that are still to be started.
    ahead: VecDeque<ParamIndex>,
    in_flight: VecDeque<(ParamIndex, Pending)>,
    /// Gathered weights that the backward of the block will want again.
    kept: HashMap<ParamIndex, Arc<Buffer>>,
    keep: bool,
}

/// Gradients on their way (ORS).
struct Gradients<'a> {
    /// This rank's shards, one for each parameter.
    shards: &'a mut [Buffer],
    in_flight: VecDeque<(ParamIndex, Pending)>,
    /// How many of those in flight were started in the present block.
    of_this_block: usize,
    /// Where shards go that will not change any more; none before the last micro-batch.
    reduction: Option<&'a mut Reduction>,
}

impl<'a> Pass<'a> {
    /// A pass that makes no gradients and uses the weights `order`, in this order. It overlaps what it can: the switches
    /// of a schedule are there to study a training step.
    pub(crate) fn forward_only(
        rank: &'a Rank,
        params: &'a [Param],
        order: impl IntoIterator<Item = ParamIndex>,
    ) -> Self {
        Self::new(rank, params, Overlap::default(), order, None)
    }

    /// A pass that adds gradients to `shards` and hands those that are complete to `reduction`.
    pub(crate) fn with_gradients(
        rank: &'a Rank,
        params: &'a [Param],
        overlap: Overlap,
        order: impl IntoIterator<Item = ParamIndex>,
        shards: &'a mut [Buffer],
        reduction: Option<&'a mut Reduction>,
    ) -> Self {
        let gradients = Gradients {
            shards,
            in_flight: VecDeque::new(),
            of_this_block: 0,
            reduction,
        };
        Self::new(rank, params, overlap, order, Some(gradients))
    }

    fn new(
        rank: &'a Rank,
        params: &'a [Param],
        overlap: Overlap,
        order: impl IntoIterator<Item = ParamIndex>,
        gradients: Option<Gradients<'a>>,
    ) -> Self {
        let gathers = Gathers {
            // Blocks of one element are gathered too: only one rank holds it.
            ahead: if rank.grid.z > 1 {
                order.into_iter().collect()
            } else {
                VecDeque::new()
            },
            in_flight: VecDeque::new(),
            kept: HashMap::new(),
            keep: false,
        };
        Self {
            rank,
            params,
            overlap,
            gathers,
            gradients,
            narrow: &[],
        }
    }

    /// The pass with weights in half the memory, for products with few rows.
    pub(crate) fn with_narrow(self, narrow: &'a [Option<Narrow>]) -> Self {
        Self { narrow, ..self }
    }

    /// The numbers of a weight in half the memory, if they are there.
    pub(crate) fn narrow(&self, index: ParamIndex) -> Option<&'a Narrow> {
        self.narrow.get(index)?.as_ref()
    }

    /// The whole block of a weight: an all-gather over Z, started up to `overlap.all_gather` weights ahead.
    pub(crate) fn weight(&mut self, index: ParamIndex) -> Result<Weight<'a>> {
        let param = &self.params[index];
        if self.rank.grid.z == 1 {
            return Ok(Weight::Own(&param.weight));
        }
        let len = param.block.shape[0] * param.block.shape[1];
        if let Some(kept) = self.gathers.kept.get(&index) {
            return Ok(Weight::Gathered(Arc::clone(kept), len));
        }
        self.start_gathers(1);
        let Some((next, pending)) = self.gathers.in_flight.pop_front() else {
            unreachable!("{} is used after the end of the pass", param.name);
        };
        assert_eq!(next, index, "{} is used out of order", param.name);
        self.start_gathers(self.overlap.all_gather);
        let block = Arc::new(pending.wait()?);
        if self.gathers.keep {
            self.gathers.kept.insert(index, Arc::clone(&block));
        }
        Ok(Weight::Gathered(block, len))
    }

    /// Starts all-gathers until `count` are in flight, as far as there are any left.
    fn start_gathers(&mut self, count: usize) {
        while self.gathers.in_flight.len() < count {
            let Some(index) = self.gathers.ahead.pop_front() else {
                return;
            };
            let shard = self.rank.pool.copy(&self.params[index].weight);
            let pending = self.rank.groups.z.start(Collective::AllGather, shard);
            self.gathers.in_flight.push_back((index, pending));
        }
    }

    /// From now on, gathered weights stay until the end of the block.
    pub(crate) fn keep_weights(&mut self) {
        self.gathers.keep = true;
    }

    /// Starts the sum of a forward product; waits for it too unless it may run behind what follows.
    pub(crate) fn start_forward(
        &self,
        axis: Axis,
        collective: Collective,
        data: Buffer,
    ) -> Result<Later> {
        self.start(axis, collective, data, self.overlap.forward)
    }

    /// Starts the sum of a backward product (OAR); waits for it too unless it may run behind what follows.
    pub(crate) fn start_backward(
        &self,
        axis: Axis,
        collective: Collective,
        data: Buffer,
    ) -> Result<Later> {
        self.start(axis, collective, data, self.overlap.all_reduce)
    }

    fn start(
        &self,
        axis: Axis,
        collective: Collective,
        data: Buffer,
        behind: bool,
    ) -> Result<Later> {
        let pending = self.rank.group(axis).start(collective, data);
        if behind {
            Ok(Later::Pending(pending))
        } else {
            pending.wait().map(Later::Ready)
        }
    }

    /// All-reduce (sum) over one axis, at once.
    pub(crate) fn all_reduce(&self, axis: Axis, data: Buffer) -> Result<Buffer> {
        self.rank
            .group(axis)
            .start(Collective::AllReduceSum, data)
            .wait()
    }

    /// A gradient whose block is still to be written (its padding is zero).
    pub(crate) fn gradient(&self, index: ParamIndex) -> BlockGradient {
        let param = &self.params[index];
        let len = param.block.shape[0] * param.block.shape[1];
        let padded = param.weight.len() * self.rank.groups.z.size();
        let mut buffer = self.rank.pool.take(padded);
        buffer[len..].fill(0.0);
        BlockGradient { buffer, len }
    }

    /// A gradient of zeros, to be added to.
    pub(crate) fn zero_gradient(&self, index: ParamIndex) -> BlockGradient {
        let mut gradient = self.gradient(index);
        gradient.fill(0.0);
        gradient
    }

    /// Reduce-scatter of a block's gradient over Z; the rank's share is added to the parameter's gradient, under ORS
    /// not before the end of the next block.
    pub(crate) fn reduce(&mut self, index: ParamIndex, gradient: BlockGradient) -> Result<()> {
        let z = &self.rank.groups.z;
        let pending = z.start(Collective::ReduceScatterSum, gradient.buffer);
        let gradients = self.gradients();
        gradients.in_flight.push_back((index, pending));
        gradients.of_this_block += 1;
        // Where Z is one rank there is nothing to hide, and the reduction over Data can begin.
        if self.overlap.reduce_scatter && self.rank.grid.z > 1 {
            return Ok(());
        }
        self.settle(0)
    }

    /// The backward of a block (or of what comes after the last) has ended: its weights go, and the gradients of the block
    /// before it arrive.
    pub(crate) fn end_block(&mut self) -> Result<()> {
        self.gathers.keep = false;
        self.gathers.kept.clear();
        let of_this_block = std::mem::take(&mut self.gradients().of_this_block);
        self.settle(of_this_block)
    }

    /// The backward has ended: all gradients arrive.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.settle(0)
    }

    /// Adds gradients in flight to their shards, oldest first, until `rest` are left.
    fn settle(&mut self, rest: usize) -> Result<()> {
        let (rank, params) = (self.rank, self.params);
        let gradients = self.gradients();
        while gradients.in_flight.len() > rest {
            let Some((index, pending)) = gradients.in_flight.pop_front() else {
                break;
            };
            let mut share = pending.wait()?;
            let copies = params[index].placement.copies;
            if copies > 1 {
                let replicas = rank.replicas(copies)?;
                share = replicas.start(Collective::AllReduceSum, share).wait()?;
            }
            let shard = &mut gradients.shards[index];
            if shard.is_empty() {
                *shard = share;
            } else {
                elementwise::add(shard, &share);
                drop(share);
            }
            if let Some(reduction) = &mut gradients.reduction {
                let shards = &*gradients.shards;
                reduction.contributed(rank, index, |index| &shards[index]);
            }
        }
        gradients.of_this_block = gradients.of_this_block.min(gradients.in_flight.len());
        Ok(())
    }

    fn gradients(&mut self) -> &mut Gradients<'a> {
        self.gradients
            .as_mut()
            .expect("only a pass with gradients has a backward")
    }
}
