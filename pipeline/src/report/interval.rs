//! Intervals in words: their methods, and what they cover where that is not near their level.

use axmem_eval::coverage::{LEVEL, bootstrap_deviation};

use super::format::{interval, percent};
use super::page::Text;
use super::tables::Estimate;

/// The name of an interval method in words.
pub(crate) fn method(method: &str) -> &str {
    match method {
        "wilson" => "Wilson",
        "clopper_pearson" => "Clopper-Pearson",
        "bootstrap" => "bootstrap",
        "bootstrap_wilson" => "Wilson where resamples do not differ",
        "korn_graubard" => "Korn-Graubard",
        "recovered_variance" => "recovered variances",
        "mcnemar" => "McNemar",
        "sign_flip" => "sign flips",
        other => other,
    }
}

/// The names of the methods of an interval and of its test, such as `bootstrap+permutation`.
pub(crate) fn methods(names: &str) -> String {
    let (lead, names) = match names.strip_prefix("unpaired:") {
        Some(names) => ("not paired; ", names),
        None => ("", names),
    };
    let names: Vec<&str> = names.split('+').map(method).collect();
    format!("{lead}{}", names.join("; "))
}

/// A rate's interval by one method.
pub(crate) struct Interval<'a> {
    pub method: &'a str,
    pub clusters: u64,
    pub documents: u64,
    pub rate: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub level: f64,
}

impl Interval<'_> {
    /// Its ends, with a note where the method does not hold its level.
    pub(crate) fn text(&self) -> Text {
        let ends = Text::from(interval(self.low, self.high));
        match bootstrap_note(self) {
            Some(note) => ends.faint(note),
            None => ends,
        }
    }
}

impl<'a> From<&'a Estimate> for Interval<'a> {
    fn from(row: &'a Estimate) -> Self {
        Self {
            method: &row.method,
            clusters: row.clusters,
            documents: row.documents,
            rate: row.rate,
            low: row.low,
            high: row.high,
            level: row.level,
        }
    }
}

/// What a bootstrap interval of a rate covers in simulation, where that is not near its level.
fn bootstrap_note(row: &Interval<'_>) -> Option<String> {
    let covered = (row.method == "bootstrap")
        .then(|| bootstrap_deviation(row.clusters, row.documents, row.rate))
        .flatten()?;
    // Simulated at one level only.
    let at = if (row.level - LEVEL).abs() < 1e-9 {
        String::new()
    } else {
        format!(" at level {}", percent(LEVEL))
    };
    Some(format!(
        " covers {:.2} %{at} in simulation",
        100.0 * covered
    ))
}

#[cfg(test)]
mod tests {
    use super::Interval;
    use crate::report::page::Text;

    #[test]
    fn a_bootstrap_of_few_clusters_and_hits_says_what_it_covers() {
        let row = |method, clusters| Interval {
            method,
            clusters,
            documents: 5 * clusters,
            rate: 0.05,
            low: Some(0.0),
            high: Some(0.1),
            level: 0.95,
        };
        assert_eq!(row("bootstrap", 200).text(), Text::from("[0, 0.1]"));
        assert_eq!(row("korn_graubard", 25).text(), Text::from("[0, 0.1]"));
        let noted = Text::from("[0, 0.1]").faint(" covers 84.26 % in simulation");
        assert_eq!(row("bootstrap", 25).text(), noted);
    }
}
