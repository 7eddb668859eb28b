//! How products on the CPU are divided into tasks for threads, and tasks into blocks whose sums stay
//! in registers.
//!
//! The division affects which elements are computed together, but never the order of a sum.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use grpo_runtime::available_threads;

/// Number of columns in a strip: four vectors of 16 lanes.
pub(crate) const STRIP: usize = 64;
/// Number of rows in a block. With AVX-512, each has four vectors, and sums occupy 24 of 32
/// registers. With AVX2, each has two, and sums occupy 12 of 16.
pub(crate) const ROWS: usize = 6;

/// Divides rows into blocks of at most [`ROWS`] rows with nearly equal sizes. A block of two rows has too
/// few independent sums to hide the latency of multiply-adds.
pub(crate) fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(ROWS);
    (0..count).map(move |i| i * rows / count..(i + 1) * rows / count)
}

/// Rows of a result, restricted to some columns.
pub(crate) type Output<'a, 'y> = &'a mut [&'y mut [MaybeUninit<f32>]];

/// Computes a matrix of shape `[rows, columns]`, whose elements are sums of `inner` terms. Calls
/// `write` for each task, with its first row, its first column and its part of the result, in parallel.
/// The first column is a multiple of [`STRIP`], no part is empty, and its rows have the same length.
///
/// # Panics
/// Panics if the number of elements overflows.
///
/// # Safety
/// `write` must write all elements of each part.
#[expect(unsafe_code, reason = "zeroing the output would take as long as a small product")]
pub(crate) unsafe fn in_tasks(
    [rows, inner, columns]: [usize; 3],
    write: impl Fn(usize, usize, Output<'_, '_>) + Sync,
) -> Vec<f32> {
    let elements = rows.checked_mul(columns).expect("the number of elements overflows usize");
    let mut out: Vec<f32> = Vec::with_capacity(elements);
    if elements == 0 {
        return out;
    }
    let Division { panel, part } = Division::new([rows, inner, columns]);
    let mut panels: Vec<Vec<&mut [MaybeUninit<f32>]>> = Vec::new();
    panels.resize_with(columns.div_ceil(panel), || Vec::with_capacity(rows));
    for row in out.spare_capacity_mut()[..elements].chunks_mut(columns) {
        panels.iter_mut().zip(row.chunks_mut(panel)).for_each(|(panel, part)| panel.push(part));
    }
    panels.into_par_iter().enumerate().for_each(|(index, mut rows)| {
        let column = index * panel;
        rows.par_chunks_mut(part).enumerate().for_each(|(index, y)| write(index * part, column, y));
    });
    // SAFETY: the capacity is sufficient. Each element is in one part of one panel, and `write` has
    // written it.
    unsafe {
        out.set_len(elements);
    }
    out
}

/// How a result is divided into panels of its columns and parts of its rows.
struct Division {
    /// Number of columns of a panel.
    panel: usize,
    /// Number of rows of a part.
    part: usize,
}

impl Division {
    fn new([rows, inner, columns]: [usize; 3]) -> Self {
        /// Number of rows of a part if there are many. They stay in the L2 cache while the columns of a
        /// panel are computed.
        const PART: usize = 16 * ROWS;
        /// Number of weights of a panel if there are many rows. They stay in the L3 cache.
        const PANEL: usize = 1 << 19;
        /// Largest number of strips per task. The more columns, the longer the contiguous parts of the
        /// weight that are read.
        const MAX_STRIPS: usize = 16;
        /// Number of strips below which a task reads its weights noticeably slower.
        const MIN_STRIPS: usize = 4;

        let threads = available_threads();
        let all_strips = columns.div_ceil(STRIP);
        if rows >= 2 * threads * PART {
            let strips = (PANEL / (inner.max(1) * STRIP)).max(MIN_STRIPS);
            return Self { panel: strips.min(all_strips) * STRIP, part: PART };
        }
        // Twice as many tasks as threads balance their load, unless the tasks become too narrow.
        let strips = match threads {
            1 => all_strips,
            _ => all_strips.div_ceil(2 * threads).max(all_strips.div_ceil(threads).min(MIN_STRIPS)),
        };
        let panel = strips.clamp(1, MAX_STRIPS) * STRIP;
        // If there are few panels, divide the rows as well to use all threads.
        let parts = threads.div_ceil(columns.div_ceil(panel));
        Self { panel, part: rows.div_ceil(parts).next_multiple_of(ROWS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few and many rows and columns, and numbers next to those of blocks, strips and parts.
    const SHAPES: [[usize; 3]; 10] = [
        [1, 1, 1],
        [1, 256, 5000],
        [5, 3, 63],
        [7, 16, 65],
        [64, 256, 768],
        [97, 1, 200],
        [193, 4096, 129],
        [1000, 8, 64],
        [0, 4, 4],
        [4, 4, 0],
    ];

    #[test]
    fn every_element_is_written_by_its_task() {
        for [rows, inner, columns] in SHAPES {
            for threads in [1, 2, 3, 16] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                #[expect(unsafe_code, reason = "see `in_tasks`")]
                // SAFETY: all elements of each part are written.
                let out = pool.install(|| unsafe {
                    in_tasks([rows, inner, columns], |first_row, first_column, part| {
                        assert!(first_column.is_multiple_of(STRIP));
                        assert!(!part.is_empty() && !part[0].is_empty());
                        let width = part[0].len();
                        for (row, part) in part.iter_mut().enumerate() {
                            assert_eq!(part.len(), width);
                            for (column, element) in part.iter_mut().enumerate() {
                                let index = (first_row + row) * columns + first_column + column;
                                element.write(index as f32);
                            }
                        }
                    })
                });
                let expected: Vec<f32> = (0..rows * columns).map(|index| index as f32).collect();
                assert_eq!(out, expected, "{rows} × {columns}, {threads} threads");
            }
        }
    }

    #[test]
    fn blocks_cover_the_rows_with_nearly_equal_sizes() {
        for rows in 0..200 {
            let blocks: Vec<_> = blocks(rows).collect();
            assert!(blocks.iter().flat_map(Clone::clone).eq(0..rows));
            let sizes = || blocks.iter().map(Range::len);
            assert!(sizes().all(|size| (1..=ROWS).contains(&size)));
            assert!(rows == 0 || sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        }
    }
}
