//! Scalar mathematics written so that the compiler can turn loops over it into vector code, and the way to have that code
//! for the processor at hand.
#![expect(
    clippy::inline_always,
    reason = "vector code exists only where it is inlined into the function that enables it"
)]

/// Partial sums kept apart in a reduction; a fixed number, so that the order of summation is fixed.
const LANES: usize = 16;

/// Runs `work` as compiled for the widest vectors of this processor. That covers loops in it and calls that are inlined, as
/// those of this file are, and changes no result: the compiler neither reorders nor fuses operations.
#[inline(always)]
pub fn vectored<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}

/// `e^x` within about one unit in the last place, without branches; 0 below -87.3, and +infinity above 88.7.
///
/// Range reduction to `|r| <= ln(2)/2` and the Taylor polynomial of degree 7 (relative error 4e-9 there).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    // ln(2) in two parts: the product of the first with an integer below 2^8 is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.336_5, 88.722_8);
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    // 2^n in two factors: n = 128 is one more than an exponent field holds.
    let half = shifted
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .cast_signed()
        >> 1;
    let rest = shifted
        .to_bits()
        .wrapping_sub(ROUND.to_bits())
        .cast_signed()
        - half;
    let power = |n: i32| f32::from_bits(((n + 127) << 23).cast_unsigned());
    let value = p * power(half) * power(rest);
    if x < -87.336_5 {
        0.0
    } else if x > 88.722_8 {
        f32::INFINITY
    } else {
        value
    }
}

/// `Σ f(i)` over `0..n`, in an order fixed by `n` alone.
#[inline(always)]
fn lanes<const N: usize>(slices: [&[f32]; N], f: impl Fn([f32; N]) -> f32) -> f32 {
    let n = slices[0].len();
    let slices = slices.map(|slice| &slice[..n]);
    let mut sums = [0.0f32; LANES];
    let whole = n - n % LANES;
    let mut start = 0;
    while start < whole {
        let blocks = slices.map(|slice| &slice[start..start + LANES]);
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += f(blocks.map(|block| block[lane]));
        }
        start += LANES;
    }
    for index in whole..n {
        sums[index % LANES] += f(slices.map(|slice| slice[index]));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// `Σ a`
#[inline(always)]
pub fn sum(a: &[f32]) -> f32 {
    lanes([a], |[a]| a)
}

/// `Σ a·b`
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    lanes([a, b], |[a, b]| a * b)
}

/// `Σ a·b·c`
#[inline(always)]
pub fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    lanes([a, b, c], |[a, b, c]| a * b * c)
}

/// Replaces each `x` by `e^(x - shift)` and returns the sum.
#[inline(always)]
pub fn exp_in_place(values: &mut [f32], shift: f32) -> f32 {
    for value in values.iter_mut() {
        *value = exp(*value - shift);
    }
    sum(values)
}

/// The largest value (negative infinity of none); NaN is passed over.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let mut blocks = values.chunks_exact(LANES);
    for block in &mut blocks {
        for (best, &value) in best.iter_mut().zip(block) {
            *best = if value > *best { value } else { *best };
        }
    }
    blocks
        .remainder()
        .iter()
        .chain(&best)
        .fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_library() {
        let mut worst = 0.0f64;
        for step in -870_000..=887_000 {
            let x = step as f32 * 1e-4;
            let truth = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - truth).abs() / truth);
        }
        assert!(worst < 2e-7, "relative error {worst}");
        assert!((exp(0.0) - 1.0).abs() < f32::EPSILON);
        assert!(
            [f32::NEG_INFINITY, -1000.0]
                .map(exp)
                .iter()
                .all(|&y| y <= 0.0)
        );
        assert!(exp(1000.0).is_infinite());
        assert!(exp(88.722).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_agree_with_plain_loops() {
        for n in [0, 1, 15, 16, 17, 100] {
            let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5 - 3.0).collect();
            let b: Vec<f32> = (0..n).map(|i| 1.0 / (i as f32 + 1.0)).collect();
            let plain: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            assert!((dot(&a, &b) - plain).abs() < 1e-4);
            assert!((dot3(&a, &b, &vec![2.0; n]) - 2.0 * plain).abs() < 1e-4);
            let largest = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert!((sum(&a) - a.iter().sum::<f32>()).abs() < 1e-3);
            assert!(max(&a).total_cmp(&largest).is_eq());
        }
    }
}
