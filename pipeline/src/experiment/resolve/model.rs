//! The model: sizes of random weights, or a source of published ones.

use std::mem::discriminant;
use std::slice;

use axmem_datasets::source::ModelSource;

use super::{Refusal, Resolved, check_name, check_rate, refuse};
use crate::experiment::file::{Dtype, ModelFile, Rate, Shape};
use crate::experiment::grid;
use crate::experiment::limits::{self, within};
use crate::experiment::resolved::{Model, PublishedModel, TokenizerChoice, Train, Weights};
use crate::weights::label;

/// The models of a study, all from random weights or all published, so that one ladder never pools the two.
pub(super) fn models(files: Vec<ModelFile>, rate: &Rate) -> Resolved<Vec<Model>> {
    if files.is_empty() {
        return refuse("model", "is an empty list; name at least one model");
    }
    if files.len() > *limits::LIST.end() {
        return refuse(
            "model",
            format!("has more than {} models", limits::LIST.end()),
        );
    }
    let is_ladder = files.len() > 1;
    let mut models: Vec<Model> = Vec::new();
    for (index, file) in files.into_iter().enumerate() {
        let model = model(file, rate).map_err(|refusal| {
            if is_ladder {
                refusal.of_model(index)
            } else {
                refusal
            }
        })?;
        if models.iter().any(|other| other.name == model.name) {
            return refuse(
                &format!("model.{index}.name"),
                format!("a second model is called {}; give it a `name`", model.name),
            );
        }
        if let Some(first) = models.first()
            && discriminant(&first.weights) != discriminant(&model.weights)
        {
            return refuse(
                &format!("model.{index}"),
                "a ladder is either of random weights or of published ones; write two files",
            );
        }
        models.push(model);
    }
    Ok(models)
}

fn model(file: ModelFile, rate: &Rate) -> Resolved<Model> {
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
    if let Some(rate) = &file.rate {
        check_rate("model.rate", rate)?;
    }
    let mut model = Model {
        name,
        weights,
        dtype: file.dtype,
        rate: file.rate.unwrap_or_else(|| rate.clone()),
        batch: file.batch,
        micro_batch: file.micro_batch,
        grid: None,
    };
    if let Some(layout) = file.grid {
        let layout = grid::resolve(layout, slice::from_ref(&model));
        model.grid = Some(layout.map_err(|refusal| Refusal {
            field: format!("model.{}", refusal.field),
            ..refusal
        })?);
    }
    Ok(model)
}

/// Fills the batch of a model that has one of its own; `micro_batch` is what the file says for all.
pub(super) fn fill_batch(
    model: &mut Model,
    train: &Train,
    micro_batch: Option<usize>,
    tokens: usize,
) -> Resolved<()> {
    if model.batch.is_none() && model.micro_batch.is_none() {
        return Ok(());
    }
    let batch = model.batch.unwrap_or(train.batch);
    within("model.batch", batch, &limits::BATCH)?;
    let micro = model.micro_batch.or(micro_batch).unwrap_or(batch);
    if micro == 0 || micro > batch {
        let whose = if model.micro_batch.is_some() {
            ""
        } else {
            " (train.micro_batch)"
        };
        return refuse(
            "model.micro_batch",
            format!("{micro}{whose} is not from 1 to the batch, {batch}"),
        );
    }
    limits::pass("model.micro_batch", micro, tokens)?;
    (model.batch, model.micro_batch) = (Some(batch), Some(micro));
    Ok(())
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

pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(super) fn is_commit(revision: &str) -> bool {
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
pub(super) fn check_parameters(model: &Model, tokenizer: &TokenizerChoice) -> Resolved<()> {
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
