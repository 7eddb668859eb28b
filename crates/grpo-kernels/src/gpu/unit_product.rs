//! The product of cubek that does not use tensor cores.

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubek::matmul::definition::MatmulElems;
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

use super::empty;

/// Computes a product whose order of sums does not depend on the number of rows.
pub(super) fn unit_product(a: &CubeTensor, b: &CubeTensor) -> CubeTensor {
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
