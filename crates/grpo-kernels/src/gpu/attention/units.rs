//! What the kernels of attention have in common.

use cubecl::prelude::*;

use super::super::reduce::UNITS;

/// Where queries, keys and values are, and the factor of the scores.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Strides {
    pub(super) query: usize,
    pub(super) key: usize,
    pub(super) keys: usize,
    pub(super) values: usize,
    pub(super) scale: f32,
}

/// Returns the row of the key matrix that contains a visible key.
#[cube]
pub(super) fn place(
    index: usize,
    row: usize,
    rows: &[i32],
    pages: &[i32],
    #[comptime] page: usize,
) -> usize {
    if comptime!(page > 0) {
        let first = rows[2 * row] as usize;
        pages[first + index / page] as usize * page + index % page
    } else {
        // Keys of the sequence that is continued come first.
        let prefix = rows[4 * row + 3] as usize;
        if index < prefix {
            rows[4 * row + 2] as usize + index
        } else {
            rows[4 * row] as usize + index - prefix
        }
    }
}

/// Returns the product of a vector with the `width` numbers from `from`.
#[cube]
pub(super) fn dot(
    vector: &Shared<[f32]>,
    numbers: &[f32],
    from: usize,
    #[comptime] width: usize,
) -> f32 {
    let mut sum = 0.0f32;
    for column in 0..width {
        sum += vector[column] * numbers[from + column];
    }
    sum
}

/// Adds up the values of the groups of units for one of `width` columns, in the order of the groups.
#[cube]
pub(super) fn sum_of_groups(
    values: &Shared<[f32]>,
    column: usize,
    #[comptime] width: usize,
) -> f32 {
    let mut sum = 0.0f32;
    for group in 0..comptime!(UNITS / width) {
        sum += values[group * width + column];
    }
    sum
}

/// Returns a range of rows that see a key: first those of its own sequence, then the sequences that
/// continue it. `rows` and `ranges` are those of [`Viewers`](super::layout::Viewers).
#[cube]
pub(super) fn viewers(row: usize, range: usize, rows: &[i32], ranges: &[i32]) -> (usize, usize) {
    if range == 0 {
        (rows[4 * row] as usize, rows[4 * row + 1] as usize)
    } else {
        let place = rows[4 * row + 2] as usize + range - 1;
        (ranges[2 * place] as usize, ranges[2 * place + 1] as usize)
    }
}
