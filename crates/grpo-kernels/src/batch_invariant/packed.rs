//! The product with a weight that was packed for many products.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::blocks::{Terms, add_blocks};
use super::strip::{Input, Rows, Strip, Transposed, Widen};
use crate::prefetch::prefetch_all;
use crate::product::{Output, blocks};

/// Largest number of values of a strip that all blocks of rows use before the next ones: 256 KiB. With
/// those prefetched, they fit into an L2 cache of 1 MiB.
const PART: usize = 65_536;

/// Strips of a weight, `[strips][inner][width]`. The width is that of a block of columns: four
/// vectors with AVX-512 and NEON, two with AVX2. The last strip is filled up with zeros.
#[derive(Clone, Copy)]
pub(super) struct Strips<'a>(pub(super) &'a [f32]);

impl<'a> Strips<'a> {
    /// Returns the strips that start at a column, which must be a multiple of their width.
    pub(super) fn from(self, column: usize, inner: usize) -> Self {
        Self(&self.0[column * inner..])
    }
}

/// Returns the number of columns of a strip. Processors without AVX2 have no vectors here, and products
/// with packed weights are not faster.
pub(super) fn width() -> Option<usize> {
    width_for(Arch::new().dispatch(Lanes))
}

fn width_for(lanes: usize) -> Option<usize> {
    match lanes {
        16 => Some(64),
        4 | 8 => Some(16),
        _ => None,
    }
}

/// Packs a weight with `columns` columns. Returns `None` if products with it would not be faster.
pub(super) fn pack(weight: Rows<'_>, inner: usize, columns: usize) -> Option<Vec<f32>> {
    let width = width()?;
    match weight {
        Rows::F32(weight) => Some(pack_by(inner, columns, width, |from, to| {
            pack_rows(weight, from, width, to);
        })),
        Rows::Transposed(weight) => Some(pack_by(inner, columns, width, |from, to| {
            pack_columns(weight, from, width, to);
        })),
        _ => None,
    }
}

/// Calls `pack` for the columns of each strip.
fn pack_by(
    inner: usize,
    columns: usize,
    width: usize,
    pack: impl Fn(Range<usize>, &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut strips = vec![0.0; columns.div_ceil(width) * inner * width];
    strips.par_chunks_mut((inner * width).max(1)).enumerate().for_each(|(strip, to)| {
        pack(strip * width..columns.min((strip + 1) * width), to);
    });
    strips
}

fn pack_rows(weight: Strip<'_, f32>, columns: Range<usize>, width: usize, to: &mut [f32]) {
    for (row, to) in to.chunks_mut(width).enumerate() {
        weight.widen(row, columns.start, &mut to[..columns.len()]);
    }
}

fn pack_columns(weight: Transposed<'_>, columns: Range<usize>, width: usize, to: &mut [f32]) {
    /// Number of rows that are written for all columns before the next ones. They fit into the L1 cache.
    const ROWS: usize = 64;
    let Transposed(Strip { values, stride }) = weight;
    for (part, to) in to.chunks_mut(ROWS * width).enumerate() {
        let rows = to.len() / width;
        for (index, column) in columns.clone().enumerate() {
            let from = &values[column * stride + part * ROWS..][..rows];
            to[index..].iter_mut().step_by(width).zip(from).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Returns the number of lanes of a vector.
struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Some rows of `x` times some columns of a packed weight.
pub(super) struct PackedProduct<'a, 'y> {
    pub(super) x: Input<'a>,
    /// Strips of these columns.
    pub(super) weight: Strips<'a>,
    /// See [`Terms::bias`].
    pub(super) bias: Option<&'a [f32]>,
    pub(super) y: Output<'a, 'y>,
}

impl PackedProduct<'_, '_> {
    /// Computes the product with `V` vectors of columns per block.
    #[inline(always)]
    pub(super) fn compute<S: Simd, const V: usize>(self, simd: S) {
        let Self { x, weight: Strips(weights), bias, y } = self;
        let inner = x.inner;
        let width = V * S::F32_LANES;
        assert_eq!(Some(width), width_for(S::F32_LANES), "blocks must be as wide as strips");
        // Parts of equal size, so that each prefetches the next one as a whole.
        let depth = inner.div_ceil(inner.div_ceil(PART / width));
        // Number of values that each block of rows prefetches per term. All blocks together prefetch as
        // many as they use.
        let share = width.div_ceil(blocks(y.len()).count());
        for column in (0..y[0].len()).step_by(width) {
            for start in (0..inner).step_by(depth) {
                let end = inner.min(start + depth);
                let (used, rest) =
                    weights[column * inner + start * width..].split_at((end - start) * width);
                // What follows in memory is used next.
                let mut shares = rest[..rest.len().min(used.len())].chunks((end - start) * share);
                let prefetch_ahead = || {
                    let next = shares.next().unwrap_or_default();
                    move |terms: Range<usize>| {
                        let end = next.len().min(terms.end * share);
                        next.get(terms.start * share..end).into_iter().for_each(prefetch_all);
                    }
                };
                let terms = Terms { x, terms: start..end, bias };
                let tile = Strip { values: used, stride: width };
                #[expect(unsafe_code, reason = "see `add_blocks`")]
                // SAFETY: ranges of terms follow each other, beginning with the first.
                unsafe {
                    add_blocks::<S, V, _>(simd, &terms, &tile, [0, column], y, prefetch_ahead);
                }
            }
        }
    }
}
