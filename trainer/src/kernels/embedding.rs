//! Embedding lookup in a table that may hold only part of the vocabulary.
//!
//! `first` is the vocabulary index of the table's first row. Ids outside the table give zero rows (another rank of the
//! X axis has them) and no gradient.

use rayon::prelude::*;

use super::rows_per_task;

/// `y[row] = table[ids[row] - first]`, or zeros; `y` `[rows, width]`, `table` `[local vocabulary, width]`.
pub fn gather(y: &mut [f32], table: &[f32], ids: &[u32], first: usize, width: usize) {
    assert_eq!(y.len(), ids.len() * width);
    y.par_chunks_exact_mut(width)
        .zip(ids)
        .with_min_len(rows_per_task(width))
        .for_each(|(y, &id)| match local(id, first, table.len() / width) {
            Some(local) => y.copy_from_slice(&table[local * width..][..width]),
            None => y.fill(0.0),
        });
}

/// `dtable[ids[row] - first] += dy[row]`, rows in order for each id.
pub fn scatter_add(dtable: &mut [f32], dy: &[f32], ids: &[u32], first: usize, width: usize) {
    assert_eq!(dy.len(), ids.len() * width);
    let rows = dtable.len() / width;
    // Each task owns a range of the table and looks through all ids, so no two tasks write one row.
    let range = rows.div_ceil(4 * rayon::current_num_threads()).max(1);
    dtable
        .par_chunks_mut(range * width)
        .enumerate()
        .for_each(|(task, dtable)| {
            for (row, &id) in ids.iter().enumerate() {
                let Some(local) = local(id, first + task * range, dtable.len() / width) else {
                    continue;
                };
                let dtable = &mut dtable[local * width..][..width];
                for (dtable, &dy) in dtable.iter_mut().zip(&dy[row * width..][..width]) {
                    *dtable += dy;
                }
            }
        });
}

fn local(id: u32, first: usize, rows: usize) -> Option<usize> {
    (id as usize)
        .checked_sub(first)
        .filter(|&local| local < rows)
}
