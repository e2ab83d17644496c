//! Whether an audit passes `--fail-above`.

use axmem_eval::estimate::Estimate;

use super::cells;
use crate::audit::findings::Findings;

/// The outcome of `--fail-above`.
pub(in crate::audit) struct Verdict<'a> {
    /// Whether the lower end of every interval is at most the rate.
    pub passed: bool,
    /// The rate that was asked for.
    pub limit: f64,
    /// Suffixes times prefixes.
    pub intervals: usize,
    /// The rate of the documents whose interval (Clopper and Pearson's, or Korn and Graubard's with clusters) has the
    /// highest lower end.
    pub highest: &'a Estimate,
}

impl Verdict<'_> {
    /// The word of the summary.
    pub(in crate::audit) fn as_str(&self) -> &'static str {
        if self.passed { "passed" } else { "failed" }
    }

    /// For the terminal.
    pub(in crate::audit) fn sentence(&self) -> String {
        let row = self.highest;
        format!(
            "the model reproduces the last {} ids of {} of {} documents (prefix {}): the interval of the rate, {:.4} to {:.4}, lies \
             above --fail-above {}",
            row.suffix, row.hits, row.documents, row.prefix, row.low, row.high, self.limit
        )
    }
}

/// Compares the documents under the model with `--fail-above`, over every suffix and prefix;
/// `None` without it, or where nothing was scored.
pub(in crate::audit) fn verdict(findings: &Findings) -> Option<Verdict<'_>> {
    let limit = findings.settings.fail_above?;
    let mut highest: Option<&Estimate> = None;
    let mut intervals = 0;
    for cell in cells(findings) {
        let row = cell.exact();
        if !cell.is("documents", "model") {
            continue;
        }
        intervals += 1;
        // Of equal ones the first.
        if highest.is_none_or(|other| row.low > other.low) {
            highest = Some(row);
        }
    }
    highest.map(|highest| Verdict {
        passed: highest.low <= limit,
        limit,
        intervals,
        highest,
    })
}
