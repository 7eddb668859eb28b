//! The product on the CPU.
//!
//! The columns of the result are cut into panels for the threads, and a panel into blocks of a few rows and a strip of
//! columns, whose sums stay in registers for some terms. Blocks decide which elements are computed together, and never
//! the order of the terms of one.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor, TensorData, bf16};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Columns of a strip: four vectors of 16 lanes.
const STRIP: usize = 64;
/// Strips that a task takes at most; neighbours lie on the same pages of memory.
const STRIPS: usize = 8;
/// Terms after which a strip moves on to the next rows of the result: what it has read by then stays near.
const DEPTH: usize = 128;
/// Vectors of a block beside each other.
const VECTORS: usize = 4;
/// Rows of a block: with four vectors each, 24 of 32 registers hold sums.
const ROWS: usize = 6;
/// Columns of a block where the weight is transposed.
const DOTS: usize = 4;

pub(super) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let x = primitive(x).to_contiguous();
    let weight = primitive(weight);
    let inner = x.layout().shape()[1];
    // Where it lies is copied only if it lies in a way that no model's weights do.
    let is_known = Weight::new(&weight).is_some();
    let weight = if is_known { weight } else { weight.to_contiguous() };
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let rows = x.layout().shape()[0];
    let columns = weight.layout().shape()[1];
    let weight = Weight::new(&weight).expect("rows one behind another");
    let x = x.storage::<f32>();
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());

    let mut y = vec![0.0; rows * columns];
    let threads = rayon::current_num_threads();
    let strips = columns.div_ceil(STRIP).div_ceil(2 * threads).clamp(1, STRIPS);
    let width = strips * STRIP;
    // Without rows there are no panels.
    let count = if rows == 0 { 0 } else { columns.div_ceil(width) };
    let mut panels: Vec<Vec<&mut [f32]>> = Vec::new();
    panels.resize_with(count, || Vec::with_capacity(rows));
    for row in y.chunks_mut(columns.max(1)) {
        panels.iter_mut().zip(row.chunks_mut(width)).for_each(|(panel, part)| panel.push(part));
    }
    // Few panels leave threads idle unless rows are cut too.
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

fn primitive<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    tensor.try_into_primitive::<Flex>().expect("a tensor on the CPU, off the tape")
}

/// The weight as it lies in memory.
enum Weight<'a> {
    /// `(i, j)` is at `start + i · stride + j`.
    Rows { values: Values<'a>, stride: usize },
    /// `(i, j)` is at `start + j · stride + i`.
    Columns { values: &'a [f32], stride: usize },
}

#[derive(Clone, Copy)]
enum Values<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

impl<'a> Weight<'a> {
    /// `None` where the weight lies in neither way.
    fn new(weight: &'a FlexTensor) -> Option<Self> {
        let layout = weight.layout();
        let start = layout.start_offset();
        let [down, across] = [layout.strides()[0], layout.strides()[1]];
        let [down, across] = [usize::try_from(down).ok()?, usize::try_from(across).ok()?];
        // The stride of an axis with one place says nothing.
        let in_rows = across == 1 || layout.shape()[1] == 1;
        match weight.dtype() {
            DType::F32 if in_rows => {
                let values = Values::F32(&weight.storage::<f32>()[start..]);
                Some(Self::Rows { values, stride: down })
            }
            DType::BF16 if in_rows => {
                let values = Values::Bf16(&weight.storage::<bf16>()[start..]);
                Some(Self::Rows { values, stride: down })
            }
            DType::F32 if down == 1 => {
                let values = &weight.storage::<f32>()[start..];
                Some(Self::Columns { values, stride: across })
            }
            _ => None,
        }
    }
}

#[inline]
fn widen(to: &mut [f32], from: &[bf16]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// Rows of `x` times some columns of the weight.
struct Product<'a, 'y> {
    /// `[rows, inner]`, and more behind.
    x: &'a [f32],
    inner: usize,
    weight: &'a Weight<'a>,
    /// The first of the columns.
    first: usize,
    /// Their part of each row.
    y: &'a mut [&'y mut [f32]],
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, inner, weight, first, y } = self;
        match *weight {
            Weight::Columns { values, stride } => {
                // Some columns for all rows, so that they are read once.
                let columns = y[0].len();
                for start in (0..columns).step_by(4 * DOTS) {
                    let part = start..columns.min(start + 4 * DOTS);
                    let values = &values[(first + start) * stride..];
                    for (x, y) in x.chunks(ROWS * inner.max(1)).zip(y.chunks_mut(ROWS)) {
                        dot_rows(simd, x, inner, values, stride, y, part.clone());
                    }
                }
            }
            Weight::Rows { values, stride } => {
                let mut room = [0.0; DEPTH * STRIP];
                for depth in (0..inner).step_by(DEPTH) {
                    let terms = depth..inner.min(depth + DEPTH);
                    for strip in (0..y[0].len()).step_by(STRIP) {
                        let columns = (y[0].len() - strip).min(STRIP);
                        let place = depth * stride + first + strip;
                        let (values, stride) = match values {
                            Values::F32(values) if columns == STRIP => (&values[place..], stride),
                            Values::F32(values) => {
                                let copy = |to: &mut [f32], from: &[f32]| to.copy_from_slice(from);
                                pack(
                                    &values[place..],
                                    stride,
                                    columns,
                                    terms.len(),
                                    &mut room,
                                    copy,
                                );
                                (&room[..], STRIP)
                            }
                            Values::Bf16(values) => {
                                pack(
                                    &values[place..],
                                    stride,
                                    columns,
                                    terms.len(),
                                    &mut room,
                                    widen,
                                );
                                (&room[..], STRIP)
                            }
                        };
                        let x = Terms { x, inner, terms: terms.clone() };
                        block_rows(simd, x, values, stride, strip, y);
                    }
                }
            }
        }
    }
}

