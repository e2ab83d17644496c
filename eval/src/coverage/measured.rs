//! What the bootstrap interval of a rate was measured to cover.

use super::LEVEL;

/// Distance of a rate from the nearer of 0 and 1, in each column of [`MEASURED`].
const EDGES: [f64; 4] = [0.005, 0.05, 0.3, 0.33];

/// Clusters, and percent covered: with one window a cluster, with five that are independent, and with
/// five that are correlated by 0.3. From the table of `COVERAGE.md`.
#[rustfmt::skip]
const MEASURED: [(u64, [[f64; 4]; 3]); 5] = [
    (10, [[100.00, 99.69, 96.39, 87.56], [99.98, 98.57, 91.84, 90.00], [99.99, 99.44, 91.19, 90.03]]),
    (25, [[100.00, 99.67, 95.02, 93.81], [99.69, 89.97, 93.45, 92.98], [99.96, 84.26, 92.94, 93.35]]),
    (50, [[100.00, 98.98, 95.94, 94.80], [99.89, 93.12, 94.90, 94.37], [99.85, 89.94, 94.27, 94.10]]),
    (100, [[99.77, 95.74, 95.72, 95.41], [99.15, 94.39, 94.62, 94.45], [99.74, 93.11, 94.94, 94.61]]),
    (200, [[99.96, 96.22, 95.57, 95.26], [96.12, 94.60, 94.29, 94.82], [90.78, 94.10, 94.37, 94.75]]),
];

/// Shares between which the bootstrap is taken to hold its level.
const HOLDS: std::ops::RangeInclusive<f64> = 0.93..=0.97;

/// What the bootstrap interval of a rate covers at level 95 % by simulation, where that is outside
/// 93 to 97 %.
///
/// It goes by the measured number of clusters nearest in ratio. Of the measured rates on both sides, and
/// of the correlations where clusters have several documents, the one farthest from the level counts.
pub fn bootstrap_deviation(clusters: u64, documents: u64, rate: f64) -> Option<f64> {
    let distance = |measured: u64| (clusters.max(1) as f64 / measured as f64).ln().abs();
    let (_, designs) = MEASURED
        .iter()
        .min_by(|a, b| distance(a.0).total_cmp(&distance(b.0)))?;
    let edge = rate.min(1.0 - rate);
    let above = EDGES.partition_point(|&measured| measured < edge);
    let below = EDGES.partition_point(|&measured| measured <= edge);
    let columns = below.saturating_sub(1)..=above.min(EDGES.len() - 1);
    let designs = if documents > clusters {
        &designs[1..]
    } else {
        &designs[..1]
    };
    let covered = designs.iter().flat_map(|row| &row[columns.clone()]);
    let covered = covered
        .map(|percent| percent / 100.0)
        .max_by(|a, b| (a - LEVEL).abs().total_cmp(&(b - LEVEL).abs()))?;
    (!HOLDS.contains(&covered)).then_some(covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells of a row of the table.
    fn cells(line: &str) -> Vec<&str> {
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn the_constants_are_those_of_the_table() {
        let table = include_str!("../../COVERAGE.md");
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(cells)
            .filter(|row| row.len() == 10)
            .collect();
        for (clusters, designs) in MEASURED {
            for (design, row) in [("1", "0"), ("5", "0"), ("5", "0.3")].iter().zip(designs) {
                for (rate, percent) in ["0.005", "0.05", "0.3", "0.67"].iter().zip(row) {
                    let place = [&clusters.to_string(), design.0, design.1, rate];
                    let found = rows.iter().find(|row| row[..4] == place).expect("a row");
                    assert_eq!(found[8], format!("{percent:.2}"), "{place:?}");
                }
            }
        }
    }

    #[test]
    fn few_clusters_and_rare_hits_are_told() {
        assert_eq!(bootstrap_deviation(200, 1000, 0.3), None);
        assert_eq!(bootstrap_deviation(200, 1000, 0.05), None);
        assert_eq!(bootstrap_deviation(200, 1000, 0.1), None);
        let few = bootstrap_deviation(24, 120, 0.05).expect("outside");
        assert!((few - MEASURED[1].1[2][1] / 100.0).abs() < 1e-12);
        // Between 0.05 and 0.3 the worse of the two counts.
        assert_eq!(bootstrap_deviation(24, 120, 0.1), Some(few));
        assert_eq!(bootstrap_deviation(24, 120, 0.95), Some(few));
        assert!(bootstrap_deviation(0, 0, 0.0).is_some());
    }
}
