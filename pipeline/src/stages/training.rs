//! A run of steps that survives being killed at any moment: what warm-up and treatment share.
//!
//! Every so many steps the records so far and then a checkpoint are written into the folder of
//! work in progress. A later attempt goes back to the newest complete checkpoint and to the
//! records that belong to it, so that the tables are those of an unbroken run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::background::PackedRow;
use axmem_datasets::{files, record, table};
use axmem_eval::estimate::ProbeRow;
use axmem_eval::rank_model::RankModel;
use axmem_eval::{self as eval, Probe, ScoreSettings};
use axmem_trainer::{
    Llama, Rank, Row, StepRecord, TrainConfig, Trainer, checkpoint, engine as steps,
};

use super::Context;
use crate::plan::Stage;
use crate::store::{PARTIAL, remove_file};
use crate::weights::{CHECKPOINT, CONFIG, Weights};

/// Scores on the way, in the artefact of a training that was asked for them.
pub(crate) const PROBES: &str = "probes.parquet";

/// One step, without what depends on the machine.
#[derive(Clone, Debug)]
pub(super) struct StepRow {
    model: String,
    arm: String,
    trial: u32,
    phase: String,
    step: u64,
    loss: f64,
    kept_tokens: u64,
    tokens: u64,
    rate: f64,
    grad_norm: f64,
}

record!(StepRow as "steps" {
    model: String, arm: String, trial: u32, phase: String, step: u64, loss: f64, kept_tokens: u64,
    tokens: u64, rate: f64, grad_norm: f64,
});

/// How fast one step was, on which ranks, as the first of them saw it.
#[derive(Clone, Debug)]
pub(super) struct TimingRow {
    pub(super) model: String,
    pub(super) arm: String,
    pub(super) trial: u32,
    pub(super) phase: String,
    pub(super) step: u64,
    pub(super) grid: String,
    pub(super) back_end: String,
    pub(super) seconds: f64,
    pub(super) tokens_per_second: f64,
    pub(super) flops_per_second: f64,
    pub(super) exposed_x: f64,
    pub(super) exposed_y: f64,
    pub(super) exposed_z: f64,
    pub(super) exposed_data: f64,
    pub(super) peak_bytes: u64,
}

record!(TimingRow as "timings" {
    model: String, arm: String, trial: u32, phase: String, step: u64, grid: String,
    back_end: String, seconds: f64, tokens_per_second: f64, flops_per_second: f64,
    exposed_x: f64, exposed_y: f64, exposed_z: f64, exposed_data: f64, peak_bytes: u64,
});

/// Loss on held-out text.
#[derive(Clone, Debug)]
pub(crate) struct Validation {
    model: String,
    arm: String,
    trial: u32,
    time: String,
    pub(crate) loss: f64,
    tokens: u64,
}

record!(Validation as "validation" {
    model: String, arm: String, trial: u32, time: String, loss: f64, tokens: u64,
});

/// A run of steps, described.
pub(super) struct Run<'a> {
    /// `warmup` or `train`.
    pub(super) phase: &'static str,
    /// Artefact whose weights it starts from.
    pub(super) from: PathBuf,
    /// Whether it goes on with the moments and the count of steps of that artefact, or begins at
    /// step 0 with the weights alone.
    pub(super) goes_on: bool,
    /// Settings of the trainer.
    pub(super) config: TrainConfig,
    /// Number of steps.
    pub(super) steps: u32,
    /// The rows of a step, counted from 0 in this run.
    pub(super) rows: &'a (dyn Fn(u32) -> Result<Vec<Row>> + Sync),
    /// The rate of a step, counted from 1 over warm-up and treatment.
    pub(super) rate: &'a (dyn Fn(u64) -> f64 + Sync),
    /// Scores on the way.
    pub(super) probing: Option<Probing>,
}

/// What is scored on the way, and when.
pub(super) struct Probing {
    /// Steps between scores; the last step is scored too.
    pub(super) every: u32,
    /// All documents of the buckets.
    pub(super) probes: Vec<Probe>,
    /// Their level in this trial.
    pub(super) levels: HashMap<String, u32>,
    /// How they are scored.
    pub(super) settings: ScoreSettings,
    /// Ids of the tokenizer.
    pub(super) ids: usize,
}

