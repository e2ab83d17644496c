//! What an experiment file means: validated, nothing left to default, ready to be hashed.
//!
//! Checks here need no data; those that do (enough clusters, a tokenizer that fits) belong to the
//! stages.

mod measure;
mod model;

use std::collections::HashSet;

use axmem_datasets::source::Source;

use super::file::{
    Arm, BackgroundFile, Buckets, CreatedAfterFile, Documents, ExperimentFile, Goldfish, Optimizer,
    Rate, TextFile, TokenizerFile, TrainFile, Windows,
};
use super::grid;
use super::limits::{self, within};
use super::resolved::{
    Background, CreatedAfter, Experiment, Model, Text, TokenizerChoice, Train, Weights,
};
use crate::plan::Stage;

use self::measure::{analysis, score};
use self::model::{check_parameters, fill_batch, is_commit, is_hash, models};

/// A value that can't be used, by its field.
#[derive(Debug)]
pub struct Refusal {
    /// Dotted path of the field.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Refusal {
    /// The same about one model of a list.
    fn of_model(mut self, index: usize) -> Self {
        if let Some(rest) = self.field.strip_prefix("model") {
            self.field = format!("model.{index}{rest}");
        }
        self
    }
}

pub(super) type Resolved<T> = Result<T, Refusal>;

pub(super) fn refuse<T>(field: &str, message: impl Into<String>) -> Resolved<T> {
    Err(Refusal {
        field: field.to_owned(),
        message: message.into(),
    })
}

/// Validates what was typed and fills every default.
pub fn resolve(file: ExperimentFile) -> Resolved<Experiment> {
    check_name("name", &file.name)?;
    check_folder(&file.name)?;
    check_rate("train.rate", &file.train.rate)?;
    let mut models = models(file.model, &file.train.rate)?;
    let tokenizer = tokenizer(file.tokenizer, &models[0], file.background.source.is_some())?;
    each(&mut models, |model| check_documents(&file.documents, model))?;
    let score = score(file.score, &file.documents)?;
    check_buckets(&file.buckets)?;
    let micro_batch = file.train.micro_batch;
    let train = train(file.train, &file.documents)?;
    let tokens = file.documents.tokens;
    each(&mut models, |model| {
        fill_batch(model, &train, micro_batch, tokens)
    })?;
    each(&mut models, |model| check_parameters(model, &tokenizer))?;
    let analysis = analysis(&file.analysis, &score, &file.buckets, &models)?;
    let corpus = text("corpus", file.corpus)?;
    Ok(Experiment {
        name: file.name,
        seed: file.seed,
        tokenizer,
        created_after: file
            .created_after
            .map(|asked| created_after(asked, &corpus))
            .transpose()?,
        corpus,
        background: background(
            file.background,
            &train,
            largest_batch(&train, &models),
            &file.buckets,
            &file.documents,
        )?,
        documents: file.documents,
        buckets: file.buckets,
        grid: grid::resolve(file.grid, &models)?,
        strict: file.strict,
        models,
        train,
        score,
        analysis,
        certificate: None,
    })
}

/// Checks every model of a study, and says which one is refused where there are several.
fn each(models: &mut [Model], check: impl Fn(&mut Model) -> Resolved<()>) -> Resolved<()> {
    let is_ladder = models.len() > 1;
    for (index, model) in models.iter_mut().enumerate() {
        check(model).map_err(|refusal| {
            if is_ladder {
                refusal.of_model(index)
            } else {
                refusal
            }
        })?;
    }
    Ok(())
}

/// Rows of a step of the model that takes most.
fn largest_batch(train: &Train, models: &[Model]) -> usize {
    let batches = models
        .iter()
        .map(|model| model.batch.unwrap_or(train.batch));
    batches.max().unwrap_or(train.batch)
}

/// Names become folders and labels.
fn check_name(field: &str, name: &str) -> Resolved<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) || name.len() > 100 {
        return refuse(
            field,
            format!("\"{name}\" is no name; use letters, digits, `-`, `_`, `+` and `.`"),
        );
    }
    Ok(())
}

