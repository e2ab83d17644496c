//! Ranks as threads of one process. Results do not depend on which thread arrives first: sums run in rank order.
//!
//! The last rank to arrive at a collective hands everybody's buffers to one progress thread, so that ranks compute
//! while it adds and copies. A [`Link`] makes a group as slow as a network.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::agreement::{Brought, Call};
use super::sum::{BLOCK, merge};
use super::{Alone, Collective, Communicator, Completed, Line, Pending, disagreement, lock};
use crate::error::Result;
use crate::grid::{Axis, Grid};
use crate::pool::{Buffer, Pool};

/// How often a waiting rank looks whether another one has failed.
const POLL: Duration = Duration::from_millis(50);

/// The speed of a network that the threads imitate, in wall-clock time. Each group has its own: one message at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second that a rank sends, by the volumes of a ring ([`Collective::ring_bytes`]).
    pub bandwidth: f64,
    /// Time that every collective of tensors takes besides.
    pub latency: Duration,
}

/// The links of the axes; memory is as fast as it is where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Links {
    /// Along [`Axis::X`], and between copies of a key-value head.
    pub x: Option<Link>,
    /// Along [`Axis::Y`].
    pub y: Option<Link>,
    /// Along [`Axis::Z`].
    pub z: Option<Link>,
    /// Along [`Axis::Data`].
    pub data: Option<Link>,
}

impl Links {
    fn on(&self, line: Line) -> Option<Link> {
        match line {
            Line::X | Line::Replicas => self.x,
            Line::Y => self.y,
            Line::Z => self.z,
            Line::Data => self.data,
        }
    }
}

/// All groups of a process. Cloning gives another handle.
#[derive(Clone, Debug)]
pub(crate) struct World(Arc<Shared>);

/// A group's line and ranks.
type Key = (Line, Vec<usize>);

#[derive(Debug)]
struct Shared {
    groups: Mutex<HashMap<Key, Arc<Group>>>,
    links: Links,
    timeout: Duration,
    /// The rank that failed first.
    failed: OnceLock<usize>,
    progress: Sender<Job>,
}

impl World {
    pub(crate) fn new(links: Links, timeout: Duration) -> Self {
        let (progress, jobs) = channel::<Job>();
        std::thread::spawn(move || {
            for job in jobs {
                job.complete();
            }
        });
        Self(Arc::new(Shared {
            groups: Mutex::default(),
            links,
            timeout,
            failed: OnceLock::new(),
            progress,
        }))
    }

    /// The communicator of one rank along one axis; its results come from `pool`.
    pub(crate) fn communicator(
        &self,
        grid: &Grid,
        axis: Axis,
        rank: usize,
        pool: &Pool,
    ) -> Box<dyn Communicator> {
        let (ranks, place) = (grid.group(axis, rank), grid.coord(rank).on(axis));
        self.join(axis.into(), ranks, place, pool)
    }

    fn join(
        &self,
        line: Line,
        ranks: Vec<usize>,
        place: usize,
        pool: &Pool,
    ) -> Box<dyn Communicator> {
        if ranks.len() == 1 {
            return Box::new(Alone);
        }
        let mut groups = lock(&self.0.groups);
        let group = groups.entry((line, ranks.clone())).or_insert_with(|| {
            Arc::new(Group {
                line,
                ranks,
                meetings: Mutex::default(),
                link: self.0.links.on(line),
                busy_until: Mutex::new(Instant::now()),
            })
        });
        Box::new(ThreadCommunicator {
            world: self.clone(),
            group: Arc::clone(group),
            place,
            next: Mutex::new(0),
            pool: pool.clone(),
        })
    }

    /// Frees the ranks that wait, since `rank` has failed.
    pub(crate) fn fail(&self, rank: usize) {
        let _ = self.0.failed.set(rank); // only the first counts
    }

    /// The rank that failed first.
    pub(crate) fn failed(&self) -> Option<usize> {
        self.0.failed.get().copied()
    }
}

/// The ranks along one axis and the collectives they are in the middle of.
#[derive(Debug)]
struct Group {
    line: Line,
    ranks: Vec<usize>,
    meetings: Mutex<HashMap<u64, Vec<Option<Part>>>>,
    link: Option<Link>,
    /// When the link has sent what was given to it.
    busy_until: Mutex<Instant>,
}

/// What one rank brings to a collective, and where its result goes.
#[derive(Debug)]
struct Part {
    load: Load,
    done: Sender<Result<Arrival>>,
}

