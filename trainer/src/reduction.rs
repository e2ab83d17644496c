//! The sum of gradients over Data, in buckets, while earlier layers are still in their backward.

use std::ops::Range;

use crate::comm::{Collective, Pending};
use crate::error::Result;
use crate::param::Param;
use crate::pool::Buffer;
use crate::rank::Rank;
use crate::schedule::Schedule;

/// The part of a parameter's shard that one rank of Data updates: all of it, or its share if the optimizer is sharded.
pub(crate) fn owned(len: usize, rank: &Rank, schedule: &Schedule) -> Range<usize> {
    if schedule.shard_optimizer {
        share(len, rank.grid.data, rank.coord.data)
    } else {
        0..len
    }
}

/// The `place`-th of `parts` equal shares of `len` elements, rounded up; the last may be shorter or empty.
fn share(len: usize, parts: usize, place: usize) -> Range<usize> {
    let width = len.div_ceil(parts);
    (place * width).min(len)..((place + 1) * width).min(len)
}

/// Runs of tensors of at least `bytes` bytes each (the last may be smaller).
pub(crate) fn buckets(lens: &[usize], bytes: usize) -> Vec<Range<usize>> {
    let (mut buckets, mut start, mut filled) = (Vec::new(), 0, 0);
    for (index, len) in lens.iter().enumerate() {
        filled += len * size_of::<f32>();
        if filled >= bytes || index + 1 == lens.len() {
            buckets.push(start..index + 1);
            (start, filled) = (index + 1, 0);
        }
    }
    buckets
}

/// Tensors in one buffer of `parts` equal shares: the p-th share of the buffer holds the p-th share of every tensor, one
/// after the other.
struct Shares {
    parts: usize,
    lens: Vec<usize>,
}

/// A tensor's share in a share of the buffer.
struct Slot {
    /// The tensor's place in the bucket.
    tensor: usize,
    /// The elements of the tensor.
    range: Range<usize>,
    /// Where they begin in the share of the buffer.
    at: usize,
}

impl Shares {
    /// Elements of one share.
    fn width(&self) -> usize {
        self.lens.iter().map(|len| len.div_ceil(self.parts)).sum()
    }

    fn slots(&self, place: usize) -> impl Iterator<Item = Slot> {
        let mut next = 0;
        self.lens.iter().enumerate().map(move |(tensor, &len)| {
            let at = next;
            next += len.div_ceil(self.parts);
            Slot {
                tensor,
                range: share(len, self.parts, place),
                at,
            }
        })
    }
}

/// The reduction over Data of one step.
///
/// Parameters join a bucket in the order in which their gradients are complete, the same on every rank. A bucket is one
/// all-reduce; with a sharded optimizer it is a reduce-scatter, so that every rank gets its share of every parameter.
pub(crate) struct Reduction {
    schedule: Schedule,
    /// How often each parameter's gradient will still be added to.
    missing: Vec<usize>,
    /// Complete gradients of the bucket that is being filled, and their bytes.
    open: Vec<usize>,
    open_bytes: usize,
    /// Full buckets; without overlap they wait for the end of the backward.
    closed: Vec<(Vec<usize>, Option<Pending>)>,
}

impl Reduction {
    /// `contributions` says how often the gradient of each parameter is added to in a backward.
    pub(crate) fn new(schedule: &Schedule, contributions: Vec<usize>) -> Self {
        Self {
            schedule: *schedule,
            missing: contributions,
            open: Vec::new(),
            open_bytes: 0,
            closed: Vec::new(),
        }
    }

