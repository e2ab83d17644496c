//! An experiment as an ordered list of keyed stages. Pure: nothing is read, nothing is started.
//!
//! The key of a stage is the hash of its name, its version, the settings that change its result,
//! and the keys of its inputs. What doesn't change a result (grid, recomputation, checkpoints,
//! host) is not hashed.

use std::fmt;

use serde_json::{Value, json};

use crate::digest::digest;
use crate::experiment::{Arm, Dtype, Experiment, Goldfish, MaskOn, Time, TokenizerChoice, Weights};

/// A kind of work. The order is that of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Sources to documents.
    Corpus,
    /// Documents to token ids.
    Tokens,
    /// Token ids to buckets, background and held-out text.
    Buckets,
    /// A later dump to a second control.
    CreatedAfter,
    /// Initial weights.
    Weights,
    /// The layout of the ranks.
    Grid,
    /// Weights and probes to scores.
    Score,
    /// Weights and the second control to scores.
    CreatedAfterScore,
    /// Steps on background text.
    Warmup,
    /// Steps on the treated documents.
    Train,
    /// Scores to estimates.
    Estimate,
    /// Tables to a report.
    Report,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 12] = [
        Self::Corpus,
        Self::Tokens,
        Self::Buckets,
        Self::CreatedAfter,
        Self::Weights,
        Self::Grid,
        Self::Score,
        Self::CreatedAfterScore,
        Self::Warmup,
        Self::Train,
        Self::Estimate,
        Self::Report,
    ];

    /// The name in keys, folders and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corpus => "corpus",
            Self::Tokens => "tokens",
            Self::Buckets => "buckets",
            Self::CreatedAfter => "created_after",
            Self::Weights => "weights",
            Self::Grid => "grid",
            Self::Score => "score",
            Self::CreatedAfterScore => "created_after_score",
            Self::Warmup => "warmup",
            Self::Train => "train",
            Self::Estimate => "estimate",
            Self::Report => "report",
        }
    }

    /// The stage that people name to have its work done: that of the second control is done with that of the buckets.
    #[must_use]
    pub fn named(self) -> Self {
        match self {
            Self::CreatedAfter => Self::Buckets,
            Self::CreatedAfterScore => Self::Score,
            other => other,
        }
    }

    /// Whether its work is that of all ranks of the grid.
    pub fn on_ranks(self) -> bool {
        matches!(
            self,
            Self::Weights | Self::Score | Self::CreatedAfterScore | Self::Warmup | Self::Train
        )
    }

    /// Raised when the meaning of the stage's output changes.
    pub fn version(self) -> u32 {
        match self {
            Self::Tokens | Self::Buckets | Self::Score => 2,
            Self::Report => 5,
            Self::Estimate => 6,
            _ => 1,
        }
    }
}

/// What a stage is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Index of the model.
    pub model: Option<usize>,
    /// Name of the arm; `None` is all of them.
    pub arm: Option<String>,
    /// The trial; `None` is all of them.
    pub trial: Option<u32>,
    /// When the model is scored.
    pub time: Option<Time>,
    /// Its name, in a ladder.
    pub label: Option<String>,
}

/// One keyed stage.
#[derive(Clone, Debug)]
pub struct Node {
    /// The kind of work.
    pub stage: Stage,
    /// What it is about.
    pub subject: Subject,
    /// The hashed settings.
    pub settings: Value,
    /// Its inputs, as indices into [`Plan::nodes`]; all before this one.
    pub inputs: Vec<usize>,
    /// The hash of all that.
    pub key: String,
    /// What it will do, in a few words.
    pub does: String,
}

impl Node {
    /// The first digits of the key, enough to tell artefacts apart on a screen.
    pub fn short_key(&self) -> &str {
        &self.key[..12]
    }
}

impl fmt::Display for Node {
    /// Such as `score(after) goldfish 0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stage.name())?;
        if let Some(time) = self.subject.time {
            write!(f, "({})", time.name())?;
        }
        for word in [&self.subject.label, &self.subject.arm]
            .into_iter()
            .flatten()
        {
            write!(f, " {word}")?;
        }
        if let Some(trial) = self.subject.trial {
            write!(f, " {trial}")?;
        }
        Ok(())
    }
}

