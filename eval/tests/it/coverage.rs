//! The committed tables of `COVERAGE.md`: they meet the bars, and a reduced simulation agrees.

use axmem_eval::coverage::Design;
use axmem_eval::stats::{Interval, clopper_pearson, wilson};

const DRAWS: usize = 500;

/// A row of a table: the design, and shares of its other columns.
struct Row {
    design: Design,
    shares: Vec<Option<f64>>,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (place, shares) = cells.split_at_checked(4)?;
        let percent = |cell: &&str| cell.parse::<f64>().ok().map(|percent| percent / 100.0);
        Some(Self {
            design: Design {
                clusters: place[0].parse().ok()?,
                windows: place[1].parse().ok()?,
                correlation: place[2].parse().ok()?,
                rate: place[3].parse().ok()?,
            },
            shares: shares.iter().map(percent).collect(),
        })
    }

    /// Whether the shares of a reduced simulation are within 4.5 standard errors of the row's.
    fn agrees(&self, found: &[Option<f64>]) {
        for (column, (found, expected)) in found.iter().zip(&self.shares).enumerate() {
            let (Some(found), Some(expected)) = (found, expected) else {
                assert_eq!(found.is_some(), expected.is_some(), "{:?}", self.design);
                continue;
            };
            let spread = (expected * (1.0 - expected)).max(0.002);
            let tolerance = 4.5 * (spread / DRAWS as f64).sqrt();
            let difference = (found - expected).abs();
            assert!(
                difference <= tolerance,
                "column {column} of {:?}: {found} {expected}",
                self.design
            );
        }
    }
}

/// Rows of the tables of intervals, of differences and of tests.
fn tables() -> [Vec<Row>; 3] {
    let text = include_str!("../../COVERAGE.md");
    let (intervals, rest) = text
        .split_once("## Coverage of the intervals of diff")
        .unwrap();
    let (differences, tests) = rest.split_once("## Rejections").unwrap();
    [intervals, differences, tests].map(|part| part.lines().filter_map(Row::parse).collect())
}

#[test]
fn the_table_meets_the_bars() {
    let [intervals, differences, tests] = tables();
    let lengths = [&intervals, &differences, &tests].map(Vec::len);
    assert_eq!(lengths, [5 * 18, 3 * 9 * 2, 2 * 15]);
    for Row { design, shares } in &intervals {
        let [wilson, exact, _, korn_graubard, bootstrap, _] = shares[..] else {
            panic!("six columns");
        };
        assert!(exact.or(korn_graubard).unwrap() >= 0.945, "{design:?}");
        let rarer = design.rate.min(1.0 - design.rate);
        if let Some(wilson) = wilson
            && design.clusters as f64 * rarer >= 5.0
        {
            assert!((0.92..=0.985).contains(&wilson), "{design:?}");
        }
        if design.clusters == 200 && rarer >= 0.05 {
            assert!((0.93..=0.97).contains(&bootstrap.unwrap()), "{design:?}");
        }
    }
    for Row { design, shares } in &differences {
        if design.clusters == 200 {
            let [_, paired, did] = shares[..] else {
                panic!("three columns");
            };
            // Recovered variances, where the control has no hit, cover more than they say.
            for share in [paired, did].iter().flatten() {
                assert!(*share >= 0.93, "{design:?} {share}");
            }
        }
    }
    for Row { design, shares } in &tests {
        let [mcnemar, mid_p, sign_flip, permutation, _] = shares[..] else {
            panic!("five columns");
        };
        for share in [mcnemar, sign_flip, permutation].iter().flatten() {
            assert!(*share <= 0.055, "{design:?} {share}");
        }
        // Not exact: where all of 200 clusters change it rejects 5.75 %. It decides nothing.
        assert!(mid_p.is_none_or(|share| share <= 0.06), "{design:?}");
    }
}

#[test]
fn a_reduced_simulation_agrees_with_the_table() {
    let [intervals, differences, tests] = tables();
    let reduced = |row: &&Row| [25, 200].contains(&row.design.clusters);
    for row in intervals.iter().filter(reduced) {
        let found = row.design.covered(DRAWS, 400, 7);
        row.agrees(&[
            found.wilson,
            found.clopper_pearson,
            found.korn_graubard_published,
            found.korn_graubard,
            Some(found.bootstrap),
            Some(found.flat),
        ]);
    }
    for row in differences.iter().filter(reduced) {
        // The column is in percent where a share is read.
        let control = 100.0 * row.shares[0].unwrap();
        let found = row.design.differenced(control, DRAWS, 400, 7);
        row.agrees(&[row.shares[0], Some(found.paired), Some(found.did)]);
    }
    for row in &tests {
        let found = row.design.rejected(DRAWS, 199, 7);
        row.agrees(&[
            found.mcnemar,
            found.mid_p,
            Some(found.sign_flip),
            Some(found.permutation),
            found.cochran_armitage,
        ]);
    }
}

#[test]
fn the_intervals_of_independent_hits_cover_exactly_what_they_should() {
    type Method = fn(f64, f64, f64) -> Interval;
    let covered = |method: Method, n: u32, rate: f64| -> f64 {
        let mut probability = (1.0 - rate).powi(n as i32);
        let mut sum = 0.0;
        for hits in 0..=n {
            let interval = method(f64::from(hits), f64::from(n), 0.95);
            if interval.low <= rate && rate <= interval.high {
                sum += probability;
            }
            probability *= f64::from(n - hits) / f64::from(hits + 1) * rate / (1.0 - rate);
        }
        sum
    };
    for n in [25, 200] {
        for rate in [0.005, 0.05, 0.3, 0.67] {
            let exact = covered(clopper_pearson, n, rate);
            assert!(exact >= 0.95, "{n} {rate} {exact}");
            let score = covered(wilson, n, rate);
            if f64::from(n) * rate.min(1.0 - rate) >= 5.0 {
                assert!((0.92..=0.985).contains(&score), "{n} {rate} {score}");
            }
        }
    }
}
