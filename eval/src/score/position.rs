//! What one row of logits says about its target.

use crate::logits::{exponential_sums, first_of, standing, top_k_sum};

/// Ids that top-k sampling draws from.
pub(super) const TOP_K: usize = 40;

/// What one row of logits says about its target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Position {
    /// The argmax, the lowest id on ties.
    pub(super) predicted: u32,
    /// Ids before the target: those with a larger logit, and lower ids with the same.
    pub(super) rank: u32,
    /// ln p of the target, in nats.
    pub(super) log_probability: f64,
    /// As `log_probability` when only the 40 best ids are drawn from; negative infinity where the target is not among them.
    pub(super) log_probability_top_k: f64,
    /// Target logit - largest other logit.
    pub(super) gap: f32,
    /// Entropy of the row's distribution, in nats.
    pub(super) entropy: f32,
}

impl Position {
    /// Words of [`Position::to_words`].
    pub(super) const WORDS: usize = 4;
    /// First word of a row that is not finite; no position has it.
    const NOT_FINITE: u64 = u64::MAX;

    /// `None` where the row is not finite or the target has no row.
    pub(super) fn of(row: &[f32], target: u32) -> Option<Self> {
        let logit = *row.get(target as usize)?;
        let (lower, higher) = (&row[..target as usize], &row[target as usize + 1..]);
        let (lower, higher) = (standing(logit, lower), standing(logit, higher));
        let other = lower.largest.max(higher.largest);
        let rank = lower.greater + higher.greater + lower.equal;
        let top = logit.max(other);
        if !top.is_finite() || logit.is_nan() {
            return None;
        }
        let predicted = match rank {
            0 => target,
            _ => first_of(row, top)?,
        };
        // All terms but the largest, which is 1.
        let (before, after) = (&row[..predicted as usize], &row[predicted as usize + 1..]);
        let (before, after) = (exponential_sums(before, top), exponential_sums(after, top));
        let (rest, weighted) = (before.0 + after.0, before.1 + after.1);
        if !rest.is_finite() {
            return None;
        }
        let difference = f64::from(logit) - f64::from(top);
        let log_probability_top_k = if (rank as usize) < TOP_K {
            difference - top_k_sum(row, top, TOP_K).ln()
        } else {
            f64::NEG_INFINITY
        };
        Some(Self {
            predicted,
            rank,
            log_probability: difference - rest.ln_1p(),
            log_probability_top_k,
            gap: logit - other,
            entropy: (rest.ln_1p() - weighted / (1.0 + rest)) as f32,
        })
    }

    /// Whether the argmax is the target.
    pub(super) fn correct(&self) -> bool {
        self.rank == 0
    }

    /// A position, or a row that is not finite, as words that ranks exchange.
    pub(super) fn to_words(position: Option<Self>) -> [u64; Self::WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        position.map_or([Self::NOT_FINITE; Self::WORDS], |position| {
            [
                pair(position.predicted, position.rank),
                position.log_probability.to_bits(),
                position.log_probability_top_k.to_bits(),
                pair(position.gap.to_bits(), position.entropy.to_bits()),
            ]
        })
    }

