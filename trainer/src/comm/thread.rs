//! Ranks as threads of one process. Results do not depend on which thread arrives first: sums run in rank order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Collective, Communicator, Pending, disagreement};
use crate::error::{Error, Result};
use crate::grid::{Axis, Grid};
use crate::pool::{Buffer, Pool};

/// How long a rank waits for the others before it names them.
const TIMEOUT: Duration = Duration::from_mins(10);
/// How often a waiting rank looks whether another one has failed.
const POLL: Duration = Duration::from_millis(50);

/// All groups of a process, made before the ranks start.
#[derive(Debug)]
pub(crate) struct World {
    groups: HashMap<(Axis, Vec<usize>), Arc<Group>>,
    failed: Arc<AtomicBool>,
}

impl World {
    pub(crate) fn new(grid: &Grid) -> Self {
        let failed = Arc::new(AtomicBool::new(false));
        let mut groups = HashMap::new();
        for rank in 0..grid.ranks() {
            for axis in Axis::DEFAULT_ORDER {
                let ranks = grid.group(axis, rank);
                groups.entry((axis, ranks.clone())).or_insert_with(|| {
                    Arc::new(Group {
                        ranks,
                        failed: Arc::clone(&failed),
                        meetings: Mutex::default(),
                        arrived: Condvar::new(),
                    })
                });
            }
        }
        Self { groups, failed }
    }

    /// The communicator of one rank along one axis; its results come from `pool`.
    pub(crate) fn communicator(
        &self,
        grid: &Grid,
        axis: Axis,
        rank: usize,
        pool: &Pool,
    ) -> ThreadCommunicator {
        let ranks = grid.group(axis, rank);
        let place = grid.coord(rank).on(axis);
        ThreadCommunicator {
            group: Arc::clone(&self.groups[&(axis, ranks)]),
            place,
            next: Mutex::new(0),
            pool: pool.clone(),
        }
    }

    /// Frees the ranks that wait for one that has failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
        for group in self.groups.values() {
            group.arrived.notify_all();
        }
    }
}

/// The ranks along one axis and the collectives they are in the middle of.
#[derive(Debug)]
struct Group {
    ranks: Vec<usize>,
    failed: Arc<AtomicBool>,
    meetings: Mutex<HashMap<u64, Meeting>>,
    arrived: Condvar,
}

/// One collective: what each rank brought, and how many have taken their result.
#[derive(Debug)]
struct Meeting {
    parts: Vec<Option<Part>>,
    served: usize,
}

#[derive(Clone, Debug)]
enum Part {
    Floats(Collective, Arc<Buffer>),
    Words(Arc<Vec<u64>>),
}

impl Part {
    /// What must be equal on all ranks of the group.
    fn fingerprint(&self) -> (Option<Collective>, usize) {
        match self {
            Self::Floats(collective, data) => (Some(*collective), data.len()),
            Self::Words(words) => (None, words.len()),
        }
    }
}

impl Group {
    fn meetings(&self) -> MutexGuard<'_, HashMap<u64, Meeting>> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bring(&self, sequence: u64, place: usize, part: Part) {
        let mut meetings = self.meetings();
        let meeting = meetings.entry(sequence).or_insert_with(|| Meeting {
            parts: vec![None; self.ranks.len()],
            served: 0,
        });
        meeting.parts[place] = Some(part);
        self.arrived.notify_all();
    }

    /// Waits until every rank has brought its part; gives all parts in rank order.
    fn meet(&self, sequence: u64, place: usize) -> Result<Vec<Part>> {
        let start = Instant::now();
        let mut meetings = self.meetings();
        loop {
            let parts = &meetings[&sequence].parts;
            if parts.iter().all(Option::is_some) {
                break;
            }
            if self.failed.load(Ordering::SeqCst) {
                return Err(disagreement(
                    self.ranks[place],
                    "stopped because another rank failed".into(),
                ));
            }
            if start.elapsed() > TIMEOUT {
                let missing: Vec<usize> = (0..self.ranks.len())
                    .filter(|&other| parts[other].is_none())
                    .map(|other| self.ranks[other])
                    .collect();
                return Err(disagreement(
                    self.ranks[place],
                    format!(
                        "waited {} s in collective {sequence} for ranks {missing:?}",
                        TIMEOUT.as_secs()
                    ),
                ));
            }
            meetings = self
                .arrived
                .wait_timeout(meetings, POLL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let meeting = meetings
            .get_mut(&sequence)
            .expect("a meeting lives until every rank is served");
        let parts: Vec<Part> = meeting.parts.iter().flatten().cloned().collect();
        meeting.served += 1;
        if meeting.served == self.ranks.len() {
            meetings.remove(&sequence);
        }
        let own = parts[place].fingerprint();
        match parts.iter().position(|part| part.fingerprint() != own) {
            Some(other) => Err(disagreement(
                self.ranks[other],
                format!(
                    "collective {sequence}: brought {:?}, but rank {} brought {own:?}",
                    parts[other].fingerprint(),
                    self.ranks[place]
                ),
            )),
            None => Ok(parts),
        }
    }
}

/// One rank's end of a group of threads.
#[derive(Debug)]
pub(crate) struct ThreadCommunicator {
    group: Arc<Group>,
    place: usize,
    next: Mutex<u64>,
    pool: Pool,
}

impl ThreadCommunicator {
    fn sequence(&self) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next
    }
}

