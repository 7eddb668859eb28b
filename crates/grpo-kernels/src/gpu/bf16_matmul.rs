//! Matrix products with factors in bf16.
//!
//! They are multiplied on tensor cores if the device has them for bf16. Otherwise, rounded factors
//! are kept and multiplied in `f32`, because not every device has bf16. Both are exact for each
//! product.

use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, Tensor};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use super::block_product::{client_has_tensor_cores, element};
use super::matmul::{product, transposed};
use super::{binary, elements, empty_in, primitive, unit_each};
use crate::tape::Operation;

pub(crate) fn bf16_matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    binary(Bf16Matmul, a, b)
}

/// Rounds to bf16 without autodiff. The result is in bf16 if the device has tensor cores for it,
/// otherwise in `f32`.
pub(crate) fn rounded_to_bf16(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_primitive::<Cube>(rounded(primitive(x)))
}

#[derive(Debug)]
struct Bf16Matmul;

impl Operation<Cube, 2> for Bf16Matmul {
    /// Each rounded factor, if it is needed for the gradient of the other.
    type Saved = [Option<CubeTensor>; 2];

    fn forward(
        &self,
        factors: [CubeTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (CubeTensor, Self::Saved) {
        let [a, b] = factors.map(rounded);
        (product(&a, &b), [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        [a, b]: Self::Saved,
        dy: CubeTensor,
        _: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        let dy = rounded(dy);
        [b.map(|b| product(&dy, &transposed(b))), a.map(|a| product(&transposed(a), &dy))]
    }
}

/// Rounds to bf16. A transposed view remains transposed.
fn rounded(x: CubeTensor) -> CubeTensor {
    match x.meta.strides()[..] {
        [1, stride] if stride > 1 && stride == x.shape()[0] => {
            transposed(rounded_rows(transposed(x)))
        }
        _ => rounded_rows(x),
    }
}

fn rounded_rows(x: CubeTensor) -> CubeTensor {
    if x.dtype != DType::F32 {
        return x;
    }
    let narrow = client_has_tensor_cores(&x.client, DType::BF16);
    let dtype = if narrow { DType::BF16 } else { DType::F32 };
    let x = into_contiguous(x);
    let y = empty_in(dtype, &x, x.shape().to_vec());
    let (count, dim) = unit_each(&x.client, elements(&x));
    round_each::launch(
        &y.client,
        count,
        dim,
        x.into_buffer_arg(),
        y.clone().into_buffer_arg(),
        element(y.dtype),
    );
    y
}

/// Rounds to nearest, ties to even. Numbers that are subnormal become 0.
#[cube(launch)]
fn round_each<T: Float>(x: &[f32], y: &mut [T], #[define(T)] _type: ElemType) {
    if ABSOLUTE_POS >= y.len() {
        terminate!();
    }
    let bits = u32::reinterpret(x[ABSOLUTE_POS]);
    let magnitude = bits & 0x7fff_ffffu32;
    let mut rounded = (bits + 0x7fffu32 + ((bits >> 16u32) & 1u32)) & 0xffff_0000u32;
    if magnitude < 0x0080_0000u32 {
        rounded = bits & 0x8000_0000u32;
    }
    if magnitude > 0x7f80_0000u32 {
        rounded = (bits | 0x0040_0000u32) & 0xffff_0000u32;
    }
    y[ABSOLUTE_POS] = T::cast_from(f32::reinterpret(rounded));
}
