//! The thread that makes all MPI calls.
//!
//! Neither Open MPI nor MPICH gets on with a collective while nobody is inside the library, so this thread looks at
//! what is in flight again and again. The ranks of a group must make their MPI calls in the same order: of each group, one collective
//! issues its calls at a time, and the next begins when the last call of the one before is in flight.
//!
//! Control messages tell a rank that waits in vain how far the others are.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::job::{Done, Job, Load, Step, Trouble};
use super::raw::{self, Comm, Library, Outgoing, Request};
use crate::comm::agreement::{Call, name};
use crate::comm::{Line, disagreement};
use crate::error::{Error, Result};

/// How long the thread sleeps when nothing moves.
const POLL: Duration = Duration::from_micros(50);
/// How long it sleeps when it only waits for commands and control messages.
const IDLE: Duration = Duration::from_millis(5);
/// How often it looks before it sleeps.
const SPINS: u32 = 32;
/// How long a rank has to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);
/// The exit code of a job that cannot go on and has nobody to report to.
const FAILED: i32 = 7;
/// "How far are you?": the number of the question, the key of the group.
const QUESTION: i32 = 1;
/// The number of the question, the number of the last collective started.
const REPLY: i32 = 2;
/// The key of the group of all ranks.
const EVERYONE: u64 = 1;

/// What the thread is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// The next collective of a group.
    Start {
        group: usize,
        sequence: u64,
        load: Box<Load>,
        done: Sender<Result<Done>>,
    },
    /// How far the other ranks of a group are: the number of the last collective each has started, nothing of ranks
    /// that do not answer.
    Ask {
        group: usize,
        reply: Sender<Vec<(usize, Option<u64>)>>,
    },
    /// End all processes of the job.
    Abort(i32),
    /// Complete what was started and leave together with the other ranks.
    Finish,
}

/// What the library says of itself and this process.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) size: usize,
    pub(super) rank: usize,
    pub(super) library: String,
    pub(super) machine: String,
}

/// A group of ranks that this one is in.
#[derive(Debug)]
struct Group {
    comm: Comm,
    /// What the group is called between ranks.
    key: u64,
    line: Option<Line>,
    ranks: Vec<usize>,
    /// The last collective that this rank has started.
    reached: u64,
    splits: u64,
    /// Whether a collective has calls to make still.
    issuing: bool,
    waiting: VecDeque<Job>,
}

/// A question that some ranks have not answered yet.
#[derive(Debug)]
struct Question {
    number: u64,
    answers: Vec<(usize, Option<u64>)>,
    until: Instant,
    reply: Sender<Vec<(usize, Option<u64>)>>,
}

#[derive(Debug)]
struct Progress {
    library: Library,
    rank: usize,
    check: bool,
    timeout: Duration,
    control: Comm,
    groups: Vec<Group>,
    /// What waits for a call, and its group.
    flying: Vec<(usize, Job)>,
    questions: Vec<Question>,
    asked: u64,
    outgoing: Vec<Outgoing>,
    /// Since when only the end is waited for.
    finishing: Option<Instant>,
    leaving: Option<Request>,
}

/// Initialises MPI, serves commands until the end, and finalises MPI.
pub(super) fn run(
    commands: &Receiver<Command>,
    started: &Sender<Result<Started>>,
    check: bool,
    timeout: Duration,
) {
    let (mut progress, about) = match Progress::start(check, timeout) {
        Ok(both) => both,
        Err(fault) => {
            let _ = started.send(Err(disagreement(0, fault.to_string())));
            return;
        }
    };
    let _ = started.send(Ok(about));
    let served = progress.serve(commands);
    let rank = progress.rank;
    if let Err(fault) = served {
        eprintln!("error: rank {rank}: {fault}");
        progress.library.abort(FAILED);
    }
    if let Err(fault) = progress.end() {
        eprintln!("warning: rank {rank}: {fault}");
    }
}

