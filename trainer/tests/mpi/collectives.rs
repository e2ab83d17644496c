//! Every collective on several grids, against values computed here and against ranks that are threads.

use axmem_trainer::comm::{Collective, Communicator, Pending};
use axmem_trainer::launch::{Mpi, MpiSettings, Reduce, threads};
use axmem_trainer::{Axis, Grid, Rank, Result};

pub(crate) const GRIDS: [[usize; 4]; 5] = [
    [2, 2, 2, 1],
    [2, 1, 2, 2],
    [1, 2, 2, 2],
    [1, 1, 8, 1],
    [8, 1, 1, 1],
];
/// Lengths that the groups divide and that they do not, nothing and one element among them.
const LENGTHS: [usize; 8] = [0, 1, 2, 7, 8, 33, 96, 1000];
const KINDS: [Collective; 4] = [
    Collective::AllReduceSum,
    Collective::AllReduceMax,
    Collective::AllGather,
    Collective::ReduceScatterSum,
];

pub(crate) fn run(mpi: &Mpi, settings: MpiSettings) -> Result<()> {
    let everyone = mpi.world();
    assert_eq!(
        everyone.sum_count(mpi.index() as u64)?,
        (0..mpi.size() as u64).sum::<u64>()
    );
    for [x, y, z, data] in GRIDS {
        let grid = Grid::new(x, y, z, data);
        let rank = mpi.rank(&grid)?;
        assert_eq!(rank.index, mpi.index());
        let results = exercise(&rank, settings.reduce)?;
        assert_eq!(rank.pool.live_bytes(), 0, "every buffer went back");
        if settings.reduce == Reduce::Ordered {
            let expected = threads(&grid, |rank| exercise(rank, settings.reduce))?;
            assert!(
                results == expected[rank.index],
                "grid {grid}: other bits than with threads"
            );
        }
        // The second rank of a grid uses the same communicators.
        let again = exercise(&mpi.rank(&grid)?, settings.reduce)?;
        assert!(results == again, "grid {grid}: other bits the second time");
        rank.barrier()?;
    }
    refuses_a_grid_of_another_size(mpi);
    Ok(())
}

/// The bits of all results, in one order on every back end.
fn exercise(rank: &Rank, reduce: Reduce) -> Result<Vec<u32>> {
    let mut bits = Vec::new();
    for axis in Axis::DEFAULT_ORDER {
        let members = rank.grid.group(axis, rank.index);
        one_at_a_time(rank, rank.group(axis), &members, reduce, &mut bits)?;
    }
    many_in_flight(rank, reduce, &mut bits)?;
    words(rank)?;
    splits(rank, reduce, &mut bits)?;
    Ok(bits)
}

fn one_at_a_time(
    rank: &Rank,
    group: &dyn Communicator,
    members: &[usize],
    reduce: Reduce,
    bits: &mut Vec<u32>,
) -> Result<()> {
    for len in LENGTHS {
        for kind in KINDS {
            let Some(pending) = start(rank, group, kind, len) else {
                continue;
            };
            let result = pending.wait()?;
            let place = group.place();
            compare(&result, &expected(kind, members, place, len), kind, reduce);
            bits.extend(result.iter().map(|value| value.to_bits()));
        }
    }
    Ok(())
}

/// Starts collectives of all kinds on all axes, and waits for them in another order.
fn many_in_flight(rank: &Rank, reduce: Reduce, bits: &mut Vec<u32>) -> Result<()> {
    let mut started = Vec::new();
    for len in LENGTHS {
        for kind in KINDS {
            for axis in Axis::DEFAULT_ORDER {
                if let Some(pending) = start(rank, rank.group(axis), kind, len) {
                    started.push((axis, kind, len, pending));
                }
            }
        }
    }
    for (axis, kind, len, pending) in started.into_iter().rev() {
        let result = pending.wait()?;
        let members = rank.grid.group(axis, rank.index);
        let place = rank.coord.on(axis);
        compare(&result, &expected(kind, &members, place, len), kind, reduce);
        bits.extend(result.iter().map(|value| value.to_bits()));
    }
    Ok(())
}

