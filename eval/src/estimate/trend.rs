//! The trend of a change over exposures.

use std::collections::BTreeMap;

use super::contrast::{Cell, clusters};
use super::{Analysis, Contrast, ContrastKind, Measure, Pair};
use crate::Result;
use crate::stats::{Dose, Dosed, cochran_armitage, slope};

/// The slope of the change on ln(1 + e) over all buckets; nothing where there are fewer than three, since two have a difference.
pub(super) fn over_exposures(
    cell: &Cell<'_>,
    pairs: &[Pair<'_>],
    analysis: &Analysis,
) -> Result<Option<Contrast>> {
    let doses = doses(pairs);
    if doses.len() < 3 {
        return Ok(None);
    }
    let dose = |level: u32| f64::from(level).ln_1p();
    let units: Vec<Dosed> = clusters(cell.measure, pairs)?
        .into_iter()
        .map(|(levels, changes)| Dosed {
            doses: levels.into_iter().map(dose).collect(),
            changes,
        })
        .collect();
    let Some(slope) = slope(
        &units,
        analysis.level,
        analysis.resamples,
        analysis.permutations,
        analysis.seed,
    ) else {
        return Ok(None);
    };
    let interval = slope.interval.map_or("flat", |_| "bootstrap");
    Ok(Some(Contrast {
        bucket: "all".to_owned(),
        estimate: slope.estimate,
        low: slope.interval.map_or(slope.estimate, |ends| ends.low),
        high: slope.interval.map_or(slope.estimate, |ends| ends.high),
        p: Some(slope.p),
        method: format!("{interval}+permutation"),
        z: (cell.measure == Measure::Exact).then(|| cochran_armitage(&doses).z),
        clusters: units.len() as u64,
        ..cell.contrast(ContrastKind::Trend, analysis)
    }))
}

/// Documents not reproduced at the first time, and those of them that were gained, by ln(1 + e).
fn doses(pairs: &[Pair<'_>]) -> Vec<Dose> {
    let mut levels: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for pair in pairs {
        let level = levels.entry(pair.epochs).or_default();
        level.0 += u64::from(!pair.first.exact && pair.last.exact);
        level.1 += u64::from(!pair.first.exact);
    }
    levels
        .into_iter()
        .map(|(level, (hits, trials))| Dose {
            score: f64::from(level).ln_1p(),
            hits,
            trials,
        })
        .collect()
}