    /// What [`Position::to_words`] was given.
    pub(super) fn from_words(words: &[u64]) -> Option<Self> {
        if words[0] == Self::NOT_FINITE {
            return None;
        }
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        Some(Self {
            predicted: low(words[0]),
            rank: high(words[0]),
            log_probability: f64::from_bits(words[1]),
            log_probability_top_k: f64::from_bits(words[2]),
            gap: f32::from_bits(low(words[3])),
            entropy: f32::from_bits(high(words[3])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axmem_trainer::random::Stream;
    use proptest::prelude::*;

    /// The definitions, in f64 and with a sorted row.
    fn reference(row: &[f32], target: u32) -> Position {
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
        let logit = |id: u32| f64::from(row[id as usize]);
        let top = logit(ids[0]);
        // Smallest terms first; the largest is 1.
        let rest: f64 = ids[1..]
            .iter()
            .rev()
            .map(|&id| (logit(id) - top).exp())
            .sum();
        let log_p = |id: u32| logit(id) - top - rest.ln_1p();
        let kept: f64 = ids[1..]
            .iter()
            .take(TOP_K - 1)
            .rev()
            .map(|&id| (logit(id) - top).exp())
            .sum();
        let rank = ids.iter().position(|&id| id == target).unwrap();
        let entropy = -ids
            .iter()
            .map(|&id| log_p(id))
            .filter(|p| p.is_finite())
            .map(|p| p * p.exp())
            .sum::<f64>();
        let other = ids.iter().find(|&&id| id != target).unwrap();
        Position {
            predicted: ids[0],
            rank: rank as u32,
            log_probability: log_p(target),
            log_probability_top_k: if rank < TOP_K {
                logit(target) - top - kept.ln_1p()
            } else {
                f64::NEG_INFINITY
            },
            gap: row[target as usize] - row[*other as usize],
            entropy: entropy as f32,
        }
    }

    fn check(row: &[f32], target: u32) {
        let found = Position::of(row, target).unwrap();
        let expected = reference(row, target);
        assert_eq!(
            (found.predicted, found.rank),
            (expected.predicted, expected.rank)
        );
        assert_eq!(found.correct(), found.predicted == target);
        assert_eq!(found.gap.to_bits(), expected.gap.to_bits());
        let close = |a: f64, b: f64| a.total_cmp(&b).is_eq() || (a - b).abs() <= 1e-6 * b.abs();
        assert!(
            close(found.log_probability, expected.log_probability),
            "{found:?} {expected:?}"
        );
        assert!(
            (found.log_probability_top_k - expected.log_probability_top_k).abs() < 1e-12
                || close(found.log_probability_top_k, expected.log_probability_top_k),
            "{found:?} {expected:?}"
        );
        assert!(
            (found.entropy - expected.entropy).abs() <= 2e-6 * expected.entropy.max(1e-3),
            "{found:?} {expected:?}"
        );
        assert_eq!(
            Position::from_words(&Position::to_words(Some(found))),
            Some(found)
        );
    }

    #[test]
    fn long_rows_have_the_digits_of_f64() {
        let normal = Stream::new(3, "logits");
        for (vocab, scale) in [(49_152, 3.0), (50_257, 1.0), (1_000, 10.0)] {
            let mut row: Vec<f32> = (0..vocab)
                .map(|id| (normal.normal(id) * scale) as f32 - 7.3)
                .collect();
            for target in [0, 17, vocab as u32 / 2, vocab as u32 - 1] {
                check(&row, target);
            }
            // Known by heart: probabilities close to 1 keep the digits of their distance from 1.
            for raise in [10.0, 20.0, 40.0] {
                row[17] = raise;
                check(&row, 17);
                check(&row, 18);
            }
        }
    }

    #[test]
    fn the_rank_counts_larger_logits_and_lower_ids_with_the_same() {
        let row = [1.0, 3.0, 2.0, 3.0, 2.0, 2.0];
        let ranks: Vec<u32> = (0..6)
            .map(|target| Position::of(&row, target).unwrap().rank)
            .collect();
        assert_eq!(ranks, [5, 0, 2, 1, 3, 4]);
    }

    #[test]
    fn outside_the_forty_best_nothing_is_drawn() {
        let row: Vec<f32> = (0..100).map(|id| -0.01 * id as f32).collect();
        let of = |target| Position::of(&row, target).unwrap();
        assert!(of(39).log_probability_top_k.is_finite());
        assert!(of(40).log_probability_top_k.is_infinite());
        let total: f64 = (0..40)
            .map(|target| of(target).log_probability_top_k.exp())
            .sum();
        assert!((total - 1.0).abs() < 1e-12);
        // Of equal logits at the border the lowest ids are kept.
        let row = [0.0; 41];
        assert!(
            Position::of(&row, 39)
                .unwrap()
                .log_probability_top_k
                .is_finite()
        );
        assert!(
            Position::of(&row, 40)
                .unwrap()
                .log_probability_top_k
                .is_infinite()
        );
    }

    #[test]
    fn rows_that_are_not_finite_are_told_apart() {
        assert_eq!(Position::of(&[f32::NAN, 0.0, 1.0], 1), None);
        assert_eq!(Position::of(&[0.0, f32::NAN, 1.0], 1), None);
        assert_eq!(Position::of(&[f32::INFINITY, 0.0], 1), None);
        assert_eq!(Position::of(&[f32::NEG_INFINITY; 3], 1), None);
        assert_eq!(Position::of(&[0.0, 1.0], 2), None);
        assert_eq!(Position::from_words(&Position::to_words(None)), None);
        // An id that stands for nothing has no probability, and the others share all of it.
        let padded = [0.0, 0.0, f32::NEG_INFINITY];
        let known = Position::of(&padded, 0).unwrap();
        assert!((known.log_probability + 2.0_f64.ln()).abs() < 1e-7);
        assert!((known.entropy - 2.0_f32.ln()).abs() < 1e-6);
        assert!(
            Position::of(&padded, 2)
                .unwrap()
                .log_probability
                .is_infinite()
        );
    }

    proptest! {
        #[test]
        fn short_rows_agree_with_the_definitions(
            row in prop::collection::vec(prop_oneof![-40.0_f32..40.0, (-3_i32..3).prop_map(|logit| logit as f32)], 2..90),
            target in any::<prop::sample::Index>(),
        ) {
            check(&row, target.index(row.len()) as u32);
        }
    }
}
