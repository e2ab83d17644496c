//! Keyed, counter-based random numbers: every draw is a pure function of a seed and a name.
//!
//! A draw is SHA-256 over the purpose, the seed (8 bytes, little endian) and the parts of its
//! name, each part preceded by its length (8 bytes, little endian). No generator carries state,
//! so a draw does not depend on how many were made before it, on the order of the input, on
//! threads or on the machine.

use sha2::{Digest, Sha256};

/// The 32 bytes that belong to `purpose`, `seed` and the name made of `parts`.
pub fn digest(seed: u64, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in [purpose.as_bytes(), &seed.to_le_bytes()]
        .iter()
        .chain(parts)
    {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// A number in `[0, 1)`: the first 53 bits of [`digest`], read little endian.
pub fn uniform(seed: u64, purpose: &str, parts: &[&[u8]]) -> f64 {
    let bytes = digest(seed, purpose, parts);
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("a digest has 32 bytes"));
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// A bijection of 64-bit words that spreads every bit over all others: the finaliser of
/// `SplitMix64` (Steele, Lea and Flood, 2014). For hash tables, not for draws.
pub(crate) fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The indices of `names` in the order of their digests: a shuffle that depends on the seed and
/// on each name, never on the order in which they came.
pub fn shuffled<'a>(
    seed: u64,
    purpose: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<usize> {
    let mut keyed: Vec<_> = names
        .into_iter()
        .enumerate()
        .map(|(index, name)| (digest(seed, purpose, &[name.as_bytes()]), name, index))
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_run_together() {
        let digests = [
            digest(0, "a", &[b"bc"]),
            digest(0, "ab", &[b"c"]),
            digest(0, "a", &[b"b", b"c"]),
            digest(1, "a", &[b"bc"]),
        ];
        for (index, left) in digests.iter().enumerate() {
            assert!(digests[index + 1..].iter().all(|right| left != right));
        }
    }

    #[test]
    fn uniform_draws_fill_the_unit_interval() {
        let draws: Vec<f64> = (0_u32..4000)
            .map(|index| uniform(7, "test", &[&index.to_le_bytes()]))
            .collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        // Four standard errors of the mean of 4,000 uniform draws.
        assert!(
            (mean - 0.5).abs() < 4.0 / (12.0_f64 * 4000.0).sqrt(),
            "{mean}"
        );
    }

    #[test]
    fn the_shuffle_ignores_the_order_of_the_input() {
        let names = ["a", "b", "c", "d", "e"];
        let reversed: Vec<&str> = names.iter().rev().copied().collect();
        let forward: Vec<&str> = shuffled(3, "t", names).iter().map(|&i| names[i]).collect();
        let back: Vec<&str> = shuffled(3, "t", reversed.iter().copied())
            .iter()
            .map(|&i| reversed[i])
            .collect();
        assert_eq!(forward, back);
    }
}