#[derive(Debug)]
enum Load {
    /// The input, which becomes the output where their lengths are equal.
    Tensor(Collective, Buffer, Option<Buffer>),
    Words(Vec<u64>),
}

#[derive(Debug)]
enum Arrival {
    Tensor {
        output: Buffer,
        /// Held until somebody takes the output, so that what is live does not depend on who is faster.
        _input: Option<Buffer>,
        /// When the link has delivered it.
        due: Instant,
    },
    Words(Vec<Vec<u64>>),
}

/// A collective that every rank has reached.
#[derive(Debug)]
struct Job {
    group: Arc<Group>,
    sequence: u64,
    parts: Vec<Part>,
    due: Instant,
}

impl Load {
    /// What must be equal on all ranks of the group.
    fn brought(&self) -> Brought {
        match self {
            Self::Tensor(collective, data, _) => Brought::Tensor(*collective, data.len()),
            Self::Words(words) => Brought::Words(words.len()),
        }
    }
}

impl Group {
    fn call(&self, sequence: u64) -> Call<'_> {
        Call {
            line: Some(self.line),
            ranks: &self.ranks,
            sequence,
        }
    }

    /// When a collective that can begin now has been delivered.
    fn due(&self, load: &Load) -> Instant {
        let now = Instant::now();
        let (Some(link), Load::Tensor(collective, data, _)) = (self.link, load) else {
            return now;
        };
        let bytes = collective.ring_bytes(size_of_val(&data[..]) as u64, self.ranks.len() as u64);
        let mut busy_until = lock(&self.busy_until);
        *busy_until = now.max(*busy_until)
            + link.latency
            + Duration::from_secs_f64(bytes as f64 / link.bandwidth);
        *busy_until
    }
}

impl Job {
    /// Computes every rank's result and hands it over.
    fn complete(mut self) {
        let call = self.group.call(self.sequence);
        let brought: Vec<Brought> = self.parts.iter().map(|part| part.load.brought()).collect();
        if let Some((rank, message)) = call.mismatch(&brought) {
            for part in &self.parts {
                // A rank that has given up needs no result.
                let _ = part.done.send(Err(disagreement(rank, message.clone())));
            }
            return;
        }
        if let Load::Words(_) = self.parts[0].load {
            let words: Vec<Vec<u64>> = self
                .parts
                .iter()
                .filter_map(|part| match &part.load {
                    Load::Words(words) => Some(words.clone()),
                    Load::Tensor(..) => None,
                })
                .collect();
            for part in self.parts {
                let _ = part.done.send(Ok(Arrival::Words(words.clone())));
            }
            return;
        }
        combine(&mut self.parts);
        let at = self.due.max(Instant::now());
        for part in self.parts {
            if let Load::Tensor(_, input, output) = part.load {
                let (output, input) = match output {
                    Some(output) => (output, Some(input)),
                    None => (input, None),
                };
                let arrival = Arrival::Tensor {
                    output,
                    _input: input,
                    due: at,
                };
                let _ = part.done.send(Ok(arrival));
            }
        }
    }
}

/// Gives every part its result, from everybody's data in rank order.
fn combine(parts: &mut [Part]) {
    let mut inputs = Vec::with_capacity(parts.len());
    let mut outputs = Vec::with_capacity(parts.len());
    let mut kind = Collective::AllGather;
    for part in parts {
        if let Load::Tensor(collective, input, output) = &mut part.load {
            kind = *collective;
            inputs.push(input);
            outputs.push(output);
        }
    }
    match kind {
        Collective::AllReduceSum | Collective::AllReduceMax => {
            for start in (0..inputs[0].len()).step_by(BLOCK) {
                let range = start..(start + BLOCK).min(inputs[0].len());
                let mut sum = [0.0; BLOCK];
                let sum = &mut sum[..range.len()];
                sum.copy_from_slice(&inputs[0][range.clone()]);
                merge(
                    kind,
                    sum,
                    &inputs[1..].iter().map(|input| &input[range.clone()]),
                );
                for data in &mut inputs {
                    data[range.clone()].copy_from_slice(sum);
                }
            }
        }
        Collective::AllGather => {
            for output in outputs.into_iter().flatten() {
                let slots = output.chunks_exact_mut(inputs[0].len().max(1));
                for (slot, input) in slots.zip(&inputs) {
                    slot.copy_from_slice(input);
                }
            }
        }
        Collective::ReduceScatterSum => {
            for (place, output) in outputs.into_iter().flatten().enumerate() {
                let range = place * output.len()..(place + 1) * output.len();
                output.copy_from_slice(&inputs[0][range.clone()]);
                merge(
                    kind,
                    output,
                    &inputs[1..].iter().map(|input| &input[range.clone()]),
                );
            }
        }
    }
}

