//! Sizes that are taken and freed like the buffers of a step: weights on their way, gradients on theirs, and the peak. What
//! the layers do is in [`layers`](super::layers).

use std::collections::{HashMap, HashSet, VecDeque};

use super::sizes::Part::{Key, KeyBias, Value, ValueBias};
use super::sizes::{Sizes, Weight};
use super::{Memory, Plan};
use crate::optim::Optimizer;
use crate::reduction::buckets;

/// A kind of memory; its place in [`Memory`].
pub(super) type Kind = fn(&mut Memory) -> &mut usize;

pub(super) const ACTIVATIONS: Kind = |memory| &mut memory.activations;
pub(super) const GATHERED: Kind = |memory| &mut memory.gathered;
const GRADIENTS: Kind = |memory| &mut memory.gradients;
const SCATTERING: Kind = |memory| &mut memory.scattering;
const BUCKETS: Kind = |memory| &mut memory.buckets;
pub(super) const STAGING: Kind = |memory| &mut memory.staging;

pub(super) struct Replay<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) sizes: Sizes,
    live: Memory,
    at_peak: Memory,
    pub(super) ahead: VecDeque<Weight>,
    gathering: VecDeque<Weight>,
    pub(super) kept: HashMap<Weight, usize>,
    pub(super) keep: bool,
    scattering: VecDeque<Weight>,
    /// Parameters whose gradient is there.
    present: HashSet<Weight>,
    pub(super) of_this_block: usize,
    contributions: HashMap<Weight, usize>,
    /// Shards of the bucket that is being filled, and the buckets that wait for the end of the step.
    open: Vec<usize>,
    waiting: Vec<usize>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(plan: &'a Plan<'a>) -> Self {
        let sizes = Sizes::new(plan.model, plan.grid);
        let mut replay = Self {
            plan,
            live: Memory::default(),
            at_peak: Memory::default(),
            ahead: VecDeque::new(),
            gathering: VecDeque::new(),
            kept: HashMap::new(),
            keep: false,
            scattering: VecDeque::new(),
            present: HashSet::new(),
            of_this_block: 0,
            contributions: HashMap::new(),
            open: Vec::new(),
            waiting: Vec::new(),
            sizes,
        };
        for weight in replay.sizes.all() {
            let len = replay.shard(weight);
            let owned = if plan.schedule.shard_optimizer {
                len.div_ceil(plan.grid.data)
            } else {
                len
            };
            replay.live.weights += 4 * len;
            if matches!(plan.optimizer, Optimizer::AdamW(_)) {
                replay.live.moments += 2 * 4 * owned;
            }
        }
        replay
    }

    pub(super) fn take(&mut self, kind: Kind, elements: usize) {
        *kind(&mut self.live) += 4 * elements;
        if self.live.total() > self.at_peak.total() {
            self.at_peak = self.live;
        }
    }

    pub(super) fn free(&mut self, kind: Kind, elements: usize) {
        *kind(&mut self.live) -= 4 * elements;
    }

    /// Something taken and given back at once.
    pub(super) fn pass_by(&mut self, kind: Kind, elements: usize) {
        self.take(kind, elements);
        self.free(kind, elements);
    }

    pub(super) fn shard(&self, weight: Weight) -> usize {
        self.sizes.block(weight).div_ceil(self.plan.grid.z)
    }

    /// [`Pass::weight`](crate::pass::Pass::weight).
    pub(super) fn weight(&mut self, weight: Weight) {
        if self.plan.grid.z == 1 || self.kept.contains_key(&weight) {
            return;
        }
        self.start_gathers(1);
        let next = self.gathering.pop_front();
        debug_assert_eq!(next, Some(weight));
        self.start_gathers(self.plan.schedule.overlap.all_gather);
        let shard = self.shard(weight);
        self.free(GATHERED, shard);
        if self.keep {
            self.kept.insert(weight, shard * self.plan.grid.z);
        }
    }

    fn start_gathers(&mut self, count: usize) {
        while self.gathering.len() < count {
            let Some(weight) = self.ahead.pop_front() else {
                return;
            };
            let shard = self.shard(weight);
            self.take(GATHERED, shard * (1 + self.plan.grid.z));
            self.gathering.push_back(weight);
        }
    }

    pub(super) fn release(&mut self, weight: Weight) {
        if self.plan.grid.z > 1 && !self.kept.contains_key(&weight) {
            let shard = self.shard(weight);
            self.free(GATHERED, shard * self.plan.grid.z);
        }
    }

    pub(super) fn use_weight(&mut self, weight: Weight) {
        self.weight(weight);
        self.release(weight);
    }

    /// The gradient of a block: [`Pass::gradient`](crate::pass::Pass::gradient).
    pub(super) fn gradient(&mut self, weight: Weight) {
        let padded = self.shard(weight) * self.plan.grid.z;
        self.take(SCATTERING, padded);
    }

    /// [`Pass::reduce`](crate::pass::Pass::reduce).
    pub(super) fn reduce(&mut self, weight: Weight, last: bool) {
        let z = self.plan.grid.z;
        let shard = self.shard(weight);
        if z > 1 {
            self.take(SCATTERING, shard + self.scatter_staging(shard * z));
        }
        self.scattering.push_back(weight);
        self.of_this_block += 1;
        if !self.plan.schedule.overlap.reduce_scatter || z == 1 {
            self.settle(0, last);
        }
    }

    /// Gradient and reduce-scatter of a weight of which nothing else is live meanwhile.
    pub(super) fn weight_gradient(&mut self, weight: Weight, last: bool) {
        self.gradient(weight);
        self.reduce(weight, last);
    }

    pub(super) fn settle(&mut self, rest: usize, last: bool) {
        let z = self.plan.grid.z;
        while self.scattering.len() > rest {
            let Some(weight) = self.scattering.pop_front() else {
                return;
            };
            let shard = self.shard(weight);
            let mut held = shard * z;
            if z > 1 {
                held += self.scatter_staging(shard * z);
                self.free(SCATTERING, held);
                held = shard;
            }
            if self.copies(weight) > 1 {
                let copies = self.copies(weight);
                self.sum(shard, copies);
            }
            self.free(SCATTERING, held);
            if self.present.insert(self.stored_as(weight)) {
                self.take(GRADIENTS, shard);
            }
            self.contributed(weight, last);
        }
        self.of_this_block = self.of_this_block.min(self.scattering.len());
    }

    fn copies(&self, weight: Weight) -> usize {
        match weight {
            Weight::Block(_, Key | Value | KeyBias | ValueBias) => {
                self.plan.model.kv_copies(self.plan.grid.x)
            }
            _ => 1,
        }
    }

    /// What the back end needs besides data and result of a reduce-scatter of `len` elements.
    pub(super) fn scatter_staging(&self, len: usize) -> usize {
        if self.plan.staged { len } else { 0 }
    }

    /// The staging of an all-reduce of `len` elements over `ranks` ranks.
    pub(super) fn sum(&mut self, len: usize, ranks: usize) {
        let staging = self.sum_staging(len, ranks);
        self.pass_by(STAGING, staging);
    }

    pub(super) fn sum_staging(&self, len: usize, ranks: usize) -> usize {
        if ranks == 1 || !self.plan.staged {
            return 0;
        }
        let padded = len.next_multiple_of(ranks);
        // Received parts; and a padded copy of what does not divide.
        if padded == len { len } else { 2 * padded }
    }

    /// [`Reduction::contributed`](crate::reduction::Reduction::contributed).
    fn contributed(&mut self, weight: Weight, last: bool) {
        let weight = self.stored_as(weight);
        if !last || self.plan.grid.data == 1 {
            return;
        }
        let missing = self
            .contributions
            .entry(weight)
            .or_insert_with(|| 1 + usize::from(weight == Weight::Embedding && self.sizes.tied));
        *missing -= 1;
        if *missing > 0 {
            return;
        }
        let shard = self.shard(weight);
        self.open.push(shard);
        let bytes: usize = self.open.iter().map(|len| 4 * len).sum();
        if bytes >= self.plan.schedule.overlap.bucket_bytes {
            self.close_bucket();
        }
    }

    fn stored_as(&self, weight: Weight) -> Weight {
        if weight == Weight::Head && self.sizes.tied {
            Weight::Embedding
        } else {
            weight
        }
    }

    /// A full bucket over Data: in flight until the end of the step, or not started before it.
    fn close_bucket(&mut self) {
        let parts = self.plan.grid.data;
        let shards = std::mem::take(&mut self.open);
        let elements = if self.plan.schedule.shard_optimizer {
            let width: usize = shards.iter().map(|len| len.div_ceil(parts)).sum();
            width * (parts + 1) + self.scatter_staging(width * parts)
        } else {
            let len: usize = shards.iter().sum();
            len + self.sum_staging(len, parts)
        };
        if self.plan.schedule.overlap.data {
            self.take(BUCKETS, elements);
        } else {
            self.waiting.push(elements);
        }
    }

    /// The end of the step: what is left of the reduction over Data, and the gather of sharded updates. Gives the peak.
    pub(super) fn finish(mut self) -> Memory {
        if self.plan.grid.data == 1 {
            return self.at_peak;
        }
        if !self.open.is_empty() {
            self.close_bucket();
        }
        self.live.buckets = 0;
        for elements in std::mem::take(&mut self.waiting) {
            self.pass_by(BUCKETS, elements);
        }
        if !self.plan.schedule.shard_optimizer {
            return self.at_peak;
        }
        let Plan { grid, schedule, .. } = *self.plan;
        let weights = self.sizes.all();
        let lens: Vec<usize> = weights.iter().map(|&weight| self.shard(weight)).collect();
        let mut before = 0;
        for bucket in buckets(&lens, schedule.overlap.bucket_bytes) {
            let width: usize = lens[bucket].iter().map(|len| len.div_ceil(grid.data)).sum();
            let elements = width * (1 + grid.data);
            self.take(BUCKETS, elements);
            if schedule.overlap.data {
                self.free(BUCKETS, before);
                before = elements;
            } else {
                self.free(BUCKETS, elements);
            }
        }
        self.at_peak
    }
}