    /// Something was added to a gradient; starts a bucket if it is full now. `shard` gives the gradient of a parameter.
    pub(crate) fn contributed<'s>(
        &mut self,
        rank: &Rank,
        index: usize,
        shard: impl Fn(usize) -> &'s [f32],
    ) {
        self.missing[index] -= 1;
        if self.missing[index] > 0 || rank.grid.data == 1 {
            return;
        }
        self.open.push(index);
        self.open_bytes += size_of_val(shard(index));
        if self.open_bytes >= self.schedule.overlap.bucket_bytes {
            self.close(rank, shard);
        }
    }

    fn close<'s>(&mut self, rank: &Rank, shard: impl Fn(usize) -> &'s [f32]) {
        let bucket = std::mem::take(&mut self.open);
        self.open_bytes = 0;
        let behind = self.schedule.overlap.data;
        let pending = behind.then(|| self.start(rank, &bucket, shard));
        self.closed.push((bucket, pending));
    }

    fn shares<'s>(
        &self,
        rank: &Rank,
        bucket: &[usize],
        shard: impl Fn(usize) -> &'s [f32],
    ) -> Shares {
        Shares {
            parts: if self.schedule.shard_optimizer {
                rank.grid.data
            } else {
                1
            },
            lens: bucket.iter().map(|&index| shard(index).len()).collect(),
        }
    }

    fn start<'s>(
        &self,
        rank: &Rank,
        bucket: &[usize],
        shard: impl Fn(usize) -> &'s [f32],
    ) -> Pending {
        let shares = self.shares(rank, bucket, &shard);
        let width = shares.width();
        let mut data = rank.pool.zeros(shares.parts * width);
        for place in 0..shares.parts {
            for Slot { tensor, range, at } in shares.slots(place) {
                let target = &mut data[place * width + at..][..range.len()];
                target.copy_from_slice(&shard(bucket[tensor])[range]);
            }
        }
        let collective = if self.schedule.shard_optimizer {
            Collective::ReduceScatterSum
        } else {
            Collective::AllReduceSum
        };
        rank.groups.data.start(collective, data)
    }

    /// Ends the reduction: the gradients of the [`owned`] parts are sums over Data.
    pub(crate) fn finish(mut self, rank: &Rank, params: &mut [Param]) -> Result<()> {
        if !self.open.is_empty() {
            self.close(rank, |index| &params[index].gradient);
        }
        for (bucket, pending) in std::mem::take(&mut self.closed) {
            let gradient = |index: usize| &params[index].gradient[..];
            let shares = self.shares(rank, &bucket, gradient);
            let pending = pending.unwrap_or_else(|| self.start(rank, &bucket, gradient));
            let sums = pending.wait()?;
            let place = rank.coord.data % shares.parts;
            for Slot { tensor, range, at } in shares.slots(place) {
                let sums = &sums[at..][..range.len()];
                params[bucket[tensor]].gradient[range].copy_from_slice(sums);
            }
        }
        Ok(())
    }
}

/// Gathers over Data the weights that every rank has updated its share of, in buckets.
pub(crate) fn gather_updates(rank: &Rank, params: &mut [Param], schedule: &Schedule) -> Result<()> {
    if !schedule.shard_optimizer || rank.grid.data == 1 {
        return Ok(());
    }
    let lens: Vec<usize> = params.iter().map(|param| param.weight.len()).collect();
    let mut before: Option<(Range<usize>, Shares, Pending)> = None;
    for bucket in buckets(&lens, schedule.overlap.bucket_bytes) {
        let shares = Shares {
            parts: rank.grid.data,
            lens: lens[bucket.clone()].to_vec(),
        };
        let mut data = rank.pool.zeros(shares.width());
        for Slot { tensor, range, at } in shares.slots(rank.coord.data) {
            let own = &params[bucket.start + tensor].weight[range];
            data[at..][..own.len()].copy_from_slice(own);
        }
        let pending = rank.groups.data.start(Collective::AllGather, data);
        if !schedule.overlap.data {
            replace(&mut params[bucket], &shares, &pending.wait()?);
        } else if let Some((bucket, shares, pending)) = before.replace((bucket, shares, pending)) {
            replace(&mut params[bucket], &shares, &pending.wait()?);
        }
    }
    if let Some((bucket, shares, pending)) = before {
        replace(&mut params[bucket], &shares, &pending.wait()?);
    }
    Ok(())
}

/// Replaces weights by what all ranks of Data have gathered.
fn replace(params: &mut [Param], shares: &Shares, gathered: &Buffer) {
    let width = shares.width();
    for place in 0..shares.parts {
        for Slot { tensor, range, at } in shares.slots(place) {
            let values = &gathered[place * width + at..][..range.len()];
            params[tensor].weight[range].copy_from_slice(values);
        }
    }
}