/// One rank's end of a group of threads.
#[derive(Debug)]
struct ThreadCommunicator {
    world: World,
    group: Arc<Group>,
    place: usize,
    next: Mutex<u64>,
    pool: Pool,
}

impl ThreadCommunicator {
    /// Brings this rank's part to the next collective of the group.
    fn bring(&self, load: Load) -> Ticket {
        let sequence = {
            let mut next = lock(&self.next);
            *next += 1;
            *next
        };
        let brought = load.brought();
        let (done, arrival) = channel();
        let mut meetings = lock(&self.group.meetings);
        let parts = meetings
            .entry(sequence)
            .or_insert_with(|| self.group.ranks.iter().map(|_| None).collect());
        parts[self.place] = Some(Part { load, done });
        if parts.iter().all(Option::is_some) {
            let parts: Vec<Part> = meetings
                .remove(&sequence)
                .unwrap_or_default()
                .into_iter()
                .flatten()
                .collect();
            let job = Job {
                group: Arc::clone(&self.group),
                sequence,
                due: self.group.due(&parts[0].load),
                parts,
            };
            // The progress thread lives as long as this handle of the world.
            let _ = self.world.0.progress.send(job);
        }
        drop(meetings);
        Ticket {
            world: self.world.clone(),
            group: Arc::clone(&self.group),
            place: self.place,
            sequence,
            brought,
            arrival,
        }
    }
}

/// A collective that a rank has reached and whose result it will want.
struct Ticket {
    world: World,
    group: Arc<Group>,
    place: usize,
    sequence: u64,
    brought: Brought,
    arrival: Receiver<Result<Arrival>>,
}

impl Ticket {
    fn wait(self) -> Result<Arrival> {
        let start = Instant::now();
        loop {
            match self.arrival.recv_timeout(POLL) {
                Ok(arrival) => return arrival,
                Err(RecvTimeoutError::Disconnected) => return Err(self.stopped()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.world.failed().is_some() {
                return Err(self.stopped());
            }
            let timeout = self.world.0.timeout;
            if start.elapsed() > timeout {
                return Err(self.missing(timeout));
            }
        }
    }

    fn stopped(&self) -> crate::Error {
        disagreement(
            self.group.ranks[self.place],
            "stopped because another rank failed".into(),
        )
    }

    fn missing(&self, timeout: Duration) -> crate::Error {
        let meetings = lock(&self.group.meetings);
        let parts = meetings.get(&self.sequence).map_or(&[][..], |parts| parts);
        let missing: Vec<usize> = parts
            .iter()
            .zip(&self.group.ranks)
            .filter(|(part, _)| part.is_none())
            .map(|(_, rank)| *rank)
            .collect();
        self.group.call(self.sequence).timed_out(
            self.group.ranks[self.place],
            self.brought,
            timeout,
            &missing,
            &[],
        )
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
        let output = match collective {
            Collective::AllReduceSum | Collective::AllReduceMax => None,
            Collective::AllGather => Some(self.pool.take(data.len() * self.size())),
            Collective::ReduceScatterSum => {
                assert!(data.len().is_multiple_of(self.size()), "padded shares");
                Some(self.pool.take(data.len() / self.size()))
            }
        };
        let ticket = self.bring(Load::Tensor(collective, data, output));
        Pending::new(move || match ticket.wait()? {
            Arrival::Tensor { output, due, .. } => {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                Ok(Completed {
                    data: output,
                    at: due,
                })
            }
            Arrival::Words(_) => unreachable!("the ranks agree on what they do"),
        })
    }

    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        match self.bring(Load::Words(words.to_vec())).wait()? {
            Arrival::Words(words) => Ok(words),
            Arrival::Tensor { .. } => unreachable!("the ranks agree on what they do"),
        }
    }

    fn split(&self, size: usize) -> Result<Box<dyn Communicator>> {
        let first = self.place - self.place % size;
        let ranks = self.group.ranks[first..first + size].to_vec();
        Ok(self
            .world
            .join(Line::Replicas, ranks, self.place - first, &self.pool))
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
                return Err(crate::Error::Data("row 7 is empty".into()));
            }
            rank.groups.data.sum_count(1)
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "row 7 is empty");
    }
}
