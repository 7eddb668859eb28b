//! Fused `f32` operations for GPUs, written in CubeCL.
//!
//! They are compiled for the device when they are first used, from the same source for CUDA and for
//! Vulkan. Each submodule contains the kernels of its operations, the [`Operation`]
//! implementations, and functions that take tensors.
//!
//! No sum depends on the order in which a GPU schedules its work, so results are reproducible.

mod activation;
mod attention;
mod block_product;
mod draw;
mod gather_rows;
mod half;
mod half_matmul;
mod likely;
mod linear;
mod matmul;
mod norm;
mod optimizer;
mod penalty;
mod reduce;
mod rotary;
mod score;
mod sums;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Cube, Dispatch, DispatchDevice, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Device, Int, Tensor};
use burn_cubecl::CubeDevice;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::prelude::*;

use crate::tape::{Operation, record, run};
pub(crate) use activation::{gelu, gelu_tanh, swiglu};
pub(crate) use attention::{
    Attention, attention, attention_over_pages, copy_pages, joint_attention, supports, write_heads,
    write_rows,
};
pub(crate) use block_product::has_tensor_cores;
pub use block_product::tensor_core_product;
pub(crate) use draw::draw_rows;
pub(crate) use gather_rows::gather_rows;
pub(crate) use half::rounded;
pub(crate) use half_matmul::half_matmul;
pub(crate) use likely::likely_rows;
pub(crate) use linear::{Layer, gated_linear, joined_linear, linear, linear_gelu};
pub(crate) use matmul::matmul;
pub use matmul::product;
pub(crate) use norm::{add_layer_norm, add_rms_norm, layer_norm, rms_norm};
pub(crate) use optimizer::{AdamWQueue, sums_of_squares};
pub(crate) use rotary::rotary;
pub use score::{LogitTile, RunningScores, logit_gradients};
pub(crate) use sums::add_bias;

/// Returns whether fused operations support this tensor, i.e. whether it is `f32` and on a GPU.
pub(crate) fn is_fusable<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 && is_gpu(&x.device())
}

/// Returns whether kernels for linear layers can read this tensor: it is on a GPU, in `f32` or 16
/// bits.
pub(crate) fn is_readable(x: &Tensor<2>) -> bool {
    matches!(x.dtype(), DType::F32 | DType::BF16 | DType::F16) && is_gpu(&x.device())
}

/// Returns whether tensors on this device are in the memory of a GPU.
pub(crate) fn is_gpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Cube(_))
}

/// Returns whether kernels for this device are compiled for WebGPU or Vulkan.
pub(crate) fn is_wgpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Cube(CubeDevice::Wgpu(_)))
}

/// Returns the bytes that this process has reserved in the memory of a GPU.
pub(crate) fn reserved_memory(device: &Device) -> Option<u64> {
    match device.clone().inner().as_dispatch() {
        DispatchDevice::Cube(device) => {
            Some(device.client().memory_report(cubecl::MemoryScope::Device).usage().bytes_reserved)
        }
        #[allow(unreachable_patterns, reason = "a build can have no other backend")]
        _ => None,
    }
}

/// Operations with one, two or three input tensors that Burn dispatches by device, with or without
/// autodiff.
#[backend_extension(Autodiff, Cube)]
trait FusedOnGpu: Backend {
    fn gpu_unary<O: Operation<Cube, 1>>(x: FloatTensor<Self>, by: O) -> FloatTensor<Self>;
    fn gpu_binary<O: Operation<Cube, 2>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self>;
    fn gpu_ternary<O: Operation<Cube, 3>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        z: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self>;
}

impl FusedOnGpu for Cube {
    fn gpu_unary<O: Operation<Self, 1>>(x: CubeTensor, by: O) -> CubeTensor {
        run(&by, [x])
    }
    fn gpu_binary<O: Operation<Self, 2>>(x: CubeTensor, y: CubeTensor, by: O) -> CubeTensor {
        run(&by, [x, y])
    }
    fn gpu_ternary<O: Operation<Self, 3>>(
        x: CubeTensor,
        y: CubeTensor,
        z: CubeTensor,
        by: O,
    ) -> CubeTensor {
        run(&by, [x, y, z])
    }
}

