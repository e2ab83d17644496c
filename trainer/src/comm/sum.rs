//! The sum in rank order, on which the equality of back ends to the bit rests.

use super::Collective;

/// Elements merged at a time, so that they stay in the fastest cache.
pub(super) const BLOCK: usize = 1 << 12;

/// Merges the elements of `others`, rank by rank in their order, into `first`: a maximum for that collective, else a sum.
pub(super) fn merge<'a>(
    collective: Collective,
    first: &mut [f32],
    others: &(impl Iterator<Item = &'a [f32]> + Clone),
) {
    match collective {
        Collective::AllReduceMax => merge_with(first, others, f32::max),
        _ => merge_with(first, others, |a, b| a + b),
    }
}

fn merge_with<'a>(
    first: &mut [f32],
    others: &(impl Iterator<Item = &'a [f32]> + Clone),
    merge: impl Fn(f32, f32) -> f32,
) {
    for start in (0..first.len()).step_by(BLOCK) {
        let end = (start + BLOCK).min(first.len());
        for other in others.clone() {
            for (value, other) in first[start..end].iter_mut().zip(&other[start..end]) {
                *value = merge(*value, *other);
            }
        }
    }
}
