//! Rotary positions: rows over the threads, and on the way back the negative angles.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use rayon::prelude::*;

use crate::RotaryTables;
use crate::rotary::turn;
use crate::simd::CHUNK;

pub(crate) fn rotary(x: Tensor<2>, tables: &RotaryTables) -> Tensor<2> {
    let [cos, sin] = [&tables.cos, &tables.sin].map(|table| table.clone().into_dispatch());
    Tensor::from_dispatch(<Dispatch as FusedRotary>::fused_rotary(x.into_dispatch(), cos, sin))
}

/// What a backend computes.
pub(crate) trait RotaryKernels: Backend {
    /// `direction` is 1, or −1 for the gradient.
    fn rotary_kernel(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        direction: f32,
    ) -> FloatTensor<Self>;
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedRotary: Backend {
    fn fused_rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl FusedRotary for Flex {
    fn fused_rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        Self::rotary_kernel(x, cos, sin, 1.0)
    }
}

impl<B: Backend + RotaryKernels, S: CheckpointStrategy> FusedRotary for Autodiff<B, S> {
    fn fused_rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let node = x.node();
        let [x, cos, sin] = [x, cos, sin].map(|tensor| tensor.into_primitive());
        let y = B::rotary_kernel(x, cos.clone(), sin.clone(), 1.0);
        match Rotary.prepare::<S>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((cos, sin), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }
}

#[derive(Debug)]
struct Rotary;

impl<B: RotaryKernels> Backward<B, 1> for Rotary {
    type State = (FloatTensor<B>, FloatTensor<B>);

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let [parent] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let (cos, sin) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::rotary_kernel(dy, cos, sin, -1.0));
        }
    }
}

impl RotaryKernels for Flex {
    fn rotary_kernel(
        x: FlexTensor,
        cos: FlexTensor,
        sin: FlexTensor,
        direction: f32,
    ) -> FlexTensor {
        let (cos, sin) = (cos.to_contiguous(), sin.to_contiguous());
        let (columns, half) = (x.layout().shape()[1], cos.layout().shape()[1]);
        let rows = (CHUNK / columns).max(1);
        // Not a second name for the same storage, which would then be copied.
        let mut x = super::dense(x);
        let tables = cos.storage::<f32>().par_chunks(rows * half);
        let tables = tables.zip(sin.storage::<f32>().par_chunks(rows * half));
        x.storage_mut::<f32>()
            .par_chunks_mut(rows * columns)
            .zip(tables)
            .for_each(|(x, (cos, sin))| turn(x, columns, cos, sin, half, direction));
        x
    }
}