/// All stages of an experiment, inputs before what needs them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stages.
    pub nodes: Vec<Node>,
}

impl Plan {
    /// The plan of an experiment.
    pub fn new(experiment: &Experiment) -> Self {
        let mut builder = Builder {
            experiment,
            nodes: Vec::new(),
        };
        builder.all();
        Self {
            nodes: builder.nodes,
        }
    }

    /// The indices of all stages of one kind.
    pub fn of(&self, stage: Stage) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(move |&index| self.nodes[index].stage == stage)
    }

    /// The input of `node` of one kind; there is exactly one wherever this is asked.
    pub fn input(&self, node: &Node, stage: Stage) -> Option<usize> {
        node.inputs
            .iter()
            .copied()
            .find(|&input| self.nodes[input].stage == stage)
    }

    /// What is wanted and all that it rests on, in order.
    pub fn needed_for(&self, wanted: impl Fn(&Node) -> bool) -> Vec<usize> {
        let mut needed = vec![false; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if needed[index] || wanted(node) {
                needed[index] = true;
                for &input in &node.inputs {
                    needed[input] = true;
                }
            }
        }
        (0..self.nodes.len())
            .filter(|&index| needed[index])
            .collect()
    }
}

struct Builder<'a> {
    experiment: &'a Experiment,
    nodes: Vec<Node>,
}

/// The stages of the documents that models are scored on.
#[derive(Clone, Copy)]
struct Probed {
    tokens: usize,
    buckets: usize,
    created_after: Option<usize>,
}

/// Weights at one time, for one trial or all of them, one arm or all of them.
#[derive(Clone)]
struct Held {
    node: usize,
    arm: Option<String>,
    trial: Option<u32>,
}

