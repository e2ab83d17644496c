//! `axmem power`: what the primary comparison of an experiment can find, and what a given effect needs.

use anyhow::Result;
use axmem_eval::stats::{Comparison, Planner};
use serde::Serialize;
use serde_json::json;

use crate::events;
use crate::exit::Failure;
use crate::experiment::{Contrast, Experiment, Measure};

/// Simulated comparisons, and permutations of each: enough for one digit behind a percent.
const DRAWS: u64 = 2_000;
const PERMUTATIONS: usize = 999;
/// Clusters of a side up to which a comparison is simulated.
const SIMULATED: u64 = 1_000;

/// What is asked.
#[derive(Debug)]
pub struct Request {
    /// The experiment.
    pub experiment: Experiment,
    /// Effects of interest: shares of clusters.
    pub effects: Vec<f64>,
    /// Share of clusters that change without an effect.
    pub discordance: f64,
    /// Power of the smallest detectable effect and of the sizes.
    pub power: f64,
    /// Whether the answer is one JSON object.
    pub json: bool,
}

/// The design as far as power depends on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Design {
    contrast: &'static str,
    exposures: u32,
    clusters_per_bucket: u64,
    trials: u32,
    /// Trials in which a bucket has clusters that it had in none before.
    distinct_trials: u32,
    /// Clusters of a side, over those trials.
    clusters: u64,
    level: f64,
    /// Tests of the primary family: of every model, arm and prefix.
    family: u64,
    /// Probability of a false finding that the strictest test of the family allows.
    alpha: f64,
}

impl Design {
    fn new(experiment: &Experiment) -> Self {
        let (buckets, analysis) = (&experiment.buckets, &experiment.analysis);
        // A group of clusters comes back to a level after as many trials as there are levels.
        let distinct_trials = buckets.trials.min(buckets.epochs.len() as u32);
        let tests = [
            experiment.models.len(),
            experiment.train.arms.len(),
            experiment.score.prefix.len(),
        ];
        let family = tests.iter().product::<usize>().max(1) as u64;
        Self {
            contrast: match analysis.primary.contrast {
                Contrast::Did => "did",
                Contrast::Paired => "paired",
            },
            exposures: analysis.primary.exposures,
            clusters_per_bucket: buckets.size as u64,
            trials: buckets.trials,
            distinct_trials,
            clusters: buckets.size as u64 * u64::from(distinct_trials),
            level: analysis.level,
            family,
            alpha: (1.0 - analysis.level) / family as f64,
        }
    }

    fn comparison(&self) -> Comparison {
        if self.contrast == "paired" {
            Comparison::Paired
        } else {
            Comparison::Difference
        }
    }
}

/// What one effect needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Needs {
    effect: f64,
    /// Power with the clusters of the design.
    power: f64,
    /// Clusters of a bucket, with the trials of the design.
    clusters_per_bucket: Option<u64>,
    /// Trials, with the buckets of the design; none beyond one for each level.
    trials: Option<u64>,
    /// Exposures, with the clusters of the design, if each presentation adds alike.
    exposures: Option<u64>,
}

impl Needs {
    fn new(design: &Design, levels: usize, planner: &Planner, effect: f64) -> Self {
        let clusters = planner.clusters(effect);
        let trials = clusters.map(|clusters| clusters.div_ceil(design.clusters_per_bucket));
        Self {
            effect,
            power: planner.power_at(design.clusters, effect),
            clusters_per_bucket: clusters
                .map(|clusters| clusters.div_ceil(u64::from(design.distinct_trials))),
            trials: trials.filter(|trials| *trials <= levels as u64),
            exposures: planner
                .smallest_effect(design.clusters)
                .and_then(|smallest| exposures(design.exposures, effect, smallest)),
        }
    }
}

/// Exposures after which a share `wanted` has gained, if a share `effect` has after `exposures` and each presentation
/// leaves the same share of the rest without a gain: ln(1 - wanted) / ln(1 - effect) times as many.
fn exposures(exposures: u32, effect: f64, wanted: f64) -> Option<u64> {
    let ratio = (-wanted).ln_1p() / (-effect).ln_1p();
    let needed = (ratio * f64::from(exposures) - 1e-9).ceil().max(1.0);
    needed.is_finite().then_some(needed as u64)
}

/// Prints the answer.
///
/// # Errors
/// Settings out of range.
pub fn run(request: &Request) -> Result<()> {
    let experiment = &request.experiment;
    check(request)?;
    let design = Design::new(experiment);
    let planner = Planner {
        comparison: design.comparison(),
        discordance: request.discordance,
        alpha: design.alpha,
        power: request.power,
    };
    let smallest = planner.smallest_effect(design.clusters);
    let simulated = smallest
        .filter(|_| design.clusters <= SIMULATED)
        .map(|effect| {
            let seed = experiment.seed;
            planner.simulate(design.clusters, effect, DRAWS, PERMUTATIONS, seed)
        });
    let levels = experiment.buckets.epochs.len();
    let needs = |effect: &f64| Needs::new(&design, levels, &planner, *effect);
    let needs: Vec<Needs> = request.effects.iter().map(needs).collect();
    if request.json {
        let answer = json!({
            "experiment": experiment.name, "design": design, "discordance": request.discordance,
            "power": request.power, "smallest_detectable": smallest, "simulated_power": simulated, "effects": needs,
        });
        events::print(&answer.to_string());
        return Ok(());
    }
    for line in lines(request, &design, smallest, simulated, &needs) {
        events::print(&line);
    }
    Ok(())
}

