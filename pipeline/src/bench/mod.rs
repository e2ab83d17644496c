//! `axmem bench`: how fast this machine is, every measurement kept.

pub mod decode;
pub mod step;

/// The middle of the sorted values; of two middles the upper.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
