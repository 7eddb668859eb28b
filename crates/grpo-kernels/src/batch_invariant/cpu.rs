//! The batch-invariant product on the CPU.
//!
//! Each task is divided into blocks of a few rows and a few vectors of columns, whose sums stay in
//! registers (see [`product`](crate::product)).

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use pulp::{Arch, Simd, WithSimd};

use super::packed::{self, PackedProduct, Strips};
use super::rows::RowProduct;
use super::strip::{Held, Input, Rows};
use crate::flex::{matrix, primitive};
use crate::four_bits::unpacked_shape;
use crate::product::{Output, ROWS, in_tasks};

/// Number of rows from which a weight is packed for a single product.
const PACKED_ROWS: usize = 8 * ROWS;
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
    if inner == 0 {
        let row = bias.map_or_else(|| vec![0.0; columns], <[f32]>::to_vec);
        return matrix(row.repeat(rows), [rows, columns]);
    }
    let arch = Arch::new();
    #[expect(unsafe_code, reason = "see `in_tasks`")]
    // SAFETY: `Product` adds all terms to all columns of the rows of its output in blocks, which
    // writes them, because there is at least one term.
    let y = unsafe {
        in_tasks([rows, inner, columns], |row, first, y| {
            let x = Input { values: &x[row * inner..], inner };
            let bias = bias.map(|bias| &bias[first..]);
            arch.dispatch(Product { x, weight, first, all_columns: columns, bias, y });
        })
    };
    matrix(y, [rows, columns])
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
