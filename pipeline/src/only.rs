//! `--only`: a part of a study, which a later run of the whole joins.

use std::str::FromStr;

use anyhow::Result;

use crate::exit::Failure;
use crate::experiment::{Arm, Experiment, Layout, Model};
use crate::plan::{Stage, Subject};

/// Which models, arms and trials are wanted; nothing said is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    model: Option<String>,
    arm: Option<String>,
    trial: Option<u32>,
}

impl Only {
    /// The part that is about one model.
    pub fn of_model(name: &str) -> Self {
        Self {
            model: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// The layouts of the ranks that the part runs on.
    pub fn layouts<'a>(
        &self,
        experiment: &'a mut Experiment,
    ) -> impl Iterator<Item = &'a mut Layout> + use<'a> {
        let name = self.model.clone();
        let is_wanted = move |model: &Model| name.as_ref().is_none_or(|name| *name == model.name);
        let mut wanted = experiment.models.iter().filter(|model| is_wanted(model));
        let shared = wanted.any(|model| model.grid.is_none());
        let models = experiment.models.iter_mut();
        let own = models
            .filter(move |model| is_wanted(model))
            .filter_map(|model| model.grid.as_mut());
        shared
            .then_some(&mut experiment.grid)
            .into_iter()
            .chain(own)
    }

    /// Whether it is the whole study.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// The last stage of a part: estimates and the report are of the whole study.
    pub fn until(&self, stage: Stage) -> Stage {
        if self.is_all() {
            stage
        } else {
            stage.min(Stage::Score)
        }
    }

    /// Whether a stage about `subject` belongs to the part. What arms or trials share belongs to each of them.
    pub fn takes(&self, experiment: &Experiment, subject: &Subject) -> bool {
        fn agree<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
            match (wanted, found) {
                (Some(wanted), Some(found)) => wanted == found,
                _ => true,
            }
        }
        let model = subject
            .model
            .map(|model| experiment.models[model].name.as_str());
        agree(self.model.as_deref(), model)
            && agree(self.arm.as_deref(), subject.arm.as_deref())
            && agree(self.trial, subject.trial)
    }

    /// The experiments that have the part.
    ///
    /// # Errors
    /// None of them has it.
    pub fn of(&self, mut all: Vec<Experiment>) -> Result<Vec<Experiment>> {
        let first = all
            .first()
            .map_or(Ok(()), |experiment| self.check(experiment));
        all.retain(|experiment| self.check(experiment).is_ok());
        if all.is_empty() {
            first.map(|()| all)
        } else {
            Ok(all)
        }
    }

    /// Refuses a part that the study does not have.
    ///
    /// # Errors
    /// A usage error that names what there is.
    pub fn check(&self, experiment: &Experiment) -> Result<()> {
        let models = experiment.models.iter().map(|model| model.name.as_str());
        let arms = experiment.train.arms.iter().map(Arm::name);
        one_of("model", self.model.as_deref(), models)?;
        one_of("arm", self.arm.as_deref(), arms)?;
        let trials = experiment.buckets.trials;
        match self.trial {
            Some(trial) if trial >= trials => Err(Failure::usage(format!(
                "--only trial={trial}: the study has {trials} trials, counted from 0"
            ))),
            _ => Ok(()),
        }
    }
}

fn one_of<'a>(
    field: &str,
    wanted: Option<&str>,
    names: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let names: Vec<&str> = names.collect();
    match wanted {
        Some(wanted) if !names.contains(&wanted) => Err(Failure::usage(format!(
            "--only {field}={wanted}: the study has {}",
            names.join(", ")
        ))),
        _ => Ok(()),
    }
}

impl FromStr for Only {
    type Err = String;

    /// Such as `model=70b,arm=goldfish,trial=0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut only = Self::default();
        for part in text.split(',') {
            let (field, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part} has no `=`"))?;
            let given_before = match field {
                "model" => only.model.replace(value.to_owned()).is_some(),
                "arm" => only.arm.replace(value.to_owned()).is_some(),
                "trial" => {
                    let trial = value
                        .parse()
                        .map_err(|_| format!("{value} is not the number of a trial"))?;
                    only.trial.replace(trial).is_some()
                }
                _ => return Err(format!("{field} is none of model, arm, trial")),
            };
            if given_before {
                return Err(format!("{field} is given twice"));
            }
        }
        Ok(only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_bad_ones_are_named() {
        let only: Only = "model=70b,arm=goldfish,trial=2".parse().expect("a part");
        assert_eq!(
            only,
            Only {
                model: Some("70b".into()),
                arm: Some("goldfish".into()),
                trial: Some(2)
            }
        );
        for (text, says) in [
            ("model", "no `=`"),
            ("size=3", "none of model, arm, trial"),
            ("trial=x", "not the number of a trial"),
            ("arm=a,arm=b", "given twice"),
        ] {
            let message = text.parse::<Only>().expect_err(text);
            assert!(message.contains(says), "{message}");
        }
    }
}
