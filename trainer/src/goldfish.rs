//! The Goldfish mask (Hans et al., 2024): which target tokens count in the loss, from token ids alone.
//!
//! A target is dropped if a hash of its context falls below 1/k, so that a passage met again loses the same targets
//! again and can never be learnt in full. Integers only: no tensors, no randomness, no state.
//!
//! Two hashes:
//!
//! - *portable*: `s = mix(key + G)`, then for each of the h ids before the target, oldest first,
//!   `s = mix((s xor id) + G)`; `mix` is the finaliser of `SplitMix64` and G its step 0x9e3779b97f4a7c15 (see
//!   [`crate::random`]). Dropped if s / 2^64 < 1/k, decided in integers. Order matters, id 0 is an id like any other,
//!   and every machine gets the same mask.
//! - *released*: the published code's table variant on its CPU generator, for comparison only. Its window holds the
//!   target itself and the h - 1 targets before it, and its product ignores order and collapses on id 0.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::absorb;

/// Entries of the released table, and the modulus of its key.
const TABLE_LEN: usize = 1_000_003;

/// Seed of the released table (the 47th Fibonacci number).
const TABLE_SEED: u32 = 2_971_215_073;

/// Which hash decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hash {
    /// Order-dependent integer hash of `key` and the h ids before the target.
    Portable {
        /// Chooses one mask among many; equal over the trials of a study.
        key: u64,
    },
    /// The released code's table of random numbers, as its CPU generator makes it.
    Released,
}

/// A Goldfish mask. There are no default k and h: the released defaults differ from the published experiments.
///
/// ```
/// use axmem_trainer::goldfish::{Goldfish, Hash};
/// let goldfish = Goldfish::new(2, 2, Hash::Portable { key: 0 })?;
/// let keep = goldfish.keep(&[1, 70, 9, 70, 9, 4]);
/// // The first id is no target; the next has fewer than h = 2 ids before it and is never dropped.
/// assert_eq!(keep[..2], [false, true]);
/// # Ok::<(), axmem_trainer::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Settings")]
pub struct Goldfish {
    k: u32,
    h: usize,
    hash: Hash,
}

/// What is read from a file before it is checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    k: u32,
    h: usize,
    hash: Hash,
}

impl TryFrom<Settings> for Goldfish {
    type Error = Error;

    fn try_from(settings: Settings) -> Result<Self> {
        Self::new(settings.k, settings.h, settings.hash)
    }
}

impl Goldfish {
    /// A mask that drops one target in `k` by a hash of a window of `h` ids.
    ///
    /// # Errors
    /// `k` below 2 would drop every target; `h` of 0 would leave nothing to hash.
    pub fn new(k: u32, h: usize, hash: Hash) -> Result<Self> {
        if k < 2 {
            return Err(Error::setting(
                "goldfish.k",
                format!("{k} would drop every target; one in k is dropped, so k is at least 2"),
            ));
        }
        if h == 0 {
            return Err(Error::setting(
                "goldfish.h",
                "0 leaves no context to hash; h is at least 1",
            ));
        }
        Ok(Self { k, h, hash })
    }

    /// One target in `k` is dropped.
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Ids in the hashed window.
    pub fn h(&self) -> usize {
        self.h
    }

    /// The hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// For each id of one document, whether it is a target that counts. The first id is no target. The mask depends
    /// on this document alone: call it once per document of a packed row.
    pub fn keep(&self, segment: &[u32]) -> Vec<bool> {
        (0..segment.len())
            .map(|i| i > 0 && !self.drops(segment, i))
            .collect()
    }

    /// Whether target `i` (at least 1) is dropped. Under both hashes the first that can be is `i = h`: portable needs
    /// h ids before it, released the h targets `1..=h`.
    fn drops(&self, segment: &[u32], i: usize) -> bool {
        if i < self.h {
            return false;
        }
        match self.hash {
            Hash::Portable { key } => {
                let hash = portable_hash(key, &segment[i - self.h..i]);
                // hash / 2^64 < 1 / k without rounding.
                u128::from(hash) * u128::from(self.k) < 1 << 64
            }
            Hash::Released => {
                released_table()[released_key(&segment[i + 1 - self.h..=i])]
                    < (1.0 / f64::from(self.k)) as f32
            }
        }
    }
}

