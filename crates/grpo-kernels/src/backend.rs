//! The backends of the fused operations, and how their derivatives enter Burn's tape.
//!
//! This is the only file of the crate that knows of backends. [`Kernels`] is what a backend computes,
//! forward and backward; [`FusedOps`] is what Burn dispatches, with the tape added by its `Autodiff`
//! implementation.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use crate::simd::CHUNK;
use crate::{causal_softmax as softmax_rows, gelu as gelu_slice, layer_norm as norm_rows};

/// Whether the fused versions take this tensor: `f32` on the CPU backend.
pub(crate) fn is_fusable<const D: usize>(x: &Tensor<D>) -> bool {
    use burn::backend::DispatchDevice;
    let device = x.device().inner();
    x.dtype() == DType::F32 && matches!(device.as_dispatch(), DispatchDevice::Flex(_))
}

pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_gelu(x.into_dispatch()))
}

pub(crate) fn causal_softmax(scores: Tensor<4>, scale: f32) -> Tensor<4> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_softmax(scores.into_dispatch(), scale))
}

pub(crate) fn layer_norm(
    x: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_layer_norm(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        epsilon,
    ))
}

/// What a backend computes: each operation and its derivative.
pub(crate) trait Kernels: Backend {
    /// `gelu(x)`.
    fn gelu_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Gradient of `x`, from `x` and the gradient of the output.
    fn gelu_kernel_backward(x: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Causal softmax of `[batch, heads, queries, keys]`.
    fn softmax_kernel(x: FloatTensor<Self>, scale: f32) -> FloatTensor<Self>;
    /// Gradient of the scores, from the *output* and its gradient.
    fn softmax_kernel_backward(
        y: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        scale: f32,
    ) -> FloatTensor<Self>;
    /// Layer norm of `[rows, features]`.
    fn layer_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
    /// Gradients of `x`, `gamma` and `beta`.
    fn layer_norm_kernel_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
    ) -> [FloatTensor<Self>; 3];
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedOps: Backend {
    /// See [`Kernels::gelu_kernel`].
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`Kernels::softmax_kernel`].
    fn fused_softmax(x: FloatTensor<Self>, scale: f32) -> FloatTensor<Self>;
    /// See [`Kernels::layer_norm_kernel`].
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
}

impl FusedOps for Flex {
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::gelu_kernel(x)
    }
    fn fused_softmax(x: FloatTensor<Self>, scale: f32) -> FloatTensor<Self> {
        Self::softmax_kernel(x, scale)
    }
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        Self::layer_norm_kernel(x, gamma, beta, epsilon)
    }
}

impl<B: Backend + Kernels, S: CheckpointStrategy> FusedOps for Autodiff<B, S> {
    fn fused_gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match Gelu.prepare::<S>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let x = x.into_primitive();
                prep.finish(x.clone(), B::gelu_kernel(x))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::gelu_kernel(x.into_primitive())),
        }
    }

    fn fused_softmax(x: FloatTensor<Self>, scale: f32) -> FloatTensor<Self> {
        match Softmax.prepare::<S>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::softmax_kernel(x.into_primitive(), scale);
                prep.finish((y.clone(), scale), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::softmax_kernel(x.into_primitive(), scale)),
        }
    }

    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), gamma.node(), beta.node()];
        let (x, gamma, beta) = (x.into_primitive(), gamma.into_primitive(), beta.into_primitive());
        match LayerNorm.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::layer_norm_kernel(x.clone(), gamma.clone(), beta, epsilon);
                prep.finish((x, gamma, epsilon), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::layer_norm_kernel(x, gamma, beta, epsilon)),
        }
    }
}

#[derive(Debug)]
struct Gelu;

impl<B: Kernels> Backward<B, 1> for Gelu {
    type State = FloatTensor<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::gelu_kernel_backward(ops.state, dy));
        }
    }
}

#[derive(Debug)]
struct Softmax;

impl<B: Kernels> Backward<B, 1> for Softmax {
    type State = (FloatTensor<B>, f32);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let (y, scale) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::softmax_kernel_backward(y, dy, scale));
        }
    }
}

#[derive(Debug)]
struct LayerNorm;

