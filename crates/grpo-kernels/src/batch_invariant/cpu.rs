//! The batch-invariant product on the CPU.
//!
//! The result is divided into parts of its rows and panels of its columns, which are distributed
//! across threads. A part is divided into blocks of a few rows and a few vectors of columns, whose sums
//! stay in registers. This division affects which elements are computed together, but never the order
//! of summation within an element.

use std::mem::MaybeUninit;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::blocks::Output;
use super::packed::{self, PackedProduct, Strips};
use super::rows::RowProduct;
use super::strip::{Held, Input, ROWS, Rows, STRIP};
use crate::awake::available_threads;
use crate::backend::primitive;
use crate::four_bits::unpacked_shape;

/// Largest number of strips per task. The more columns, the longer the contiguous parts of the
/// weight that are read.
const MAX_STRIPS: usize = 16;
/// Number of strips below which a task reads its weights noticeably slower.
const MIN_STRIPS: usize = 4;
/// Number of rows from which a weight is packed for a single product.
const PACKED_ROWS: usize = 8 * ROWS;
/// Number of rows of a part if there are many. They stay in the L2 cache while the columns of a panel
/// are computed.
const PART: usize = 16 * ROWS;
/// Number of weights of a panel if there are many rows. They stay in the L3 cache.
const PANEL: usize = 1 << 19;

pub(super) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let bias = bias.map(primitive);
    Tensor::from_primitive::<Flex>(held_linear(primitive(x), &Held::new(weight), bias))
}

/// Same as [`linear`], for tensors of the backend in `f32`.
pub(crate) fn flex_linear(
    x: FlexTensor,
    weight: FlexTensor,
    bias: Option<FlexTensor>,
) -> FlexTensor {
    held_linear(x, &Held::Float(weight), bias)
}

fn held_linear(x: FlexTensor, weight: &Held, bias: Option<FlexTensor>) -> FlexTensor {
    let Some(rows) = weight.rows() else {
        // Weights of models never have such a layout.
        return held_linear(x, &weight.contiguous(), bias);
    };
    let ([count, inner], columns) = (x.layout().shape().dims(), weight.columns());
    if count >= PACKED_ROWS
        && let Some(strips) = packed::pack(rows, inner, columns)
    {
        return product(x, &Weight::Strips(Strips(&strips)), columns, bias);
    }
    product(x, &Weight::Rows(rows), columns, bias)
}

/// Packs a weight for [`packed_linear`]. Returns `None` if it is better read as it is.
pub(super) fn pack(weight: Tensor<2>) -> Option<Vec<f32>> {
    let [inner, columns] = unpacked_shape(&weight);
    packed::pack(Held::new(weight).rows()?, inner, columns)
}

/// Same as [`linear`], for a weight with `columns` columns that was packed before.
pub(super) fn packed_linear(
    x: Tensor<2>,
    strips: &[f32],
    columns: usize,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let bias = bias.map(primitive);
    let y = product(primitive(x), &Weight::Strips(Strips(strips)), columns, bias);
    Tensor::from_primitive::<Flex>(y)
}

fn product(
    x: FlexTensor,
    weight: &Weight<'_>,
    columns: usize,
    bias: Option<FlexTensor>,
) -> FlexTensor {
    let [rows, inner] = x.layout().shape().dims();
    let (x, bias) = (x.to_contiguous(), bias.map(|bias| bias.to_contiguous()));
    let (x, bias) = (x.storage::<f32>(), bias.as_ref().map(|bias| bias.storage::<f32>()));
    let elements = rows.checked_mul(columns).expect("the number of elements overflows usize");
    if inner == 0 || elements == 0 {
        let row = bias.map_or_else(|| vec![0.0; columns], <[f32]>::to_vec);
        return tensor(row.repeat(rows), [rows, columns]);
    }
    let Division { panel, part } = Division::new([rows, inner, columns]);
    let mut y: Vec<f32> = Vec::with_capacity(elements);
    let mut panels: Vec<Vec<&mut [MaybeUninit<f32>]>> = Vec::new();
    panels.resize_with(columns.div_ceil(panel), || Vec::with_capacity(rows));
    for row in y.spare_capacity_mut()[..elements].chunks_mut(columns) {
        panels.iter_mut().zip(row.chunks_mut(panel)).for_each(|(panel, part)| panel.push(part));
    }
    let arch = Arch::new();
    panels.into_par_iter().enumerate().for_each(|(index, mut rows)| {
        let first = index * panel;
        let bias = bias.map(|bias| &bias[first..]);
        rows.par_chunks_mut(part).enumerate().for_each(|(index, y)| {
            let x = Input { values: &x[index * part * inner..], inner };
            arch.dispatch(Product { x, weight, first, all_columns: columns, bias, y });
        });
    });
    #[expect(unsafe_code, reason = "zeroing the output would take as long as a small product")]
    // SAFETY: the capacity is sufficient. Each element is in one part of one panel, and `Product`
    // writes all elements of its part, because there is at least one term.
    unsafe {
        y.set_len(elements);
    }
    tensor(y, [rows, columns])
}

fn tensor(values: Vec<f32>, shape: [usize; 2]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// How a result is divided into tasks.
struct Division {
    /// Number of columns of a panel.
    panel: usize,
    /// Number of rows of a part.
    part: usize,
}

impl Division {
    fn new([rows, inner, columns]: [usize; 3]) -> Self {
        let threads = available_threads();
        let all_strips = columns.div_ceil(STRIP);
        if rows >= 2 * threads * PART {
            let strips = (PANEL / (inner * STRIP)).max(MIN_STRIPS);
            return Self { panel: strips.min(all_strips) * STRIP, part: PART };
        }
        // Twice as many tasks as threads balance their load, unless the tasks become too narrow.
        let strips = match threads {
            1 => all_strips,
            _ => all_strips.div_ceil(2 * threads).max(all_strips.div_ceil(threads).min(MIN_STRIPS)),
        };
        let panel = strips.clamp(1, MAX_STRIPS) * STRIP;
        // If there are few panels, divide the rows as well to use all threads.
        let parts = threads.div_ceil(columns.div_ceil(panel));
        Self { panel, part: rows.div_ceil(parts).next_multiple_of(ROWS) }
    }
}

/// The memory layout of a weight.
enum Weight<'a> {
    Rows(Rows<'a>),
    Strips(Strips<'a>),
}

/// The product of some rows of `x` and some columns of the weight.
struct Product<'a, 'y> {
    x: Input<'a>,
    weight: &'a Weight<'a>,
    /// First column.
    first: usize,
    /// Number of columns of the whole weight.
    all_columns: usize,
    /// Starts with the first column.
    bias: Option<&'a [f32]>,
    y: Output<'a, 'y>,
}

impl WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match S::F32_LANES {
            8 => self.compute::<S, 2>(simd),
            _ => self.compute::<S, 4>(simd),
        }
    }
}

impl Product<'_, '_> {
    /// Computes the product with `V` vectors of columns per block.
    #[inline(always)]
    fn compute<S: Simd, const V: usize>(self, simd: S) {
        let Self { x, weight, first, all_columns, bias, y } = self;
        match *weight {
            Weight::Strips(weight) => {
                let weight = weight.from(first, x.inner);
                PackedProduct { x, weight, bias, y }.compute::<S, V>(simd);
            }
            Weight::Rows(weight) => {
                RowProduct { x, weight, first, all_columns, bias, y }.compute::<S, V>(simd);
            }
        }
    }
}