/// The report stands in the store under the name of the study, beside the store's own folders.
fn check_folder(name: &str) -> Resolved<()> {
    let lower = name.to_ascii_lowercase();
    let stage = lower.rsplit_once("-v").is_some_and(|(stage, version)| {
        version.bytes().all(|byte| byte.is_ascii_digit())
            && Stage::ALL.iter().any(|known| known.name() == stage)
    });
    if stage || ["cache", "locks"].contains(&lower.as_str()) {
        return refuse(
            "name",
            format!("{name} is a folder of the store itself; choose another name"),
        );
    }
    Ok(())
}

fn tokenizer(
    file: Option<TokenizerFile>,
    model: &Model,
    has_background: bool,
) -> Resolved<TokenizerChoice> {
    match (file, &model.weights) {
        (Some(TokenizerFile::Bpe(_)), Weights::Published(_)) => refuse(
            "tokenizer.bpe",
            "published weights know their own ids only; remove `tokenizer`",
        ),
        // 256 bytes and three special ids, then at least one merge.
        (Some(TokenizerFile::Bpe(bpe)), _) if bpe.vocab < 260 => {
            refuse("tokenizer.bpe.vocab", format!("{} is below 260", bpe.vocab))
        }
        (Some(TokenizerFile::Bpe(bpe)), _) if bpe.vocab > *limits::VOCABULARY.end() => refuse(
            "tokenizer.bpe.vocab",
            format!("{} is above {}", bpe.vocab, limits::VOCABULARY.end()),
        ),
        (Some(TokenizerFile::Bpe(_)), _) if !has_background => refuse(
            "tokenizer.bpe",
            "a tokenizer trained here sees the background only, so `background.source` is needed",
        ),
        (Some(TokenizerFile::Bpe(bpe)), _) => Ok(TokenizerChoice::Bpe { vocab: bpe.vocab }),
        (Some(TokenizerFile::File(path)), _) => Ok(TokenizerChoice::File {
            path,
            content: None,
        }),
        (None, Weights::Random(_)) => refuse(
            "tokenizer",
            "random weights need one: `{ bpe: { vocab: 2048 } }` or `{ file: PATH }`",
        ),
        (None, _) => Ok(TokenizerChoice::Published),
    }
}

fn text(field: &str, file: TextFile) -> Resolved<Text> {
    let source: Source = file
        .source
        .parse()
        .map_err(|error: axmem_datasets::Error| Refusal {
            field: format!("{field}.source"),
            message: error.to_string(),
        })?;
    if let Source::Hub { .. } = source {
        match &file.revision {
            Some(revision) if is_commit(revision) => {}
            _ => {
                return refuse(
                    &format!("{field}.revision"),
                    format!(
                        "{} needs the commit (40 hexadecimal digits) it is pinned to",
                        file.source
                    ),
                );
            }
        }
    } else if file.revision.is_some() || file.config.is_some() {
        return refuse(field, "`revision` and `config` belong to hf: sources only");
    }
    if let Some(hash) = &file.sha256
        && !is_hash(hash)
    {
        return refuse(&format!("{field}.sha256"), "is not 64 hexadecimal digits");
    }
    Ok(Text {
        source: file.source,
        revision: file.revision,
        config: file.config,
        sha256: file.sha256.map(|hash| hash.to_ascii_lowercase()),
        content: None,
    })
}

fn created_after(file: CreatedAfterFile, corpus: &Text) -> Resolved<CreatedAfter> {
    within("created_after.size", file.size, &limits::CLUSTERS)?;
    Ok(CreatedAfter {
        corpus: text("created_after.corpus", file.corpus)?,
        snapshot: match file.snapshot {
            Some(snapshot) => text("created_after.snapshot", snapshot)?,
            None => corpus.clone(),
        },
        size: file.size,
    })
}

/// Rows that warm-up and mix take, over the arm and the model that take most: each presentation of a document
/// comes with `mix` of them.
fn background_rows(train: &Train, batch: usize, buckets: &Buckets) -> Resolved<u64> {
    let field = "background.rows";
    let steps = u64::from(train.warmup.steps);
    let warmup = limits::rows("train.warmup.steps", "the warm-up", [steps, batch as u64])?;
    let mut most = 0;
    for arm in &train.arms {
        let presentations = presentations(arm, buckets);
        let factors = [presentations, buckets.size as u64, u64::from(train.mix)];
        most = most.max(limits::rows("train.mix", "the mixed background", factors)?);
    }
    limits::rows(field, "the background", [warmup + most])
}

