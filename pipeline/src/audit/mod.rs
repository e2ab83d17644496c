//! `axmem audit`: which of a set of documents a checkpoint reproduces.
//!
//! ```text
//! options -> subject (model, tokenizer)  ->  scores of the model   \
//!         -> texts (documents, control)  ->  scores of the baseline -> findings -> report, tables
//! ```
//!
//! An audit is one folder. Its key is the hash of everything that a number depends on: a second audit of the same things
//! does nothing, and one that was interrupted goes on after the last documents that were scored.

mod again;
mod analysis;
pub mod findings;
mod folder;
mod report;
mod show;
mod subject;
mod texts;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{files, table};
use axmem_eval::{self as eval, Prefix, RankModel, ScoreRow, ScoreSettings, Time};
use axmem_trainer::Grid;
use serde_json::json;

pub(crate) use self::again::Again;
use self::analysis::Estimated;
use self::findings::{Findings, ModelFacts, Settings, TokenizerFacts};
pub(crate) use self::folder::Manifest;
pub(crate) use self::subject::Subject;
use self::texts::Sets;
use crate::digest::digest;
use crate::events::Events;
use crate::exit::{Failure, Kind};
use crate::ranks::Ranks;
use crate::scoring::{Scoring, compare_words};
use crate::store::PARTIAL;

/// Scores of all documents, for machines.
const SCORES: &str = "scores.parquet";
/// All numbers, for machines.
const SUMMARY: &str = "summary.json";
/// The arm of all rows of an audit.
const ARM: &str = "audit";
/// Raised when the meaning of an audit's output changes.
const VERSION: u32 = 1;

/// Whether a beginning-of-sequence id stands before every text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum BosChoice {
    /// As the model's own tokenizer does
    #[default]
    Auto,
    /// One before every text
    Always,
    /// None
    Never,
}

/// What is to be audited, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model: a source, or the folder of a run.
    pub model: String,
    /// The documents.
    pub documents: PathBuf,
    /// Documents that the model has not been trained on.
    pub control: Option<PathBuf>,
    /// The model before training.
    pub baseline: Option<String>,
    /// A tokenizer other than the model's own.
    pub tokenizer: Option<PathBuf>,
    /// Suffix lengths, ascending.
    pub suffix: Vec<usize>,
    /// Prefixes.
    pub prefix: Vec<Prefix>,
    /// Fewest ids before the suffix under prefix `all`.
    pub min_prefix: usize,
    /// Documents are cut to their first so many ids.
    pub tokens: usize,
    /// Beginning of sequence.
    pub bos: BosChoice,
    /// The first so many documents of each set.
    pub limit: Option<usize>,
    /// Documents read at once.
    pub batch: usize,
    /// The ranks.
    pub grid: Grid,
    /// Generate the suffix of every document, not only of those shown.
    pub generate: bool,
    /// Show whole texts.
    pub show_text: bool,
    /// Documents shown with their texts, at most.
    pub show: usize,
    /// Seed of intervals and tests.
    pub seed: u64,
    /// Exit code 10 above this rate.
    pub fail_above: Option<f64>,
    /// The folder that is written.
    pub out: PathBuf,
    /// Where fetched models are kept.
    pub cache: PathBuf,
    /// The command as typed.
    pub command: String,
}

/// Audits. Every process of a launcher calls it.
///
/// # Errors
/// A model, document or setting that can't be used; a rate above `fail_above` (exit code 10), after the report is written.
pub fn run(request: &Request, ranks: &Ranks, events: &Events) -> Result<()> {
    let audit = Audit::prepare(request, ranks, events)?;
    let key = audit.key();
    // Held until the audit is finished.
    let mut lock = None;
    let is_done = ranks.lead(|| {
        lock = folder::begin(&request.out, &key)?;
        if lock.is_some() {
            audit.tell();
        }
        Ok(lock.is_none())
    })?;
    if !is_done {
        let started = Instant::now();
        let model = audit.measure(&audit.model, Time::After)?;
        let baseline = match &audit.baseline {
            Some(subject) => Some(audit.measure(subject, Time::Initial)?),
            None => None,
        };
        let seconds = started.elapsed().as_secs_f64();
        ranks.lead(|| audit.conclude(&key, model, baseline, seconds))?;
    }
    ranks.lead(|| audit.finish())
}

