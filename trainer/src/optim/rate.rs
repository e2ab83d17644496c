//! The learning rate as a pure function of the step: nothing is counted, so nothing can be off after a resume.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the rate falls from peak to final after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decay {
    /// Half a cosine.
    Cosine,
    /// A straight line.
    Linear,
    /// No decay: the rate stays at its peak.
    Constant,
}

/// Linear warm-up over `warmup_steps`, then a decay over `decay_steps`.
///
/// ```
/// use axmem_trainer::optim::{Decay, RateSchedule};
/// let schedule = RateSchedule {
///     peak: 1e-3, last: 1e-4, decay: Decay::Linear, warmup_steps: 10, decay_steps: 90,
/// };
/// assert_eq!(schedule.at(1), 1e-4);
/// assert_eq!(schedule.at(10), 1e-3);
/// assert_eq!(schedule.at(100), 1e-4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSchedule {
    /// The rate at the last step of the warm-up.
    pub peak: f64,
    /// The rate at the last step of the decay and after it; `final` in files.
    #[serde(rename = "final")]
    pub last: f64,
    /// Shape of the decay.
    pub decay: Decay,
    /// W: steps of the linear ramp from 0.
    pub warmup_steps: u64,
    /// Steps from peak to final.
    pub decay_steps: u64,
}

impl RateSchedule {
    /// Refuses rates that are negative or not finite, and a final rate above the peak.
    pub fn validate(&self) -> Result<()> {
        if !(self.peak.is_finite() && self.peak >= 0.0) {
            return Err(Error::setting(
                "rate.peak",
                format!(
                    "{} is not a rate; it must be a number of at least 0",
                    self.peak
                ),
            ));
        }
        if !(0.0..=self.peak).contains(&self.last) {
            return Err(Error::setting(
                "rate.final",
                format!("{} is not between 0 and the peak {}", self.last, self.peak),
            ));
        }
        Ok(())
    }

    /// The rate of `step`, counted from 1. Step s of a warm-up of W steps has rate peak * s / W; with s' = s - W and D
    /// decay steps, the decay is at the fraction p = s' / D of its way, and stays at its end afterwards.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * step as f64 / self.warmup_steps as f64;
        }
        let decayed = step - self.warmup_steps;
        let progress = if decayed >= self.decay_steps {
            f64::from(u8::from(decayed > 0))
        } else {
            decayed as f64 / self.decay_steps as f64
        };
        let remaining = match self.decay {
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
            Decay::Linear => 1.0 - progress,
            Decay::Constant => 1.0,
        };
        self.last + (self.peak - self.last) * remaining
    }
}
