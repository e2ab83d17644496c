//! Rotary position embedding in the published half-split convention: component `i` of a head turns with component
//! `i + D/2` by the angle `position · f_i`, where `f_i` is `θ^(-2i/D)`, scaled or not.

use rayon::prelude::*;

use super::math::vectored;
use super::rows_per_task;
use crate::config::RopeScaling;

/// The angles per position of the pairs of components, `[D/2]`: `θ^(-2i/D)` (Su et al. 2021, section 3.2.2), changed by
/// `scaling`.
///
/// `Llama3`: with λ = 2π/f the wave length and P the original positions, f becomes f/factor where λ > P/low, stays where
/// λ < P/high, and between is `(1 - s) f/factor + s f` with `s = (P/λ - low) / (high - low)` (the reference code of
/// Llama 3.1).
pub fn frequencies(head_dim: usize, theta: f64, scaling: Option<&RopeScaling>) -> Vec<f64> {
    assert!(head_dim.is_multiple_of(2), "the head size is even");
    (0..head_dim / 2)
        .map(|index| {
            let frequency = theta.powf(-((2 * index) as f64) / head_dim as f64);
            match scaling {
                None => frequency,
                Some(RopeScaling::Linear { factor }) => frequency / factor,
                Some(RopeScaling::Each { factors }) => frequency / factors[index],
                Some(RopeScaling::Llama3 {
                    factor,
                    low,
                    high,
                    original_positions,
                }) => {
                    let waves = *original_positions as f64 * frequency / std::f64::consts::TAU;
                    let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * frequency / factor + kept * frequency
                }
            }
        })
        .collect()
}

/// Cosines and sines of all angles, computed in f64 and rounded once.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    /// `[positions, D/2]`
    cosines: Vec<f32>,
    /// `[positions, D/2]`
    sines: Vec<f32>,
    half: usize,
}

impl RotaryTable {
    /// Angles of positions `0..positions` for heads of D components, from `frequencies`, `[D/2]`.
    pub fn new(positions: usize, frequencies: &[f64]) -> Self {
        let half = frequencies.len();
        let angle = |index: usize| (index / half) as f64 * frequencies[index % half];
        let count = positions * half;
        Self {
            cosines: (0..count).map(|index| angle(index).cos() as f32).collect(),
            sines: (0..count).map(|index| angle(index).sin() as f32).collect(),
            half,
        }
    }

    /// Number of positions in the table.
    pub fn positions(&self) -> usize {
        self.cosines.len() / self.half
    }
}

/// Rotates each head of each row of `x` `[rows, heads, D]` in place by its position.
pub fn rotate(x: &mut [f32], table: &RotaryTable, positions: &[u32], heads: usize) {
    apply(x, table, positions, heads, 1.0);
}

/// Undoes [`rotate`]; the backward of a rotation is its inverse.
pub fn rotate_back(x: &mut [f32], table: &RotaryTable, positions: &[u32], heads: usize) {
    apply(x, table, positions, heads, -1.0);
}

fn apply(x: &mut [f32], table: &RotaryTable, positions: &[u32], heads: usize, sign: f32) {
    let half = table.half;
    let width = heads * 2 * half;
    assert_eq!(x.len(), positions.len() * width);
    x.par_chunks_exact_mut(width)
        .zip(positions)
        .with_min_len(rows_per_task(width))
        .for_each(|(row, &position)| {
            let start = position as usize * half;
            let cosines = &table.cosines[start..start + half];
            let sines = &table.sines[start..start + half];
            vectored(|| {
                for head in row.chunks_exact_mut(2 * half) {
                    let (low, high) = head.split_at_mut(half);
                    for (((low, high), &cosine), &sine) in
                        low.iter_mut().zip(high).zip(cosines).zip(sines)
                    {
                        let sine = sign * sine;
                        (*low, *high) =
                            (*low * cosine - *high * sine, *high * cosine + *low * sine);
                    }
                }
            });
        });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Position 0 rotates by nothing and passes under either convention, so later ones are tested (W02).
    #[test]
    fn w01_component_i_turns_with_component_i_plus_half_at_position_64_and_later() {
        let (head_dim, theta) = (8, 10000.0f64);
        let table = RotaryTable::new(128, &frequencies(head_dim, theta, None));
        for position in [64u32, 65, 127] {
            for pair in 0..head_dim / 2 {
                let mut x = vec![0.0f32; head_dim];
                x[pair] = 1.0;
                rotate(&mut x, &table, &[position], 1);
                let angle = f64::from(position) / theta.powf(2.0 * pair as f64 / head_dim as f64);
                let mut expected = vec![0.0; head_dim];
                expected[pair] = angle.cos() as f32;
                expected[pair + head_dim / 2] = angle.sin() as f32;
                assert_eq!(x, expected, "position {position} pair {pair}");
                rotate_back(&mut x, &table, &[position], 1);
                assert!((x[pair] - 1.0).abs() < 1e-6);
            }
        }
    }
}
