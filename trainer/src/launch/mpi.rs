//! Ranks as processes started by `mpirun` or `srun`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::environment::AFTER_FIRST;
use super::{Launched, Launcher, launched};
use crate::comm::Communicator;
use crate::comm::mpi::World;
pub use crate::comm::mpi::{MpiSettings, Reduce};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::pool::Pool;
use crate::rank::Rank;

/// MPI, initialised in this process. Dropping it ends MPI, which waits until the other ranks drop theirs.
#[derive(Debug)]
pub struct Mpi(World);

impl Mpi {
    /// Initialises MPI and gives this process its share of the cores for kernels (unless `RAYON_NUM_THREADS` says how
    /// many threads it has). Collective; once in a process.
    ///
    /// An MPI library that was started by the launcher of another one takes each process for a job of its own; that
    /// is refused.
    pub fn start(settings: MpiSettings) -> Result<Self> {
        let launched = launched();
        let rank = launched.map_or(0, |launched| launched.rank);
        let world = World::start(settings).map_err(|error| match error {
            Error::Rank { message, .. } => Error::Rank { rank, message },
            other => other,
        })?;
        if let (1, Some(launched)) = (world.size(), launched) {
            return Err(Error::Rank {
                rank,
                message: stranger(world.names().0, &launched),
            });
        }
        let mpi = Self(world);
        if std::env::var_os("RAYON_NUM_THREADS").is_none() {
            let threads = mpi.share_of_cores()?;
            // Fails if somebody has set the threads up before, whose choice it is then.
            let _ = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build_global();
        }
        Ok(mpi)
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.0.size()
    }

    /// The number of this process, from 0.
    pub fn index(&self) -> usize {
        self.0.index()
    }

    /// This process as a rank of `grid`, with a pool of its own. Collective.
    pub fn rank(&self, grid: &Grid) -> Result<Rank> {
        grid.validate()?;
        if grid.ranks() != self.size() {
            return Err(Error::setting(
                "grid",
                format!(
                    "{grid} has {} ranks but {} processes were started; start as many processes as the grid has ranks",
                    grid.ranks(),
                    self.size()
                ),
            ));
        }
        let pool = Pool::default();
        Rank::join(grid, self.index(), &pool, |axis| {
            self.0.communicator(grid, axis, &pool)
        })
    }

    /// The communicator of all processes, for barriers and agreement outside a grid.
    pub fn world(&self) -> Box<dyn Communicator> {
        self.0.everyone()
    }

    /// Ends all processes with an exit code, whatever is in flight.
    pub fn abort(&self, code: i32) -> ! {
        self.0.abort(code)
    }

    /// Prints an error with the number of this rank, and ends all processes with an exit code.
    ///
    /// An error that several ranks meet at the same time is printed once: rank 0 is first, the others wait to be ended
    /// by it.
    pub fn fail(&self, error: &str, code: i32) -> ! {
        let rank = self.index();
        if rank > 0 {
            let others = Duration::from_millis(25) * rank.min(60) as u32;
            std::thread::sleep(AFTER_FIRST + others);
        }
        if error.starts_with("rank ") {
            eprintln!("error: {error}");
        } else {
            eprintln!("error: rank {rank}: {error}");
        }
        // Launchers may lose what they have not passed on when they end the job.
        std::thread::sleep(AFTER_FIRST / 2);
        self.abort(code)
    }

    /// The number of cores that this process may use, divided by the number of processes that may use the same ones.
    fn share_of_cores(&self) -> Result<usize> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut hasher = DefaultHasher::new();
        (self.0.names().1, cores, allowed_cores()).hash(&mut hasher);
        let place = hasher.finish();
        let places = self.world().all_gather_words(&[place])?;
        let sharers = places.iter().filter(|words| words[0] == place).count();
        Ok((cores / sharers).max(1))
    }
}

/// The list of cores to which the launcher has bound this process, as the system writes it.
fn allowed_cores() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// What to say when the library does not see the other processes that the launcher has started.
fn stranger(library: &str, launched: &Launched) -> String {
    let family = if library.contains("Open MPI") {
        "Open MPI"
    } else if library.contains("MPICH") {
        "MPICH"
    } else {
        library.lines().next().unwrap_or("another MPI library")
    };
    let remedy = match launched.launcher {
        Launcher::Slurm => {
            "choose srun's --mpi= to fit the library, or start it with the library's own mpirun"
        }
        _ => "start it with the mpirun of that library, or build it with the other one",
    };
    format!(
        "this axmem is built with {family} but was started by {}, as one of {} processes that cannot see each other; {remedy}",
        launched.launcher, launched.ranks
    )
}
