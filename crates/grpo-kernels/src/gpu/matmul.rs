//! Matrix products in full `f32`.
//!
//! By default, Burn multiplies `f32` matrices on tensor cores after rounding them to `tf32`, which
//! keeps 10 of 23 bits. Log-probabilities of sampling and training would then differ by about 1e-3
//! instead of 1e-5.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, TensorMetadata};
use burn::tensor::{DType, Tensor};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubek::matmul::definition::MatmulElems;
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

use super::{binary, empty};
use crate::tape::Operation;

/// Returns `a · b` for the last two dimensions. The others must be equal.
pub(crate) fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    binary(Matmul, a, b)
}

#[derive(Debug)]
struct Matmul;

impl Operation<Cube, 2> for Matmul {
    /// Each factor, if it is needed for the gradient of the other.
    type Saved = [Option<CubeTensor>; 2];

    fn forward(
        &self,
        [a, b]: [CubeTensor; 2],
        [of_a, of_b]: [bool; 2],
    ) -> (CubeTensor, Self::Saved) {
        (product(&a, &b), [of_b.then_some(a), of_a.then_some(b)])
    }

    fn backward(
        self,
        [a, b]: Self::Saved,
        dy: CubeTensor,
        _: [bool; 2],
    ) -> [Option<CubeTensor>; 2] {
        [b.map(|b| product(&dy, &transposed(b))), a.map(|a| product(&transposed(a), &dy))]
    }
}

/// Returns a view with the last two dimensions swapped.
fn transposed(x: CubeTensor) -> CubeTensor {
    let dimensions = x.shape().num_dims();
    Cube::float_swap_dims(x, dimensions - 2, dimensions - 1)
}

/// Returns `a · b` for `a` of shape `[…, m, k]` and `b` of shape `[…, k, n]`, either of which may be
/// a transposed view.
pub fn product(a: &CubeTensor, b: &CubeTensor) -> CubeTensor {
    assert_eq!([a.dtype, b.dtype], [DType::F32; 2], "factors");
    let mut shape = a.shape().to_vec();
    let columns = shape.last_mut().expect("a factor has two dimensions or more");
    *columns = b.shape()[b.shape().num_dims() - 1];
    let y = empty(a, shape);
    let f32_type = f32::elem_type_native();
    let operand = |x: &CubeTensor| InputBinding::new(x.clone().binding(), f32_type);
    let units = multi_level::Strategy::SimpleUnit(Default::default());
    let launched = launch_ref(
        &Strategy::MultiLevel(units),
        &a.client,
        operand(a),
        operand(b),
        y.clone().binding(),
        &mut MatmulElems::from_single_dtype(f32_type),
    );
    launched.expect("a product in f32 has no special requirements");
    y
}