/// Everything that is known before a model runs.
struct Audit<'a> {
    request: &'a Request,
    ranks: &'a Ranks,
    events: &'a Events,
    model: Subject,
    baseline: Option<Subject>,
    tokenizer: Tokenizer,
    bos: Bos,
    sets: Sets,
}

/// The beginning of sequence that stands before every text.
struct Bos {
    id: Option<u32>,
    /// For the report.
    reason: String,
}

/// The scores of one model.
struct Measured {
    facts: ModelFacts,
    rows: Vec<ScoreRow>,
}

impl Request {
    /// The longest suffix: what is shown, listed as reproduced and drawn.
    fn longest_suffix(&self) -> usize {
        self.suffix.iter().copied().max().unwrap_or(0)
    }
}

impl<'a> Audit<'a> {
    fn prepare(request: &'a Request, ranks: &'a Ranks, events: &'a Events) -> Result<Self> {
        let find = |source: &str| Subject::find(source, &request.cache, ranks, events);
        let mut model = find(&request.model)?;
        let baseline = request.baseline.as_deref().map(find).transpose()?;
        let tokenizer = tokenizer(request, &model, baseline.as_ref())?;
        for subject in [Some(&model), baseline.as_ref()].into_iter().flatten() {
            subject.check(&tokenizer, &request.grid)?;
        }
        model.facts.notes.extend_from_slice(tokenizer.notes());
        let bos = bos(request.bos, &model, &tokenizer)?;
        let longest = [Some(&model), baseline.as_ref()]
            .into_iter()
            .flatten()
            .map(|subject| subject.weights.config().max_positions)
            .min();
        let tokens = longest.unwrap_or(request.tokens).min(request.tokens);
        let sets = Sets::read(request, &tokenizer, tokens, bos.id)?;
        Ok(Self {
            request,
            ranks,
            events,
            model,
            baseline,
            tokenizer,
            bos,
            sets,
        })
    }

    /// The hash of all that a number or a shown text depends on.
    fn key(&self) -> String {
        let request = self.request;
        let of = |subject: &Subject| json!([subject.facts.files, subject.facts.source]);
        digest(&json!({
            "version": VERSION,
            "model": of(&self.model),
            "baseline": self.baseline.as_ref().map(of),
            "tokenizer": self.tokenizer.hash(),
            "documents": self.sets.documents.sha256,
            "control": self.sets.control.as_ref().map(|set| &set.sha256),
            "suffix": request.suffix,
            "prefix": request.prefix.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "min_prefix": request.min_prefix, "tokens": self.sets.tokens, "bos": self.bos.id,
            "limit": request.limit, "batch": request.batch, "generate": request.generate,
            "show_text": request.show_text, "show": request.show, "seed": request.seed,
            "fail_above": request.fail_above, "grid": request.grid,
        }))
    }

    /// What will be scored, and what not.
    fn tell(&self) {
        let subjects = [Some(&self.model), self.baseline.as_ref()];
        for subject in subjects.into_iter().flatten() {
            for note in &subject.facts.notes {
                let fields = json!({ "model": subject.facts.name, "note": note });
                self.events
                    .tell("note", fields, &format!("{}: {note}", subject.facts.name));
            }
        }
        for facts in [Some(&self.sets.documents), self.sets.control.as_ref()]
            .into_iter()
            .flatten()
        {
            let fields = json!({
                "path": facts.path, "read": facts.read, "scored": facts.scored, "cut": facts.cut,
                "left_out": facts.left_out.len(),
            });
            let sentence = format!(
                "{}: {} of {} documents are scored, {} of them cut to {} ids, {} left out",
                facts.path,
                facts.scored,
                facts.read,
                facts.cut,
                self.sets.tokens,
                facts.left_out.len()
            );
            self.events.tell("documents", fields, &sentence);
            for note in &facts.notes {
                let fields = json!({ "path": facts.path, "note": note });
                self.events
                    .tell("note", fields, &format!("{}: {note}", facts.path));
            }
        }
    }

