//! What an experiment file means: validated, nothing left to default, ready to be hashed.
//!
//! Checks here need no data; those that do (enough clusters, a tokenizer that fits) belong to the
//! stages.

use std::collections::HashSet;

use axmem_datasets::source::{ModelSource, Source};

use super::file::{
    Analysis, AnalysisFile, Arm, BackgroundFile, Bos, Buckets, Documents, Dtype, ExperimentFile,
    Exposures, Goldfish, ModelFile, Optimizer, Prefix, Primary, ScoreFile, Shape, TextFile, Time,
    TokenizerFile, TrainFile, Windows,
};
use super::grid;
use super::limits::{self, within};
use super::resolved::{
    Background, Experiment, Model, PublishedModel, Score, Text, TokenizerChoice, Train, Weights,
};
use crate::plan::Stage;
use crate::weights::label;

/// A value that can't be used, by its field.
#[derive(Debug)]
pub struct Refusal {
    /// Dotted path of the field.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
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
    let model = model(file.model)?;
    let tokenizer = tokenizer(file.tokenizer, &model, file.background.source.is_some())?;
    check_documents(&file.documents, &model)?;
    let score = score(file.score, &file.documents)?;
    check_buckets(&file.buckets)?;
    let train = train(file.train, &file.documents)?;
    check_parameters(&model, &tokenizer)?;
    let analysis = analysis(&file.analysis, &score, &file.buckets)?;
    Ok(Experiment {
        name: file.name,
        seed: file.seed,
        tokenizer,
        corpus: text("corpus", file.corpus)?,
        background: background(file.background, &train, &file.buckets, &file.documents)?,
        documents: file.documents,
        buckets: file.buckets,
        grid: grid::resolve(file.grid, &model)?,
        strict: file.strict,
        models: vec![model],
        train,
        score,
        analysis,
        certificate: None,
    })
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

fn model(file: ModelFile) -> Resolved<Model> {
    let weights = match (file.random, file.source) {
        (Some(_), Some(_)) => return refuse("model", "give `random` or `source`, not both"),
        (None, None) => return refuse("model", "give `random` with a shape, or `source`"),
        (Some(shape), None) => {
            if file.revision.is_some() || file.sha256.is_some() {
                return refuse("model", "random weights have no `revision` and no `sha256`");
            }
            if file.dtype == Dtype::Bf16 {
                return refuse(
                    "model.dtype",
                    "random weights are trained in f32 for now; bf16 comes with published weights",
                );
            }
            check_shape(&shape)?;
            Weights::Random(shape)
        }
        (None, Some(source)) => Weights::Published(published(&source, file.revision, file.sha256)?),
    };
    let name = file.name.unwrap_or_else(|| match &weights {
        Weights::Random(shape) => format!("random-{}x{}", shape.layers, shape.hidden),
        Weights::Published(published) => label(&published.source),
    });
    check_name("model.name", &name)?;
    Ok(Model {
        name,
        weights,
        dtype: file.dtype,
    })
}

fn published(
    source: &str,
    revision: Option<String>,
    sha256: Option<String>,
) -> Resolved<PublishedModel> {
    let mut parsed: ModelSource =
        source
            .parse()
            .map_err(|error: axmem_datasets::Error| Refusal {
                field: "model.source".to_owned(),
                message: error.to_string(),
            })?;
    match &mut parsed {
        ModelSource::Hub {
            revision: pinned, ..
        } => match revision.or_else(|| pinned.take()) {
            Some(revision) if is_commit(&revision) => *pinned = Some(revision),
            Some(revision) => {
                return refuse(
                    "model.revision",
                    format!(
                        "{revision} is not a commit of 40 hexadecimal digits; names of branches move"
                    ),
                );
            }
            None => {
                return refuse(
                    "model.revision",
                    format!("{source} needs the commit it is pinned to"),
                );
            }
        },
        _ if revision.is_some() => {
            return refuse("model.revision", "only hf: sources have a revision");
        }
        _ => {}
    }
    let is_one_file = match &parsed {
        ModelSource::Gguf(_) | ModelSource::Package { .. } => true,
        ModelSource::Hub { file, .. } => file.is_some(),
        ModelSource::Folder(_) => false,
    };
    if sha256.is_some() && !is_one_file {
        return refuse("model.sha256", "pins the one file of a GGUF source only");
    }
    if let Some(hash) = &sha256
        && !is_hash(hash)
    {
        return refuse("model.sha256", "is not 64 hexadecimal digits");
    }
    Ok(PublishedModel {
        source: parsed.to_string(),
        sha256: sha256.map(|hash| hash.to_ascii_lowercase()),
        content: None,
    })
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_shape(shape: &Shape) -> Resolved<()> {
    let sizes = [
        ("hidden", shape.hidden, limits::HIDDEN),
        ("layers", shape.layers, limits::LAYERS),
        ("heads", shape.heads, limits::HEADS),
        ("kv_heads", shape.kv_heads, limits::HEADS),
        ("ffn", shape.ffn, limits::FEED_FORWARD),
        ("max_positions", shape.max_positions, limits::TOKENS),
    ];
    for (field, size, range) in sizes {
        within(&format!("model.random.{field}"), size, &range)?;
    }
    if let Some(vocab) = shape.vocab {
        within("model.random.vocab", vocab, &limits::VOCABULARY)?;
    }
    within("model.random.rope_theta", shape.rope_theta, &limits::ROTARY)?;
    within("model.random.norm_eps", shape.norm_eps, &limits::EPSILON)?;
    if !shape.hidden.is_multiple_of(shape.heads) || !(shape.hidden / shape.heads).is_multiple_of(2)
    {
        return refuse(
            "model.random.heads",
            format!(
                "hidden {} over {} heads is no even head size",
                shape.hidden, shape.heads
            ),
        );
    }
    if !shape.heads.is_multiple_of(shape.kv_heads) {
        return refuse(
            "model.random.kv_heads",
            format!(
                "{} does not divide the {} heads",
                shape.kv_heads, shape.heads
            ),
        );
    }
    Ok(())
}

/// Random weights are made here, so that their number is known before anything runs. Without a
/// stated vocabulary that of a trained tokenizer counts, and none where that is a file.
fn check_parameters(model: &Model, tokenizer: &TokenizerChoice) -> Resolved<()> {
    let Weights::Random(shape) = &model.weights else {
        return Ok(());
    };
    let vocab = match tokenizer {
        TokenizerChoice::Bpe { vocab } => shape.vocab.unwrap_or(*vocab),
        TokenizerChoice::File { .. } | TokenizerChoice::Published => shape.vocab.unwrap_or(0),
    };
    let [hidden, layers, ffn, vocab] =
        [shape.hidden, shape.layers, shape.ffn, vocab].map(|size| size as f64);
    let keys = hidden * shape.kv_heads as f64 / shape.heads as f64;
    let block = hidden * (2.0 * hidden + 2.0 * keys + 3.0 * ffn);
    let matrices = if shape.tied { 1.0 } else { 2.0 };
    limits::parameters(matrices * vocab * hidden + layers * block)
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

/// Rows that warm-up and mix take, over the arm that takes most: each presentation of a document
/// comes with `mix` of them.
fn background_rows(train: &Train, buckets: &Buckets) -> Resolved<u64> {
    let field = "background.rows";
    let steps = u64::from(train.warmup.steps);
    let warmup = limits::rows(
        "train.warmup.steps",
        "the warm-up",
        [steps, train.batch as u64],
    )?;
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
        None => background_rows(train, buckets)? as usize,
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
    within("train.rate.peak", file.rate.peak, &limits::RATE)?;
    if !(0.0..=file.rate.peak).contains(&file.rate.last) {
        return refuse("train.rate.final", "must be from 0 to the peak");
    }
    within("train.clip", file.clip, &limits::CLIP)?;
    check_optimizer(&file.optimizer)?;
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
    })
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

fn score(file: ScoreFile, documents: &Documents) -> Resolved<Score> {
    let mut suffix = file.suffix;
    suffix.sort_unstable();
    suffix.dedup();
    let Some(&longest) = suffix.last() else {
        return refuse("score.suffix", "is empty; name at least one length");
    };
    for &length in &suffix {
        within("score.suffix", length, &limits::TOKENS)?;
    }
    if suffix.len().max(file.prefix.len()) > *limits::LIST.end() {
        return refuse(
            "score",
            format!(
                "has more than {} lengths of suffix or prefix",
                limits::LIST.end()
            ),
        );
    }
    if file.prefix.is_empty() {
        return refuse("score.prefix", "is empty; use `all`");
    }
    within(
        "score.min_prefix",
        file.min_prefix,
        &(0..=*limits::TOKENS.end()),
    )?;
    // A prefix of so many ids is text; the beginning-of-sequence id of the document is none.
    let head = usize::from(documents.bos == Bos::Always);
    let mut before = 1;
    for (index, prefix) in file.prefix.iter().enumerate() {
        if file.prefix[..index].contains(prefix) {
            return refuse("score.prefix", "names a prefix twice");
        }
        before = before.max(match *prefix {
            Prefix::All => file.min_prefix,
            Prefix::Tokens(tokens) => {
                within("score.prefix", tokens, &limits::TOKENS)?;
                tokens + head
            }
        });
    }
    let needed = longest + before;
    if needed > documents.min_tokens {
        return refuse(
            "score.suffix",
            format!(
                "a suffix of {longest} ids with its prefix needs documents of at least {needed} \
                 ids, documents.min_tokens is {}",
                documents.min_tokens
            ),
        );
    }
    within("score.batch", file.batch, &limits::BATCH)?;
    limits::pass("score.batch", file.batch, documents.tokens)?;
    Ok(Score {
        suffix,
        prefix: file.prefix,
        min_prefix: file.min_prefix,
        generate: file.generate,
        batch: file.batch,
    })
}

fn analysis(file: &AnalysisFile, score: &Score, buckets: &Buckets) -> Resolved<Analysis> {
    let suffix = file.primary.suffix.unwrap_or(score.suffix[0]);
    if !score.suffix.contains(&suffix) {
        return refuse(
            "analysis.primary.suffix",
            format!("{suffix} is not in score.suffix {:?}", score.suffix),
        );
    }
    let highest = buckets.epochs.iter().copied().max().unwrap_or(0);
    let exposures = match file.primary.exposures {
        Exposures::Max => highest,
        Exposures::Level(level) => {
            let mut treated = buckets.epochs.iter().filter(|&&epochs| epochs > 0);
            let Some(&epochs) = treated.find(|&&epochs| u64::from(epochs) == level) else {
                return refuse(
                    "analysis.primary.exposures",
                    format!(
                        "{level} is no treated level of buckets.epochs {:?}",
                        buckets.epochs
                    ),
                );
            };
            epochs
        }
    };
    if file.primary.time.0 >= file.primary.time.1 {
        return refuse(
            "analysis.primary.time",
            "the first time must come before the second",
        );
    }
    if file.primary.time.1 != Time::After {
        return refuse(
            "analysis.primary.time",
            "the primary comparison ends at `after`: nothing is presented before",
        );
    }
    within("analysis.level", file.level, &limits::LEVEL)?;
    if !(file.margin > 0.0 && file.margin < 1.0) {
        return refuse("analysis.margin", "must be between 0 and 1");
    }
    within("analysis.resamples", file.resamples, &limits::RESAMPLES)?;
    Ok(Analysis {
        primary: Primary {
            time: file.primary.time,
            suffix,
            exposures,
            contrast: file.primary.contrast,
            measure: file.primary.measure,
        },
        level: file.level,
        margin: file.margin,
        resamples: file.resamples,
    })
}