impl Builder<'_> {
    fn push(
        &mut self,
        stage: Stage,
        subject: Subject,
        settings: Value,
        inputs: Vec<usize>,
        does: String,
    ) -> usize {
        let keys: Vec<&str> = inputs
            .iter()
            .map(|&input| self.nodes[input].key.as_str())
            .collect();
        let key = digest(&json!({
            "stage": stage.name(), "version": stage.version(), "settings": settings, "inputs": keys,
        }));
        let models = &self.experiment.models;
        let label = subject.model.filter(|_| models.len() > 1);
        let subject = Subject {
            label: label.map(|model| models[model].name.clone()),
            ..subject
        };
        self.nodes.push(Node {
            stage,
            subject,
            settings,
            inputs,
            key,
            does,
        });
        self.nodes.len() - 1
    }

    fn all(&mut self) {
        let corpus = self.corpus();
        let tokens = self.tokens(corpus);
        let buckets = self.buckets(corpus, tokens);
        let probed = Probed {
            tokens,
            buckets,
            created_after: self.created_after(corpus, tokens, buckets),
        };
        let mut scores = Vec::new();
        let mut trained = Vec::new();
        for model in 0..self.experiment.models.len() {
            let initial = self.weights(model, tokens);
            let grid = self.grid(model, &initial);
            scores.extend(self.scores(model, &initial, Time::Initial, probed, grid));
            let warm = self.warmup(model, &initial, grid, buckets);
            scores.extend(self.scores(model, &warm, Time::Warm, probed, grid));
            let after = self.train(model, &warm, grid, tokens, buckets);
            scores.extend(self.scores(model, &after, Time::After, probed, grid));
            trained.extend(after.iter().map(|held| held.node));
        }
        self.results(corpus, tokens, buckets, &trained, &scores);
    }

    fn corpus(&mut self) -> usize {
        let experiment = self.experiment;
        let background = experiment.background.text.as_ref();
        let settings = json!({ "corpus": experiment.corpus, "background": background });
        let does = match background {
            Some(text) => format!("read {} and {}", experiment.corpus.source, text.source),
            None => format!("read {}", experiment.corpus.source),
        };
        self.push(Stage::Corpus, Subject::default(), settings, vec![], does)
    }

    fn tokens(&mut self, corpus: usize) -> usize {
        let experiment = self.experiment;
        // The tokenizer of a published model comes with its weights.
        let published = match experiment.tokenizer {
            TokenizerChoice::Published => json!(experiment.models[0].weights),
            _ => Value::Null,
        };
        let settings = json!({
            "tokenizer": experiment.tokenizer, "published": published,
            "documents": experiment.documents,
        });
        let tokenizer = match &experiment.tokenizer {
            TokenizerChoice::Bpe { vocab } => format!("a BPE of {vocab} trained on the background"),
            TokenizerChoice::File { path, .. } => path.clone(),
            TokenizerChoice::Published => "the model's tokenizer".to_owned(),
        };
        let does = format!(
            "documents of {} ids with {tokenizer}",
            experiment.documents.tokens
        );
        self.push(
            Stage::Tokens,
            Subject::default(),
            settings,
            vec![corpus],
            does,
        )
    }

    fn buckets(&mut self, corpus: usize, tokens: usize) -> usize {
        let experiment = self.experiment;
        let settings = json!({
            "buckets": experiment.buckets, "seed": experiment.seed,
            "rows": experiment.background.rows, "held_out": experiment.background.held_out,
            "documents": experiment.documents,
        });
        let does = format!(
            "{} clusters at each of {:?} epochs, {} trials; {} background rows",
            experiment.buckets.size,
            experiment.buckets.epochs,
            experiment.buckets.trials,
            experiment.background.rows
        );
        self.push(
            Stage::Buckets,
            Subject::default(),
            settings,
            vec![corpus, tokens],
            does,
        )
    }

    /// The second control of a study that has one.
    fn created_after(&mut self, corpus: usize, tokens: usize, buckets: usize) -> Option<usize> {
        let experiment = self.experiment;
        let asked = experiment.created_after.as_ref()?;
        let settings = json!({
            "created_after": asked, "seed": experiment.seed, "documents": experiment.documents,
        });
        let does = format!(
            "{} pages of {} above the ids of {}",
            asked.size, asked.corpus.source, asked.snapshot.source
        );
        let inputs = vec![corpus, tokens, buckets];
        let subject = Subject::default();
        Some(self.push(Stage::CreatedAfter, subject, settings, inputs, does))
    }

    /// Random weights differ by trial; published ones are shared by all.
    fn weights(&mut self, model: usize, tokens: usize) -> Vec<Held> {
        let (name, weights) = {
            let model = &self.experiment.models[model];
            (model.name.clone(), model.weights.clone())
        };
        let subject = |trial| Subject {
            model: Some(model),
            trial,
            ..Subject::default()
        };
        let held = |node, trial| Held {
            node,
            arm: None,
            trial,
        };
        match &weights {
            Weights::Random(shape) => (0..self.experiment.buckets.trials)
                .map(|trial| {
                    let seed = self.experiment.seed;
                    let settings = json!({ "random": shape, "seed": seed, "trial": trial });
                    let does = format!("{name}: random weights, seed ({seed}, {trial})");
                    let inputs = vec![tokens];
                    let node =
                        self.push(Stage::Weights, subject(Some(trial)), settings, inputs, does);
                    held(node, Some(trial))
                })
                .collect(),
            Weights::Published(published) => {
                let does = format!("{name}: {}", published.source);
                let settings = json!(weights);
                let node = self.push(Stage::Weights, subject(None), settings, vec![], does);
                vec![held(node, None)]
            }
        }
    }

    fn grid(&mut self, model: usize, initial: &[Held]) -> usize {
        let layout = self.experiment.layout(Some(&self.experiment.models[model]));
        let settings = layout.hashed();
        let does = match layout.grid.ranks() {
            1 if layout.auto => "one rank, unless a launcher says more".to_owned(),
            1 => "one rank".to_owned(),
            ranks => format!("{ranks} ranks as {} (x, y, z, data)", layout.grid),
        };
        let subject = Subject {
            model: Some(model),
            ..Subject::default()
        };
        let inputs = initial.iter().map(|held| held.node).collect();
        self.push(Stage::Grid, subject, settings, inputs, does)
    }

    /// The scores of weights at one time, of all documents.
    fn scores(
        &mut self,
        model: usize,
        all: &[Held],
        time: Time,
        probed: Probed,
        grid: usize,
    ) -> Vec<usize> {
        let experiment = self.experiment;
        let mut scores = Vec::new();
        for held in all {
            let documents = experiment.buckets.size * experiment.buckets.epochs.len();
            let does = format!(
                "{documents} clusters, last {:?} ids",
                experiment.score.suffix
            );
            let of = [probed.tokens, probed.buckets, grid];
            scores.push(self.score(Stage::Score, does, model, held, time, of));
            let second = probed.created_after.zip(experiment.created_after.as_ref());
            if let Some((documents, asked)) = second {
                let does = format!(
                    "{} pages, last {:?} ids",
                    asked.size, experiment.score.suffix
                );
                let of = [probed.tokens, documents, grid];
                scores.push(self.score(Stage::CreatedAfterScore, does, model, held, time, of));
            }
        }
        scores
    }

    fn score(
        &mut self,
        stage: Stage,
        does: String,
        model: usize,
        held: &Held,
        time: Time,
        [tokens, documents, grid]: [usize; 3],
    ) -> usize {
        let experiment = self.experiment;
        let settings = json!({
            "model": experiment.models[model].name, "dtype": experiment.models[model].dtype,
            "arm": held.arm, "trial": held.trial, "time": time,
            "score": experiment.score, "bos": experiment.documents.bos,
        });
        let subject = Subject {
            model: Some(model),
            arm: held.arm.clone(),
            trial: held.trial,
            time: Some(time),
            label: None,
        };
        let mut inputs = vec![held.node, tokens, documents];
        inputs.extend(experiment.strict.then_some(grid));
        self.push(stage, subject, settings, inputs, does)
    }

    /// Rows of a step and of a forward pass.
    fn batch(&self, model: usize) -> (usize, usize) {
        let model = &self.experiment.models[model];
        (
            self.experiment.batch(model),
            self.experiment.micro_batch(model),
        )
    }

    /// One warm-up for each set of initial weights, and one more for each arm that masks it.
    fn warmup(&mut self, model: usize, initial: &[Held], grid: usize, buckets: usize) -> Vec<Held> {
        let experiment = self.experiment;
        let train = &experiment.train;
        let (batch, micro_batch) = self.batch(model);
        let shares = |arm: &Arm| masks_warmup(arm).is_none();
        let mut warm = Vec::new();
        for held in initial {
            let shared = train.arms.iter().any(shares).then_some(None);
            let own = train.arms.iter().filter(|arm| !shares(arm)).map(Some);
            for arm in shared.into_iter().chain(own) {
                let mask = arm.and_then(masks_warmup);
                let settings = json!({
                    "model": experiment.models[model].name,
                    "dtype": experiment.models[model].dtype,
                    "arm": arm.map(Arm::name), "mask": mask.map(mask_settings),
                    "trial": held.trial, "steps": train.warmup.steps, "batch": batch,
                    "micro_batch": micro_batch, "peak": experiment.models[model].rate.peak,
                    "optimizer": train.optimizer, "clip": train.clip,
                });
                let subject = Subject {
                    model: Some(model),
                    arm: arm.map(|arm| arm.name().to_owned()),
                    trial: held.trial,
                    ..Subject::default()
                };
                let does = format!("{} steps of {batch} background rows", train.warmup.steps);
                let mut inputs = vec![held.node, buckets];
                inputs.extend(experiment.strict.then_some(grid));
                let node = self.push(Stage::Warmup, subject.clone(), settings, inputs, does);
                warm.push(Held {
                    node,
                    arm: subject.arm,
                    trial: held.trial,
                });
            }
        }
        warm
    }

    fn train(
        &mut self,
        model: usize,
        warm: &[Held],
        grid: usize,
        tokens: usize,
        buckets: usize,
    ) -> Vec<Held> {
        let experiment = self.experiment;
        let train = &experiment.train;
        let (batch, micro_batch) = self.batch(model);
        let mut after = Vec::new();
        for arm in &train.arms {
            for trial in 0..experiment.buckets.trials {
                let own = masks_warmup(arm).map(|_| arm.name().to_owned());
                let start = warm
                    .iter()
                    .find(|held| held.arm == own && held.trial.is_none_or(|held| held == trial))
                    .expect("every arm and trial has a warm-up");
                let mut settings = json!({
                    "model": experiment.models[model].name,
                    "dtype": experiment.models[model].dtype,
                    "arm": arm, "trial": trial, "seed": experiment.seed,
                    "batch": batch, "micro_batch": micro_batch, "mix": train.mix,
                    "placement": train.placement, "rate": experiment.models[model].rate,
                    "optimizer": train.optimizer, "clip": train.clip,
                });
                // Without probes the key is that of a training that knows of none.
                if let Some(probes) = &train.probes {
                    settings["probes"] = json!({
                        "every": probes.every, "score": experiment.score,
                        "prefix": experiment.score.primary_prefix(), "bos": experiment.documents.bos,
                    });
                }
                let rows: usize = experiment
                    .buckets
                    .epochs
                    .iter()
                    .map(|&e| e as usize)
                    .sum::<usize>()
                    * experiment.buckets.size;
                let does = format!("{rows} treated rows, batches of {}", arm.batch(batch));
                let subject = Subject {
                    model: Some(model),
                    arm: Some(arm.name().to_owned()),
                    trial: Some(trial),
                    ..Subject::default()
                };
                let mut inputs = vec![start.node, tokens, buckets];
                inputs.extend(experiment.strict.then_some(grid));
                let node = self.push(Stage::Train, subject, settings, inputs, does);
                after.push(Held {
                    node,
                    arm: Some(arm.name().to_owned()),
                    trial: Some(trial),
                });
            }
        }
        after
    }

    fn results(
        &mut self,
        corpus: usize,
        tokens: usize,
        buckets: usize,
        trained: &[usize],
        scores: &[usize],
    ) {
        let experiment = self.experiment;
        let settings = json!({ "analysis": experiment.analysis, "seed": experiment.seed });
        let mut inputs = vec![tokens, buckets];
        inputs.extend(trained);
        inputs.extend(scores);
        let does = format!(
            "rates, contrasts and overlap at level {}, {} resamples",
            experiment.analysis.level, experiment.analysis.resamples
        );
        let estimate = self.push(Stage::Estimate, Subject::default(), settings, inputs, does);
        let settings = match &experiment.certificate {
            None => json!({ "name": experiment.name }),
            Some(hash) => json!({ "name": experiment.name, "certificate": hash }),
        };
        let mut inputs = vec![corpus, estimate];
        inputs.extend(self.nodes[estimate].inputs.clone());
        inputs.extend((0..estimate).filter(|&node| {
            matches!(
                self.nodes[node].stage,
                Stage::Warmup | Stage::Grid | Stage::Weights | Stage::CreatedAfter
            )
        }));
        let does = "report.html, report.md, figures, summary.json".to_owned();
        self.push(Stage::Report, Subject::default(), settings, inputs, does);
    }
}

/// The mask of the warm-up, if the arm has one.
pub fn masks_warmup(arm: &Arm) -> Option<&Goldfish> {
    match arm {
        Arm::Goldfish(goldfish) if goldfish.on == MaskOn::All => Some(goldfish),
        _ => None,
    }
}

fn mask_settings(goldfish: &Goldfish) -> Value {
    json!({ "k": goldfish.k, "h": goldfish.h, "hash": goldfish.hash, "key": goldfish.key })
}

/// The compute type of the stage's model, for the manifest.
pub fn dtype(experiment: &Experiment, node: &Node) -> Dtype {
    node.subject
        .model
        .map_or(Dtype::F32, |model| experiment.models[model].dtype)
}
