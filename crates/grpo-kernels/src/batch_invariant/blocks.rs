//! Blocks of rows, whose sums stay in registers.

use std::ops::Range;

use pulp::Simd;
use rayon::prelude::*;

use super::strip::{Input, ROWS, STRIP, Widen};

/// Divides rows into blocks of at most [`ROWS`] rows with nearly equal sizes. A block of two rows has too
/// few independent sums to hide the latency of multiply-adds.
pub(super) fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    let count = rows.div_ceil(ROWS);
    (0..count).map(move |i| i * rows / count..(i + 1) * rows / count)
}

/// Interleaves the rows of each block: `[blocks][inner][rows of the block]`. The inner loop then
/// reads a single slice, and needs no bounds check per row. Rows are first divided into parts of `part`
/// rows, and each part into blocks.
pub(super) fn interleave(x: &[f32], inner: usize, part: usize) -> Vec<f32> {
    /// Number of blocks per task.
    const BLOCKS: usize = 16;
    let mut out = vec![0.0; x.len()];
    let (mut from, mut rest) = (x, out.as_mut_slice());
    let mut tasks = Vec::new();
    while !from.is_empty() {
        for block in blocks(part.min(from.len() / inner)) {
            let (x, after) = from.split_at(block.len() * inner);
            let (out, remaining) = rest.split_at_mut(block.len() * inner);
            tasks.push((block.len(), x, out));
            (from, rest) = (after, remaining);
        }
    }
    tasks.into_par_iter().with_min_len(BLOCKS).for_each(|(rows, x, out)| {
        for (row, x) in x.chunks(inner).enumerate() {
            out[row..].iter_mut().step_by(rows).zip(x).for_each(|(out, x)| *out = *x);
        }
    });
    out
}

/// A range of terms of a product.
pub(super) struct Terms<'a> {
    /// Interleaved by [`interleave`].
    pub(super) x: Input<'a>,
    pub(super) terms: Range<usize>,
}

/// Adds terms to all rows of `y`, for the columns that start at `column`. In `weights`, they start at
/// `first`. `before` is called before each block.
#[inline(always)]
pub(super) fn add_blocks<S: Simd, const V: usize>(
    simd: S,
    Terms { x, terms }: &Terms<'_>,
    weights: &impl Widen,
    first: usize,
    column: usize,
    y: &mut [&mut [f32]],
    mut before: impl FnMut(),
) {
    for block in blocks(y.len()) {
        before();
        let rows = block.len();
        let x = &x.values[block.start * x.inner..][terms.start * rows..terms.end * rows];
        let y = &mut y[block];
        match rows {
            1 => add_block::<S, 1, V>(simd, x, weights, first, column, y),
            2 => add_block::<S, 2, V>(simd, x, weights, first, column, y),
            3 => add_block::<S, 3, V>(simd, x, weights, first, column, y),
            4 => add_block::<S, 4, V>(simd, x, weights, first, column, y),
            5 => add_block::<S, 5, V>(simd, x, weights, first, column, y),
            _ => add_block::<S, 6, V>(simd, x, weights, first, column, y),
        }
    }
}

/// Adds terms to a block of rows. `x` has shape `[terms][R]`.
#[inline(always)]
fn add_block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    x: &[f32],
    weights: &impl Widen,
    first: usize,
    column: usize,
    y: &mut [&mut [f32]],
) {
    let width = V * S::F32_LANES;
    let count = (y[0].len() - column).min(width);
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    // Incomplete vectors are copied, because partial loads and stores would keep all sums out of
    // registers.
    for r in 0..R {
        let y = &y[r][column..][..count];
        let mut copy = [0.0; STRIP];
        let y = match count == width {
            true => y,
            false => {
                copy[..count].copy_from_slice(y);
                &copy[..width]
            }
        };
        let (vectors, _) = S::as_simd_f32s(y);
        sums[r].copy_from_slice(vectors);
    }
    let (x, _) = x.as_chunks::<R>();
    for (i, x) in x.iter().enumerate() {
        let vectors = weights.vectors::<S, V>(i, first);
        for r in 0..R {
            let a = simd.splat_f32s(x[r]);
            for v in 0..V {
                sums[r][v] = simd.mul_add_f32s(a, vectors[v], sums[r][v]);
            }
        }
    }
    for r in 0..R {
        let y = &mut y[r][column..][..count];
        if count == width {
            let (vectors, _) = S::as_mut_simd_f32s(y);
            vectors.copy_from_slice(&sums[r]);
        } else {
            let mut copy = [0.0; STRIP];
            let (vectors, _) = S::as_mut_simd_f32s(&mut copy[..width]);
            vectors.copy_from_slice(&sums[r]);
            y.copy_from_slice(&copy[..count]);
        }
    }
}