impl Progress {
    fn start(check: bool, timeout: Duration) -> raw::Result<(Self, Started)> {
        let library = Library::start()?;
        let (size, rank) = library.world.shape()?;
        let everyone = Group {
            comm: library.world.duplicate()?,
            key: EVERYONE,
            line: None,
            ranks: (0..size).collect(),
            reached: 0,
            splits: 0,
            issuing: false,
            waiting: VecDeque::new(),
        };
        let about = Started {
            size,
            rank,
            library: library.name.clone(),
            machine: library.machine.clone(),
        };
        let progress = Self {
            control: library.world.duplicate()?,
            library,
            rank,
            check,
            timeout,
            groups: vec![everyone],
            flying: Vec::new(),
            questions: Vec::new(),
            asked: 0,
            outgoing: Vec::new(),
            finishing: None,
            leaving: None,
        };
        Ok((progress, about))
    }

    /// Serves commands until all ranks have finished.
    fn serve(&mut self, commands: &Receiver<Command>) -> raw::Result<()> {
        let mut spins = 0;
        loop {
            let mut moved = false;
            while let Ok(command) = commands.try_recv() {
                self.accept(command)?;
                moved = true;
            }
            moved |= self.poll();
            if moved {
                spins = 0;
                continue;
            }
            self.exchange_messages()?;
            if self.finished()? {
                return Ok(());
            }
            let idle = self.flying.is_empty() && self.questions.is_empty();
            if !idle && spins < SPINS {
                spins += 1;
                std::thread::yield_now();
                continue;
            }
            match commands.recv_timeout(if idle { IDLE } else { POLL }) {
                Ok(command) => {
                    self.accept(command)?;
                    spins = 0;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.finish();
                    std::thread::sleep(POLL);
                }
            }
        }
    }

    fn accept(&mut self, command: Command) -> raw::Result<()> {
        match command {
            Command::Start {
                group: index,
                sequence,
                load,
                done,
            } => {
                let group = &mut self.groups[index];
                group.reached = sequence;
                let job = Job::new(load, sequence, group.ranks.len(), self.check, done);
                group.waiting.push_back(job);
                self.begin(index);
            }
            Command::Ask { group, reply } => self.ask(group, reply)?,
            Command::Abort(code) => self.library.abort(code),
            Command::Finish => self.finish(),
        }
        Ok(())
    }

    /// Begins collectives of a group in their order, as far as they may.
    fn begin(&mut self, index: usize) {
        while !self.groups[index].issuing {
            let Some(job) = self.groups[index].waiting.pop_front() else {
                return;
            };
            self.groups[index].issuing = true;
            self.advance(index, job);
        }
    }

    /// Looks at what is in flight; true if something has moved.
    fn poll(&mut self) -> bool {
        let (mut moved, mut i) = (false, 0);
        while i < self.flying.len() {
            match self.flying[i].1.test() {
                Ok(false) => i += 1,
                Ok(true) => {
                    let (index, job) = self.flying.swap_remove(i);
                    self.advance(index, job);
                    self.begin(index);
                    moved = true;
                }
                Err(fault) => {
                    let (index, job) = self.flying.swap_remove(i);
                    let error = self.error(index, job.sequence, fault.into());
                    let _ = job.done.send(Err(error));
                    moved = true;
                }
            }
        }
        moved
    }

    /// Takes a job through its next step.
    fn advance(&mut self, index: usize, mut job: Job) {
        let group = &mut self.groups[index];
        let size = group.ranks.len();
        let outcome = match job.advance(group.comm) {
            Ok(Step::Waits { last }) => {
                if last && !job.leaves {
                    job.leaves = true;
                    group.issuing = false;
                }
                self.flying.push((index, job));
                return;
            }
            Ok(Step::Splits) => self
                .split(index, &mut job.load)
                .map(Done::Split)
                .map_err(|fault| self.error(index, job.sequence, Trouble::Fault(fault))),
            Ok(Step::Complete) => Ok(job.load.result(size)),
            Err(trouble) => Err(self.error(index, job.sequence, trouble)),
        };
        if !job.leaves {
            self.groups[index].issuing = false;
        }
        // A rank that has given up needs no result.
        let _ = job.done.send(outcome);
    }

