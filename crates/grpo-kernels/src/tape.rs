//! Integrates fused operations with Burn's autodiff.

use std::fmt::Debug;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

/// An operation on `N` float tensors with a closed-form gradient.
pub trait Operation<B: Backend, const N: usize>: Debug + Send + Sized + 'static {
    /// State that the backward pass needs.
    type Saved: Clone + Debug + Send + 'static;

    /// Computes the output, along with the state needed for the gradients of `tracked` inputs.
    fn forward(
        &self,
        inputs: [FloatTensor<B>; N],
        tracked: [bool; N],
    ) -> (FloatTensor<B>, Self::Saved);

    /// Computes the gradients of the inputs from the gradient of the output. Gradients of inputs
    /// that are not `tracked` may be omitted.
    fn backward(
        self,
        saved: Self::Saved,
        gradient: FloatTensor<B>,
        tracked: [bool; N],
    ) -> [Option<FloatTensor<B>>; N];
}

/// Runs an operation without autodiff.
pub fn run<B: Backend, O: Operation<B, N>, const N: usize>(
    operation: &O,
    inputs: [FloatTensor<B>; N],
) -> FloatTensor<B> {
    operation.forward(inputs, [false; N]).0
}

/// Runs an operation and records it on the tape if any input is tracked.
pub fn record<B: Backend, S: CheckpointStrategy, O: Operation<B, N>, const N: usize>(
    operation: O,
    inputs: [FloatTensor<Autodiff<B, S>>; N],
) -> FloatTensor<Autodiff<B, S>> {
    let nodes = inputs.each_ref().map(|input| input.node());
    let tracked = inputs.each_ref().map(|input| input.is_tracked());
    let (output, saved) = operation.forward(inputs.map(|input| input.into_primitive()), tracked);
    match Step(operation).prepare::<S>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(saved, output),
        OpsKind::UnTracked(step) => step.finish(output),
    }
}

#[derive(Debug)]
struct Step<O>(O);

impl<B: Backend, O: Operation<B, N>, const N: usize> Backward<B, N> for Step<O> {
    type State = O::Saved;

    fn backward(self, ops: Ops<O::Saved, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let tracked = ops.parents.each_ref().map(Option::is_some);
        let gradients = self.0.backward(ops.state, gradient, tracked);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
