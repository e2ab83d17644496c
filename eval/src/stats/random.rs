//! Counter-based random numbers: number i of stream s under a seed is a pure function of the three.
//!
//! The function is `SplitMix64`'s output mix (Steele, Lea and Flood 2014) applied to the counter on
//! top of a key that mixes seed and stream, so streams can be drawn in any order on any thread.

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    key: u64,
    counter: u64,
}

impl Random {
    /// The stream `stream` of `seed`, from its first number.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            key: mix(mix(seed.wrapping_add(GOLDEN)) ^ stream.wrapping_mul(GOLDEN)),
            counter: 0,
        }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        mix(self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// A whole number in `0..bound`, by multiply-and-shift; its bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// The numbers in `0..count` in random order (Fisher and Yates).
    pub(crate) fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
