//! What limits the numbers of a report, beside the numbers themselves.

use super::kinship;
use crate::report::format::{number, plural};
use crate::report::page::Text;
use crate::report::study::Study;

/// Every limit that this study has.
pub(super) fn caveats(study: &Study) -> Vec<Text> {
    let rates = if study.rates_differ {
        "a learning rate for each model"
    } else {
        "one learning rate"
    };
    let mut caveats = vec![Text::from(format!(
        "These numbers hold under one recipe (one schedule, {rates}, one optimizer); \
         nothing is extrapolated beyond the sizes and presentations run.",
    ))];
    if study.random {
        caveats.push(
            "Training started from random weights: time initial is not a baseline, and the change \
             is read from warm to after."
                .into(),
        );
    }
    let trials = study.most_trials();
    caveats.push(Text::from(format!(
        "A trial is one training run, and every model and arm has {}. Intervals and tests take articles as the unit: they hold for \
         these runs, and leave out how far another run would differ. The tables by trial show how far these do.",
        plural(trials as u64, "run")
    )));
    if trials < study.levels.len() && study.control().is_some() {
        caveats.push(Text::from(format!(
            "The design is incomplete: {} for {} levels, so a document was seen at some levels only, \
             and {} of the {} groups never served as control.",
            plural(trials as u64, "trial"),
            study.levels.len(),
            study.levels.len() - trials,
            study.levels.len()
        )));
    }
    caveats.extend(unlearnt(study));
    caveats.extend(kinship::caveat(study));
    caveats
}

/// Where training on the buckets made models worse on all other text.
fn unlearnt(study: &Study) -> Option<Text> {
    let primary = &study.primary;
    let mean = |model: &String, arm: &str, time: &str| {
        let losses = study.held_out(model, arm, time);
        (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
    };
    let mut parts = Vec::new();
    for arm in &study.arms {
        let found = study.models.iter().filter_map(|model| {
            let before = mean(model, arm, &primary.from)?;
            let after = mean(model, arm, &primary.to)?;
            (after > before).then_some((before, after))
        });
        let (before, after): (Vec<f64>, Vec<f64>) = found.unzip();
        if !after.is_empty() {
            parts.push(format!(
                "arm {arm} from {} to {}",
                range(&before),
                range(&after)
            ));
        }
    }
    (!parts.is_empty()).then(|| {
        Text::from(format!(
            "Treatment cost what was known of other text: loss on documents never trained on, nats per token, mean over trials, from \
             {} to {}, by model: {}.",
            primary.from,
            primary.to,
            parts.join("; ")
        ))
    })
}

/// `5.83` or `5.83 … 5.95`.
fn range(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let [least, most] = [least, most].map(number);
    if least == most {
        least
    } else {
        format!("{least} … {most}")
    }
}
