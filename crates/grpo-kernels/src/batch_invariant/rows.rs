//! The product with a weight as it is stored.

use std::cell::RefCell;
use std::ops::Range;

use pulp::Simd;

use super::blocks::{Terms, add_blocks};
use super::strip::{Input, Rows, Strip, Widen};
use crate::product::{Output, ROWS, blocks};

/// Number of rows of the weight that are copied to tiles at a time.
const TILE_DEPTH: usize = 64;
/// Unused numbers at the end of a tile. Without them, all tiles would start in the same cache set.
const PADDING: usize = 16;
/// Number of rows of the weight that a single block of rows uses before it moves on to the next
/// columns.
const IN_PLACE_DEPTH: usize = 16;
/// The same number for `f32` with 16 lanes, if `y` has at most `FEW_ROWS` rows, and if it has more.
const LONG_VECTORS_DEPTH: [usize; 2] = [128, 512];
const FEW_ROWS: usize = 3 * ROWS;

/// Some rows of `x` times some columns of a weight.
pub(super) struct RowProduct<'a, 'y> {
    pub(super) x: Input<'a>,
    pub(super) weight: Rows<'a>,
    /// First column.
    pub(super) first: usize,
    /// Number of columns of the whole weight.
    pub(super) all_columns: usize,
    /// See [`Terms::bias`].
    pub(super) bias: Option<&'a [f32]>,
    pub(super) y: Output<'a, 'y>,
}

impl RowProduct<'_, '_> {
    /// Computes the product with `V` vectors of columns per block.
    #[inline(always)]
    pub(super) fn compute<S: Simd, const V: usize>(self, simd: S) {
        // Not borrowed in a closure, which would be compiled without this instruction set.
        let mut tiles = TILES.take();
        match self.weight {
            Rows::F32(weights) => self.add_terms::<S, V, _>(simd, weights, &mut tiles),
            Rows::Transposed(weights) => self.add_terms::<S, V, _>(simd, weights, &mut tiles),
            Rows::Bf16(weights) => self.add_terms::<S, V, _>(simd, weights, &mut tiles),
            Rows::Quantized(weights) => self.add_terms::<S, V, _>(simd, weights, &mut tiles),
            Rows::Packed(weights) => self.add_terms::<S, V, _>(simd, weights, &mut tiles),
        }
        TILES.set(tiles);
    }

    /// Adds all terms to all elements of `y`, a few terms at a time.
    #[inline(always)]
    fn add_terms<S: Simd, const V: usize, W: Widen>(
        self,
        simd: S,
        weights: W,
        tiles: &mut Vec<f32>,
    ) {
        let width = V * S::F32_LANES;
        let Self { x, first, all_columns, bias, y, .. } = self;
        let columns = y[0].len();
        let (depth, in_place) = match in_place_depth(&weights, y.len(), S::F32_LANES) {
            Some(depth) => (depth, columns - columns % width),
            None => (TILE_DEPTH, 0),
        };
        for start in (0..x.inner).step_by(depth) {
            let end = x.inner.min(start + depth);
            let terms = Terms { x, terms: start..end, bias };
            let part = weights.at(start, first);
            for column in (0..in_place).step_by(width) {
                #[expect(unsafe_code, reason = "see `add_blocks`")]
                // SAFETY: ranges of terms follow each other, beginning with the first, and each is
                // added to all columns.
                unsafe {
                    add_blocks::<S, V, _>(simd, &terms, &part, [column; 2], y, || |_| ());
                }
            }
            if in_place == columns {
                continue;
            }
            let size = (end - start) * width + PADDING;
            copy_tiles::<S, V, W>(&part, in_place..columns, end - start, size, tiles);
            let next = match end < x.inner {
                true => Some((weights.at(end, first), x.inner - end)),
                false if first + columns < all_columns => {
                    Some((weights.at(0, first + columns), x.inner))
                }
                false => None,
            };
            let count = (columns - in_place).div_ceil(width);
            let mut prefetcher = match in_place {
                0 => Prefetcher::new(next, columns, count * blocks(y.len()).count()),
                _ => Prefetcher::none(),
            };
            for (values, column) in tiles.chunks(size).zip((in_place..columns).step_by(width)) {
                let tile = Strip { values, stride: width };
                #[expect(unsafe_code, reason = "see `add_blocks`")]
                // SAFETY: as above.
                unsafe {
                    add_blocks::<S, V, _>(simd, &terms, &tile, [0, column], y, || {
                        prefetcher.advance();
                        |_| ()
                    });
                }
            }
        }
    }
}

