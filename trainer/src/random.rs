//! Counter-based random numbers: a pure function of (seed, name, index), so that a rank draws exactly the elements
//! it holds and every grid, thread count and platform gets the same model.
//!
//! The generator is `SplitMix64` (Steele, Lea and Flood, 2014) read at a position instead of stepped: element *i* of a
//! stream is `mix(key + (i + 1) * GOLDEN)`. Normal numbers come from the Box-Muller transform with a logarithm and a
//! cosine made of IEEE additions, multiplications, divisions and square roots only; the platform's own are not
//! correctly rounded and differ in the last bit from one C library to another. May not touch tensors or grids.

use std::f64::consts::{LN_2, PI, SQRT_2};

/// 2^64 divided by the golden ratio, rounded to an odd number: the step of `SplitMix64`.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// 2^-53, the spacing of the uniform numbers.
const UNIT: f64 = 1.0 / (1u64 << 53) as f64;

/// The finaliser of `SplitMix64`: a bijection of 64-bit integers in which every input bit moves every output bit.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Takes one more 64-bit word into a running hash. Order matters, and the word 0 changes the state like any other.
pub(crate) fn absorb(state: u64, word: u64) -> u64 {
    mix((state ^ word).wrapping_add(GOLDEN))
}

/// The random numbers of one named thing (a tensor, an order of rows) under one seed.
///
/// ```
/// use axmem_trainer::random::Stream;
/// let stream = Stream::new(0, "model.norm.weight");
/// assert_eq!(stream.normal(7), Stream::new(0, "model.norm.weight").normal(7));
/// assert_ne!(stream.normal(7), Stream::new(1, "model.norm.weight").normal(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

impl Stream {
    /// The stream of `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let bytes = name.as_bytes();
        let state = absorb(mix(seed), bytes.len() as u64);
        let key = bytes.chunks(8).fold(state, |state, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            absorb(state, u64::from_le_bytes(word))
        });
        Self { key }
    }

    /// 64 random bits at `index`.
    pub fn bits(&self, index: u64) -> u64 {
        mix(self
            .key
            .wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// A uniform number in [0, 1) with 53 random bits.
    pub fn uniform(&self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 * UNIT
    }

    /// A normal number with mean 0 and standard deviation 1. Uses the bits at `2 index` and `2 index + 1`.
    pub fn normal(&self, index: u64) -> f64 {
        let counter = index.wrapping_mul(2);
        // In (0, 1], so that the logarithm is finite; the largest normal number is sqrt(2 * 53 ln 2) = 8.57.
        let radius = ((self.bits(counter) >> 11) + 1) as f64 * UNIT;
        let turn = self.uniform(counter.wrapping_add(1));
        (-2.0 * logarithm(radius)).sqrt() * cosine_of_turn(turn)
    }
}

/// Natural logarithm of a positive normal number: exponent and mantissa apart, then the series of
/// ln((1 + s) / (1 - s)) with |s| <= 0.172, whose first term left out is below 1e-18.
fn logarithm(value: f64) -> f64 {
    let bits = value.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52)); // in [1, 2)
    if mantissa > SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..=10)
        .rev()
        .fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    exponent as f64 * LN_2 + 2.0 * s * series
}

/// cos(2 pi `turn`) for `turn` in [0, 1]: the nearest quarter turn apart, then Taylor series on [-pi/4, pi/4].
fn cosine_of_turn(turn: f64) -> f64 {
    let quarter = (turn * 4.0).round();
    let angle = (turn - quarter * 0.25) * (2.0 * PI);
    let square = angle * angle;
    // Horner's rule from the last term: each term is the one before it times -x^2 / (n (n - 1)).
    let taylor = |first: u32| {
        (1..=9).rev().fold(1.0, |sum, k| {
            let n = f64::from(2 * k + first);
            1.0 - sum * square / (n * (n - 1.0))
        })
    };
    match quarter as u8 % 4 {
        0 => taylor(0),
        1 => -angle * taylor(1),
        2 => -taylor(0),
        _ => angle * taylor(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_agree_with_the_platform() {
        let stream = Stream::new(3, "check");
        for index in 0..20_000 {
            let u = stream.uniform(index);
            assert!((logarithm(u + UNIT) - (u + UNIT).ln()).abs() <= 1e-15 * u.ln().abs().max(1.0));
            assert!((cosine_of_turn(u) - (2.0 * PI * u).cos()).abs() < 1e-15);
        }
        assert!((logarithm(UNIT) - UNIT.ln()).abs() < 1e-13);
        assert!(logarithm(1.0).abs() < f64::MIN_POSITIVE);
        assert!((cosine_of_turn(0.0) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let stream = Stream::new(11, "model.embed_tokens.weight");
        let n = 200_000u64;
        let (mut sum, mut square, mut fourth, mut uniform) = (0.0, 0.0, 0.0, 0.0);
        for index in 0..n {
            let x = stream.normal(index);
            sum += x;
            square += x * x;
            fourth += x.powi(4);
            uniform += stream.uniform(index);
        }
        let n = n as f64;
        // Five standard errors: of the mean 1, of the square sqrt 2, of the fourth power sqrt 96, of a uniform 1/sqrt 12.
        let error = 5.0 / n.sqrt();
        assert!((sum / n).abs() < error);
        assert!((square / n - 1.0).abs() < error * SQRT_2);
        assert!((fourth / n - 3.0).abs() < error * 96f64.sqrt());
        assert!((uniform / n - 0.5).abs() < error / 12f64.sqrt());
    }

    #[test]
    fn names_and_seeds_give_other_streams() {
        let first = |seed, name: &str| Stream::new(seed, name).bits(0);
        let all = [
            first(0, "a"),
            first(1, "a"),
            first(0, "b"),
            first(0, "a\0"),
            first(0, ""),
            first(0, "layers.0.weight"),
            first(0, "layers.1.weight"),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }
}