fn check(request: &Request) -> Result<()> {
    let share = |value: f64| value > 0.0 && value < 1.0;
    if !share(request.power) {
        return Err(Failure::usage(format!(
            "--power: must lie between 0 and 1, got {}",
            request.power
        )));
    }
    let discordance = request.discordance;
    if !(0.0..1.0).contains(&discordance) {
        return Err(Failure::usage(format!(
            "--discordance: a share of clusters from 0 to below 1, got {discordance}"
        )));
    }
    let room = 1.0 - discordance;
    if let Some(effect) = request
        .effects
        .iter()
        .find(|effect| !(**effect > 0.0 && **effect <= room))
    {
        return Err(Failure::usage(format!(
            "--effect: a share of clusters above 0 and up to {room} (1 less the discordance), got {effect}"
        )));
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn lines(
    request: &Request,
    design: &Design,
    smallest: Option<f64>,
    simulated: Option<f64>,
    needs: &[Needs],
) -> Vec<String> {
    let experiment = &request.experiment;
    let epochs = &experiment.buckets.epochs;
    let list: Vec<String> = epochs.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        format!(
            "{}: {} clusters in each bucket ({} exposures), {} trial{}; level {}, {} primary test{} (models × arms × prefixes), so each at {} (Holm's first step)",
            experiment.name,
            design.clusters_per_bucket,
            list.join(", "),
            design.trials,
            if design.trials == 1 { "" } else { "s" },
            percent(design.level),
            design.family,
            if design.family == 1 { "" } else { "s" },
            percent(design.alpha),
        ),
        match design.comparison() {
            Comparison::Paired => format!(
                "before against after at {} exposures: {} clusters",
                design.exposures, design.clusters
            ),
            Comparison::Difference => format!(
                "change at {} exposures against the change of the control: {} clusters a side",
                design.exposures, design.clusters
            ),
        },
        format!(
            "assumed: {} of clusters change without any effect, half of them either way (--discordance); power {}",
            percent(request.discordance),
            percent(request.power)
        ),
    ];
    if design.trials > design.distinct_trials {
        lines.push(format!(
            "after {} trials each cluster has been in every bucket; those beyond repeat clusters and are not counted",
            design.distinct_trials
        ));
    }
    if experiment.analysis.primary.measure == Measure::LogProbability {
        lines.push(
            "the primary measure is the log-probability, whose spread is not known beforehand; this is about exact match"
                .to_owned(),
        );
    }
    lines.push(String::new());
    lines.push(match (smallest, simulated) {
        (Some(effect), Some(power)) => format!(
            "smallest detectable effect: {} of clusters ({} of {DRAWS} simulated tests find it)",
            percent(effect),
            percent(power)
        ),
        (Some(effect), None) => {
            format!("smallest detectable effect: {} of clusters", percent(effect))
        }
        (None, _) => {
            "no effect is detectable, however large: too few clusters for the test to reach its level".to_owned()
        }
    });
    if needs.is_empty() {
        return lines;
    }
    lines.extend([
        String::new(),
        "| effect | power here | clusters per bucket | or trials | or exposures |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ]);
    let count = |count: Option<u64>| count.map_or("none".to_owned(), |count| count.to_string());
    lines.extend(needs.iter().map(|needs| {
        format!(
            "| {} | {} | {} | {} | {} |",
            percent(needs.effect),
            percent(needs.power),
            count(needs.clusters_per_bucket),
            count(needs.trials),
            count(needs.exposures)
        )
    }));
    lines.extend([
        String::new(),
        format!(
            "none: not with more than {} trials, which would repeat clusters, or not at all",
            epochs.len()
        ),
        format!(
            "exposures: if every presentation leaves the same share of the rest without a gain; those beyond {} are more than \
             the study runs",
            epochs.iter().max().copied().unwrap_or(0)
        ),
    ]);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposures_follow_from_equal_presentations() {
        // Half after one: three quarters after two.
        assert_eq!(exposures(1, 0.5, 0.75), Some(2));
        assert_eq!(exposures(64, 0.5, 0.5), Some(64));
        assert_eq!(exposures(64, 0.9, 0.1), Some(3));
        assert_eq!(exposures(4, 0.5, 1.0), None);
        assert_eq!(exposures(4, 1.0, 0.5), Some(1));
    }
}
