//! The product with a transposed weight, such as a tied head.

use std::ops::Range;

use pulp::Simd;

use super::blocks::blocks;
use super::strip::{Input, Strip};
use crate::prefetch::{LINE, prefetch};

/// Number of columns that are processed for all rows if the weight is transposed. With a width of 512,
/// they take half of the L1 cache.
const COLUMNS_PER_PASS: usize = 8;

/// Computes `y`, the product of some rows of `x` and the columns of `weight` that start at `first`.
/// Column `j` is row `j` of the strip. A block has `C` columns.
#[inline(always)]
pub(super) fn multiply<S: Simd, const C: usize>(
    simd: S,
    x: Input<'_>,
    weight: Strip<'_, f32>,
    first: usize,
    y: &mut [&mut [f32]],
) {
    let (Input { values: x, inner }, Strip { values, stride }) = (x, weight);
    // Process a few columns for all rows, so that weights are read only once.
    let columns = y[0].len();
    let lines = COLUMNS_PER_PASS * inner.div_ceil(LINE);
    let lines_per_block = lines.div_ceil(blocks(y.len()).count());
    for start in (0..columns).step_by(COLUMNS_PER_PASS) {
        let part = start..columns.min(start + COLUMNS_PER_PASS);
        let next = part.end..columns.min(part.end + COLUMNS_PER_PASS);
        let mut next = next
            .flat_map(|column| values[(first + column) * stride..][..inner].iter().step_by(LINE));
        let values = &values[(first + start) * stride..];
        for block in blocks(y.len()) {
            next.by_ref().take(lines_per_block).for_each(prefetch);
            let (x, y, part) = (&x[block.start * inner..], &mut y[block], part.clone());
            dot_rows::<S, C>(simd, x, inner, values, stride, y, part);
        }
    }
}

/// Computes a block of rows for all columns of the panel. The inner axis is contiguous in both
/// operands, so lanes run along it and are summed at the end. A block has `C` columns, whose sums fit
/// into registers.
#[inline(always)]
fn dot_rows<S: Simd, const C: usize>(
    simd: S,
    x: &[f32],
    inner: usize,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
    part: Range<usize>,
) {
    let whole = part.len() - part.len() % C;
    for column in (0..whole).step_by(C) {
        let (weights, first) = (&weights[column * stride..], part.start + column);
        match y.len() {
            1 => dots::<S, 1, C>(simd, x, inner, weights, stride, y, first),
            2 => dots::<S, 2, C>(simd, x, inner, weights, stride, y, first),
            3 => dots::<S, 3, C>(simd, x, inner, weights, stride, y, first),
            4 => dots::<S, 4, C>(simd, x, inner, weights, stride, y, first),
            5 => dots::<S, 5, C>(simd, x, inner, weights, stride, y, first),
            _ => dots::<S, 6, C>(simd, x, inner, weights, stride, y, first),
        }
    }
    // Remaining columns, using the same order of terms.
    for column in whole..part.len() {
        let (weights, first) = (&weights[column * stride..], part.start + column);
        for r in 0..y.len() {
            dots::<S, 1, 1>(simd, &x[r * inner..], inner, weights, stride, &mut y[r..], first);
        }
    }
}

#[inline(always)]
fn dots<S: Simd, const R: usize, const C: usize>(
    simd: S,
    x: &[f32],
    inner: usize,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
    first: usize,
) {
    let x: [_; R] = std::array::from_fn(|r| S::as_simd_f32s(&x[r * inner..(r + 1) * inner]));
    let w: [_; C] = std::array::from_fn(|c| S::as_simd_f32s(&weights[c * stride..][..inner]));
    let mut sums = [[simd.splat_f32s(0.0); C]; R];
    for i in 0..x[0].0.len() {
        let vectors: [S::f32s; C] = std::array::from_fn(|c| w[c].0[i]);
        for r in 0..R {
            let a = x[r].0[i];
            for c in 0..C {
                sums[r][c] = simd.mul_add_f32s(a, vectors[c], sums[r][c]);
            }
        }
    }
    if !x[0].1.is_empty() {
        for r in 0..R {
            let a = simd.partial_load_f32s(x[r].1);
            for c in 0..C {
                let b = simd.partial_load_f32s(w[c].1);
                sums[r][c] = simd.mul_add_f32s(a, b, sums[r][c]);
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            y[r][first + c] = simd.reduce_sum_f32s(sums[r][c]);
        }
    }
}
