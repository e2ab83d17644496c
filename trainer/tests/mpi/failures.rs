//! What users read when ranks fail or disagree. Each of these ends the job with an error.

use std::process::Command;

use axmem_trainer::comm::Collective;
use axmem_trainer::launch::Mpi;
use axmem_trainer::{Axis, Error, Grid, Rank, Result};

/// The rank that does something else than the others.
const ODD: usize = 3;

fn all_along_z(mpi: &Mpi) -> Result<Rank> {
    let rank = mpi.rank(&Grid::new(1, 1, mpi.size(), 1))?;
    for _ in 0..3 {
        gather(&rank, 4096)?;
    }
    Ok(rank)
}

fn gather(rank: &Rank, len: usize) -> Result<()> {
    let data = rank.pool.zeros(len);
    let pending = rank.group(Axis::Z).start(Collective::AllGather, data);
    pending.wait().map(drop)
}

/// One rank never starts the fourth collective along Z, though it lives on.
pub(crate) fn skip(mpi: &Mpi) -> Result<()> {
    let rank = all_along_z(mpi)?;
    if rank.index != ODD {
        gather(&rank, 4096)?;
    }
    mpi.world().sum_count(1).map(drop)
}

/// One rank ends, as if all were well, before the fourth collective along Z.
pub(crate) fn leave(mpi: &Mpi) -> Result<()> {
    let rank = all_along_z(mpi)?;
    if rank.index == ODD {
        return Ok(());
    }
    gather(&rank, 4096)
}

/// One process is stopped before the fourth collective along Z, and answers nobody.
pub(crate) fn stop(mpi: &Mpi) -> Result<()> {
    let rank = all_along_z(mpi)?;
    if rank.index == ODD {
        let own = std::process::id().to_string();
        let stopped = Command::new("kill").args(["-STOP", &own]).status();
        assert!(stopped.is_ok_and(|status| status.success()));
    }
    gather(&rank, 4096)
}

/// One rank brings another length.
pub(crate) fn mismatch(mpi: &Mpi) -> Result<()> {
    let rank = all_along_z(mpi)?;
    gather(&rank, if rank.index == ODD { 4095 } else { 4096 })
}

/// One rank meets an error of its own while the others wait for it.
pub(crate) fn fail(mpi: &Mpi) -> Result<()> {
    let rank = all_along_z(mpi)?;
    if rank.index == ODD {
        return Err(Error::Data("row 7 is empty".into()));
    }
    gather(&rank, 4096)
}