    fn settings(&self) -> ScoreSettings {
        let request = self.request;
        ScoreSettings {
            suffix: request.suffix.clone(),
            prefix: request.prefix.clone(),
            min_prefix: request.min_prefix,
            batch: request.batch,
            batch_tokens: eval::BATCH_TOKENS,
            bos: self.bos.id,
            generate: request.generate,
            cross_check: eval::cross_check_sample(&self.sets.probes),
            tolerance: 0.0,
        }
    }

    /// Scores all documents of all sets under one model. Collective.
    fn measure(&self, subject: &Subject, time: Time) -> Result<Measured> {
        let folder = self.request.out.join(PARTIAL).join(time.as_str());
        let label = format!("score {}", subject.facts.name);
        let probes = &self.sets.probes;
        let (mut scores, tolerance) = self.ranks.run(&self.request.grid, |rank| {
            let llama = subject.weights.llama(rank)?;
            let model = RankModel {
                llama: &llama,
                rank,
                ids: self.tokenizer.vocab_size(),
            };
            let scoring = Scoring {
                folder: &folder,
                label: &label,
                tokenizer: &self.tokenizer,
                events: self.events,
            };
            let (mut scores, settings) = scoring.run(&model, probes, self.settings())?;
            if time == Time::After {
                let shown = show::choose(&scores, self.request.show);
                eval::generate(&model, probes, &mut scores, &shown, &settings)?;
            }
            Ok((scores, settings.tolerance))
        })?;
        self.events.end();
        for score in &mut scores {
            compare_words(score, &self.tokenizer)?;
        }
        let levels = self.sets.levels();
        Ok(Measured {
            facts: ModelFacts {
                tolerance,
                ..subject.facts.clone()
            },
            rows: scores
                .into_iter()
                .map(|score| ScoreRow {
                    model: subject.facts.name.clone(),
                    arm: ARM.to_owned(),
                    trial: 0,
                    time,
                    epochs: levels.get(&*score.document).copied().unwrap_or(0),
                    score,
                })
                .collect(),
        })
    }

    /// Writes tables, report and record.
    fn conclude(
        &self,
        key: &str,
        model: Measured,
        baseline: Option<Measured>,
        seconds: f64,
    ) -> Result<()> {
        let out = &self.request.out;
        let reproduced = show::reproduced(&model.rows);
        let not_shown = reproduced.len();
        let reproduced = show::of_documents(&reproduced);
        let shown = show::shown(
            &model.rows,
            &self.sets,
            &self.tokenizer,
            self.bos.id,
            self.request,
        )?;
        let mut rows = model.rows;
        let mut before = None;
        if let Some(baseline) = baseline {
            // One name, so that the two are compared as two times of one model.
            let name = &model.facts.name;
            rows.extend(baseline.rows.into_iter().map(|row| ScoreRow {
                model: name.clone(),
                ..row
            }));
            before = Some(baseline.facts);
        }
        let estimated = Estimated::new(
            &rows,
            &model.facts,
            self.tokenizer.hash(),
            self.request.seed,
        )?;
        let findings = Findings {
            version: env!("AXMEM_VERSION").to_owned(),
            command: self.request.command.clone(),
            model: model.facts,
            baseline: before,
            tokenizer: TokenizerFacts {
                source: match &self.request.tokenizer {
                    Some(path) => path.display().to_string(),
                    None => "the model's own".to_owned(),
                },
                sha256: self.tokenizer.hash().to_owned(),
                ids: self.tokenizer.vocab_size(),
                bos: self.bos.reason.clone(),
            },
            documents: self.sets.documents.clone(),
            control: self.sets.control.clone(),
            settings: Settings {
                suffix: self.request.suffix.clone(),
                prefix: self
                    .request
                    .prefix
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                min_prefix: self.request.min_prefix,
                tokens: self.sets.tokens,
                batch: self.request.batch,
                grid: self.request.grid.to_string(),
                dtype: "f32".to_owned(),
                level: analysis::LEVEL,
                resamples: analysis::RESAMPLES,
                seed: self.request.seed,
                fail_above: self.request.fail_above,
                words: (!self.request.show_text).then_some(show::WORDS),
            },
            rates: estimated.rates,
            differences: estimated.differences,
            contrasts: estimated.contrasts,
            overlap: estimated.overlap,
            scored: analysis::scored(&rows),
            not_shown: not_shown - shown.iter().filter(|shown| shown.exact).count(),
            reproduced,
            shown,
            seconds,
        };
        table::write(out.join(SCORES), &rows)?;
        report::write(&findings, out)?;
        files::write_atomic(out.join(SUMMARY), summary_text(&findings)?.as_bytes())?;
        let exceeded = report::verdict(&findings)
            .filter(|verdict| !verdict.passed)
            .map(|verdict| verdict.sentence());
        Manifest::write(out, key, exceeded, seconds)?;
        // The audit is complete; what is left of its progress is in nobody's way.
        let _ = std::fs::remove_dir_all(out.join(PARTIAL));
        Ok(())
    }