/// Makes all steps and writes the checkpoint and the tables `steps` and `timings`.
pub(super) fn run(context: &Context<'_>, run: &Run<'_>) -> Result<()> {
    let weights = Weights::of_artefact(&run.from)?;
    context.on_ranks(|rank| {
        let llama = if run.goes_on {
            Llama::zeros(weights.config(), rank)?
        } else {
            weights.llama(rank)?
        };
        let mut trainer = Trainer::new(rank, llama, run.config.clone())?;
        if run.goes_on {
            trainer.load(rank, &run.from.join(CHECKPOINT))?;
        }
        steps_of(context, run, rank, &mut trainer)
    })?;
    if !context.ranks.is_first() {
        return Ok(());
    }
    let config = files::read(run.from.join(CONFIG))?;
    Ok(files::write_atomic(context.folder.join(CONFIG), &config)?)
}

fn steps_of(
    context: &Context<'_>,
    run: &Run<'_>,
    rank: &Rank,
    trainer: &mut Trainer,
) -> Result<()> {
    let partial = context.folder.join(PARTIAL);
    let first = trainer.step_count();
    let (begun, mut records) = begun(rank, &partial)?;
    if let Some(step) = begun {
        trainer.load(rank, &checkpoint::step_folder(&partial, step))?;
    }
    let done = (trainer.step_count() - first) as u32;
    if rank.is_first() {
        context.events.start(
            &context.node.to_string(),
            "steps",
            u64::from(run.steps),
            u64::from(done),
        );
    }
    let settings = &context.experiment.train.checkpoint;
    for index in done..run.steps {
        let rows = (run.rows)(index)?;
        let record = trainer.step(rank, &rows, (run.rate)(first + u64::from(index) + 1))?;
        records.push(context, run.phase, &record);
        let made = index + 1;
        if let Some(probing) = &run.probing
            && (made % probing.every == 0 || made == run.steps)
        {
            records.probe(context, probing, rank, trainer.llama(), record.step)?;
        }
        if made % settings.every == 0 && made < run.steps {
            if rank.is_first() {
                records.write(&partial, record.step)?;
            }
            trainer.save(rank, &checkpoint::step_folder(&partial, record.step))?;
            if rank.is_first() {
                checkpoint::prune(&partial, settings.keep)?;
                Records::forget(&partial)?;
            }
        }
        if rank.is_first() {
            context
                .events
                .progress(u64::from(made), &format!("loss {:.3}", record.loss));
        }
    }
    trainer.save(rank, &context.folder.join(CHECKPOINT))?;
    if !rank.is_first() {
        return Ok(());
    }
    table::write(context.folder.join("steps.parquet"), &records.steps)?;
    table::write(context.folder.join("timings.parquet"), &records.timings)?;
    if run.probing.is_some() {
        table::write(context.folder.join(PROBES), &records.probes)?;
    }
    Ok(())
}

/// The step of the newest complete checkpoint of an earlier attempt, which all ranks go on from, and
/// on the first rank the records until then. Collective.
fn begun(rank: &Rank, partial: &Path) -> Result<(Option<u64>, Records)> {
    let mut records = Records::default();
    let mut found = None;
    if rank.is_first() {
        files::create_dir_all(partial)?;
        if let Some((step, _)) = checkpoint::latest(partial)? {
            records = Records::read(partial, step)?;
            found = Some(step);
        }
    }
    let step = rank.agree(found.unwrap_or(u64::MAX))?;
    Ok(((step < u64::MAX).then_some(step), records))
}

/// The steps since the start of the run.
#[derive(Default)]
struct Records {
    steps: Vec<StepRow>,
    timings: Vec<TimingRow>,
    probes: Vec<ProbeRow>,
}

impl Records {
    /// Scores all documents as they are reproduced after a step. Collective.
    fn probe(
        &mut self,
        context: &Context<'_>,
        probing: &Probing,
        rank: &Rank,
        llama: &Llama,
        step: u64,
    ) -> Result<()> {
        let model = RankModel {
            llama,
            rank,
            ids: probing.ids,
        };
        for score in eval::score(&model, &probing.probes, &probing.settings)? {
            let level = probing.levels.get(&score.document).copied();
            self.probes.push(ProbeRow {
                model: context.model().name.clone(),
                arm: context.node.subject.arm.clone().unwrap_or_default(),
                trial: context.node.subject.trial.unwrap_or(0),
                step: u32::try_from(step).context("more steps than a table counts")?,
                epochs: level.context("every probed document has a level")?,
                document: score.document,
                cluster: score.cluster,
                prefix: score.prefix,
                suffix: score.suffix,
                exact: score.exact,
                log_probability: score.log_probability,
            });
        }
        Ok(())
    }