    /// The communicator that all ranks of its group have agreed to make.
    fn split(&mut self, index: usize, load: &mut Load) -> raw::Result<usize> {
        let Load::Split {
            color,
            key,
            line,
            ranks,
        } = load
        else {
            unreachable!("only splits make communicators");
        };
        let parent = &mut self.groups[index];
        parent.splits += 1;
        let group = Group {
            comm: parent.comm.split(*color, *key)?,
            // All ranks of a group split it in the same order.
            key: parent.key << 16 | parent.splits,
            line: *line,
            ranks: std::mem::take(ranks),
            reached: 0,
            splits: 0,
            issuing: false,
            waiting: VecDeque::new(),
        };
        self.groups.push(group);
        Ok(self.groups.len() - 1)
    }

    fn error(&self, index: usize, sequence: u64, trouble: Trouble) -> Error {
        let group = &self.groups[index];
        let call = Call {
            line: group.line,
            ranks: &group.ranks,
            sequence,
        };
        match trouble {
            Trouble::Fault(fault) => disagreement(
                self.rank,
                format!("collective {sequence} along {}: {fault}", name(group.line)),
            ),
            Trouble::Mismatch(brought) => {
                let (rank, message) = call
                    .mismatch(&brought)
                    .unwrap_or_else(|| (self.rank, "disagrees with itself".into()));
                disagreement(rank, message)
            }
        }
    }

    fn ask(&mut self, index: usize, reply: Sender<Vec<(usize, Option<u64>)>>) -> raw::Result<()> {
        self.asked += 1;
        let group = &self.groups[index];
        let mut answers = Vec::with_capacity(group.ranks.len());
        for &rank in group.ranks.iter().filter(|rank| **rank != self.rank) {
            answers.push((rank, None));
            self.outgoing
                .push(self.control.send([self.asked, group.key], rank, QUESTION)?);
        }
        self.questions.push(Question {
            number: self.asked,
            answers,
            until: Instant::now() + ANSWER,
            reply,
        });
        Ok(())
    }

    /// Answers questions, takes answers, and gives up on those that are late.
    fn exchange_messages(&mut self) -> raw::Result<()> {
        while let Some((from, [number, key])) = self.control.receive(QUESTION)? {
            let group = self.groups.iter().find(|group| group.key == key);
            let reached = group.map_or(0, |group| group.reached);
            self.outgoing
                .push(self.control.send([number, reached], from, REPLY)?);
        }
        while let Some((from, [number, reached])) = self.control.receive(REPLY)? {
            for question in self.questions.iter_mut().filter(|q| q.number == number) {
                for answer in question.answers.iter_mut().filter(|a| a.0 == from) {
                    answer.1 = Some(reached);
                }
            }
        }
        let mut i = 0;
        while i < self.outgoing.len() {
            if self.outgoing[i].test()? {
                self.outgoing.swap_remove(i);
            } else {
                i += 1;
            }
        }
        let now = Instant::now();
        self.questions.retain_mut(|question| {
            let open = question.answers.iter().any(|answer| answer.1.is_none());
            if open && now < question.until {
                return true;
            }
            let _ = question.reply.send(std::mem::take(&mut question.answers));
            false
        });
        Ok(())
    }

    fn finish(&mut self) {
        self.finishing.get_or_insert_with(Instant::now);
    }

    /// Whether all ranks have finished; takes part in finding out once this one has.
    fn finished(&mut self) -> raw::Result<bool> {
        let Some(since) = self.finishing else {
            return Ok(false);
        };
        let waiting = self.groups.iter().any(|group| !group.waiting.is_empty());
        if waiting || !self.flying.is_empty() || !self.questions.is_empty() {
            if since.elapsed() > self.timeout {
                eprintln!(
                    "error: rank {}: ends with a collective that other ranks never started",
                    self.rank
                );
                self.library.abort(FAILED);
            }
            return Ok(false);
        }
        match &mut self.leaving {
            None => {
                self.leaving = Some(self.control.barrier()?);
                Ok(false)
            }
            Some(barrier) => Ok(barrier.test()? && self.outgoing.is_empty()),
        }
    }

    /// Frees the communicators, on every rank in the order of their making, and ends MPI.
    fn end(self) -> raw::Result<()> {
        for group in self.groups {
            group.comm.free()?;
        }
        self.control.free()?;
        self.library.finalize()
    }
}
