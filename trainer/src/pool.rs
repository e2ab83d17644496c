//! Reused buffers of one rank: weights, gradients, moments, and in steady state all tensors of a step come from here, and
//! the peak of what is live is the rank's measured memory.
//!
//! Idle buffers count too: with those on loan they never exceed what was on loan at the peak (sizes rounded up), so that the
//! process needs no more memory than the peak although gradients and activations, which take turns, differ in size.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

/// A rank's pool of `f32` buffers. Cloning gives another handle to the same pool.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Shelves>>);

#[derive(Debug, Default)]
struct Shelves {
    free: BTreeMap<usize, Vec<Vec<f32>>>,
    /// Elements of all buffers on the shelves, of all on loan, and the most that were on loan; as sizes are rounded up.
    idle: usize,
    lent: usize,
    most_lent: usize,
    live_bytes: usize,
    peak_bytes: usize,
}

/// A buffer on loan from a [`Pool`]; it goes back when dropped.
#[derive(Debug)]
pub struct Buffer {
    data: Vec<f32>,
    len: usize,
    pool: Pool,
}

impl Pool {
    /// A buffer of `len` elements whose contents are left over from its last use.
    pub fn take(&self, len: usize) -> Buffer {
        let class = size_class(len);
        let mut shelves = self.shelves();
        let data = shelves.take(class);
        shelves.live_bytes += len * size_of::<f32>();
        shelves.peak_bytes = shelves.peak_bytes.max(shelves.live_bytes);
        Buffer {
            data,
            len,
            pool: self.clone(),
        }
    }

    /// A buffer of `len` zeros.
    pub fn zeros(&self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// A buffer with a copy of `values`.
    pub fn copy(&self, values: &[f32]) -> Buffer {
        let mut buffer = self.take(values.len());
        buffer.copy_from_slice(values);
        buffer
    }

    /// A buffer with values from a sequence of known length.
    pub fn collect(&self, values: impl ExactSizeIterator<Item = f32>) -> Buffer {
        let mut buffer = self.take(values.len());
        for (slot, value) in buffer.iter_mut().zip(values) {
            *slot = value;
        }
        buffer
    }

    /// Gives the memory of all buffers that are not on loan back to the system: work of another size follows.
    pub fn shrink(&self) {
        let mut shelves = self.shelves();
        shelves.free.clear();
        shelves.idle = 0;
    }

    /// Bytes on loan now.
    pub fn live_bytes(&self) -> usize {
        self.shelves().live_bytes
    }

    /// The most bytes that were on loan at one time.
    pub fn peak_bytes(&self) -> usize {
        self.shelves().peak_bytes
    }

    /// Measures the peak anew from what is on loan now.
    pub fn reset_peak(&self) {
        let mut shelves = self.shelves();
        shelves.peak_bytes = shelves.live_bytes;
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        // The counters stay consistent even if a holder panicked between two statements.
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Shelves {
    fn take(&mut self, class: usize) -> Vec<f32> {
        self.lent += class;
        self.most_lent = self.most_lent.max(self.lent);
        if let Some(data) = self.free.get_mut(&class).and_then(Vec::pop) {
            self.idle -= class;
            return data;
        }
        while self.lent + self.idle > self.most_lent {
            let Some(mut largest) = self.free.last_entry() else {
                break;
            };
            match largest.get_mut().pop() {
                Some(data) => self.idle -= data.len(),
                None => drop(largest.remove()),
            }
        }
        vec![0.0; class]
    }
}

impl Buffer {
    /// The pool that it came from.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        self.pool.copy(self)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let mut shelves = self.pool.shelves();
        shelves.live_bytes -= self.len * size_of::<f32>();
        shelves.lent -= data.len();
        shelves.idle += data.len();
        shelves.free.entry(data.len()).or_default().push(data);
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.data[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.len]
    }
}

/// Rounds a length up to a quarter of a power of two, so that ragged batches reuse a bounded set of buffers.
fn size_class(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(64);
    len.div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_and_counted() {
        let pool = Pool::default();
        let first = pool.zeros(1000);
        let address = first.as_ptr();
        assert_eq!(pool.live_bytes(), 4000);
        drop(first);
        let second = pool.take(1001);
        assert_eq!(second.as_ptr(), address);
        assert_eq!(second.len(), 1001);
        assert_eq!(pool.peak_bytes(), 4004);
    }

    #[test]
    fn idle_buffers_make_room_for_those_of_another_size() {
        let pool = Pool::default();
        let first = [pool.take(1024), pool.take(1024)];
        drop(first);
        let second = [pool.take(512), pool.take(512), pool.take(512)];
        let shelves = pool.shelves();
        assert_eq!(
            (shelves.lent, shelves.idle, shelves.most_lent),
            (1536, 0, 2048)
        );
        drop((shelves, second));
        let third = pool.take(512);
        let shelves = pool.shelves();
        assert_eq!((shelves.lent, shelves.idle), (512, 1024));
        drop((shelves, third));
    }

    #[test]
    fn rounding_wastes_at_most_a_quarter() {
        for len in [1, 63, 64, 65, 1000, 1025, 100_000] {
            let class = size_class(len);
            assert!(class >= len && (class - len) * 4 <= len.max(256), "{len}");
        }
    }
}