    fn push(&mut self, context: &Context<'_>, phase: &str, record: &StepRecord) {
        let model = context.model().name.clone();
        let arm = context.node.subject.arm.clone().unwrap_or_default();
        let trial = context.node.subject.trial.unwrap_or(0);
        self.timings.push(TimingRow {
            model: model.clone(),
            arm: arm.clone(),
            trial,
            phase: phase.to_owned(),
            step: record.step,
            grid: context.layout().grid.to_string(),
            back_end: context.ranks.back_end().to_owned(),
            seconds: record.seconds,
            tokens_per_second: record.tokens as f64 / record.seconds,
            flops_per_second: record.model_flops as f64 / record.seconds,
            exposed_x: record.exposed.x,
            exposed_y: record.exposed.y,
            exposed_z: record.exposed.z,
            exposed_data: record.exposed.data,
            peak_bytes: record.peak_bytes,
        });
        self.steps.push(StepRow {
            model,
            arm,
            trial,
            phase: phase.to_owned(),
            step: record.step,
            loss: record.loss,
            kept_tokens: record.kept_tokens,
            tokens: record.tokens,
            rate: record.rate,
            grad_norm: record.grad_norm,
        });
    }

    /// Written before the checkpoint of the same step: a complete checkpoint has its records.
    fn write(&self, partial: &Path, step: u64) -> Result<()> {
        let [steps, timings, probes] = names(partial, step);
        table::write(steps, &self.steps)?;
        table::write(timings, &self.timings)?;
        Ok(table::write(probes, &self.probes)?)
    }

    fn read(partial: &Path, step: u64) -> Result<Self> {
        let [steps, timings, probes] = names(partial, step);
        Ok(Self {
            steps: table::read(steps)?,
            timings: table::read(timings)?,
            probes: table::read(probes)?,
        })
    }

    /// Removes the records of checkpoints that are gone.
    fn forget(partial: &Path) -> Result<()> {
        for path in files::list(partial)? {
            let step = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".parquet")?.rsplit_once('-'))
                .and_then(|(_, step)| step.parse().ok());
            if step.is_some_and(|step| !checkpoint::step_folder(partial, step).is_dir()) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }
}

fn names(partial: &Path, step: u64) -> [PathBuf; 3] {
    ["steps", "timings", "probes"].map(|table| partial.join(format!("{table}-{step:08}.parquet")))
}

/// The background rows in the order of use, and the held-out rows.
pub(super) fn background(context: &Context<'_>) -> Result<(Vec<PackedRow>, Vec<PackedRow>)> {
    let path = context.input(Stage::Buckets).join("background.parquet");
    let rows: Vec<PackedRow> = table::read(path)?;
    Ok(rows.into_iter().partition(|row| !row.held_out))
}

/// A packed row as the trainer takes it.
pub(super) fn packed(row: &PackedRow, masked: bool) -> Row {
    Row {
        ids: row.ids.clone(),
        segments: row.segments.iter().map(|&length| length as usize).collect(),
        masked,
    }
}

/// Writes the table `validation`: the loss of a model on the held-out rows.
pub(super) fn validate(
    context: &Context<'_>,
    rank: &Rank,
    llama: &Llama,
    time: &str,
) -> Result<()> {
    let (_, held_out) = background(context)?;
    let mut rows = Vec::new();
    if !held_out.is_empty() {
        let packed: Vec<Row> = held_out.iter().map(|row| packed(row, false)).collect();
        let batch = context.experiment.score.batch;
        let (sum, tokens) = steps::evaluate(llama, rank, &packed, batch)?;
        rows.push(Validation {
            model: context.model().name.clone(),
            arm: context.node.subject.arm.clone().unwrap_or_default(),
            trial: context.node.subject.trial.unwrap_or(0),
            time: time.to_owned(),
            loss: sum / tokens.max(1) as f64,
            tokens,
        });
    }
    if !rank.is_first() {
        return Ok(());
    }
    Ok(table::write(
        context.folder.join("validation.parquet"),
        &rows,
    )?)
}
