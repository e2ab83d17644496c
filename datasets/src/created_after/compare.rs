//! A pool of windows against all texts that they may share something with.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::{SHORTEST_RUN, SnapshotRun};
use crate::background::{RUN, Reason};
use crate::near_duplicates::{NearSettings, Nearby};
use crate::runs::{self, Runs};

/// The length of a run that a window may not share.
pub(super) fn limit(text: &[u32]) -> usize {
    RUN.min(text.len())
}

/// The windows of a pool, and what of them other texts have too.
pub(super) struct Compared {
    names: Vec<String>,
    runs: Runs,
    near: Option<Nearby>,
    met: Vec<Met>,
    /// The longest run with the snapshot, by window.
    of_snapshot: Vec<Option<Run>>,
    /// By window: the other windows that have too much of it, with the start of a shared run in it.
    held_by: Vec<BTreeMap<usize, Option<usize>>>,
}

/// What a window shares with the texts met so far.
#[derive(Clone, Default)]
struct Met {
    run: Option<Run>,
    /// The first text of which it is a near-copy.
    copy: Option<String>,
}

#[derive(Clone)]
struct Run {
    length: usize,
    start: usize,
    other: String,
}

impl Compared {
    pub(super) fn new(windows: Vec<(String, Vec<u32>)>, near: Option<NearSettings>) -> Self {
        let mut compared = Self {
            names: Vec::new(),
            runs: Runs::new(SHORTEST_RUN),
            near: near.map(Nearby::new),
            met: vec![Met::default(); windows.len()],
            of_snapshot: vec![None; windows.len()],
            held_by: vec![BTreeMap::new(); windows.len()],
        };
        for (name, text) in windows {
            compared.names.push(name);
            if let Some(near) = &mut compared.near {
                near.add(text.clone());
            }
            compared.runs.add(text);
        }
        compared.runs.seal();
        if let Some(near) = &mut compared.near {
            near.seal();
        }
        compared
    }

    /// Notes what texts share with the windows.
    pub(super) fn meet(&mut self, texts: &[(String, Vec<u32>)]) {
        let ids: Vec<&[u32]> = texts.iter().map(|(_, ids)| ids.as_slice()).collect();
        for (met, found) in self
            .met
            .iter_mut()
            .zip(runs::longest_from(&self.runs, &ids))
        {
            let longest = met.run.as_ref().map_or(0, |run| run.length);
            if let Some(found) = found.filter(|found| found.length > longest) {
                met.run = Some(Run {
                    length: found.length,
                    start: found.start,
                    other: texts[found.other].0.clone(),
                });
            }
        }
        let Some(near) = &self.near else {
            return;
        };
        let held: Vec<Vec<usize>> = ids.par_iter().map(|ids| near.held_in(ids)).collect();
        for ((other, _), held) in texts.iter().zip(held) {
            for window in held {
                let copy = &mut self.met[window].copy;
                copy.get_or_insert_with(|| other.clone());
            }
        }
    }

    /// What was met so far is the snapshot.
    pub(super) fn end_of_snapshot(&mut self) {
        self.of_snapshot = self.met.iter().map(|met| met.run.clone()).collect();
    }

    /// Notes what the windows share with each other.
    pub(super) fn meet_each_other(&mut self) {
        let texts = self.runs.texts();
        let held: Vec<Vec<(usize, Option<usize>)>> = texts
            .par_iter()
            .map(|other| {
                let runs = runs::longest_from(&self.runs, &[other.as_slice()]).into_iter();
                let runs = runs.enumerate().filter_map(|(window, run)| {
                    let run = run.filter(|run| run.length >= limit(&texts[window]))?;
                    Some((window, Some(run.start)))
                });
                let copies = self.near.iter().flat_map(|near| near.held_in(other));
                runs.chain(copies.map(|window| (window, None))).collect()
            })
            .collect();
        for (other, held) in held.into_iter().enumerate() {
            for (window, start) in held.into_iter().filter(|(window, _)| *window != other) {
                self.held_by[window].entry(other).or_insert(start);
            }
        }
    }

    /// Why a window may not be drawn beside those of its pool that are taken: the reason, the start of a shared run, and
    /// the other text.
    pub(super) fn refuse(
        &self,
        window: usize,
        taken: &[usize],
    ) -> Option<(Reason, Option<usize>, String)> {
        let met = &self.met[window];
        let limit = limit(&self.runs.texts()[window]);
        if let Some(run) = met.run.as_ref().filter(|run| run.length >= limit) {
            return Some((Reason::Run, Some(run.start), run.other.clone()));
        }
        if let Some(other) = &met.copy {
            return Some((Reason::NearCopy, None, other.clone()));
        }
        taken.iter().find_map(|&other| {
            let start = *self.held_by[window].get(&other)?;
            let reason = start.map_or(Reason::NearCopy, |_| Reason::Run);
            Some((reason, start, self.names[other].clone()))
        })
    }

    pub(super) fn shared(&self, window: usize) -> SnapshotRun {
        let run = self.of_snapshot[window].as_ref();
        SnapshotRun {
            document: self.names[window].clone(),
            run: run.map_or(0, |run| run.length as u32),
            start: run.map(|run| run.start as u32),
            other: run.map(|run| run.other.clone()),
        }
    }
}
