//! Tensors of Burn's CPU backend.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};

/// Returns the backend's tensor.
///
/// # Panics
/// Panics if the tensor is tracked by autodiff or not on the CPU.
pub(crate) fn primitive<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    tensor
        .try_into_primitive::<Flex>()
        .expect("the tensor is on the CPU and not tracked by autodiff")
}

/// Creates a matrix from its rows.
pub(crate) fn matrix(values: Vec<f32>, shape: [usize; 2]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}
