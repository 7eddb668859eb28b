//! The product with a weight that was packed for many products.

use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::blocks::{Terms, add_blocks, blocks};
use super::strip::{Input, Rows, Strip, Widen};
use crate::prefetch::prefetch_all;

/// Number of columns of a packed strip: two vectors with AVX2, four with NEON.
const WIDTH: usize = 16;
/// Number of rows of a strip that all blocks use before they move on. They fit into the L1 cache.
const DEPTH: usize = 128;

/// Strips of a weight, `[strips][inner][WIDTH]`. The last strip is filled up with zeros.
#[derive(Clone, Copy)]
pub(super) struct Strips<'a>(pub(super) &'a [f32]);

impl<'a> Strips<'a> {
    /// Returns the strips that start at a column, which must be a multiple of [`WIDTH`].
    pub(super) fn from(self, column: usize, inner: usize) -> Self {
        Self(&self.0[column * inner..])
    }
}

/// Returns whether products with packed weights are faster. With AVX-512, blocks are four cache lines
/// wide, and weights are read in place. Processors without AVX2 have no vectors here.
pub(super) fn is_faster() -> bool {
    matches!(Arch::new().dispatch(Lanes), 4 | 8)
}

/// Packs a weight with `columns` columns. Returns `None` if products with it would not be faster.
pub(super) fn pack(weight: Rows<'_>, inner: usize, columns: usize) -> Option<Vec<f32>> {
    let weight = match weight {
        Rows::F32(weight) if is_faster() => weight,
        _ => return None,
    };
    let mut strips = vec![0.0; columns.div_ceil(WIDTH) * inner * WIDTH];
    strips.par_chunks_mut((inner * WIDTH).max(1)).enumerate().for_each(|(strip, to)| {
        let first = strip * WIDTH;
        let width = WIDTH.min(columns - first);
        for (row, to) in to.chunks_mut(WIDTH).enumerate() {
            weight.widen(row, first, &mut to[..width]);
        }
    });
    Some(strips)
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
    /// Interleaved by [`interleave`](super::blocks::interleave).
    pub(super) x: Input<'a>,
    /// Strips of these columns.
    pub(super) weight: Strips<'a>,
    /// Output slice for each row.
    pub(super) y: &'a mut [&'y mut [f32]],
}

impl PackedProduct<'_, '_> {
    /// Adds the product to `y`, with `V` vectors of columns per block.
    #[inline(always)]
    pub(super) fn add<S: Simd, const V: usize>(self, simd: S) {
        let Self { x, weight: Strips(weights), y } = self;
        let inner = x.inner;
        assert_eq!(V * S::F32_LANES, WIDTH, "blocks must be as wide as strips");
        let per_block = DEPTH.div_ceil(blocks(y.len()).count());
        for column in (0..y[0].len()).step_by(WIDTH) {
            for start in (0..inner).step_by(DEPTH) {
                let end = inner.min(start + DEPTH);
                let (used, rest) =
                    weights[column * inner + start * WIDTH..].split_at((end - start) * WIDTH);
                // What follows in memory is used next.
                let mut next = rest[..rest.len().min(DEPTH * WIDTH)].chunks(per_block * WIDTH);
                let load = || next.next().into_iter().for_each(prefetch_all);
                let terms = Terms { x, terms: start..end };
                let tile = Strip { values: used, stride: WIDTH };
                add_blocks::<S, V>(simd, &terms, &tile, 0, column, y, load);
            }
        }
    }
}