/// Returns the number of terms after which all columns have been used, if weights are read in place.
/// Otherwise, they are copied to tiles first.
///
/// Reading in place touches one block of columns of one row after another. This is faster for a
/// single block of rows, and for `f32` with AVX-512, whose blocks are four cache lines wide (see
/// docs/LOG.md). Transposed weights have no rows in memory.
#[inline(always)]
fn in_place_depth<W: Widen>(_: &W, rows: usize, lanes: usize) -> Option<usize> {
    match lanes {
        _ if W::IS_TRANSPOSED => None,
        16 if W::IS_F32 => Some(LONG_VECTORS_DEPTH[usize::from(rows > FEW_ROWS)]),
        _ => (rows <= ROWS).then_some(IN_PLACE_DEPTH),
    }
}

thread_local! {
    /// Copied weights. Kept, because zeroing a new buffer would take as long as copying.
    static TILES: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Copies `terms` rows of columns of a weight into tiles of `V` vectors per row. A tile has `size`
/// numbers, including [`PADDING`].
#[inline(always)]
fn copy_tiles<S: Simd, const V: usize, W: Widen>(
    from: &W,
    columns: Range<usize>,
    terms: usize,
    size: usize,
    to: &mut Vec<f32>,
) {
    let width = V * S::F32_LANES;
    let count = columns.len().div_ceil(width);
    if to.len() < count * size {
        to.resize(count * size, 0.0);
    }
    let copy = |row: usize, tile: &mut [f32], column: usize| {
        let to = &mut tile[row * width..][..width];
        match columns.end - column {
            rest if rest < width => from.widen(row, column, &mut to[..rest]),
            _ => {
                let (to, _) = S::as_mut_simd_f32s(to);
                to.copy_from_slice(&from.vectors::<S, V>(row, column));
            }
        }
    };
    if W::IS_TRANSPOSED {
        // Tile by tile, whose columns fit into the L1 cache.
        for (tile, column) in to.chunks_mut(size).zip(columns.clone().step_by(width)) {
            (0..terms).for_each(|row| copy(row, tile, column));
        }
        return;
    }
    // Row by row, so that weights are read in the order of their addresses.
    for row in 0..terms {
        for (tile, column) in to.chunks_mut(size).zip(columns.clone().step_by(width)) {
            copy(row, tile, column);
        }
    }
}

/// Loads weights into the cache while others are used. Without this, a product with a few dozen rows
/// waits for memory during a large part of its time (see docs/LOG.md).
struct Prefetcher<W> {
    weights: Option<W>,
    terms: usize,
    columns: usize,
    /// Next row and column.
    row: usize,
    column: usize,
    /// Number of cache lines per call of `advance`.
    lines: usize,
}

impl<W: Widen> Prefetcher<W> {
    #[inline(always)]
    fn none() -> Self {
        Self { weights: None, terms: 0, columns: 0, row: 0, column: 0, lines: 0 }
    }

    /// `next` contains the weights and the number of their rows. Loads at most [`TILE_DEPTH`] rows of
    /// `columns` columns in `calls` calls of `advance`.
    #[inline(always)]
    fn new(next: Option<(W, usize)>, columns: usize, calls: usize) -> Self {
        let Some((weights, rows)) = next else { return Self::none() };
        let terms = rows.min(TILE_DEPTH);
        let lines = (terms * columns.div_ceil(W::COLUMNS_PER_LINE)).div_ceil(calls);
        Self { weights: Some(weights), terms, columns, lines, ..Self::none() }
    }

    #[inline(always)]
    fn advance(&mut self) {
        let Some(weights) = &self.weights else { return };
        for _ in 0..self.lines {
            if self.row == self.terms {
                return;
            }
            weights.prefetch(self.row, self.column);
            self.column += W::COLUMNS_PER_LINE;
            if self.column >= self.columns {
                (self.row, self.column) = (self.row + 1, 0);
            }
        }
    }
}
