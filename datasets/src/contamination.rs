//! Contamination of the control: what control documents share with the text that was trained on.
//!
//! A control document stands for text that was never trained on. Near-duplicates stay in its
//! cluster, and background with a shared run of [`RUN`](crate::background::RUN) ids is left out;
//! whatever is shared all the same (a quotation, a formula) is measured here, so that a control
//! that is not clean can be seen.

use std::collections::BTreeMap;

use crate::background::PackedRow;
use crate::bucket::Assignment;
use crate::eligibility::{TokenDocument, without_bos};
use crate::runs;

/// The longest run of ids that a control document shares with anything trained on in its trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contamination {
    /// The trial in which it is control.
    pub trial: u32,
    /// The control document.
    pub document: String,
    /// Its cluster.
    pub cluster: String,
    /// Ids of the run; 0 if it shares none.
    pub run: u32,
    /// Where the run starts in the ids of the document's text, the beginning of sequence not
    /// counted.
    pub start: Option<u32>,
    /// The text that has the run too; of several with equally long runs the first, treated
    /// documents before background.
    pub other: Option<String>,
    /// The level of that text, if it is a treated document; null for background.
    pub epochs: Option<u32>,
}

/// A text trained on.
struct Trained<'a> {
    document: &'a str,
    epochs: Option<u32>,
    ids: &'a [u32],
}

/// Measures every control document of every trial against the treated documents of that trial and
/// all rows of the background, in the order of `assignments`. A run never crosses the boundary of
/// two documents in a row.
pub fn measure(
    assignments: &[Assignment],
    documents: &[TokenDocument],
    background: &[PackedRow],
    bos: Option<u32>,
) -> Vec<Contamination> {
    let texts: BTreeMap<&str, &[u32]> = documents
        .iter()
        .map(|document| {
            let text = without_bos(&document.ids, bos);
            (document.document.as_str(), text)
        })
        .collect();
    let pieces: Vec<(&str, &[u32])> = background
        .iter()
        .filter(|row| !row.held_out)
        .flat_map(|row| row.pieces(bos))
        .collect();
    let mut trials: BTreeMap<u32, (Vec<&Assignment>, Vec<Trained<'_>>)> = BTreeMap::new();
    for row in assignments {
        let (control, trained) = trials.entry(row.trial).or_default();
        if row.epochs == 0 {
            control.push(row);
        } else {
            trained.push(Trained {
                document: &row.document,
                epochs: Some(row.epochs),
                ids: texts[row.document.as_str()],
            });
        }
    }
    let mut found = Vec::new();
    for (trial, (control, mut trained)) in trials {
        trained.extend(pieces.iter().map(|&(document, ids)| Trained {
            document,
            epochs: None,
            ids,
        }));
        let probed: Vec<&[u32]> = control
            .iter()
            .map(|row| texts[row.document.as_str()])
            .collect();
        let others: Vec<&[u32]> = trained.iter().map(|text| text.ids).collect();
        for (row, run) in control.iter().zip(runs::longest(&probed, &others)) {
            let other = run.map(|run| &trained[run.other]);
            found.push(Contamination {
                trial,
                document: row.document.clone(),
                cluster: row.cluster.clone(),
                run: run.map_or(0, |run| run.length as u32),
                start: run.map(|run| run.start as u32),
                other: other.map(|other| other.document.to_owned()),
                epochs: other.and_then(|other| other.epochs),
            });
        }
    }
    found
}
