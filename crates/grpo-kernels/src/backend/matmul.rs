//! The matrix product on the tape.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

pub(crate) fn matmul(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let product = <Dispatch as FusedMatmul>::fused_matmul(a.into_dispatch(), b.into_dispatch());
    Tensor::from_dispatch(product)
}

/// What a backend computes.
pub(crate) trait MatmulKernel: Backend {
    /// `a · b`, each transposed first where that is said.
    fn matmul_kernel(
        a: (&FloatTensor<Self>, bool),
        b: (&FloatTensor<Self>, bool),
    ) -> FloatTensor<Self>;
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedMatmul: Backend {
    /// `a · b`.
    fn fused_matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl FusedMatmul for Flex {
    fn fused_matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::matmul_kernel((&a, false), (&b, false))
    }
}

impl<B: Backend + MatmulKernel, S: CheckpointStrategy> FusedMatmul for Autodiff<B, S> {
    fn fused_matmul(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        let nodes = [a.node(), b.node()];
        let (of_a, of_b) = (a.is_tracked(), b.is_tracked());
        let (a, b) = (a.into_primitive(), b.into_primitive());
        let product = B::matmul_kernel((&a, false), (&b, false));
        match Matmul.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                // Each factor is kept for the gradient of the other.
                prep.finish((of_b.then_some(a), of_a.then_some(b)), product)
            }
            OpsKind::UnTracked(prep) => prep.finish(product),
        }
    }
}

#[derive(Debug)]
struct Matmul;

impl<B: MatmulKernel> Backward<B, 2> for Matmul {
    type State = (Option<FloatTensor<B>>, Option<FloatTensor<B>>);

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let ([of_a, of_b], (a, b)) = (ops.parents, ops.state);
        if let (Some(parent), Some(b)) = (of_a, b) {
            grads.register::<B>(parent.id, B::matmul_kernel((&dy, false), (&b, true)));
        }
        if let (Some(parent), Some(a)) = (of_b, a) {
            grads.register::<B>(parent.id, B::matmul_kernel((&a, true), (&dy, false)));
        }
    }
}

impl MatmulKernel for Flex {
    fn matmul_kernel(a: (&FlexTensor, bool), b: (&FlexTensor, bool)) -> FlexTensor {
        let [a, b] = [a, b].map(|(matrix, transposed)| match transposed {
            true => matrix.transpose(0, 1),
            false => matrix.clone(),
        });
        super::gemm::product(&a, &b)
    }
}