impl<B: Kernels> Backward<B, 3> for LayerNorm {
    type State = (FloatTensor<B>, FloatTensor<B>, f32);

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, gamma, epsilon) = ops.state;
        let gradients = B::layer_norm_kernel_backward(x, gamma, dy, epsilon);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl Kernels for Flex {
    fn gelu_kernel(x: FlexTensor) -> FlexTensor {
        let x = x.to_contiguous();
        let source = x.storage::<f32>();
        let mut out = vec![0.0; source.len()];
        out.par_chunks_mut(CHUNK)
            .zip(source.par_chunks(CHUNK))
            .for_each(|(y, x)| gelu_slice::forward(x, y));
        like(&x, out)
    }

    fn gelu_kernel_backward(x: FlexTensor, dy: FlexTensor) -> FlexTensor {
        let (x, dy) = (x.to_contiguous(), dy.to_contiguous());
        let (source, upstream) = (x.storage::<f32>(), dy.storage::<f32>());
        let mut out = vec![0.0; source.len()];
        out.par_chunks_mut(CHUNK)
            .zip(source.par_chunks(CHUNK).zip(upstream.par_chunks(CHUNK)))
            .for_each(|(dx, (x, dy))| gelu_slice::backward(x, dy, dx));
        like(&x, out)
    }

    fn softmax_kernel(x: FlexTensor, scale: f32) -> FlexTensor {
        let x = x.to_contiguous();
        let (queries, keys) = head_size(&x);
        let source = x.storage::<f32>();
        let mut out = vec![0.0; source.len()];
        let head = (queries * keys).max(1);
        out.par_chunks_mut(head)
            .zip(source.par_chunks(head))
            .for_each(|(y, x)| softmax_rows::forward(x, y, queries, keys, scale));
        like(&x, out)
    }

    fn softmax_kernel_backward(y: FlexTensor, dy: FlexTensor, scale: f32) -> FlexTensor {
        let (y, dy) = (y.to_contiguous(), dy.to_contiguous());
        let (queries, keys) = head_size(&y);
        let (output, upstream) = (y.storage::<f32>(), dy.storage::<f32>());
        let mut out = vec![0.0; output.len()];
        let head = (queries * keys).max(1);
        out.par_chunks_mut(head)
            .zip(output.par_chunks(head).zip(upstream.par_chunks(head)))
            .for_each(|(dx, (y, dy))| softmax_rows::backward(y, dy, dx, queries, keys, scale));
        like(&y, out)
    }

    fn layer_norm_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        epsilon: f32,
    ) -> FlexTensor {
        let (x, gamma, beta) = (x.to_contiguous(), gamma.to_contiguous(), beta.to_contiguous());
        let (source, gamma, beta) = (x.storage::<f32>(), gamma.storage(), beta.storage());
        let mut out = vec![0.0; source.len()];
        let chunk = (gamma.len() * norm_rows::ROWS).max(1);
        out.par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk))
            .for_each(|(y, x)| norm_rows::forward(x, gamma, beta, epsilon, y));
        like(&x, out)
    }

    fn layer_norm_kernel_backward(
        x: FlexTensor,
        gamma: FlexTensor,
        dy: FlexTensor,
        epsilon: f32,
    ) -> [FlexTensor; 3] {
        let (x, gamma, dy) = (x.to_contiguous(), gamma.to_contiguous(), dy.to_contiguous());
        let (source, scale, upstream) =
            (x.storage::<f32>(), gamma.storage::<f32>(), dy.storage::<f32>());
        let features = scale.len();
        let mut dx = vec![0.0; source.len()];
        let chunk = (features * norm_rows::ROWS).max(1);
        let partial: Vec<(Vec<f32>, Vec<f32>)> = dx
            .par_chunks_mut(chunk)
            .zip(source.par_chunks(chunk).zip(upstream.par_chunks(chunk)))
            .map(|(dx, (x, dy))| {
                let (mut dgamma, mut dbeta) = (vec![0.0; features], vec![0.0; features]);
                norm_rows::backward(x, scale, dy, epsilon, dx, &mut dgamma, &mut dbeta);
                (dgamma, dbeta)
            })
            .collect();
        let (mut dgamma, mut dbeta) = (vec![0.0; features], vec![0.0; features]);
        for (gamma_part, beta_part) in &partial {
            for i in 0..features {
                dgamma[i] += gamma_part[i];
                dbeta[i] += beta_part[i];
            }
        }
        [like(&x, dx), like(&gamma, dgamma), like(&gamma, dbeta)]
    }
}

fn like(shape_of: &FlexTensor, values: Vec<f32>) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape_of.shape()))
}

fn head_size(scores: &FlexTensor) -> (usize, usize) {
    let shape = scores.shape();
    (shape[2], shape[3])
}
