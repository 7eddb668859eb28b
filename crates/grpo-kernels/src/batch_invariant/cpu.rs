//! The batch-invariant product on the CPU.
//!
//! The columns of the result are divided into panels, which are distributed across threads. A panel
//! is divided into blocks of a few rows and a few vectors of columns, whose sums stay in registers
//! across several terms. This division affects which elements are computed together, but never the
//! order of summation within an element.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor, TensorData};
use pulp::{Arch, Simd, WithSimd};
use rayon::prelude::*;

use super::blocks::interleave;
use super::columns::multiply;
use super::packed::{self, PackedProduct, Strips};
use super::rows::RowProduct;
use super::strip::{Held, Input, ROWS, Rows, STRIP, Strip, primitive};
use crate::awake::available_threads;
use crate::four_bits::unpacked_shape;

/// Largest number of strips per task. The more columns, the longer the contiguous parts of the
/// weight that are read.
const MAX_STRIPS: usize = 16;
/// Number of strips below which a task reads its weights noticeably slower.
const MIN_STRIPS: usize = 4;

pub(super) fn linear(x: Tensor<2>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<2> {
    let columns = unpacked_shape(&weight)[1];
    // Unusual layouts are copied. Weights of models never have them.
    let held = match Held::new(weight) {
        Held::Float(weight) if !is_known(&weight) => Held::Float(weight.to_contiguous()),
        held => held,
    };
    let weight = Weight::new(&held).expect("the weight's rows are contiguous");
    product(x, &weight, columns, bias)
}

/// Packs a weight for [`packed_linear`]. Returns `None` if it is better read as it is.
pub(super) fn pack(weight: Tensor<2>) -> Option<Vec<f32>> {
    let [inner, columns] = weight.dims();
    packed::pack(Held::new(weight).rows()?, inner, columns)
}

/// Same as [`linear`], for a weight with `columns` columns that was packed before.
pub(super) fn packed_linear(
    x: Tensor<2>,
    strips: &[f32],
    columns: usize,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    product(x, &Weight::Strips(Strips(strips)), columns, bias)
}

fn product(
    x: Tensor<2>,
    weight: &Weight<'_>,
    columns: usize,
    bias: Option<Tensor<1>>,
) -> Tensor<2> {
    let [rows, inner] = x.dims();
    let x = primitive(x).to_contiguous();
    let bias = bias.map(|bias| primitive(bias).to_contiguous());
    let x = x.storage::<f32>();
    let bias = bias.as_ref().map(|bias| bias.storage::<f32>());

    let mut y = vec![0.0; rows * columns];
    let threads = available_threads();
    // Twice as many tasks as threads balance their load, unless the tasks become too narrow.
    let all_strips = columns.div_ceil(STRIP);
    let strips = match threads {
        1 => all_strips,
        _ => all_strips.div_ceil(2 * threads).max(all_strips.div_ceil(threads).min(MIN_STRIPS)),
    };
    let strips = strips.clamp(1, MAX_STRIPS);
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
    let interleaved = (!matches!(weight, Weight::Columns(_))).then(|| interleave(x, inner, part));
    let x = interleaved.as_deref().unwrap_or(x);
    let arch = Arch::new();
    panels.into_par_iter().enumerate().for_each(|(index, mut panel)| {
        let first = index * width;
        panel.par_chunks_mut(part).enumerate().for_each(|(index, y)| {
            let x = Input { values: &x[index * part * inner..], inner };
            arch.dispatch(Product { x, weight, first, all_columns: columns, y: &mut *y });
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
    Strips(Strips<'a>),
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
    all_columns: usize,
    /// Output slice for each row.
    y: &'a mut [&'y mut [f32]],
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
    /// Computes the product with `V` vectors of columns, or `V` transposed columns, per block.
    #[inline(always)]
    fn compute<S: Simd, const V: usize>(self, simd: S) {
        let Self { x, weight, first, all_columns, y } = self;
        match *weight {
            Weight::Columns(weight) => multiply::<S, V>(simd, x, weight, first, y),
            Weight::Strips(weight) => {
                PackedProduct { x, weight: weight.from(first, x.inner), y }.add::<S, V>(simd);
            }
            Weight::Rows(weight) => {
                RowProduct { x, weight, first, all_columns, y }.add::<S, V>(simd);
            }
        }
    }
}