/// The portable hash of a window of ids, oldest first (see the top of this file).
fn portable_hash(key: u64, window: &[u32]) -> u64 {
    window
        .iter()
        .fold(absorb(key, 0), |state, &id| absorb(state, u64::from(id)))
}

/// The released key: the product of the ids as wrapping 64-bit integers, then the non-negative remainder.
fn released_key(window: &[u32]) -> usize {
    let product = window
        .iter()
        .fold(1i64, |product, &id| product.wrapping_mul(i64::from(id)));
    product.rem_euclid(TABLE_LEN as i64) as usize
}

/// The released table: uniform f32 numbers of 24 bits from MT19937, as `PyTorch`'s CPU generator draws them. A constant,
/// computed when first used (4 MB).
fn released_table() -> &'static [f32] {
    static TABLE: OnceLock<Vec<f32>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut generator = MersenneTwister::new(TABLE_SEED);
        (0..TABLE_LEN)
            .map(|_| (generator.next() & 0x00ff_ffff) as f32 / 16_777_216.0)
            .collect()
    })
}

/// MT19937 (Matsumoto and Nishimura, 1998).
struct MersenneTwister {
    state: Vec<u32>,
    index: usize,
}

impl MersenneTwister {
    const N: usize = 624;
    const M: usize = 397;

    fn new(seed: u32) -> Self {
        let mut state = Vec::with_capacity(Self::N);
        let mut word = seed;
        for i in 1..=Self::N as u32 {
            state.push(word);
            word = (word ^ (word >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i);
        }
        Self {
            state,
            index: Self::N,
        }
    }

    fn next(&mut self) -> u32 {
        if self.index == Self::N {
            for i in 0..Self::N {
                let upper = self.state[i] & 0x8000_0000;
                let lower = self.state[(i + 1) % Self::N] & 0x7fff_ffff;
                let word = upper | lower;
                let twist = if word & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + Self::M) % Self::N] ^ (word >> 1) ^ twist;
            }
            self.index = 0;
        }
        let mut word = self.state[self.index];
        self.index += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mersenne_twister_gives_the_published_sequence() {
        // First output for the reference seed 5489, and the 10,000th as fixed by the C++ standard.
        let mut generator = MersenneTwister::new(5489);
        assert_eq!(generator.next(), 3_499_211_612);
        let mut last = 0;
        for _ in 1..10_000 {
            last = generator.next();
        }
        assert_eq!(last, 4_123_659_995);
    }

    #[test]
    fn released_table_is_that_of_the_pinned_generator() {
        use sha2::{Digest, Sha256};
        let bytes: Vec<u8> = released_table()
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let hash = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        assert!(include_str!("../tests/fixtures/goldfish.json").contains(&hash));
    }

    #[test]
    fn released_key_is_a_non_negative_remainder() {
        assert_eq!(released_key(&[7, 0, 9]), 0);
        assert_eq!(released_key(&[2, 3]), 6);
        // 4294967295^2 wraps to a negative 64-bit integer, -8589934591.
        assert_eq!(
            released_key(&[u32::MAX, u32::MAX]),
            (-8_589_934_591i64).rem_euclid(1_000_003) as usize
        );
    }

    #[test]
    fn limits_of_k_and_h_are_refused_with_the_field() {
        let hash = Hash::Portable { key: 0 };
        assert!(
            Goldfish::new(1, 13, hash)
                .unwrap_err()
                .to_string()
                .starts_with("goldfish.k: 1")
        );
        assert!(
            Goldfish::new(2, 0, hash)
                .unwrap_err()
                .to_string()
                .starts_with("goldfish.h: 0")
        );
    }
}
