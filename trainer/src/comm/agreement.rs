//! What a rank says when the ranks of a group do not agree on a collective, or when some never reach it. The same
//! words in every back end.

use std::time::Duration;

use super::{Collective, Line};
use crate::error::Error;

/// What a rank brings to a collective; equal on all ranks of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// A tensor of so many elements.
    Tensor(Collective, usize),
    /// So many words.
    Words(usize),
    /// The wish for groups of so many ranks.
    #[cfg(feature = "mpi")]
    Split(usize),
}

impl std::fmt::Display for Brought {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(collective, len) => write!(f, "{collective} of {len} f32"),
            Self::Words(len) => write!(f, "all-gather of {len} words"),
            #[cfg(feature = "mpi")]
            Self::Split(size) => write!(f, "split into groups of {size}"),
        }
    }
}

impl Brought {
    fn with_article(self) -> String {
        let text = self.to_string();
        let article = if text.starts_with('a') { "an" } else { "a" };
        format!("{article} {text}")
    }
}

/// One collective of a group, as messages name it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    /// Nothing if the group is all ranks.
    pub(super) line: Option<Line>,
    /// The ranks of the group, by place.
    pub(super) ranks: &'a [usize],
    /// Its number in the group, from 1.
    pub(super) sequence: u64,
}

impl Call<'_> {
    /// The rank that brought something else than most, and what to say of it; `brought` is ordered by place.
    pub(super) fn mismatch(&self, brought: &[Brought]) -> Option<(usize, String)> {
        let votes = |what: &Brought| brought.iter().filter(|other| *other == what).count();
        let usual = brought.iter().max_by_key(|what| votes(what))?;
        let odd = brought.iter().rposition(|what| what != usual)?;
        let other = brought.iter().position(|what| what == usual)?;
        Some((
            self.ranks[odd],
            format!(
                "brought {} to collective {} along {}, where rank {} brought {}",
                brought[odd].with_article(),
                self.sequence,
                name(self.line),
                self.ranks[other],
                usual.with_article(),
            ),
        ))
    }

    /// The error of `rank`, which waited as long as `timeout` for `missing` ranks, some of them `silent`.
    pub(super) fn timed_out(
        &self,
        rank: usize,
        brought: Brought,
        timeout: Duration,
        missing: &[usize],
        silent: &[usize],
    ) -> Error {
        let reason = match (missing, silent) {
            ([], []) => "to complete, though every rank has started it".to_owned(),
            (_, []) => format!("for ranks {missing:?}, which never started it"),
            ([], _) => format!("for ranks {silent:?}, which do not answer"),
            _ => format!(
                "for ranks {missing:?}, which never started it, and for ranks {silent:?}, which do not answer"
            ),
        };
        Error::Rank {
            rank,
            message: format!(
                "waited {} s in collective {} along {} ({brought}) {reason}",
                timeout.as_secs_f64(),
                self.sequence,
                name(self.line),
            ),
        }
    }
}

/// What messages call the ranks along a line, or all ranks.
pub(super) fn name(line: Option<Line>) -> String {
    line.map_or_else(|| "all axes".into(), |line| line.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call {
        line: Some(Line::Z),
        ranks: &[0, 2, 4],
        sequence: 17,
    };

    #[test]
    fn the_odd_one_out_is_named() {
        let gather = Brought::Tensor(Collective::AllGather, 8);
        let scatter = Brought::Tensor(Collective::ReduceScatterSum, 8);
        assert_eq!(CALL.mismatch(&[gather; 3]), None);
        let (rank, message) = CALL.mismatch(&[gather, scatter, gather]).unwrap();
        assert_eq!(rank, 2);
        assert_eq!(
            message,
            "brought a reduce-scatter of 8 f32 to collective 17 along Z, where rank 0 brought an all-gather of 8 f32"
        );
    }

    #[test]
    fn missing_and_silent_ranks_are_told_apart() {
        let said = |missing: &[usize], silent: &[usize]| {
            let waited = Duration::from_secs(2);
            CALL.timed_out(0, Brought::Words(1), waited, missing, silent)
                .to_string()
        };
        let start = "rank 0: waited 2 s in collective 17 along Z (all-gather of 1 words) ";
        assert_eq!(
            said(&[2], &[]),
            format!("{start}for ranks [2], which never started it")
        );
        assert_eq!(
            said(&[], &[4]),
            format!("{start}for ranks [4], which do not answer")
        );
        assert!(said(&[2], &[4]).contains("[2], which never started it, and for ranks [4]"));
        assert!(said(&[], &[]).ends_with("to complete, though every rank has started it"));
    }
}