    /// Says where the report is, and fails if a rate is too high.
    fn finish(&self) -> Result<()> {
        let out = &self.request.out;
        let manifest = Manifest::read(out)?.context("the audit was written")?;
        let report = out.join("report.html");
        let fields = json!({ "report": report, "summary": out.join(SUMMARY) });
        self.events.tell(
            "finished",
            fields,
            &format!("the report is {}", report.display()),
        );
        match manifest.exceeded {
            Some(sentence) => Err(Failure::new(Kind::Exceeded, sentence).into()),
            None => Ok(()),
        }
    }
}

/// The content of `summary.json`.
fn summary_text(findings: &Findings) -> Result<String> {
    serde_json::to_string_pretty(&report::summary(findings)).context("the summary")
}

/// The tokenizer that both models have.
fn tokenizer(request: &Request, model: &Subject, baseline: Option<&Subject>) -> Result<Tokenizer> {
    let own = |subject: &Subject| subject.tokenizer();
    let tokenizer = match &request.tokenizer {
        Some(path) if path.is_dir() => Some(Tokenizer::from_folder(path)?),
        Some(path) => Some(Tokenizer::from_file(path)?),
        None => own(model)?,
    };
    let tokenizer = tokenizer.ok_or_else(|| {
        Failure::model(format!(
            "{} has no tokenizer beside its weights; name one with --tokenizer PATH (a tokenizer.json)",
            model.facts.source
        ))
    })?;
    if request.tokenizer.is_none()
        && let Some(baseline) = baseline
        && let Some(other) = own(baseline)?
        && other.hash() != tokenizer.hash()
    {
        return Err(Failure::model(format!(
            "{} and {} have different tokenizers, so the same document has other ids and no paired comparison is \
             possible; if they encode alike, name one with --tokenizer PATH",
            model.facts.source, baseline.facts.source
        )));
    }
    Ok(tokenizer)
}

fn bos(choice: BosChoice, model: &Subject, tokenizer: &Tokenizer) -> Result<Bos> {
    let (wanted, reason) = match (choice, model.trained_with_bos()?, tokenizer.adds_bos()) {
        (BosChoice::Always, ..) => (true, "as asked for"),
        (BosChoice::Never, ..) => (false, "as asked for"),
        (BosChoice::Auto, Some(bos), _) => (bos, "as the study trained it"),
        (BosChoice::Auto, None, Some(adds)) => (adds, "the policy of the model's tokenizer"),
        (BosChoice::Auto, None, None) => (false, "the tokenizer's files name no policy"),
    };
    if !wanted {
        return Ok(Bos {
            id: None,
            reason: format!("never ({reason})"),
        });
    }
    let id = tokenizer.bos().ok_or_else(|| {
        Failure::usage("--bos: the tokenizer has no beginning-of-sequence token; use --bos never")
    })?;
    Ok(Bos {
        id: Some(id),
        reason: format!("always, id {id} ({reason})"),
    })
}