/// Writes a strip of `columns` columns into rows of [`STRIP`] numbers.
#[inline(always)]
fn pack<T>(
    from: &[T],
    stride: usize,
    columns: usize,
    terms: usize,
    to: &mut [f32],
    convert: impl Fn(&mut [f32], &[T]),
) {
    for (i, to) in to.chunks_mut(STRIP).take(terms).enumerate() {
        convert(&mut to[..columns], &from[i * stride..][..columns]);
    }
}

/// Some columns of rows of `x`.
#[derive(Clone)]
struct Terms<'a> {
    x: &'a [f32],
    inner: usize,
    terms: std::ops::Range<usize>,
}

/// All rows, one strip: adds its terms to what `y` has.
#[inline(always)]
fn block_rows<S: Simd>(
    simd: S,
    x: Terms<'_>,
    weights: &[f32],
    stride: usize,
    strip: usize,
    y: &mut [&mut [f32]],
) {
    let width = VECTORS * S::F32_LANES;
    for first in (0..STRIP.min(y[0].len() - strip)).step_by(width) {
        let weights = &weights[first..];
        for (block, y) in y.chunks_mut(ROWS).enumerate() {
            let x = Terms { x: &x.x[block * ROWS * x.inner..], ..x.clone() };
            match y.len() {
                1 => add_block::<S, 1>(simd, x, weights, stride, y, strip + first),
                2 => add_block::<S, 2>(simd, x, weights, stride, y, strip + first),
                3 => add_block::<S, 3>(simd, x, weights, stride, y, strip + first),
                4 => add_block::<S, 4>(simd, x, weights, stride, y, strip + first),
                5 => add_block::<S, 5>(simd, x, weights, stride, y, strip + first),
                _ => add_block::<S, 6>(simd, x, weights, stride, y, strip + first),
            }
        }
    }
}

#[inline(always)]
fn add_block<S: Simd, const R: usize>(
    simd: S,
    x: Terms<'_>,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
    first: usize,
) {
    let width = VECTORS * S::F32_LANES;
    let rows: [&[f32]; R] =
        std::array::from_fn(|r| &x.x[r * x.inner + x.terms.start..][..x.terms.len()]);
    let count = (y[0].len() - first).min(width);
    // In a place of its own first: loads and stores that can end early would keep the sums out of the registers.
    let mut block = [0.0_f32; ROWS * STRIP];
    for (block, y) in block.chunks_mut(STRIP).zip(y.iter()).take(R) {
        block[..count].copy_from_slice(&y[first..][..count]);
    }
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; R];
    for r in 0..R {
        let (vectors, _) = S::as_simd_f32s(&block[r * STRIP..][..width]);
        sums[r].copy_from_slice(&vectors[..VECTORS]);
    }
    for i in 0..x.terms.len() {
        let (vectors, _) = S::as_simd_f32s(&weights[i * stride..][..width]);
        let vectors: [S::f32s; VECTORS] = std::array::from_fn(|v| vectors[v]);
        for r in 0..R {
            let a = simd.splat_f32s(rows[r][i]);
            for v in 0..VECTORS {
                sums[r][v] = simd.mul_add_f32s(a, vectors[v], sums[r][v]);
            }
        }
    }
    for r in 0..R {
        let (vectors, _) = S::as_mut_simd_f32s(&mut block[r * STRIP..][..width]);
        vectors[..VECTORS].copy_from_slice(&sums[r]);
    }
    for (block, y) in block.chunks(STRIP).zip(y.iter_mut()).take(R) {
        y[first..][..count].copy_from_slice(&block[..count]);
    }
}

/// A block of rows, all columns of the panel, where the inner axis is contiguous in both: lanes go along it, and
/// are added up last.
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
    // What is left over, column by column; the terms of an element are added alike.
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
