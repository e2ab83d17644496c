//! Statistics as pure functions: no files, no clock, no global random state.
//!
//! The unit is the cluster. Whatever is random is a function of a seed, so that a result can be
//! recomputed from the records to the last bit.
//!
//! ```
//! use axmem_eval::stats::{mcnemar, wilson};
//! // No hit in 200 is not a rate of 0 for certain.
//! assert!(wilson(0.0, 200.0, 0.95).high > 0.018);
//! // Six documents gained and none lost: the least that reaches 0.05.
//! assert!((mcnemar(6, 0).exact - 0.03125).abs() < 1e-12);
//! ```

mod bootstrap;
mod did;
mod logistic;
mod multiplicity;
mod paired;
mod power;
mod proportion;
mod random;
mod trend;

pub use bootstrap::{BcaInterval, bca, percentile, quantile};
pub(crate) use bootstrap::{central, sorted_replicates};
pub use did::{Did, Side, Unit, did};
pub use logistic::{Cell, firth};
pub use multiplicity::{benjamini_hochberg, holm};
pub use paired::{
    Change, McNemar, mcnemar, paired_change, sign_flip, smallest_detectable,
    smallest_detectable_gain,
};
pub use power::{Comparison, Planner};
pub use proportion::{
    beta_quantile, clopper_pearson, korn_graubard, normal_quantile, student_t_quantile, wilson,
};
pub use random::Random;
pub use trend::{Dose, Dosed, Slope, Trend, cochran_armitage, slope};

/// A two-sided interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Width of equality between statistics that were summed in another order.
pub(crate) const SLACK: f64 = 1e-12;

/// Whether all values are the same, so that resampling them shows no spread.
pub(crate) fn is_constant(values: &[f64]) -> bool {
    values
        .windows(2)
        .all(|pair| pair[0].to_bits() == pair[1].to_bits())
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
