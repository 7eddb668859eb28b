//! The product on the CPU.
//!
//! The columns of the result are cut into panels for the threads, and a panel into blocks of a few rows whose sums
//! stay in registers over the whole inner axis. Blocks decide which elements are computed together, and never the
//! order of the terms of one.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor, TensorData, bf16};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

/// Columns of a panel: four vectors of 16 lanes.
const PANEL: usize = 64;
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
    let is_known = Weight::new(&weight, inner).is_some();
    let weight = if is_known { weight } else { weight.to_contiguous() };
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let rows = x.layout().shape()[0];
    let columns = weight.layout().shape()[1];
    let weight = Weight::new(&weight, inner).expect("rows one behind another");
    let x = x.storage::<f32>();
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());

    let mut y = vec![0.0; rows * columns];
    let mut panels: Vec<Vec<&mut [f32]>> = Vec::new();
    panels.resize_with(columns.div_ceil(PANEL), || Vec::with_capacity(rows));
    for row in y.chunks_mut(columns.max(1)) {
        panels.iter_mut().zip(row.chunks_mut(PANEL)).for_each(|(panel, part)| panel.push(part));
    }
    // Few panels leave threads idle unless rows are cut too.
    let parts = (2 * rayon::current_num_threads()).div_ceil(panels.len().max(1));
    let part = rows.div_ceil(parts).next_multiple_of(ROWS);
    let arch = Arch::new();
    panels.into_par_iter().enumerate().for_each(|(index, mut panel)| {
        let first = index * PANEL;
        let weights = weight.panel(first, panel[0].len());
        panel.par_chunks_mut(part).enumerate().for_each(|(index, y)| {
            let x = &x[index * part * inner..];
            arch.dispatch(Product { x, inner, weights: &weights, y: &mut *y });
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
    Rows { values: Values<'a>, inner: usize, stride: usize },
    /// `(i, j)` is at `start + j · stride + i`.
    Columns { values: &'a [f32], stride: usize },
}

#[derive(Clone, Copy)]
enum Values<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

/// Some columns of a weight.
enum Panel<'a> {
    /// `(i, j)` is at `i · stride + j`; as many columns as a panel has.
    InPlace { values: &'a [f32], stride: usize },
    /// The same, made for it, with zeros beyond the last column.
    Packed(Vec<f32>),
    /// `(i, j)` is at `j · stride + i`.
    Columns { values: &'a [f32], stride: usize },
}

impl<'a> Weight<'a> {
    /// `None` where the weight lies in neither way.
    fn new(weight: &'a FlexTensor, inner: usize) -> Option<Self> {
        let layout = weight.layout();
        let start = layout.start_offset();
        let [down, across] = [layout.strides()[0], layout.strides()[1]];
        let [down, across] = [usize::try_from(down).ok()?, usize::try_from(across).ok()?];
        // The stride of an axis with one place says nothing.
        let in_rows = across == 1 || layout.shape()[1] == 1;
        match weight.dtype() {
            DType::F32 if in_rows => {
                let values = Values::F32(&weight.storage::<f32>()[start..]);
                Some(Self::Rows { values, inner, stride: down })
            }
            DType::BF16 if in_rows => {
                let values = Values::Bf16(&weight.storage::<bf16>()[start..]);
                Some(Self::Rows { values, inner, stride: down })
            }
            DType::F32 if down == 1 => {
                let values = &weight.storage::<f32>()[start..];
                Some(Self::Columns { values, stride: across })
            }
            _ => None,
        }
    }

    fn panel(&self, first: usize, columns: usize) -> Panel<'a> {
        match *self {
            Self::Columns { values, stride } => {
                Panel::Columns { values: &values[first * stride..], stride }
            }
            Self::Rows { values: Values::F32(values), stride, .. } if columns == PANEL => {
                Panel::InPlace { values: &values[first..], stride }
            }
            Self::Rows { values, inner, stride } => {
                let mut packed = vec![0.0; inner * PANEL];
                for (i, packed) in packed.chunks_mut(PANEL).enumerate() {
                    let from = i * stride + first..i * stride + first + columns;
                    match values {
                        Values::F32(values) => packed[..columns].copy_from_slice(&values[from]),
                        Values::Bf16(values) => widen(&values[from], packed),
                    }
                }
                Panel::Packed(packed)
            }
        }
    }
}

#[inline]
fn widen(from: &[bf16], to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = f32::from_bits(u32::from(from.to_bits()) << 16);
    }
}

/// Rows of `x` times a panel.
struct Product<'a, 'y> {
    /// `[rows, inner]`, and more behind.
    x: &'a [f32],
    inner: usize,
    weights: &'a Panel<'a>,
    /// The panel's part of each row.
    y: &'a mut [&'y mut [f32]],
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, inner, weights, y } = self;
        for (block, y) in y.chunks_mut(ROWS).enumerate() {
            let x = &x[block * ROWS * inner..];
            match weights {
                Panel::InPlace { values, stride } => block_rows(simd, x, inner, values, *stride, y),
                Panel::Packed(values) => block_rows(simd, x, inner, values, PANEL, y),
                Panel::Columns { values, stride } => dot_rows(simd, x, inner, values, *stride, y),
            }
        }
    }
}

/// A block of rows, all columns of the panel.
#[inline(always)]
fn block_rows<S: Simd>(
    simd: S,
    x: &[f32],
    inner: usize,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
) {
    let width = VECTORS * S::F32_LANES;
    for first in (0..y[0].len()).step_by(width) {
        let weights = &weights[first..];
        match y.len() {
            1 => block::<S, 1>(simd, x, inner, weights, stride, y, first),
            2 => block::<S, 2>(simd, x, inner, weights, stride, y, first),
            3 => block::<S, 3>(simd, x, inner, weights, stride, y, first),
            4 => block::<S, 4>(simd, x, inner, weights, stride, y, first),
            5 => block::<S, 5>(simd, x, inner, weights, stride, y, first),
            _ => block::<S, 6>(simd, x, inner, weights, stride, y, first),
        }
    }
}

#[inline(always)]
fn block<S: Simd, const R: usize>(
    simd: S,
    x: &[f32],
    inner: usize,
    weights: &[f32],
    stride: usize,
    y: &mut [&mut [f32]],
    first: usize,
) {
    let width = VECTORS * S::F32_LANES;
    let rows: [&[f32]; R] = std::array::from_fn(|r| &x[r * inner..(r + 1) * inner]);
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; R];
    for i in 0..inner {
        let (vectors, _) = S::as_simd_f32s(&weights[i * stride..i * stride + width]);
        let vectors: [S::f32s; VECTORS] = std::array::from_fn(|v| vectors[v]);
        for r in 0..R {
            let a = simd.splat_f32s(rows[r][i]);
            for v in 0..VECTORS {
                sums[r][v] = simd.mul_add_f32s(a, vectors[v], sums[r][v]);
            }
        }
    }
    for (sums, y) in sums.iter().zip(y) {
        for (v, &sum) in sums.iter().enumerate() {
            let from = first + v * S::F32_LANES;
            if from < y.len() {
                let to = y.len().min(from + S::F32_LANES);
                simd.partial_store_f32s(&mut y[from..to], sum);
            }
        }
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
) {
    let columns = y[0].len();
    let whole = columns - columns % DOTS;
    for first in (0..whole).step_by(DOTS) {
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
    for first in whole..columns {
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
    let w: [_; C] = std::array::from_fn(|c| {
        let start = (first + c) * stride;
        S::as_simd_f32s(&weights[start..start + inner])
    });
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
    for (sums, y) in sums.iter().zip(y) {
        for (c, &sum) in sums.iter().enumerate() {
            y[first + c] = simd.reduce_sum_f32s(sum);
        }
    }
}
