//! Ranks as processes that speak MPI. One thread of each process makes all MPI calls; see [`progress`].
//!
//! Sums run in rank order, so results equal those of ranks that are threads, to the bit.

mod job;
mod progress;
mod raw;
mod tensor;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use self::job::{Done, Load, Words};
use self::progress::{ANSWER, Command};
use self::tensor::Tensor;
use super::agreement::{Brought, Call, name};
use super::{Alone, Collective, Communicator, Completed, Line, Pending, disagreement, lock};
use crate::error::{Error, Result};
use crate::grid::{Axis, Grid};
use crate::pool::{Buffer, Pool};

/// How ranks that are MPI processes communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiSettings {
    /// How long a rank waits for the others before it names them.
    pub timeout: Duration,
    /// The most elements that this rank's buffers hold in one MPI call; longer collectives go in chunks.
    pub limit: usize,
    /// Whether the ranks compare what they bring before every collective, so that a mismatch names the rank.
    pub check: bool,
    /// Who adds.
    pub reduce: Reduce,
}

impl Default for MpiSettings {
    fn default() -> Self {
        Self {
            timeout: crate::launch::TIMEOUT,
            limit: 1 << 28,
            check: cfg!(debug_assertions),
            reduce: Reduce::default(),
        }
    }
}

/// The progress thread's number of the group of all ranks.
const EVERYONE: usize = 0;

/// Who adds the elements of a reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduce {
    /// This crate, in rank order: the same bits as with ranks that are threads.
    #[default]
    Ordered,
    /// The MPI library, in an order of its choice. Results depend on the library, the size of the group and the
    /// length; equality between back ends and machines is not promised.
    Library,
}

/// The processes of the job. Ends MPI when dropped, together with all other processes.
#[derive(Debug)]
pub(crate) struct World {
    everyone: MpiCommunicator,
    axes: Mutex<Vec<(Grid, Axis, MpiCommunicator)>>,
    thread: Option<JoinHandle<()>>,
    library: String,
    machine: String,
}

/// What all communicators of a process use.
#[derive(Debug)]
struct Shared {
    commands: Sender<Command>,
    settings: MpiSettings,
    rank: usize,
}

/// The ranks of one communicator, as this side of the progress thread knows them.
#[derive(Debug)]
struct Group {
    /// The progress thread's number of it.
    index: usize,
    line: Option<Line>,
    ranks: Vec<usize>,
    place: usize,
    /// The number of the last collective.
    last: Mutex<u64>,
    /// Its runs of neighbours, by their length.
    runs: Mutex<Vec<(usize, MpiCommunicator)>>,
}