fn words(rank: &Rank) -> Result<()> {
    for axis in Axis::DEFAULT_ORDER {
        let members = rank.grid.group(axis, rank.index);
        for len in [0, 1, 3] {
            let of = |rank: usize| vec![u64::MAX - rank as u64; len];
            let gathered = rank.group(axis).all_gather_words(&of(rank.index))?;
            let expected: Vec<Vec<u64>> = members.iter().map(|member| of(*member)).collect();
            assert_eq!(gathered, expected);
        }
    }
    assert_eq!(rank.agree(rank.index as u64 + 5)?, 5);
    Ok(())
}

fn splits(rank: &Rank, reduce: Reduce, bits: &mut Vec<u32>) -> Result<()> {
    let x = rank.grid.group(Axis::X, rank.index);
    for copies in [1, 2, 4, 8] {
        if !x.len().is_multiple_of(copies) {
            continue;
        }
        let group = rank.replicas(copies)?;
        let first = rank.coord.x - rank.coord.x % copies;
        let members = &x[first..first + copies];
        assert_eq!(group.size(), copies);
        assert_eq!(members[group.place()], rank.index);
        one_at_a_time(rank, group.as_ref(), members, reduce, bits)?;
    }
    Ok(())
}

/// Starts a collective on this rank's values; nothing where the group cannot divide the length and has to.
fn start(rank: &Rank, group: &dyn Communicator, kind: Collective, len: usize) -> Option<Pending> {
    if kind == Collective::ReduceScatterSum && !len.is_multiple_of(group.size()) {
        return None;
    }
    let mut data = rank.pool.take(len);
    for (i, slot) in data.iter_mut().enumerate() {
        *slot = value(rank.index, i);
    }
    Some(group.start(kind, data))
}

/// A value whose sums depend on their order.
fn value(rank: usize, i: usize) -> f32 {
    let mixed = (rank as u32 * 7919 + i as u32 * 104_729 + 1).wrapping_mul(2_654_435_761);
    let magnitude = 10_f32.powi((mixed % 7) as i32 - 3);
    (mixed as f32 / u32::MAX as f32 - 0.5) * magnitude
}

fn expected(kind: Collective, members: &[usize], place: usize, len: usize) -> Vec<f32> {
    let merged = |i: usize| {
        let values = members.iter().map(|member| value(*member, i));
        let merge = match kind {
            Collective::AllReduceMax => f32::max,
            _ => |a, b| a + b,
        };
        values.reduce(merge).expect("a group has ranks")
    };
    let share = len / members.len();
    match kind {
        Collective::AllReduceSum | Collective::AllReduceMax => (0..len).map(merged).collect(),
        Collective::ReduceScatterSum => (place * share..(place + 1) * share).map(merged).collect(),
        Collective::AllGather => members
            .iter()
            .flat_map(|member| (0..len).map(|i| value(*member, i)))
            .collect(),
    }
}

/// Equality to the bit; up to the order of the sum where the library adds.
fn compare(result: &[f32], expected: &[f32], kind: Collective, reduce: Reduce) {
    assert_eq!(result.len(), expected.len(), "{kind}");
    for (i, (result, expected)) in result.iter().zip(expected).enumerate() {
        let equal = match reduce {
            Reduce::Ordered => result.to_bits() == expected.to_bits(),
            Reduce::Library => (result - expected).abs() <= 1e-2,
        };
        assert!(equal, "{kind}: element {i} is {result}, not {expected}");
    }
}

fn refuses_a_grid_of_another_size(mpi: &Mpi) {
    let error = mpi
        .rank(&Grid::new(3, 1, 1, 1))
        .expect_err("too few ranks")
        .to_string();
    assert!(
        error.contains("3 ranks") && error.contains(&format!("{} processes", mpi.size())),
        "{error}"
    );
}
