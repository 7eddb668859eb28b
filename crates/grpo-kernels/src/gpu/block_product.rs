//! Products of cubek, whose cubes compute blocks of the result.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Cube, DispatchDevice, TensorMetadata};
use burn::tensor::{DType, Device, FloatDType, bf16, f16};
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::features::MmaConfig;
use cubecl::ir::ElemType;
use cubecl::prelude::*;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

use super::empty;

/// Computes a product in `f32`. For factors in `f32`, the order of sums does not depend on the number
/// of rows.
///
/// Factors in 16 bits are multiplied on tensor cores, if the device has them for such factors and
/// sums in `f32`. The order of sums then depends on the shapes.
pub(super) fn block_product(a: &CubeTensor, b: &CubeTensor) -> CubeTensor {
    if let Some(y) = tensor_core_product(a, b) {
        return y;
    }
    let [a, b] = [a, b].map(|x| Cube::float_cast(x.clone(), FloatDType::F32));
    let y = empty(&a, shape(&a, &b));
    let units = multi_level::Strategy::SimpleUnit(Default::default());
    launch(units, &a, &b, &y).expect("a product in f32 has no special requirements");
    y
}

/// Same as [`block_product`], or `None` if the factors are in `f32`, the device has no tensor cores
/// for them, or cubek does not support the shapes.
#[doc(hidden)]
pub fn tensor_core_product(a: &CubeTensor, b: &CubeTensor) -> Option<CubeTensor> {
    if a.dtype == DType::F32 || !client_has_tensor_cores(&a.client, a.dtype) {
        return None;
    }
    let y = empty(a, shape(a, b));
    let blocks = multi_level::Strategy::SimpleCyclicCmma(Default::default());
    launch(blocks, a, b, &y).ok()?;
    Some(y)
}

/// Returns the shape of the product.
fn shape(a: &CubeTensor, b: &CubeTensor) -> Vec<usize> {
    let mut shape = a.shape().to_vec();
    let columns = shape.last_mut().expect("a factor has two dimensions or more");
    *columns = b.shape()[b.shape().num_dims() - 1];
    shape
}

fn launch(
    strategy: multi_level::Strategy,
    a: &CubeTensor,
    b: &CubeTensor,
    y: &CubeTensor,
) -> Result<(), MatmulSetupError> {
    let operand = |x: &CubeTensor| InputBinding::new(x.clone().binding(), element(x.dtype));
    let [lhs, rhs, out] = [a, b, y].map(|x| element(x.dtype));
    launch_ref(
        &Strategy::MultiLevel(strategy),
        &a.client,
        operand(a),
        operand(b),
        y.clone().binding(),
        &mut MatmulElems::from_globals(&MatmulGlobalElems { lhs, rhs, out }),
    )
}

/// Returns whether the device has tensor cores for factors of this type and sums in `f32`.
pub(crate) fn has_tensor_cores(device: &Device, factors: DType) -> bool {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Cube(device) => client_has_tensor_cores(&device.client(), factors),
        #[allow(unreachable_patterns, reason = "a build can have no other backend")]
        _ => false,
    }
}

/// Same as [`has_tensor_cores`].
pub(super) fn client_has_tensor_cores(client: &Client, factors: DType) -> bool {
    let types = [factors, factors, DType::F32].map(element);
    let fits = |config: &MmaConfig| [config.a_type, config.b_type, config.cd_type] == types;
    client.properties().features.matmul.cmma.iter().any(fits)
}

pub(super) fn element(dtype: DType) -> ElemType {
    match dtype {
        DType::BF16 => bf16::elem_type_native(),
        DType::F16 => f16::elem_type_native(),
        DType::F32 => f32::elem_type_native(),
        other => unreachable!("products have factors in 16 bits or f32, not {other:?}"),
    }
}