impl<S: CheckpointStrategy> FusedOnGpu for Autodiff<Cube, S> {
    fn gpu_unary<O: Operation<Cube, 1>>(x: FloatTensor<Self>, by: O) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x])
    }
    fn gpu_binary<O: Operation<Cube, 2>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x, y])
    }
    fn gpu_ternary<O: Operation<Cube, 3>>(
        x: FloatTensor<Self>,
        y: FloatTensor<Self>,
        z: FloatTensor<Self>,
        by: O,
    ) -> FloatTensor<Self> {
        record::<_, S, _, _>(by, [x, y, z])
    }
}

fn unary<const D: usize>(by: impl Operation<Cube, 1>, x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::gpu_unary(x.into_dispatch(), by))
}

fn binary<const D: usize, const E: usize>(
    by: impl Operation<Cube, 2>,
    x: Tensor<D>,
    y: Tensor<E>,
) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::gpu_binary(x.into_dispatch(), y.into_dispatch(), by))
}

fn ternary<const D: usize>(
    by: impl Operation<Cube, 3>,
    x: Tensor<2>,
    [y, z]: [Tensor<D>; 2],
) -> Tensor<2> {
    let (y, z) = (y.into_dispatch(), z.into_dispatch());
    Tensor::from_dispatch(Dispatch::gpu_ternary(x.into_dispatch(), y, z, by))
}

/// Returns the tensor without autodiff in row-major order.
fn primitive<const D: usize>(x: Tensor<D>) -> CubeTensor {
    into_contiguous(untracked(x))
}

/// Returns the tensor without autodiff in row-major order, copied if it has other owners.
fn owned<const D: usize>(x: Tensor<D>) -> CubeTensor {
    own(untracked(x))
}

/// Same as [`owned`].
fn own(x: CubeTensor) -> CubeTensor {
    let x = into_contiguous(x);
    if x.can_mut() { x } else { x.copy() }
}

fn untracked<const D: usize>(x: Tensor<D>) -> CubeTensor {
    x.try_into_primitive::<Cube>().expect("the tensor is on a GPU and not tracked by autodiff")
}

/// Returns a matrix without autodiff, and the distance between its rows, which are contiguous. A
/// range of columns is not copied.
fn rows_of(x: Tensor<2>) -> (CubeTensor, usize) {
    let x = untracked(x);
    match x.meta.strides()[..] {
        [stride, 1] => (x, stride),
        _ => {
            let columns = x.shape()[1];
            (into_contiguous(x), columns)
        }
    }
}

/// Returns numbers without autodiff.
fn of_indices(numbers: Tensor<1, Int>) -> CubeTensor {
    let numbers = if numbers.is_autodiff() { numbers.inner() } else { numbers };
    let numbers = numbers.try_into_primitive::<Cube>().expect("the numbers are on a GPU");
    into_contiguous(numbers)
}

/// Allocates an uninitialised tensor with the shape of `x`.
fn empty_like(x: &CubeTensor) -> CubeTensor {
    empty(x, x.shape().to_vec())
}

/// Allocates an uninitialised `f32` tensor on the device of `x`.
fn empty(x: &CubeTensor, shape: impl Into<Vec<usize>>) -> CubeTensor {
    empty_in(DType::F32, x, shape)
}

/// Allocates an uninitialised tensor on the device of `x`.
fn empty_in(dtype: DType, x: &CubeTensor, shape: impl Into<Vec<usize>>) -> CubeTensor {
    let (client, device) = (x.client.clone(), x.device.clone());
    empty_device_contiguous_dtype(client, device, shape.into().into(), dtype)
}

/// Returns the number of elements.
fn elements(x: &CubeTensor) -> usize {
    x.shape().num_elements()
}

/// Returns the launch size for one unit per element.
fn unit_each(client: &Client, elements: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new(client, elements);
    (cubecl::calculate_cube_count_elemwise(client, elements, dim), dim)
}

/// Returns the launch size for one cube of [`reduce::UNITS`] units per row. There may be more cubes
/// than rows.
fn cube_each(client: &Client, rows: usize) -> (CubeCount, CubeDim) {
    let count = cubecl::calculate_cube_count_elemwise(client, rows, CubeDim::new_single());
    (count, CubeDim::new_1d(reduce::UNITS as u32))
}