impl Communicator for ThreadCommunicator {
    fn size(&self) -> usize {
        self.group.ranks.len()
    }

    fn place(&self) -> usize {
        self.place
    }

    fn start(&self, collective: Collective, data: Buffer) -> Pending {
        if self.size() == 1 {
            return Pending::ready(data);
        }
        let (group, place, sequence) = (Arc::clone(&self.group), self.place, self.sequence());
        let pool = self.pool.clone();
        group.bring(sequence, place, Part::Floats(collective, Arc::new(data)));
        Pending::new(move || {
            let parts = group.meet(sequence, place)?;
            let buffers: Vec<Arc<Buffer>> = parts
                .into_iter()
                .filter_map(|part| match part {
                    Part::Floats(_, data) => Some(data),
                    Part::Words(_) => None,
                })
                .collect();
            combine(collective, &buffers, place, &pool)
        })
    }

    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        if self.size() == 1 {
            return Ok(vec![words.to_vec()]);
        }
        let sequence = self.sequence();
        self.group
            .bring(sequence, self.place, Part::Words(Arc::new(words.to_vec())));
        let parts = self.group.meet(sequence, self.place)?;
        Ok(parts
            .into_iter()
            .filter_map(|part| match part {
                Part::Words(words) => Some(words.to_vec()),
                Part::Floats(..) => None,
            })
            .collect())
    }
}

/// The result of a collective on the rank at `place`, from everybody's data in rank order.
fn combine(
    collective: Collective,
    parts: &[Arc<Buffer>],
    place: usize,
    pool: &Pool,
) -> Result<Buffer> {
    let len = parts[0].len();
    let fold = |range: std::ops::Range<usize>, merge: fn(f32, f32) -> f32| {
        let mut result = pool.copy(&parts[0][range.clone()]);
        for part in &parts[1..] {
            for (sum, value) in result.iter_mut().zip(&part[range.clone()]) {
                *sum = merge(*sum, *value);
            }
        }
        result
    };
    match collective {
        Collective::AllReduceSum => Ok(fold(0..len, |a, b| a + b)),
        Collective::AllReduceMax => Ok(fold(0..len, f32::max)),
        Collective::AllGather => {
            let mut result = pool.take(len * parts.len());
            for (slot, part) in result.chunks_exact_mut(len.max(1)).zip(parts) {
                slot.copy_from_slice(part);
            }
            Ok(result)
        }
        Collective::ReduceScatterSum if len.is_multiple_of(parts.len()) => {
            let share = len / parts.len();
            Ok(fold(place * share..(place + 1) * share, |a, b| a + b))
        }
        Collective::ReduceScatterSum => Err(Error::Rank {
            rank: place,
            message: format!(
                "reduce-scatter of {len} elements over {} ranks",
                parts.len()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::threads;

    /// Every rank of a group of four starts `collective` on `[10·rank, 10·rank + 1, …]`.
    fn run(collective: Collective, len: usize) -> Vec<Vec<f32>> {
        threads(&Grid::new(1, 1, 4, 1), |rank| {
            let mut data = rank.pool.take(len);
            for (i, value) in data.iter_mut().enumerate() {
                *value = (10 * rank.index + i) as f32;
            }
            Ok(rank.groups.z.start(collective, data).wait()?.to_vec())
        })
        .expect("four ranks")
    }

    #[test]
    fn collectives_give_what_their_names_say() {
        assert_eq!(run(Collective::AllReduceSum, 2), vec![vec![60.0, 64.0]; 4]);
        assert_eq!(run(Collective::AllReduceMax, 1), vec![vec![30.0]; 4]);
        assert_eq!(
            run(Collective::AllGather, 1),
            vec![vec![0.0, 10.0, 20.0, 30.0]; 4]
        );
        assert_eq!(
            run(Collective::ReduceScatterSum, 4),
            [[60.0], [64.0], [68.0], [72.0]]
        );
    }

    #[test]
    fn words_are_exact() {
        let sums = threads(&Grid::new(2, 1, 1, 1), |rank| {
            rank.groups
                .x
                .sum_count(u64::from(u32::MAX) + rank.index as u64)
        })
        .expect("two ranks");
        assert_eq!(sums, [2 * u64::from(u32::MAX) + 1; 2]);
    }

    #[test]
    fn ranks_that_disagree_are_named() {
        let error = threads(&Grid::new(1, 2, 1, 1), |rank| {
            let data = rank.pool.zeros(1 + rank.index);
            rank.groups.y.start(Collective::AllReduceSum, data).wait()
        })
        .unwrap_err();
        assert!(error.to_string().contains("brought"), "{error}");
    }

    #[test]
    fn a_failed_rank_frees_the_others() {
        let error = threads(&Grid::new(1, 1, 1, 3), |rank| {
            if rank.index == 1 {
                return Err(Error::Data("row 7 is empty".into()));
            }
            rank.groups.data.sum_count(1)
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "row 7 is empty");
    }
}
