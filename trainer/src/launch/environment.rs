//! What a launcher such as `mpirun` or `srun` says in the environment of the processes it starts.

use std::time::Duration;

/// How long ranks leave it to rank 0 to print an error that all meet.
pub(super) const AFTER_FIRST: Duration = Duration::from_millis(500);

/// How this process was started as one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// Number of processes.
    pub ranks: usize,
    /// The number of this one, from 0.
    pub rank: usize,
    /// Who started them.
    pub launcher: Launcher,
}

impl Launched {
    /// Ends this process with an error that all ranks meet before they can communicate; rank 0 prints it.
    pub fn refuse(&self, error: &str, code: i32) -> ! {
        if self.rank == 0 {
            eprintln!("error: {error}");
        } else {
            // The launcher ends the other ranks when one has ended, which must not be before rank 0 has printed.
            std::thread::sleep(AFTER_FIRST);
        }
        std::process::exit(code)
    }
}

/// A program that starts processes as ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH or one of its relatives.
    Mpich,
    /// `srun` of Slurm.
    Slurm,
}

impl std::fmt::Display for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI's mpirun",
            Self::Mpich => "MPICH's mpirun",
            Self::Slurm => "Slurm's srun",
        })
    }
}

/// How this process was started, if as one of several.
pub fn launched() -> Option<Launched> {
    read(|name| std::env::var(name).ok()?.parse().ok())
}

fn read(number: impl Fn(&str) -> Option<usize>) -> Option<Launched> {
    // The innermost launcher decides: mpirun inside srun sees the variables of both.
    let (launcher, ranks, rank) = if let Some(ranks) = number("OMPI_COMM_WORLD_SIZE") {
        (Launcher::OpenMpi, ranks, number("OMPI_COMM_WORLD_RANK"))
    } else if let Some(ranks) = number("PMI_SIZE") {
        // Slurm speaks PMI too, but only MPICH's launcher tells the number of ranks on a node in this way.
        let launcher = match (number("MPI_LOCALNRANKS"), number("SLURM_STEP_NUM_TASKS")) {
            (None, Some(_)) => Launcher::Slurm,
            _ => Launcher::Mpich,
        };
        (launcher, ranks, number("PMI_RANK"))
    } else {
        let ranks = number("SLURM_STEP_NUM_TASKS")?;
        let rank = number("PMIX_RANK").or_else(|| number("SLURM_PROCID"));
        (Launcher::Slurm, ranks, rank)
    };
    (ranks > 1).then(|| Launched {
        ranks,
        rank: rank.unwrap_or(0),
        launcher,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, usize)]) -> Option<Launched> {
        read(|name| {
            variables
                .iter()
                .find(|variable| variable.0 == name)
                .map(|variable| variable.1)
        })
    }

    #[test]
    fn launchers_are_told_apart() {
        let found = |variables: &[(&str, usize)]| {
            with(variables).map(|found| (found.launcher, found.ranks, found.rank))
        };
        let slurm = [("SLURM_STEP_NUM_TASKS", 4), ("SLURM_PROCID", 1)];
        assert_eq!(found(&[]), None);
        assert_eq!(found(&slurm), Some((Launcher::Slurm, 4, 1)));
        let ompi = [
            ("OMPI_COMM_WORLD_SIZE", 8),
            ("OMPI_COMM_WORLD_RANK", 3),
            slurm[0],
        ];
        assert_eq!(found(&ompi), Some((Launcher::OpenMpi, 8, 3)));
        let hydra = [
            ("PMI_SIZE", 8),
            ("PMI_RANK", 2),
            ("MPI_LOCALNRANKS", 8),
            slurm[0],
        ];
        assert_eq!(found(&hydra), Some((Launcher::Mpich, 8, 2)));
        let pmi2 = [("PMI_SIZE", 4), ("PMI_RANK", 2), slurm[0]];
        assert_eq!(found(&pmi2), Some((Launcher::Slurm, 4, 2)));
    }

    #[test]
    fn one_process_is_not_a_launch() {
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", 1)]), None);
        // One rank by mpirun inside a step of several.
        assert_eq!(with(&[("PMI_SIZE", 1), ("SLURM_STEP_NUM_TASKS", 2)]), None);
    }
}
