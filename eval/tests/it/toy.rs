//! A language model that is a table: the last ids of the context give the next logits.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use axmem_eval::{BATCH_TOKENS, LanguageModel, Prefix, Probe, Result, ScoreSettings, Visit};

/// Rows by the end of the context; the longest end that is in the table wins.
pub(crate) struct Toy {
    pub(crate) vocab: usize,
    pub(crate) max_positions: usize,
    pub(crate) table: BTreeMap<Vec<u32>, Vec<f32>>,
    /// Added to the logit of id 0 when the cache is used: a cache that does not compute the same.
    pub(crate) drift: f32,
    /// Rows of logits that are shown at once.
    pub(crate) chunk: usize,
    /// The positions whose logits were asked for, call by call.
    pub(crate) asked: RefCell<Vec<Vec<Range<usize>>>>,
}

impl Toy {
    pub(crate) fn new(vocab: usize, rows: impl IntoIterator<Item = (Vec<u32>, Vec<f32>)>) -> Self {
        Self {
            vocab,
            max_positions: 1000,
            table: rows.into_iter().collect(),
            drift: 0.0,
            chunk: 3,
            asked: RefCell::default(),
        }
    }

    /// Knows texts by heart: each id is followed by the next one, with a margin of 4. Ids must
    /// not repeat.
    pub(crate) fn reciting(vocab: usize, texts: &[&[u32]]) -> Self {
        let pairs = texts.iter().flat_map(|text| text.windows(2));
        Self::new(
            vocab,
            pairs.map(|pair| (vec![pair[0]], one_hot(vocab, pair[1], 4.0))),
        )
    }

    fn row(&self, context: &[u32]) -> Vec<f32> {
        (0..context.len())
            .find_map(|start| self.table.get(&context[start..]))
            .cloned()
            .unwrap_or_else(|| vec![0.0; self.vocab])
    }

    fn show(&self, rows: impl Iterator<Item = Vec<f32>>, visit: &mut Visit<'_>) {
        let logits: Vec<f32> = rows.flatten().collect();
        for rows in logits.chunks(self.chunk * self.vocab) {
            visit(rows);
        }
    }

    fn show_cached(&self, contexts: &[Vec<u32>], visit: &mut Visit<'_>) {
        let rows = contexts.iter().map(|context| {
            let mut row = self.row(context);
            row[0] += self.drift;
            row
        });
        self.show(rows, visit);
    }
}

pub(crate) fn one_hot(vocab: usize, id: u32, logit: f32) -> Vec<f32> {
    let mut row = vec![0.0; vocab];
    row[id as usize] = logit;
    row
}

impl LanguageModel for Toy {
    type Cache = Vec<Vec<u32>>;

    fn vocab(&self) -> usize {
        self.vocab
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn logits_at(
        &self,
        sequences: &[&[u32]],
        positions: &[Range<usize>],
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.asked.borrow_mut().push(positions.to_vec());
        let rows = sequences
            .iter()
            .zip(positions)
            .flat_map(|(ids, range)| range.clone().map(|position| self.row(&ids[..=position])));
        self.show(rows, visit);
        Ok(())
    }

    fn prefill(
        &self,
        sequences: &[&[u32]],
        _steps: usize,
        visit: &mut Visit<'_>,
    ) -> Result<Self::Cache> {
        let contexts: Vec<Vec<u32>> = sequences.iter().map(|ids| ids.to_vec()).collect();
        self.show_cached(&contexts, visit);
        Ok(contexts)
    }

    fn decode(&self, cache: &mut Self::Cache, next: &[u32], visit: &mut Visit<'_>) -> Result<()> {
        for (context, id) in cache.iter_mut().zip(next) {
            context.push(*id);
        }
        self.show_cached(cache, visit);
        Ok(())
    }
}

pub(crate) fn probe(document: &str, ids: impl IntoIterator<Item = u32>) -> Probe {
    Probe {
        document: document.to_owned(),
        cluster: document.to_owned(),
        ids: ids.into_iter().collect(),
    }
}

/// Prefix `all` of at least one id, no BOS, and the cross-check by free-running decoding.
pub(crate) fn settings(suffix: &[usize]) -> ScoreSettings {
    ScoreSettings {
        suffix: suffix.to_vec(),
        prefix: vec![Prefix::All],
        min_prefix: 1,
        batch: 4,
        batch_tokens: BATCH_TOKENS,
        bos: None,
        generate: true,
        cross_check: BTreeSet::new(),
        tolerance: 1e-4,
    }
}
