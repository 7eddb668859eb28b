//! The backends of the fused operations, and how their derivatives enter Burn's tape.
//!
//! Nothing else in the crate knows of backends. [`Kernels`] is what a backend computes, forward and
//! backward; [`FusedOps`] is what Burn dispatches, with the tape added by its `Autodiff` implementation.

mod add;
mod attention;
mod flex;
mod gather_rows;
mod gemm;
mod matmul;
mod optimizer;
mod rotary;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, DispatchDevice, Flex, backend_extension};
use burn::tensor::{DType, Device, Tensor};

use crate::Visible;
pub(crate) use add::{add, add_bias};
pub(crate) use attention::{Attention, attention, joint_attention};
pub(crate) use gather_rows::gather_rows;
pub(crate) use matmul::matmul;
pub(crate) use optimizer::{adamw_step, squared_norm};
pub(crate) use rotary::rotary;

/// Whether the fused versions take this tensor: `f32` on the CPU backend.
pub(crate) fn is_fusable<const D: usize>(x: &Tensor<D>) -> bool {
    x.dtype() == DType::F32 && is_cpu(&x.device())
}

/// Whether tensors of this device lie in the CPU backend's memory.
pub(crate) fn is_cpu(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// The tensor with its elements in order, and nothing else in its storage; the same storage where it has that already,
/// and then with no name more.
fn dense(x: FlexTensor) -> FlexTensor {
    x.to_contiguous()
}

pub(crate) fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation(x, Activation::Gelu)
}

pub(crate) fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    activation(x, Activation::GeluTanh)
}

fn activation<const D: usize>(x: Tensor<D>, which: Activation) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_activation(x.into_dispatch(), which))
}

pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_swiglu(
        gate.into_dispatch(),
        up.into_dispatch(),
    ))
}

pub(crate) fn attention_softmax(scores: Tensor<4>, scale: f32, visible: Visible) -> Tensor<4> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_softmax(
        scores.into_dispatch(),
        scale,
        visible,
    ))
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

pub(crate) fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f32) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as FusedOps>::fused_rms_norm(
        x.into_dispatch(),
        gamma.into_dispatch(),
        epsilon,
    ))
}

/// A function of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activation {
    Gelu,
    GeluTanh,
}

/// What a backend computes: each operation and its derivative.
pub(crate) trait Kernels: Backend {
    /// The function of each element.
    fn activation_kernel(x: FloatTensor<Self>, which: Activation) -> FloatTensor<Self>;
    /// Gradient of `x`, from `x` and the gradient of the output.
    fn activation_kernel_backward(
        x: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        which: Activation,
    ) -> FloatTensor<Self>;
    /// `silu(gate) · up`.
    fn swiglu_kernel(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;
    /// Gradients of `gate` and `up`.
    fn swiglu_kernel_backward(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        dy: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2];
    /// Softmax of `[batch, heads, queries, keys]` over the visible keys.
    fn softmax_kernel(x: FloatTensor<Self>, scale: f32, visible: &Visible) -> FloatTensor<Self>;
    /// Gradient of the scores, from the *output* and its gradient.
    fn softmax_kernel_backward(
        y: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        scale: f32,
        visible: &Visible,
    ) -> FloatTensor<Self>;
    /// Layer norm of `[rows, features]`.
    fn layer_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
    /// Gradients of `x`, and where `parameters` of `gamma` and `beta`.
    fn layer_norm_kernel_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
        parameters: bool,
    ) -> (FloatTensor<Self>, Option<[FloatTensor<Self>; 2]>);
    /// RMS norm of `[rows, features]`.
    fn rms_norm_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
    /// Gradients of `x`, and where `parameters` of `gamma`.
    fn rms_norm_kernel_backward(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        dy: FloatTensor<Self>,
        epsilon: f32,
        parameters: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>);
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedOps: Backend {
    /// See [`Kernels::activation_kernel`].
    fn fused_activation(x: FloatTensor<Self>, which: Activation) -> FloatTensor<Self>;
    /// See [`Kernels::swiglu_kernel`].
    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`Kernels::softmax_kernel`].
    fn fused_softmax(x: FloatTensor<Self>, scale: f32, visible: Visible) -> FloatTensor<Self>;
    /// See [`Kernels::layer_norm_kernel`].
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
    /// See [`Kernels::rms_norm_kernel`].
    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;
}

