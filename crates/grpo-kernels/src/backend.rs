//! Fused `f32` operations for Burn's CPU backend.
//!
//! They work on slices, which are divided into chunks of a fixed size for multithreading. Each
//! submodule contains the inner loops of its operations, the [`Operation`] implementations, and
//! functions that take tensors.

mod activation;
mod attention;
mod gather_rows;
mod gemm;
mod half;
mod linear;
mod matmul;
mod norm;
mod optimizer;
mod rotary;
mod softmax;
mod sums;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::chunks::write_chunks;
use crate::tape::{Operation, record, run};
pub(crate) use activation::{gelu, gelu_tanh, swiglu};
pub(crate) use attention::{Attention, attention, joint_attention};
pub(crate) use gather_rows::gather_rows;
pub(crate) use half::rounded_to_f16;
pub(crate) use linear::{bf16_packed, bf16_packed_linear, linear};
pub(crate) use matmul::matmul;
pub(crate) use norm::{layer_norm, rms_norm};
pub(crate) use optimizer::{adamw_step, squared_norm};
pub(crate) use rotary::rotary;
pub(crate) use softmax::attention_softmax;
pub(crate) use sums::add;

/// Returns whether fused operations support this tensor, i.e. whether it is `f32` and on the CPU
/// backend.
pub(crate) fn is_fusable<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 && is_cpu(&x.device())
}

/// Returns whether tensors on this device are in the memory of the CPU backend.
pub(crate) fn is_cpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// Operations with one, two or three input tensors that Burn dispatches by device, with or without
/// autodiff.
#[backend_extension(Autodiff, Flex)]
trait Fused: Backend {
    fn fused_unary<O: Operation<Flex, 1>>(x: FloatTensor<Self>, by: O) -> FloatTensor<Self>;
    fn fused_binary<O: Operation<Flex, 2>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self>;
    fn fused_ternary<O: Operation<Flex, 3>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        z: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self>;
}

impl Fused for Flex {
    fn fused_unary<O: Operation<Self, 1>>(x: FlexTensor, by: O) -> FlexTensor {
        run(&by, [x])
    }
    fn fused_binary<O: Operation<Self, 2>>(x: FlexTensor, y: FlexTensor, by: O) -> FlexTensor {
        run(&by, [x, y])
    }
    fn fused_ternary<O: Operation<Self, 3>>(
        x: FlexTensor,
        y: FlexTensor,
        z: FlexTensor,
        by: O,
    ) -> FlexTensor {
        run(&by, [x, y, z])
    }
}

impl<S: CheckpointStrategy> Fused for Autodiff<Flex, S> {
    fn fused_unary<O: Operation<Flex, 1>>(x: FloatTensor<Self>, by: O) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x])
    }
    fn fused_binary<O: Operation<Flex, 2>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x, y])
    }
    fn fused_ternary<O: Operation<Flex, 3>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        z: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x, y, z])
    }
}

fn unary<const D: usize>(by: impl Operation<Flex, 1>, x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::fused_unary(x.into_dispatch(), by))
}

fn binary<const D: usize>(by: impl Operation<Flex, 2>, x: Tensor<2>, y: Tensor<D>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::fused_binary(x.into_dispatch(), y.into_dispatch(), by))
}

fn ternary<const D: usize>(
    by: impl Operation<Flex, 3>,
    x: Tensor<2>,
    [y, z]: [Tensor<D>; 2],
) -> Tensor<2> {
    let (y, z) = (y.into_dispatch(), z.into_dispatch());
    Tensor::from_dispatch(Dispatch::fused_ternary(x.into_dispatch(), y, z, by))
}

/// Calls `write(index, input chunks, output chunk)` for all chunks in parallel. The output has the
/// shape of the first input.
fn map_chunks<const N: usize>(
    inputs: [FlexTensor; N],
    chunk: usize,
    write: impl Fn(usize, [&[f32]; N], &mut [f32]) + Sync,
) -> FlexTensor {
    let inputs = inputs.map(|input| input.to_contiguous());
    let slices = inputs.each_ref().map(FlexTensor::storage::<f32>);
    let [out] = write_chunks(slices[0].len(), chunk, |index, [out]| {
        let start = index * chunk;
        write(index, slices.map(|slice| &slice[start..start + out.len()]), out);
    });
    like(&inputs[0], out)
}

/// Returns the tensor in contiguous, uniquely owned memory. Data is only copied if necessary.
fn dense(x: FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

fn like(shape_of: &FlexTensor, values: Vec<f32>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape_of.shape()))
}

/// Adds up partial sums in a fixed order.
fn sum_in_order(partial: impl IntoIterator<Item = Vec<f32>>, size: usize) -> Vec<f32> {
    let mut total = vec![0.0; size];
    for part in partial {
        for (total, part) in total.iter_mut().zip(part) {
            *total += part;
        }
    }
    total
}
