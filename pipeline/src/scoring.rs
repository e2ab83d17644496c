//! Scoring that survives being killed: the scores of every finished chunk of documents are kept in a folder of work in
//! progress, and a later attempt goes on after the last of them with the same result.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use axmem_datasets::tokenizer::Tokenizer;
use axmem_datasets::{files, table};
use axmem_eval::{self as eval, Probe, RankModel, Score, ScoreSettings, similarity};
use axmem_trainer::Rank;

use crate::events::Events;

/// Probes scored between two records of progress, at least.
const CHUNK: usize = 16;
/// τ in the folder of work in progress, as the bits of an f32.
const TOLERANCE: &str = "tolerance";

/// Where progress is kept and told.
pub struct Scoring<'a> {
    /// The folder of work in progress.
    pub folder: &'a Path,
    /// What is scored, for progress.
    pub label: &'a str,
    /// For the likeness of words.
    pub tokenizer: &'a Tokenizer,
    /// Where progress is told.
    pub events: &'a Events,
}

impl Scoring<'_> {
    /// Scores the probes that have no score yet, chunk by chunk; each chunk is on disk before the next begins. Gives all
    /// scores, and the settings with the measured tolerance. Collective.
    ///
    /// # Errors
    /// Those of [`eval::score()`], and a full or unwritable disk.
    pub fn run(
        &self,
        model: &RankModel<'_>,
        probes: &[Probe],
        mut settings: ScoreSettings,
    ) -> Result<(Vec<Score>, ScoreSettings)> {
        let first = model.rank.is_first();
        let begun = Begun::on(model.rank, self.folder)?;
        settings.tolerance = match begun.tolerance {
            Some(tolerance) => tolerance,
            None => eval::measure_tolerance(model, probes, &settings)?,
        };
        if first {
            files::create_dir_all(self.folder)?;
            let bits = settings.tolerance.to_bits().to_string();
            files::write_atomic(self.folder.join(TOLERANCE), bits.as_bytes())?;
        }
        // Whole batches, so that no batch is smaller than asked for.
        let size = CHUNK.div_ceil(settings.batch) * settings.batch;
        let mut scored = (begun.chunks * size).min(probes.len());
        if first {
            self.events
                .start(self.label, "documents", probes.len() as u64, scored as u64);
        }
        for (index, chunk) in probes.chunks(size).enumerate().skip(begun.chunks) {
            let mut new = eval::score(model, chunk, &settings)?;
            for score in &mut new {
                compare_words(score, self.tokenizer)?;
            }
            scored += chunk.len();
            if first {
                table::write(chunk_path(self.folder, index), &new)?;
                self.events.progress(scored as u64, "");
            }
        }
        // All ranks go on with the same scores, those of earlier attempts among them.
        model.rank.barrier()?;
        let mut scores = Vec::new();
        for index in 0..probes.len().div_ceil(size) {
            scores.extend(table::read::<Score>(chunk_path(self.folder, index))?);
        }
        Ok((scores, settings))
    }
}

/// Fills in ROUGE-L on the words of the generated text, where there is any.
///
/// # Errors
/// Ids that the tokenizer does not have.
pub fn compare_words(score: &mut Score, tokenizer: &Tokenizer) -> Result<()> {
    if let Some(generated) = &score.generated {
        let generated = tokenizer.decode(generated)?;
        let target = tokenizer.decode(&score.target)?;
        let (generated, target) = (similarity::words(&generated), similarity::words(&target));
        score.rouge_l_words = Some(similarity::rouge_l(&generated, &target).f1);
    }
    Ok(())
}

/// What an earlier attempt left in the folder of work in progress.
struct Begun {
    /// τ, measured before the first chunk: it must be the same for all.
    tolerance: Option<f32>,
    /// Chunks scored.
    chunks: usize,
}

impl Begun {
    /// What the first rank finds, on every rank. Collective.
    fn on(rank: &Rank, folder: &Path) -> Result<Self> {
        let begun = if rank.is_first() {
            Self::read(folder)?
        } else {
            Self {
                tolerance: None,
                chunks: 0,
            }
        };
        let tolerance = begun.tolerance.map_or(u64::MAX, |tau| tau.to_bits().into());
        let tolerance = u32::try_from(rank.agree(tolerance)?);
        Ok(Self {
            tolerance: tolerance.ok().map(f32::from_bits),
            chunks: rank.agree(begun.chunks as u64)? as usize,
        })
    }

    fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(TOLERANCE);
        if !path.exists() {
            return Ok(Self {
                tolerance: None,
                chunks: 0,
            });
        }
        let bits: u32 = files::read_to_string(&path)?
            .parse()
            .with_context(|| format!("{} is no tolerance", path.display()))?;
        // One that can't be read is scored again, with all that come after it.
        let chunks = (0..).take_while(|&index| {
            let path = chunk_path(folder, index);
            path.exists() && table::read::<Score>(path).is_ok()
        });
        Ok(Self {
            tolerance: Some(f32::from_bits(bits)),
            chunks: chunks.count(),
        })
    }
}

fn chunk_path(folder: &Path, chunk: usize) -> PathBuf {
    folder.join(format!("scores-{chunk:06}.parquet"))
}