/// Presentations of one cluster of each level, as the schedule rounds them.
fn presentations(arm: &Arm, buckets: &Buckets) -> u64 {
    let factor = arm.presentations_factor();
    let rounded = |epochs: &u32| (f64::from(*epochs) * factor).round() as u64;
    buckets.epochs.iter().map(rounded).sum()
}

fn background(
    file: BackgroundFile,
    train: &Train,
    batch: usize,
    buckets: &Buckets,
    documents: &Documents,
) -> Resolved<Background> {
    let source = match file.source {
        Some(source) => Some(text(
            "background",
            TextFile {
                source,
                revision: file.revision,
                config: file.config,
                sha256: file.sha256,
            },
        )?),
        None if file.revision.is_some() || file.config.is_some() || file.sha256.is_some() => {
            return refuse(
                "background",
                "`revision`, `config` and `sha256` need a `source`",
            );
        }
        None => None,
    };
    for arm in &train.arms {
        let factors = [presentations(arm, buckets), buckets.size as u64];
        let treated = limits::rows("buckets.epochs", "the treated phase", factors)?;
        let each = u64::from(train.mix) + 1;
        limits::rows("train.mix", "the treated phase", [treated, each])?;
    }
    let rows = match file.rows {
        Some(rows) => rows,
        None if train.mix > 0 && documents.windows != Windows::First => {
            return refuse(
                "background.rows",
                "must be given with train.mix and several windows of an article: how many \
                 documents are presented is not known before they are cut",
            );
        }
        None => background_rows(train, batch, buckets)? as usize,
    };
    within("background.rows", rows as u64, &limits::ROWS)?;
    let held_out = file.held_out.unwrap_or(32);
    within("background.held_out", held_out, &limits::HELD_OUT)?;
    if rows == 0 && (train.warmup.steps > 0 || train.mix > 0) {
        return refuse("background.rows", "warm-up and mix need at least one row");
    }
    Ok(Background {
        text: source,
        rows,
        held_out,
    })
}

fn check_documents(documents: &Documents, model: &Model) -> Resolved<()> {
    within("documents.tokens", documents.tokens, &limits::TOKENS)?;
    within(
        "documents.min_tokens",
        documents.min_tokens,
        &limits::TOKENS,
    )?;
    if let Windows::PerArticle(windows) = documents.windows {
        within("documents.windows.per_article", windows, &limits::WINDOWS)?;
    }
    if documents.min_tokens > documents.tokens {
        return refuse(
            "documents.min_tokens",
            format!(
                "{} is larger than documents.tokens, {}",
                documents.min_tokens, documents.tokens
            ),
        );
    }
    if let Some(near) = &documents.near_duplicates {
        let field = "documents.near_duplicates.shingle";
        within(field, near.shingle, &limits::SHINGLE)?;
        within(
            "documents.near_duplicates.overlap",
            near.overlap,
            &limits::NEAR,
        )?;
        if near.shingle >= documents.min_tokens {
            return refuse(
                field,
                format!(
                    "a shingle of {} ids has no place in a document of documents.min_tokens, {}; \
                     lower it or set documents.near_duplicates to `off`",
                    near.shingle, documents.min_tokens
                ),
            );
        }
    }
    if let Weights::Random(shape) = &model.weights
        && shape.max_positions < documents.tokens
    {
        return refuse(
            "documents.tokens",
            format!(
                "{} is more than the {} positions of the model (model.random.max_positions)",
                documents.tokens, shape.max_positions
            ),
        );
    }
    Ok(())
}

