//! The product with a weight that is stored row by row.

use std::cell::RefCell;
use std::ops::Range;

use pulp::Simd;

use super::strip::{Input, ROWS, Rows, STRIP, Strip, Widen};

/// Number of terms after which a single block of rows moves on to the next columns. The weights of
/// all columns are read in the order of their addresses, one cache line of a row after another.
const IN_PLACE_DEPTH: usize = 16;
/// Number of terms that are packed at a time. The panels of a task fill a part of the L2 cache.
const PACKED_DEPTH: usize = 64;
/// Numbers between packed panels. Without them, all panels would start in the same cache set.
const PADDING: usize = 16;
/// Number of `f32` numbers in a cache line.
const LINE: usize = 16;

/// Some rows of `x` times some columns of a weight.
pub(super) struct RowProduct<'a, 'y> {
    /// Interleaved by [`interleave`].
    pub(super) x: Input<'a>,
    pub(super) weight: Rows<'a>,
    /// First column.
    pub(super) first: usize,
    /// Number of columns of the whole weight.
    pub(super) columns: usize,
    /// Output slice for each row.
    pub(super) y: &'a mut [&'y mut [f32]],
}

impl RowProduct<'_, '_> {
    /// Adds the product to `y`, with `V` vectors of columns per block.
    #[inline(always)]
    pub(super) fn add<S: Simd, const V: usize>(self, simd: S) {
        // Not borrowed in a closure, which would be compiled without this instruction set.
        let mut buffer = BUFFER.take();
        match self.weight {
            Rows::F32(weights) => self.add_terms::<S, V>(simd, weights, &mut buffer),
            Rows::Bf16(weights) => self.add_terms::<S, V>(simd, weights, &mut buffer),
            Rows::Quantized(weights) => self.add_terms::<S, V>(simd, weights, &mut buffer),
            Rows::Packed(weights) => self.add_terms::<S, V>(simd, weights, &mut buffer),
        }
        BUFFER.set(buffer);
    }

    /// Adds all terms to all elements of `y`, a few terms at a time.
    ///
    /// A single block of rows reads each weight once, in the order of its address. Several blocks
    /// read packed weights, while the next ones are prefetched.
    #[inline(always)]
    fn add_terms<S: Simd, const V: usize>(
        self,
        simd: S,
        weights: impl Widen,
        buffer: &mut Vec<f32>,
    ) {
        let width = V * S::F32_LANES;
        let Self { x: Input { values: x, inner }, first, columns: all_columns, y, .. } = self;
        let columns = y[0].len();
        let (deep, in_place) = match y.len() <= ROWS {
            true => (IN_PLACE_DEPTH, columns - columns % width),
            false => (PACKED_DEPTH, 0),
        };
        for depth in (0..inner).step_by(deep) {
            let terms = depth..inner.min(depth + deep);
            let part = weights.at(depth, first);
            for column in (0..in_place).step_by(width) {
                let x = &x[terms.start * y.len()..terms.end * y.len()];
                add_block::<S, V>(simd, x, &part, column, column, y);
            }
            if in_place == columns {
                continue;
            }
            let size = terms.len() * width + PADDING;
            pack::<S, V>(&part, in_place..columns, terms.len(), size, buffer);
            let next = match terms.end < inner {
                true => Some((weights.at(terms.end, first), inner - terms.end)),
                false if first + columns < all_columns => {
                    Some((weights.at(0, first + columns), inner))
                }
                false => None,
            };
            let panels = (columns - in_place).div_ceil(width);
            let mut ahead = Ahead::new(next, deep, columns, panels * y.len().div_ceil(ROWS));
            for (values, column) in buffer.chunks(size).zip((in_place..columns).step_by(width)) {
                let panel = Strip { values, stride: width };
                for (block, y) in y.chunks_mut(ROWS).enumerate() {
                    ahead.advance();
                    let rows = y.len();
                    let x = &x[block * ROWS * inner..][terms.start * rows..terms.end * rows];
                    add_block::<S, V>(simd, x, &panel, 0, column, y);
                }
            }
        }
    }
}

