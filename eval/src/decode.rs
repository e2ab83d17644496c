//! Greedy decoding: exactly the asked number of steps, lowest id on ties, end-of-text an ordinary id.

use crate::logits::{argmax, for_rows};
use crate::{Error, LanguageModel, Result, share};

/// Stands for the choice from logits that are not finite.
const NOT_FINITE: u64 = u64::MAX;

/// Continues each prefix by exactly `steps` ids, free-running, with a key-value cache.
///
/// The prefixes are one batch and nothing is padded; the caller bounds the memory by the number of
/// prefixes that it passes at once. On a grid all ranks call it with the same prefixes; each decodes its share, and all
/// get all continuations.
///
/// # Errors
/// An empty prefix, a prefix that leaves no room for `steps` ids, or logits that are not finite.
pub fn greedy<M: LanguageModel>(
    model: &M,
    prefixes: &[&[u32]],
    steps: usize,
) -> Result<Vec<Vec<u32>>> {
    greedy_named(model, prefixes, steps, |index| format!("prefix {index}"))
}

/// As [`greedy`]; errors call a prefix by `name`.
pub(crate) fn greedy_named<M: LanguageModel>(
    model: &M,
    prefixes: &[&[u32]],
    steps: usize,
    name: impl Fn(usize) -> String,
) -> Result<Vec<Vec<u32>>> {
    if steps == 0 || prefixes.is_empty() {
        return Ok(vec![Vec::new(); prefixes.len()]);
    }
    for (index, prefix) in prefixes.iter().enumerate() {
        if prefix.is_empty() {
            return Err(Error::setting(
                "prefix",
                format!(
                    "{} is empty; decoding needs at least one id to start from",
                    name(index)
                ),
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
    let continuations = share::split(model, prefixes, steps, |own| follow(model, own, steps))?;
    let ids = |(index, words): (usize, Vec<u64>)| {
        if let Some(step) = words.iter().position(|&word| word == NOT_FINITE) {
            return Err(Error::Numerical {
                document: name(index),
                problem: format!("logits of step {step} are not finite"),
            });
        }
        Ok(words.into_iter().map(|word| word as u32).collect())
    };
    continuations.into_iter().enumerate().map(ids).collect()
}

/// The choices of all steps, prefix by prefix. A sequence whose logits are not finite goes on with id 0.
fn follow<M: LanguageModel>(model: &M, prefixes: &[&[u32]], steps: usize) -> Result<Vec<u64>> {
    let (vocab, rows) = (model.vocab(), prefixes.len());
    let choose = |_: usize, row: &[f32]| argmax(row);
    let mut chosen = vec![NOT_FINITE; rows * steps];
    let (mut cache, mut choices) = for_rows(vocab, rows, choose, |visit| {
        model.prefill(prefixes, steps - 1, visit)
    })?;
    for step in 0..steps {
        for (row, choice) in choices.iter().enumerate() {
            chosen[row * steps + step] = choice.map_or(NOT_FINITE, u64::from);
        }
        if step + 1 < steps {
            let next: Vec<u32> = choices.iter().map(|choice| choice.unwrap_or(0)).collect();
            choices = for_rows(vocab, rows, choose, |visit| {
                model.decode(&mut cache, &next, visit)
            })?
            .1;
        }
    }
    Ok(chosen)
}