impl FusedOps for Flex {
    fn fused_activation(x: FloatTensor<Self>, which: Activation) -> FloatTensor<Self> {
        Self::activation_kernel(x, which)
    }
    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::swiglu_kernel(gate, up)
    }
    fn fused_softmax(x: FloatTensor<Self>, scale: f32, visible: Visible) -> FloatTensor<Self> {
        Self::softmax_kernel(x, scale, &visible)
    }
    fn fused_layer_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        Self::layer_norm_kernel(x, gamma, beta, epsilon)
    }
    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        Self::rms_norm_kernel(x, gamma, epsilon)
    }
}

impl<B: Backend + Kernels, S: CheckpointStrategy> FusedOps for Autodiff<B, S> {
    fn fused_activation(x: FloatTensor<Self>, which: Activation) -> FloatTensor<Self> {
        let node = x.node();
        let x = x.into_primitive();
        match ActivationStep.prepare::<S>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                prep.finish((x.clone(), which), B::activation_kernel(x, which))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::activation_kernel(x, which)),
        }
    }

    fn fused_swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [gate.node(), up.node()];
        let (gate, up) = (gate.into_primitive(), up.into_primitive());
        match Swiglu.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                prep.finish((gate.clone(), up.clone()), B::swiglu_kernel(gate, up))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::swiglu_kernel(gate, up)),
        }
    }

    fn fused_softmax(x: FloatTensor<Self>, scale: f32, visible: Visible) -> FloatTensor<Self> {
        let node = x.node();
        let y = B::softmax_kernel(x.into_primitive(), scale, &visible);
        match Softmax.prepare::<S>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((y.clone(), scale, visible), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
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

    fn fused_rms_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self> {
        let nodes = [x.node(), gamma.node()];
        let (x, gamma) = (x.into_primitive(), gamma.into_primitive());
        match RmsNorm.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let y = B::rms_norm_kernel(x.clone(), gamma.clone(), epsilon);
                prep.finish((x, gamma, epsilon), y)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::rms_norm_kernel(x, gamma, epsilon)),
        }
    }
}

#[derive(Debug)]
struct ActivationStep;

impl<B: Kernels> Backward<B, 1> for ActivationStep {
    type State = (FloatTensor<B>, Activation);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let (x, which) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::activation_kernel_backward(x, dy, which));
        }
    }
}

#[derive(Debug)]
struct Swiglu;

impl<B: Kernels> Backward<B, 2> for Swiglu {
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let (gate, up) = ops.state;
        let gradients = B::swiglu_kernel_backward(gate, up, dy);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct Softmax;

impl<B: Kernels> Backward<B, 1> for Softmax {
    type State = (FloatTensor<B>, f32, Visible);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let (y, scale, visible) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::softmax_kernel_backward(y, dy, scale, &visible));
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
        let [of_x, of_gamma, of_beta] = ops.parents;
        let parameters = of_gamma.is_some() || of_beta.is_some();
        let (dx, gradients) = B::layer_norm_kernel_backward(x, gamma, dy, epsilon, parameters);
        if let Some(parent) = of_x {
            grads.register::<B>(parent.id, dx);
        }
        for (parent, gradient) in
            [of_gamma, of_beta].into_iter().zip(gradients.into_iter().flatten())
        {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

#[derive(Debug)]
struct RmsNorm;

impl<B: Kernels> Backward<B, 2> for RmsNorm {
    type State = (FloatTensor<B>, FloatTensor<B>, f32);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, gamma, epsilon) = ops.state;
        let [of_x, of_gamma] = ops.parents;
        let (dx, dgamma) = B::rms_norm_kernel_backward(x, gamma, dy, epsilon, of_gamma.is_some());
        if let Some(parent) = of_x {
            grads.register::<B>(parent.id, dx);
        }
        if let (Some(parent), Some(dgamma)) = (of_gamma, dgamma) {
            grads.register::<B>(parent.id, dgamma);
        }
    }
}
