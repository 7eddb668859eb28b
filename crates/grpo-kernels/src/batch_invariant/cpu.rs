//! The batch-invariant product on the CPU.
//!
//! The columns of the result are divided into panels, which are distributed across threads. A panel
//! is divided into blocks of a few rows and a few vectors of columns, whose sums stay in registers
//! across several terms. This division affects which elements are computed together, but never the
//! order of summation within an element.

use std::cell::RefCell;
use std::ops::Range;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor, TensorData};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::strip::{Held, Rows, STRIP, Strip, Widen, primitive};
use crate::awake::is_alone;
use crate::four_bits::unpacked_shape;

/// Largest number of strips per task. The more columns, the longer the contiguous parts of the
/// weight that are read.
const STRIPS: usize = 16;
/// Number of strips below which a task reads its weights noticeably slower.
const NARROW: usize = 4;
/// Number of terms after which a single block of rows moves on to the next columns. The weights of
/// all columns are read in the order of their addresses, one cache line of a row after another.
const IN_PLACE_DEPTH: usize = 16;
/// Number of terms that are packed at a time. The panels of a task fill a part of the L2 cache.
const PACKED_DEPTH: usize = 64;
/// Numbers between packed panels. Without them, all panels would start in the same cache set.
const PADDING: usize = 16;
/// Number of `f32` numbers in a cache line.
const LINE: usize = 16;
/// Number of rows in a block. With AVX-512, each has four vectors, and sums occupy 24 of 32
/// registers. With AVX2, each has two, and sums occupy 12 of 16.
const ROWS: usize = 6;
/// Number of columns that are processed for all rows if the weight is transposed.
const TOGETHER: usize = 16;

pub(super) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let [rows, inner] = x.dims();
    let columns = unpacked_shape(&weight)[1];
    // Unusual layouts are copied. Weights of models never have them.
    let held = match Held::new(weight) {
        Held::Float(weight) if !is_known(&weight) => Held::Float(weight.to_contiguous()),
        held => held,
    };
    let weight = Weight::new(&held).expect("the weight's rows are contiguous");
    let x = primitive(x).to_contiguous();
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let x = x.storage::<f32>();
    let interleaved = matches!(weight, Weight::Rows(_)).then(|| interleave(x, inner));
    let x = interleaved.as_deref().unwrap_or(x);
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());

    let mut y = vec![0.0; rows * columns];
    // Twice as many tasks as threads balance their load, unless the tasks become too narrow.
    let threads = if is_alone() { 1 } else { rayon::current_num_threads() };
    let all_strips = columns.div_ceil(STRIP);
    let strips = all_strips.div_ceil(2 * threads);
    let strips = strips.max(all_strips.div_ceil(threads).min(NARROW)).clamp(1, STRIPS);
    let width = strips * STRIP;
    // An empty `x` has no panels.
    let count = if rows == 0 { 0 } else { columns.div_ceil(width) };
    let mut panels: Vec<Vec<&mut [f32]>> = Vec::new();
    panels.resize_with(count, || Vec::with_capacity(rows));
    for row in y.chunks_mut(columns.max(1)) {
        panels.iter_mut().zip(row.chunks_mut(width)).for_each(|(panel, part)| panel.push(part));
    }
    // If there are few panels, divide the rows as well to use all threads.
    let parts = threads.div_ceil(panels.len().max(1));
    let part = rows.div_ceil(parts).next_multiple_of(ROWS);
    let arch = Arch::new();
    panels.into_par_iter().enumerate().for_each(|(index, mut panel)| {
        let first = index * width;
        panel.par_chunks_mut(part).enumerate().for_each(|(index, y)| {
            let x = Input { values: &x[index * part * inner..], inner };
            arch.dispatch(Product { x, weight: &weight, first, columns, y: &mut *y });
            if let Some(bias) = bias {
                for y in y {
                    y.iter_mut().zip(&bias[first..]).for_each(|(y, bias)| *y += bias);
                }
            }
        });
    });
    let y = FlexTensor::from_data(TensorData::new(y, [rows, columns]));
    Tensor::from_primitive::<Flex>(y)
}

/// Returns whether the weight can be read without a copy.
fn is_known(weight: &FlexTensor) -> bool {
    Weight::new(&Held::Float(weight.clone())).is_some()
}

/// The memory layout of a weight.
enum Weight<'a> {
    Rows(Rows<'a>),
    /// Transposed: element `(i, j)` is at `start + j · stride + i`.
    Columns(Strip<'a, f32>),
}

impl<'a> Weight<'a> {
    /// Returns `None` if neither layout applies.
    fn new(held: &'a Held) -> Option<Self> {
        match (held.rows(), held) {
            (Some(rows), _) => Some(Self::Rows(rows)),
            (None, Held::Float(weight)) => {
                let layout = weight.layout();
                let [down, across] = [layout.strides()[0], layout.strides()[1]];
                let stride = usize::try_from(across).ok()?;
                (down == 1 && weight.dtype() == DType::F32).then(|| {
                    let values = &weight.storage::<f32>()[layout.start_offset()..];
                    Self::Columns(Strip { values, stride })
                })
            }
            (None, Held::Quantized(_) | Held::Packed(_)) => None,
        }
    }
}

/// The product of some rows of `x` and some columns of the weight.
struct Product<'a, 'y> {
    x: Input<'a>,
    weight: &'a Weight<'a>,
    /// First column.
    first: usize,
    /// Number of columns of the whole weight.
    columns: usize,
    /// Output slice for each row.
    y: &'a mut [&'y mut [f32]],
}

/// Rows of `x`. The slice may be longer.
#[derive(Clone, Copy)]
struct Input<'a> {
    /// Shape `[rows, inner]`. Interleaved by [`interleave`] if the weight is stored row by row.
    values: &'a [f32],
    inner: usize,
}

/// Interleaves the rows of each block of [`ROWS`] rows: `[blocks][inner][rows of the block]`. The
/// inner loop then reads a single slice, and needs no bounds check per row.
fn interleave(x: &[f32], inner: usize) -> Vec<f32> {
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

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match *self.weight {
            Weight::Columns(Strip { values, stride }) => {
                // Process a few columns for all rows, so that weights are read only once.
                let Self { x: Input { values: x, inner }, first, y, .. } = self;
                let columns = y[0].len();
                for start in (0..columns).step_by(TOGETHER) {
                    let part = start..columns.min(start + TOGETHER);
                    let values = &values[(first + start) * stride..];
                    for (x, y) in x.chunks(ROWS * inner.max(1)).zip(y.chunks_mut(ROWS)) {
                        let part = part.clone();
                        match S::F32_LANES {
                            8 => dot_rows::<S, 2>(simd, x, inner, values, stride, y, part),
                            _ => dot_rows::<S, 4>(simd, x, inner, values, stride, y, part),
                        }
                    }
                }
            }
            Weight::Rows(rows) => match S::F32_LANES {
                8 => self.add_rows::<S, 2>(simd, rows),
                _ => self.add_rows::<S, 4>(simd, rows),
            },
        }
    }
}

impl Product<'_, '_> {
    #[inline(always)]
    fn add_rows<S: Simd, const V: usize>(self, simd: S, rows: Rows<'_>) {
        // Not borrowed in a closure, which would be compiled without this instruction set.
        let mut buffer = BUFFER.take();
        match rows {
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
