//! `axmem bench decode`: how many documents a second a model scores and decodes, every repeat kept.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use axmem_datasets::reader::texts::read_texts;
use axmem_eval::{self as eval, Prefix, Probe, RankModel, ScoreSettings};
use axmem_trainer::Grid;
use serde_json::json;

use super::median;
use crate::audit::Subject;
use crate::events::{Events, print};
use crate::exit::Failure;
use crate::ranks::Ranks;

/// What is measured.
#[derive(Debug)]
pub struct Request {
    /// The model, as `axmem audit` takes it.
    pub model: String,
    /// The documents.
    pub documents: PathBuf,
    /// The first so many of them.
    pub limit: Option<usize>,
    /// Ids shown of each.
    pub prefix: usize,
    /// Ids scored and decoded of each.
    pub suffix: usize,
    /// Documents read at once, one measurement for each.
    pub batch: Vec<usize>,
    /// Measurements of each kind.
    pub repeats: usize,
    /// Where fetched models are kept.
    pub cache: PathBuf,
    /// One JSON object a line.
    pub json: bool,
}

/// Measures on one rank with all threads, after one pass over the first batch that is not counted; loading is not counted
/// either.
///
/// # Errors
/// A model or documents that can't be used.
pub fn run(request: &Request, ranks: &Ranks, events: &Events) -> Result<()> {
    let subject = Subject::find(&request.model, &request.cache, ranks, events)?;
    let tokenizer = subject
        .tokenizer()?
        .ok_or_else(|| Failure::model(format!("{} has no tokenizer", request.model)))?;
    let texts = read_texts(&request.documents, request.limit)?;
    let length = request.prefix + request.suffix;
    let mut probes = Vec::new();
    for text in texts.documents {
        let mut ids = tokenizer.encode(&text.text)?;
        ids.truncate(length);
        if ids.len() == length {
            probes.push(Probe {
                cluster: text.id.clone(),
                document: text.id,
                ids,
            });
        }
    }
    if probes.is_empty() {
        return Err(Failure::data(format!(
            "no document of {} has {length} ids",
            request.documents.display()
        )));
    }
    ranks.run(&Grid::single(), |rank| {
        let llama = subject.weights.llama(rank)?;
        let model = RankModel {
            llama: &llama,
            rank,
            ids: tokenizer.vocab_size(),
        };
        for &batch in &request.batch {
            let settings = ScoreSettings {
                suffix: vec![request.suffix],
                prefix: vec![Prefix::All],
                min_prefix: 1,
                batch,
                batch_tokens: eval::BATCH_TOKENS.max(batch * length),
                bos: None,
                generate: false,
                cross_check: std::collections::BTreeSet::new(),
                tolerance: 0.0,
            };
            let score = |probes: &[Probe]| eval::score(&model, probes, &settings).map(|_| ());
            let generate = |probes: &[Probe]| {
                for batch in probes.chunks(batch) {
                    let prefixes: Vec<&[u32]> = batch
                        .iter()
                        .map(|probe| &probe.ids[..request.prefix])
                        .collect();
                    eval::greedy(&model, &prefixes, request.suffix)?;
                }
                Ok(())
            };
            measure(request, "score", batch, &probes, score)?;
            measure(request, "decode", batch, &probes, generate)?;
        }
        Ok(())
    })
}

/// Prints the documents a second of every repeat.
fn measure(
    request: &Request,
    what: &str,
    batch: usize,
    probes: &[Probe],
    work: impl Fn(&[Probe]) -> eval::Result<()>,
) -> Result<()> {
    work(&probes[..batch.min(probes.len())])?;
    let mut rates = Vec::new();
    for _ in 0..request.repeats {
        let started = Instant::now();
        work(probes)?;
        rates.push(probes.len() as f64 / started.elapsed().as_secs_f64());
    }
    let median = median(&rates);
    if request.json {
        let line = json!({
            "work": what, "batch": batch, "documents": probes.len(), "prefix": request.prefix,
            "suffix": request.suffix, "documents_per_second": rates, "median": median,
            "threads": rayon::current_num_threads(), "version": env!("AXMEM_VERSION"),
        });
        print(&line.to_string());
    } else {
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        print(&format!(
            "{what:<7} batch {batch:>3}: {median:.3} documents/s (median of {}; {least:.3} to {most:.3}), {} documents, {} + {} ids, {} threads",
            rates.len(),
            probes.len(),
            request.prefix,
            request.suffix,
            rayon::current_num_threads()
        ));
    }
    Ok(())
}
