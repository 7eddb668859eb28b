//! Factors of a product, rounded to bf16 and packed.
//!
//! Two consecutive terms share a `u32`: the first one is in the upper half, which is added first.
//! If the number of terms is odd, the last pair has a 0.

use std::mem::MaybeUninit;
use std::ops::Range;

use multiversion::multiversion;
use rayon::prelude::*;

use crate::product::STRIP;

/// A matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    /// Element `(i, j)` is at `i · stride + j`, or at `j · stride + i` if the matrix is transposed.
    pub(crate) values: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) is_transposed: bool,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The left factor.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// Shape `[rows][pairs]`.
    values: Vec<u32>,
    rows: usize,
    /// Number of terms.
    inner: usize,
    pairs: usize,
}

/// The right factor.
#[derive(Clone, Debug)]
pub(crate) struct Right {
    /// Shape `[strips][pairs][STRIP]`. The last strip is filled up with zeros.
    values: Vec<u32>,
    columns: usize,
    /// Number of terms.
    inner: usize,
    pairs: usize,
}

/// Number of rows that are packed by a task. If the matrix is transposed, they read whole cache lines.
const ROWS: usize = 48;

impl Left {
    pub(crate) fn new(matrix: &Matrix<'_>) -> Self {
        let (rows, pairs) = (matrix.rows, matrix.columns.div_ceil(2));
        let mut values = Vec::with_capacity(rows * pairs);
        let tasks =
            values.spare_capacity_mut()[..rows * pairs].par_chunks_mut((ROWS * pairs).max(1));
        tasks.enumerate().for_each(|(task, to)| match matrix.is_transposed {
            true => pack_columns(matrix, task * ROWS, to),
            false => pack_rows(matrix, task * ROWS, to),
        });
        #[expect(unsafe_code, reason = "zeroing the factors first takes 5 % of a training step")]
        // SAFETY: the capacity is sufficient, and each task writes all pairs of its rows.
        unsafe {
            values.set_len(rows * pairs);
        }
        Self { values, rows, inner: matrix.columns, pairs }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn inner(&self) -> usize {
        self.inner
    }

    /// Returns the factors of all rows from `row` on.
    pub(super) fn rows_from(&self, row: usize) -> &[u32] {
        &self.values[row * self.pairs..]
    }
}

impl Right {
    pub(crate) fn new(matrix: &Matrix<'_>) -> Self {
        let (columns, pairs) = (matrix.columns, matrix.rows.div_ceil(2));
        let size = columns.div_ceil(STRIP) * pairs * STRIP;
        let mut values = Vec::with_capacity(size);
        let strips = values.spare_capacity_mut()[..size].par_chunks_mut((pairs * STRIP).max(1));
        strips.enumerate().for_each(|(strip, to)| {
            let columns = strip * STRIP..columns.min((strip + 1) * STRIP);
            let (to, _) = to.as_chunks_mut();
            match matrix.is_transposed {
                true => pack_strip_of_columns(matrix, columns, to),
                false => pack_strip_of_rows(matrix, columns, to),
            }
        });
        #[expect(unsafe_code, reason = "zeroing the factors first takes 5 % of a training step")]
        // SAFETY: the capacity is sufficient, and each strip is written completely.
        unsafe {
            values.set_len(size);
        }
        Self { values, columns, inner: matrix.rows, pairs }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn inner(&self) -> usize {
        self.inner
    }

    /// Returns the strip that starts at a column.
    pub(super) fn strip(&self, column: usize) -> &[[u32; STRIP]] {
        let (pairs, _) = self.values.as_chunks();
        &pairs[column / STRIP * self.pairs..][..self.pairs]
    }
}

/// Packs rows whose terms are contiguous, beginning with row `first`.
#[multiversion(targets = "simd")]
fn pack_rows(matrix: &Matrix<'_>, first: usize, to: &mut [MaybeUninit<u32>]) {
    for (row, to) in to.chunks_mut(matrix.columns.div_ceil(2)).enumerate() {
        let terms = &matrix.values[(first + row) * matrix.stride..][..matrix.columns];
        let (both, last) = terms.as_chunks::<2>();
        for (to, &[a, b]) in to.iter_mut().zip(both) {
            to.write(packed(a, b));
        }
        if let &[last] = last {
            to[both.len()].write(packed(last, 0.0));
        }
    }
}

/// Packs rows that are contiguous for each term, beginning with row `first`.
#[multiversion(targets = "simd")]
fn pack_columns(matrix: &Matrix<'_>, first: usize, to: &mut [MaybeUninit<u32>]) {
    /// Number of pairs that are rounded before they are distributed: a cache line of each row.
    const PAIRS: usize = 16;
    let pairs = matrix.columns.div_ceil(2);
    let rows = to.len() / pairs;
    let mut buffer = [[0; ROWS]; PAIRS];
    for start in (0..pairs).step_by(PAIRS) {
        let count = PAIRS.min(pairs - start);
        for (pair, of_rows) in buffer[..count].iter_mut().enumerate() {
            pack_pair(matrix, start + pair, first..first + rows, &mut of_rows[..rows]);
        }
        for (row, to) in to.chunks_mut(pairs).enumerate() {
            for (to, of_rows) in to[start..].iter_mut().zip(&buffer[..count]) {
                to.write(of_rows[row]);
            }
        }
    }
}

/// Packs a pair of terms for a range of rows of a transposed matrix.
#[inline(always)]
fn pack_pair(matrix: &Matrix<'_>, pair: usize, rows: Range<usize>, to: &mut [u32]) {
    let terms = |term: usize| &matrix.values[term * matrix.stride..][rows.clone()];
    let a = terms(2 * pair);
    if 2 * pair + 1 < matrix.columns {
        let b = terms(2 * pair + 1);
        for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
            *to = packed(*a, *b);
        }
    } else {
        to.iter_mut().zip(a).for_each(|(to, a)| *to = packed(*a, 0.0));
    }
}

/// A pair of terms of the columns of a strip.
type StripPair = [MaybeUninit<u32>; STRIP];

/// Packs a strip of columns whose terms are contiguous.
#[multiversion(targets = "simd")]
fn pack_strip_of_columns(matrix: &Matrix<'_>, columns: Range<usize>, to: &mut [StripPair]) {
    let used = columns.len();
    for (index, column) in columns.enumerate() {
        let terms = &matrix.values[column * matrix.stride..][..matrix.rows];
        let (both, last) = terms.as_chunks::<2>();
        for (to, &[a, b]) in to.iter_mut().zip(both) {
            to[index].write(packed(a, b));
        }
        if let &[last] = last {
            to[both.len()][index].write(packed(last, 0.0));
        }
    }
    for to in to {
        to[used..].fill(MaybeUninit::new(0));
    }
}

/// Packs a strip of columns that are contiguous for each term.
#[multiversion(targets = "simd")]
fn pack_strip_of_rows(matrix: &Matrix<'_>, columns: Range<usize>, to: &mut [StripPair]) {
    let transposed =
        Matrix { is_transposed: true, rows: matrix.columns, columns: matrix.rows, ..*matrix };
    let mut buffer = [0; STRIP];
    for (pair, to) in to.iter_mut().enumerate() {
        pack_pair(&transposed, pair, columns.clone(), &mut buffer[..columns.len()]);
        *to = buffer.map(MaybeUninit::new);
    }
}

#[inline(always)]
fn packed(a: f32, b: f32) -> u32 {
    rounded(a) << 16 | rounded(b)
}

/// Rounds to the nearest bf16, ties to even. Numbers that are subnormal in bf16 become 0.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1))) >> 16;
    match magnitude {
        // Rounding could turn NaN into infinity or 0.
        0x7f80_0001.. => bits >> 16 | 0x40,
        0x0080_0000.. => nearest,
        // Including numbers that would be rounded up to the smallest normal one.
        _ => bits >> 16 & 0x8000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::bf16;

    #[test]
    fn numbers_are_rounded_like_bf16() {
        // All upper halves, with lower halves around the ties.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(upper) << 16 | lower);
                let expected = bf16::from_f32(x);
                let got = bf16::from_bits(u16::try_from(rounded(x)).unwrap());
                if x.is_nan() {
                    assert!(got.is_nan(), "{x}");
                } else if x.is_subnormal() || x == 0.0 {
                    assert_eq!(got.to_bits(), bf16::from_f32(0.0_f32.copysign(x)).to_bits());
                } else {
                    assert_eq!(got.to_bits(), expected.to_bits(), "{x:e}");
                }
            }
        }
    }
}
