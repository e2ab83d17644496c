//! Greedy decoding: exactly the asked number of steps, lowest id on ties, end-of-text an ordinary id.

use crate::{Error, LanguageModel, Result};

/// The largest of a row of logits and the lowest id that holds it, or `None` where the row holds
/// NaN or no finite value.
pub(crate) fn argmax(row: &[f32]) -> Option<(u32, f32)> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in row.iter().enumerate() {
        if logit.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, top)| logit > top) {
            best = Some((id as u32, logit));
        }
    }
    best.filter(|(_, top)| top.is_finite())
}

/// Checks that a model returned `rows` rows of logits.
pub(crate) fn check_rows(logits: &[f32], rows: usize, vocab: usize) -> Result<()> {
    if logits.len() == rows * vocab {
        return Ok(());
    }
    Err(Error::Model(format!(
        "returned {} logits where {rows} rows of {vocab} were asked for",
        logits.len()
    )))
}

/// Continues each prefix by exactly `steps` ids, free-running, with a key-value cache.
///
/// The prefixes are one batch and nothing is padded; the caller bounds the memory by the number of
/// prefixes that it passes at once.
///
/// # Errors
/// An empty prefix, a prefix that leaves no room for `steps` ids, or logits that are not finite.
pub fn greedy<M: LanguageModel>(
    model: &M,
    prefixes: &[&[u32]],
    steps: usize,
) -> Result<Vec<Vec<u32>>> {
    let mut continuations = vec![Vec::with_capacity(steps); prefixes.len()];
    if steps == 0 || prefixes.is_empty() {
        return Ok(continuations);
    }
    for (index, prefix) in prefixes.iter().enumerate() {
        if prefix.is_empty() {
            return Err(Error::setting(
                "prefix",
                format!("prefix {index} is empty; decoding needs at least one id to start from"),
            ));
        }
        // The last id is never read back, so it needs no position.
        if prefix.len() + steps - 1 > model.max_positions() {
            return Err(Error::Model(format!(
                "a prefix of {} ids and {steps} steps do not fit in its {} positions",
                prefix.len(),
                model.max_positions()
            )));
        }
    }
    let vocab = model.vocab();
    let (mut cache, mut logits) = model.prefill(prefixes, steps - 1)?; // [n, V]
    for step in 0..steps {
        check_rows(&logits, prefixes.len(), vocab)?;
        let mut next = Vec::with_capacity(prefixes.len());
        for (index, row) in logits.chunks_exact(vocab).enumerate() {
            let (id, _) = argmax(row).ok_or_else(|| Error::Numerical {
                document: format!("prefix {index}"),
                problem: format!("logits of step {step} are not finite"),
            })?;
            continuations[index].push(id);
            next.push(id);
        }
        if step + 1 < steps {
            logits = model.decode(&mut cache, &next)?;
        }
    }
    Ok(continuations)
}
