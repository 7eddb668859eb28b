//! The batch-invariant product on the CPU.
//!
//! The columns of the result are divided into panels, which are distributed across threads. A panel
//! is divided into blocks of a few rows and a strip of columns, whose sums stay in registers across
//! several terms. This division affects which elements are computed together, but never the order
//! of summation within an element.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor, TensorData};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::strip::{Held, Rows, STRIP, Strip, Widen, primitive};
use crate::four_bits::unpacked_shape;

/// Largest number of strips per task. Adjacent strips share memory pages.
const STRIPS: usize = 8;
/// Number of terms after which a strip moves on to the next rows of the result. The weights it has
/// read then remain in the L2 cache.
const DEPTH: usize = 512;
/// The same limit if there are only a few blocks of rows. In this case, reading weights is the
/// bottleneck.
const FEW_DEPTH: usize = 128;
const FEW_ROWS: usize = 3 * ROWS;
/// The same limit for narrow weights and a single block of rows. The strips of a panel are read in
/// turn, so with a small depth the memory accesses are contiguous.
const NARROW_DEPTH: usize = 16;
/// Number of rows in a block. With AVX-512, each has four vectors, and sums occupy 24 of 32
/// registers. With AVX2, each has two, and sums occupy 12 of 16.
const ROWS: usize = 6;
/// Number of columns in a block if the weight is transposed.
const DOTS: usize = 4;

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
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());

    let mut y = vec![0.0; rows * columns];
    let threads = rayon::current_num_threads();
    let strips = columns.div_ceil(STRIP).div_ceil(2 * threads).clamp(1, STRIPS);
    let width = strips * STRIP;
    // An empty `x` has no panels.
    let count = if rows == 0 { 0 } else { columns.div_ceil(width) };
    let mut panels: Vec<Vec<&mut [f32]>> = Vec::new();
    panels.resize_with(count, || Vec::with_capacity(rows));
    for row in y.chunks_mut(columns.max(1)) {
        panels.iter_mut().zip(row.chunks_mut(width)).for_each(|(panel, part)| panel.push(part));
    }
    // If there are few panels, divide the rows as well to use all threads.
    let parts = (2 * threads).div_ceil(panels.len().max(1));
    let part = rows.div_ceil(parts).next_multiple_of(ROWS);
    let arch = Arch::new();
    panels.into_par_iter().enumerate().for_each(|(index, mut panel)| {
        let first = index * width;
        panel.par_chunks_mut(part).enumerate().for_each(|(index, y)| {
            let x = &x[index * part * inner..];
            arch.dispatch(Product { x, inner, weight: &weight, first, y: &mut *y });
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
    /// Shape `[rows, inner]`. The slice may be longer.
    x: &'a [f32],
    inner: usize,
    weight: &'a Weight<'a>,
    /// First column.
    first: usize,
    /// Output slice for each row.
    y: &'a mut [&'y mut [f32]],
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, inner, weight, first, y } = self;
        match *weight {
            Weight::Columns(Strip { values, stride }) => {
                // Process a few columns for all rows, so that weights are read only once.
                let columns = y[0].len();
                for start in (0..columns).step_by(4 * DOTS) {
                    let part = start..columns.min(start + 4 * DOTS);
                    let values = &values[(first + start) * stride..];
                    for (x, y) in x.chunks(ROWS * inner.max(1)).zip(y.chunks_mut(ROWS)) {
                        dot_rows(simd, x, inner, values, stride, y, part.clone());
                    }
                }
            }
            Weight::Rows(rows) => {
                let in_registers = y.len() <= ROWS;
                let deep = match rows {
                    Rows::Bf16(_) | Rows::Quantized(_) | Rows::Packed(_) if in_registers => {
                        NARROW_DEPTH
                    }
                    _ if y.len() <= FEW_ROWS => FEW_DEPTH,
                    _ => DEPTH,
                };
                let mut buffer = vec![0.0; deep.min(inner) * STRIP];
                for depth in (0..inner).step_by(deep) {
                    let terms = depth..inner.min(depth + deep);
                    let buffer = &mut buffer[..terms.len() * STRIP];
                    for strip in (0..y[0].len()).step_by(STRIP) {
                        let weights = rows.at(depth, first + strip);
                        let x = Terms { x, inner, terms: terms.clone() };
                        match S::F32_LANES {
                            8 => {
                                add_strip::<S, 2>(simd, x, weights, in_registers, buffer, strip, y)
                            }
                            _ => {
                                add_strip::<S, 4>(simd, x, weights, in_registers, buffer, strip, y)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies all rows by one strip of the weight.
///
/// Narrow weights are converted `in_registers`. If several blocks of rows need them, they are
/// converted once into `buffer` instead. Incomplete strips always use the buffer.
#[inline(always)]
fn add_strip<S: Simd, const V: usize>(
    simd: S,
    x: Terms<'_>,
    weights: Rows<'_>,
    in_registers: bool,
    buffer: &mut [f32],
    strip: usize,
    y: &mut [&mut [f32]],
) {
    let columns = (y[0].len() - strip).min(STRIP);
    let is_whole = columns == STRIP;
    match weights {
        Rows::F32(weights) if is_whole => return block_rows::<S, V>(simd, x, &weights, strip, y),
        Rows::Bf16(weights) if is_whole && in_registers => {
            return block_rows::<S, V>(simd, x, &weights, strip, y);
        }
        Rows::Quantized(weights) if is_whole && in_registers => {
            return block_rows::<S, V>(simd, x, &weights, strip, y);
        }
        Rows::Packed(weights) if is_whole && in_registers => {
            return block_rows::<S, V>(simd, x, &weights, strip, y);
        }
        Rows::F32(weights) => pack::<S, V>(&weights, columns, buffer),
        Rows::Bf16(weights) => pack::<S, V>(&weights, columns, buffer),
        Rows::Quantized(weights) => pack::<S, V>(&weights, columns, buffer),
        Rows::Packed(weights) => pack::<S, V>(&weights, columns, buffer),
    }
    block_rows::<S, V>(simd, x, &Strip { values: &*buffer, stride: STRIP }, strip, y);
}

/// Copies a strip with `columns` columns into rows of [`STRIP`] numbers.
#[inline(always)]
fn pack<S: Simd, const V: usize>(from: &impl Widen, columns: usize, to: &mut [f32]) {
    let width = V * S::F32_LANES;
    for (row, to) in to.chunks_mut(STRIP).enumerate() {
        if columns < STRIP {
            from.widen(row, 0, &mut to[..columns]);
            continue;
        }
        for (part, to) in to.chunks_mut(width).enumerate() {
            let (vectors, _) = S::as_mut_simd_f32s(to);
            vectors.copy_from_slice(&from.vectors::<S, V>(row, part * width));
        }
    }
}

/// A range of columns of `x`.
#[derive(Clone)]
struct Terms<'a> {
    x: &'a [f32],
    inner: usize,
    terms: std::ops::Range<usize>,
}

/// Adds the terms of one strip to all rows of `y`.
#[inline(always)]
fn block_rows<S: Simd, const V: usize>(
    simd: S,
    x: Terms<'_>,
    weights: &impl Widen,
    strip: usize,
    y: &mut [&mut [f32]],
) {
    let width = V * S::F32_LANES;
    for first in (0..STRIP.min(y[0].len() - strip)).step_by(width) {
        for (block, y) in y.chunks_mut(ROWS).enumerate() {
            let x = Terms { x: &x.x[block * ROWS * x.inner..], ..x.clone() };
            match y.len() {
                1 => add_block::<S, 1, V>(simd, x, weights, first, strip, y),
                2 => add_block::<S, 2, V>(simd, x, weights, first, strip, y),
                3 => add_block::<S, 3, V>(simd, x, weights, first, strip, y),
                4 => add_block::<S, 4, V>(simd, x, weights, first, strip, y),
                5 => add_block::<S, 5, V>(simd, x, weights, first, strip, y),
                _ => add_block::<S, 6, V>(simd, x, weights, first, strip, y),
            }
        }
    }
}

#[inline(always)]
fn add_block<S: Simd, const R: usize, const V: usize>(
    simd: S,
    x: Terms<'_>,
    weights: &impl Widen,
    first: usize,
    strip: usize,
    y: &mut [&mut [f32]],
) {
    let width = V * S::F32_LANES;
    let rows: [&[f32]; R] =
        std::array::from_fn(|r| &x.x[r * x.inner + x.terms.start..][..x.terms.len()]);
    let count = (y[0].len() - strip - first).min(width);
    // Work on a local copy, because partial loads and stores would keep the sums out of registers.
    let mut block = [0.0_f32; ROWS * STRIP];
    for (block, y) in block.chunks_mut(STRIP).zip(y.iter()).take(R) {
        block[..count].copy_from_slice(&y[strip + first..][..count]);
    }
    let mut sums = [[simd.splat_f32s(0.0); V]; R];
    for r in 0..R {
        let (vectors, _) = S::as_simd_f32s(&block[r * STRIP..][..width]);
        sums[r].copy_from_slice(&vectors[..V]);
    }
    #[expect(
        clippy::needless_range_loop,
        reason = "each call computes one column of all rows of x with one row of the weight"
    )]
    for i in 0..x.terms.len() {
        let vectors = weights.vectors::<S, V>(i, first);
        for r in 0..R {
            let a = simd.splat_f32s(rows[r][i]);
            for v in 0..V {
                sums[r][v] = simd.mul_add_f32s(a, vectors[v], sums[r][v]);
            }
        }
    }
    for r in 0..R {
        let (vectors, _) = S::as_mut_simd_f32s(&mut block[r * STRIP..][..width]);
        vectors[..V].copy_from_slice(&sums[r]);
    }
    for (block, y) in block.chunks(STRIP).zip(y.iter_mut()).take(R) {
        y[strip + first..][..count].copy_from_slice(&block[..count]);
    }
}

/// Computes a block of rows for all columns of the panel. The inner axis is contiguous in both
/// operands, so lanes run along it and are summed at the end.
#[inline(always)]
fn dot_rows<S: Simd>(
    simd: S,
    x: &[f32],
    inner: usize,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
    part: std::ops::Range<usize>,
) {
    let whole = part.len() - part.len() % DOTS;
    for column in (0..whole).step_by(DOTS) {
        let (weights, first) = (&weights[column * stride..], part.start + column);
        match y.len() {
            1 => dots::<S, 1, DOTS>(simd, x, inner, weights, stride, y, first),
            2 => dots::<S, 2, DOTS>(simd, x, inner, weights, stride, y, first),
            3 => dots::<S, 3, DOTS>(simd, x, inner, weights, stride, y, first),
            4 => dots::<S, 4, DOTS>(simd, x, inner, weights, stride, y, first),
            5 => dots::<S, 5, DOTS>(simd, x, inner, weights, stride, y, first),
            _ => dots::<S, 6, DOTS>(simd, x, inner, weights, stride, y, first),
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