fn check_buckets(buckets: &Buckets) -> Resolved<()> {
    within("buckets.size", buckets.size, &limits::CLUSTERS)?;
    if buckets.epochs.len() > *limits::LIST.end() {
        return refuse(
            "buckets.epochs",
            format!("has more than {} levels", limits::LIST.end()),
        );
    }
    for &epochs in &buckets.epochs {
        within("buckets.epochs", epochs, &limits::EPOCHS)?;
    }
    if !buckets.epochs.contains(&0) {
        return refuse(
            "buckets.epochs",
            "has no level 0; the control bucket needs it",
        );
    }
    if buckets.epochs.len() < 2 {
        return refuse("buckets.epochs", "has no treated level");
    }
    if buckets.epochs.iter().collect::<HashSet<_>>().len() < buckets.epochs.len() {
        return refuse(
            "buckets.epochs",
            "names a level twice; raise buckets.size instead",
        );
    }
    if buckets.trials == 0 || buckets.trials as usize > buckets.epochs.len() {
        return refuse(
            "buckets.trials",
            format!(
                "{} is not from 1 to the number of levels, {}; a further trial would repeat one",
                buckets.trials,
                buckets.epochs.len()
            ),
        );
    }
    Ok(())
}

fn train(file: TrainFile, documents: &Documents) -> Resolved<Train> {
    if file.arms.is_empty() {
        return refuse("train.arms", "is empty; name at least `standard`");
    }
    let mut names = HashSet::new();
    for (index, arm) in file.arms.iter().enumerate() {
        let field = format!("train.arms.{index}");
        check_name(&field, arm.name())?;
        if !names.insert(arm.name()) {
            return refuse(
                &field,
                format!("a second arm is called {}; give it a `name`", arm.name()),
            );
        }
        if let Arm::Goldfish(goldfish) = arm {
            if arm.name().eq_ignore_ascii_case(Arm::Standard.name()) {
                return refuse(
                    &format!("{field}.goldfish.name"),
                    "a Goldfish arm can't be called standard, which is the loss it is compared with",
                );
            }
            check_goldfish(&field, goldfish)?;
        }
    }
    let micro_batch = file.micro_batch.unwrap_or(file.batch);
    within("train.batch", file.batch, &limits::BATCH)?;
    if micro_batch == 0 || micro_batch > file.batch {
        return refuse(
            "train.micro_batch",
            format!("{micro_batch} is not from 1 to the batch, {}", file.batch),
        );
    }
    limits::pass("train.micro_batch", micro_batch, documents.tokens)?;
    within("train.mix", file.mix, &limits::MIX)?;
    within("train.warmup.steps", file.warmup.steps, &limits::STEPS)?;
    within("train.clip", file.clip, &limits::CLIP)?;
    check_optimizer(&file.optimizer)?;
    if file.probes.as_ref().is_some_and(|probes| probes.every == 0) {
        return refuse("train.probes.every", "must be at least 1");
    }
    if file.checkpoint.every == 0 {
        return refuse("train.checkpoint.every", "must be at least 1");
    }
    within(
        "train.checkpoint.keep",
        file.checkpoint.keep,
        &limits::CHECKPOINTS,
    )?;
    Ok(Train {
        arms: file.arms,
        batch: file.batch,
        micro_batch,
        mix: file.mix,
        placement: file.placement,
        warmup: file.warmup,
        rate: file.rate,
        optimizer: file.optimizer,
        clip: file.clip,
        recompute: file.recompute,
        checkpoint: file.checkpoint,
        probes: file.probes,
    })
}

fn check_rate(field: &str, rate: &Rate) -> Resolved<()> {
    within(&format!("{field}.peak"), rate.peak, &limits::RATE)?;
    if !(0.0..=rate.peak).contains(&rate.last) {
        return refuse(&format!("{field}.final"), "must be from 0 to the peak");
    }
    Ok(())
}

fn check_goldfish(field: &str, goldfish: &Goldfish) -> Resolved<()> {
    within(&format!("{field}.goldfish.k"), goldfish.k, &limits::ONE_IN)?;
    within(&format!("{field}.goldfish.h"), goldfish.h, &limits::CONTEXT)
}

fn check_optimizer(optimizer: &Optimizer) -> Resolved<()> {
    let Optimizer::Adamw(adamw) = optimizer;
    for (field, beta) in [("beta1", adamw.beta1), ("beta2", adamw.beta2)] {
        if !(0.0..1.0).contains(&beta) {
            return refuse(
                &format!("train.optimizer.adamw.{field}"),
                "must be from 0 to below 1",
            );
        }
    }
    within("train.optimizer.adamw.eps", adamw.eps, &limits::EPSILON)?;
    within(
        "train.optimizer.adamw.weight_decay",
        adamw.weight_decay,
        &limits::DECAY,
    )
}
