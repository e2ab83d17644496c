//! One batch split over the ranks that hold the same model: each works on its share, and all get all results.

use crate::{Error, LanguageModel, Result};

/// The first word of a rank whose work failed.
const FAILED: u64 = 1;

/// Gives every `parts`-th of `items` to this rank's `work`, and returns the words of all items in order, on all ranks.
///
/// All ranks call it together with the same items. `work` returns `width` words for each item of its share, and is
/// also called for an empty share, because ranks that gather weights from each other call in step.
///
/// # Errors
/// Those of `work`; where it fails on another rank only, an error that says so, if that rank got as far as the exchange; if it failed between two gathers of weights, the
/// communicator's own error ends the wait.
pub(crate) fn split<M: LanguageModel, T: Copy>(
    model: &M,
    items: &[T],
    width: usize,
    work: impl FnOnce(&[T]) -> Result<Vec<u64>>,
) -> Result<Vec<Vec<u64>>> {
    let (place, parts) = model.share();
    let own: Vec<T> = items.iter().skip(place).step_by(parts).copied().collect();
    let outcome = work(&own);
    let mut message = vec![0];
    match &outcome {
        Ok(words) => message.extend(words),
        Err(_) => message[0] = FAILED,
    }
    let gathered = model.gather(message)?;
    outcome?;
    if let Some(other) = gathered.iter().position(|words| words[0] == FAILED) {
        return Err(Error::Model(format!(
            "share {other} of {parts} of a batch could not be evaluated; its rank gives the reason"
        )));
    }
    Ok((0..items.len())
        .map(|item| {
            let start = 1 + item / parts * width;
            gathered[item % parts][start..start + width].to_vec()
        })
        .collect())
}