/// Interleaves the rows of each block of [`ROWS`] rows: `[blocks][inner][rows of the block]`. The
/// inner loop then reads a single slice, and needs no bounds check per row.
pub(super) fn interleave(x: &[f32], inner: usize) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    let block = (ROWS * inner).max(1);
    for (out, x) in out.chunks_mut(block).zip(x.chunks(block)) {
        let rows = x.len() / inner;
        for (row, x) in x.chunks(inner).enumerate() {
            out[row..].iter_mut().step_by(rows).zip(x).for_each(|(out, x)| *out = *x);
        }
    }
    out
}

thread_local! {
    /// Packed weights. Kept, because zeroing a new one would take as long as packing.
    static BUFFER: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Copies `terms` rows of columns of a weight into panels of `V` vectors. A panel has `size` numbers,
/// and the last [`PADDING`] of them are not used.
#[inline(always)]
fn pack<S: Simd, const V: usize>(
    from: &impl Widen,
    columns: Range<usize>,
    terms: usize,
    size: usize,
    to: &mut Vec<f32>,
) {
    let width = V * S::F32_LANES;
    let panels = columns.len().div_ceil(width);
    if to.len() < panels * size {
        to.resize(panels * size, 0.0);
    }
    // Row by row, so that weights are read in the order of their addresses.
    for row in 0..terms {
        for (panel, column) in to.chunks_mut(size).zip(columns.clone().step_by(width)) {
            let to = &mut panel[row * width..][..width];
            match columns.end - column {
                rest if rest < width => from.widen(row, column, &mut to[..rest]),
                _ => {
                    let (to, _) = S::as_mut_simd_f32s(to);
                    to.copy_from_slice(&from.vectors::<S, V>(row, column));
                }
            }
        }
    }
}

/// Weights that are loaded into the cache while others are used.
///
/// Without this, reading the weights takes up to half of the time of a product with a few dozen
/// rows (see docs/LOG.md).
struct Ahead<W> {
    weights: Option<W>,
    terms: usize,
    columns: usize,
    /// Next row and column.
    row: usize,
    column: usize,
    /// Number of cache lines per call of `advance`.
    lines: usize,
}

impl<W: Widen> Ahead<W> {
    /// `next` contains the next weights and the number of their rows, of which the first `deep` are
    /// loaded in `calls` calls of `advance`.
    #[inline(always)]
    fn new(next: Option<(W, usize)>, deep: usize, columns: usize, calls: usize) -> Self {
        let (weights, terms) = next.map_or((None, 0), |(weights, rows)| (Some(weights), rows));
        let terms = terms.min(deep);
        let lines = (terms * columns.div_ceil(LINE)).div_ceil(calls.max(1));
        Self { weights, terms, columns, row: 0, column: 0, lines }
    }

    #[inline(always)]
    fn advance(&mut self) {
        let Some(weights) = &self.weights else { return };
        for _ in 0..self.lines {
            if self.row == self.terms {
                return;
            }
            weights.prefetch(self.row, self.column);
            self.column += LINE;
            if self.column >= self.columns {
                (self.row, self.column) = (self.row + 1, 0);
            }
        }
    }
}

/// Adds terms to a block of rows of `y`, for the columns that start at `column`. In `weights`, they
/// start at `first`. `x` has shape `[terms][rows]`.
#[inline(always)]
fn add_block<S: Simd, const V: usize>(
    simd: S,
    x: &[f32],
    weights: &impl Widen,
    first: usize,
    column: usize,
    y: &mut [&mut [f32]],
) {
    match y.len() {
        1 => add_block_of::<S, 1, V>(simd, x, weights, first, column, y),
        2 => add_block_of::<S, 2, V>(simd, x, weights, first, column, y),
        3 => add_block_of::<S, 3, V>(simd, x, weights, first, column, y),
        4 => add_block_of::<S, 4, V>(simd, x, weights, first, column, y),
        5 => add_block_of::<S, 5, V>(simd, x, weights, first, column, y),
        _ => add_block_of::<S, 6, V>(simd, x, weights, first, column, y),
    }
}

#[inline(always)]
fn add_block_of<S: Simd, const R: usize, const V: usize>(
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