impl World {
    /// Starts the progress thread and, on it, MPI.
    pub(crate) fn start(settings: MpiSettings) -> Result<Self> {
        static STARTED: AtomicBool = AtomicBool::new(false);
        if STARTED.swap(true, Ordering::SeqCst) {
            let message = "MPI can be started once in a process";
            return Err(disagreement(0, message.into()));
        }
        let (commands, queue) = channel();
        let (started, about) = channel();
        let thread = std::thread::Builder::new()
            .name("mpi".into())
            .spawn(move || progress::run(&queue, &started, settings.check, settings.timeout))
            .map_err(|error| disagreement(0, format!("cannot start a thread for MPI: {error}")))?;
        let about = about
            .recv()
            .unwrap_or_else(|_| Err(disagreement(0, "MPI did not start".into())))?;
        let shared = Shared {
            commands,
            settings,
            rank: about.rank,
        };
        let group = Group {
            index: EVERYONE,
            line: None,
            ranks: (0..about.size).collect(),
            place: about.rank,
            last: Mutex::default(),
            runs: Mutex::default(),
        };
        Ok(Self {
            everyone: MpiCommunicator {
                shared: Arc::new(shared),
                group: Arc::new(group),
                pool: Pool::default(),
            },
            axes: Mutex::default(),
            thread: Some(thread),
            library: about.library,
            machine: about.machine,
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.everyone.size()
    }

    pub(crate) fn index(&self) -> usize {
        self.everyone.place()
    }

    /// The name that the library gives itself, and that of this machine.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.library, &self.machine)
    }

    /// All ranks, with buffers of their own.
    pub(crate) fn everyone(&self) -> Box<dyn Communicator> {
        self.everyone.boxed(&Pool::default())
    }

    /// The communicator of this rank along one axis; its buffers come from `pool`. Collective at the first call for
    /// a grid and axis.
    pub(crate) fn communicator(
        &self,
        grid: &Grid,
        axis: Axis,
        pool: &Pool,
    ) -> Result<Box<dyn Communicator>> {
        if grid.size(axis) == 1 {
            return Ok(Box::new(Alone));
        }
        let mut axes = lock(&self.axes);
        let known = axes
            .iter()
            .find(|(of, along, _)| of == grid && *along == axis);
        if let Some((_, _, communicator)) = known {
            return Ok(communicator.boxed(pool));
        }
        let ranks = grid.group(axis, self.index());
        let (color, place) = (ranks[0], grid.coord(self.index()).on(axis));
        let communicator = self.everyone.part(axis.into(), ranks, color, place)?;
        let boxed = communicator.boxed(pool);
        axes.push((grid.clone(), axis, communicator));
        Ok(boxed)
    }

    /// Ends all processes of the job, whatever is in flight.
    pub(crate) fn abort(&self, code: i32) -> ! {
        let _ = self.everyone.shared.commands.send(Command::Abort(code));
        // The library ends this process; if its thread is stuck, the launcher ends the others when it sees this end.
        std::thread::sleep(ANSWER);
        std::process::exit(code)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abort(101);
        }
        // If the thread has ended already, there is nothing to end.
        let _ = self.everyone.shared.commands.send(Command::Finish);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One rank's end of a group of processes.
#[derive(Clone, Debug)]
struct MpiCommunicator {
    shared: Arc<Shared>,
    group: Arc<Group>,
    pool: Pool,
}

impl MpiCommunicator {
    /// This communicator with buffers from another pool.
    fn boxed(&self, pool: &Pool) -> Box<dyn Communicator> {
        if self.size() == 1 {
            return Box::new(Alone);
        }
        Box::new(Self {
            pool: pool.clone(),
            ..self.clone()
        })
    }

    /// The communicator of some of the ranks. All ranks of this one call it, each with the ranks of its part.
    fn part(&self, line: Line, ranks: Vec<usize>, color: usize, place: usize) -> Result<Self> {
        let load = Load::Split {
            color,
            key: place,
            line: Some(line),
            ranks: ranks.clone(),
        };
        let Done::Split(index) = self.bring(load).wait()? else {
            unreachable!("a split gives a communicator");
        };
        Ok(Self {
            group: Arc::new(Group {
                index,
                line: Some(line),
                ranks,
                place,
                last: Mutex::default(),
                runs: Mutex::default(),
            }),
            ..self.clone()
        })
    }

    /// Hands this rank's part of the group's next collective to the progress thread.
    fn bring(&self, load: Load) -> Ticket {
        let brought = load.brought();
        let (done, result) = channel();
        // Commands arrive in the order of their numbers.
        let mut last = lock(&self.group.last);
        *last += 1;
        let sequence = *last;
        // If the thread has ended, the ticket says so.
        let _ = self.shared.commands.send(Command::Start {
            group: self.group.index,
            sequence,
            load: Box::new(load),
            done,
        });
        drop(last);
        Ticket {
            shared: Arc::clone(&self.shared),
            group: Arc::clone(&self.group),
            sequence,
            brought,
            result,
        }
    }
}

impl Communicator for MpiCommunicator {
    fn size(&self) -> usize {
        self.group.ranks.len()
    }

    fn place(&self) -> usize {
        self.group.place
    }

    fn start(&self, collective: Collective, data: Buffer) -> Pending {
        let tensor = Tensor::new(
            collective,
            data,
            self.size(),
            &self.pool,
            &self.shared.settings,
        );
        let ticket = self.bring(Load::Tensor(tensor));
        Pending::new(move || match ticket.wait()? {
            Done::Tensor { output, at, .. } => Ok(Completed { data: output, at }),
            _ => unreachable!("a tensor gives a tensor"),
        })
    }

    fn all_gather_words(&self, words: &[u64]) -> Result<Vec<Vec<u64>>> {
        let words = Words::new(words, self.size());
        match self.bring(Load::Words(words)).wait()? {
            Done::Words(words) => Ok(words),
            _ => unreachable!("words give words"),
        }
    }

    fn split(&self, size: usize) -> Result<Box<dyn Communicator>> {
        if size == 1 {
            return Ok(Box::new(Alone));
        }
        let place = self.place() % size;
        let first = self.place() - place;
        let mut runs = lock(&self.group.runs);
        if let Some((_, run)) = runs.iter().find(|(length, _)| *length == size) {
            return Ok(run.boxed(&self.pool));
        }
        let ranks = self.group.ranks[first..first + size].to_vec();
        let run = self.part(Line::Replicas, ranks, first, place)?;
        let boxed = run.boxed(&self.pool);
        runs.push((size, run));
        Ok(boxed)
    }
}

/// A collective that this rank has started and whose result it will want.
struct Ticket {
    shared: Arc<Shared>,
    group: Arc<Group>,
    sequence: u64,
    brought: Brought,
    result: Receiver<Result<Done>>,
}

impl Ticket {
    fn wait(self) -> Result<Done> {
        match self.result.recv_timeout(self.shared.settings.timeout) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let error = self.missing();
        // It may have arrived while the others were asked.
        self.result.try_recv().unwrap_or(Err(error))
    }

    /// How far the other ranks of a group are, as they answer; nothing if the progress thread of this one is stuck.
    fn ask(&self, group: usize) -> Option<Vec<(usize, Option<u64>)>> {
        let (reply, answers) = channel();
        let _ = self.shared.commands.send(Command::Ask { group, reply });
        // The progress thread gives up in time, unless it is stuck inside a call.
        answers.recv_timeout(2 * ANSWER).ok()
    }

    /// Says which ranks have not come, as they answer. Ranks of other groups that do not answer are named before those of
    /// this one that merely wait for them.
    fn missing(&self) -> Error {
        let Some(mut answers) = self.ask(EVERYONE) else {
            return self.ended();
        };
        if answers.iter().all(|(_, reached)| reached.is_some()) {
            let Some(of_group) = self.ask(self.group.index) else {
                return self.ended();
            };
            answers = of_group;
        } else {
            answers.retain(|(_, reached)| reached.is_none());
        }
        let named = |wanted: fn(Option<u64>, u64) -> bool| -> Vec<usize> {
            answers
                .iter()
                .filter(|(_, reached)| wanted(*reached, self.sequence))
                .map(|(rank, _)| *rank)
                .collect()
        };
        let late = named(|reached, sequence| reached.is_some_and(|reached| reached < sequence));
        let silent = named(|reached, _| reached.is_none());
        let call = Call {
            line: self.group.line,
            ranks: &self.group.ranks,
            sequence: self.sequence,
        };
        let timeout = self.shared.settings.timeout;
        call.timed_out(self.shared.rank, self.brought, timeout, &late, &silent)
    }

    fn ended(&self) -> Error {
        disagreement(
            self.shared.rank,
            format!(
                "collective {} along {} ({}) cannot complete: the MPI thread of this process has stopped or is stuck",
                self.sequence,
                name(self.group.line),
                self.brought
            ),
        )
    }
}
