//! The backends of the fused score, and how its derivative enters Burn's tape.
//!
//! This is the only file of the crate that knows of backends. [`ScoreKernels`] is what a backend computes;
//! [`FusedScore`] is what Burn dispatches, with the tape added by its `Autodiff` implementation.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as Tape;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, backend_extension};
use burn::tensor::Tensor;

use crate::fused::plain::Plain;
use crate::fused::{self, Forward, Gradients, Problem, Wanted};
use crate::{Head, Targets};

/// Log-probabilities and entropies, `[n, 2]`.
pub(crate) fn fused_score(hidden: Tensor<2>, head: &Head, targets: Targets) -> Tensor<2> {
    // The operation takes tensors alone: without a bias, one number that is never read.
    let has_bias = head.bias.is_some();
    let bias = head.bias.clone().unwrap_or_else(|| Tensor::zeros([1], &head.weight.device()));
    Tensor::from_dispatch(<Dispatch as FusedScore>::fused_score(
        hidden.into_dispatch(),
        head.weight.clone().into_dispatch(),
        bias.into_dispatch(),
        has_bias,
        targets,
    ))
}

/// What a backend computes.
pub(crate) trait ScoreKernels: Backend {
    /// See [`fused::forward`].
    fn score_forward(problem: &Problem<'_, Self>, direct: bool) -> Forward<Self> {
        fused::forward::<Self, Plain>(problem, direct)
    }

    /// See [`fused::backward`].
    fn score_backward(
        problem: &Problem<'_, Self>,
        forward: &Forward<Self>,
        upstream: &FloatTensor<Self>,
        wanted: Wanted,
    ) -> Gradients<Self> {
        fused::backward::<Self, Plain>(problem, forward, upstream, wanted)
    }

    /// Whether no element of the column `c` of `[n, 2]` differs from 0.
    fn is_zero(of: &FloatTensor<Self>, column: usize) -> bool {
        let part = Self::float_abs(fused::columns::<Self>(of, &(column..column + 1)));
        let data = burn::tensor::try_read_sync(Self::float_into_data(Self::float_sum(part)));
        let data =
            data.expect("a backend that is read without waiting").expect("a device that answers");
        data.iter::<f64>().all(|sum| sum == 0.0)
    }
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex: cfg(feature = "flex"), Cube: cfg(any(feature = "cuda", feature = "wgpu")))]
pub(crate) trait FusedScore: Backend {
    /// `[n, 2]`; `bias` counts where `has_bias`.
    fn fused_score(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        has_bias: bool,
        targets: Targets,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "flex")]
mod flex {
    use super::*;
    use crate::fused::cpu::Fused;
    use burn::backend::Flex;
    use burn::tensor::DType;

    impl ScoreKernels for Flex {
        fn score_forward(problem: &Problem<'_, Self>, direct: bool) -> Forward<Self> {
            match problem.hidden.dtype() {
                DType::F32 => fused::forward::<Self, Fused>(problem, direct),
                _ => fused::forward::<Self, Plain>(problem, direct),
            }
        }

        fn score_backward(
            problem: &Problem<'_, Self>,
            forward: &Forward<Self>,
            upstream: &FloatTensor<Self>,
            wanted: Wanted,
        ) -> Gradients<Self> {
            match problem.hidden.dtype() {
                DType::F32 => fused::backward::<Self, Fused>(problem, forward, upstream, wanted),
                _ => fused::backward::<Self, Plain>(problem, forward, upstream, wanted),
            }
        }
    }

    impl FusedScore for Flex {
        fn fused_score(
            hidden: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: FloatTensor<Self>,
            has_bias: bool,
            targets: Targets,
        ) -> FloatTensor<Self> {
            untracked::<Self>(hidden, weight, bias, has_bias, &targets)
        }
    }
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube {
    use super::*;
    use burn::backend::Cube;

    impl ScoreKernels for Cube {}

    impl FusedScore for Cube {
        fn fused_score(
            hidden: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: FloatTensor<Self>,
            has_bias: bool,
            targets: Targets,
        ) -> FloatTensor<Self> {
            untracked::<Self>(hidden, weight, bias, has_bias, &targets)
        }
    }
}

fn untracked<B: ScoreKernels>(
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: FloatTensor<B>,
    has_bias: bool,
    targets: &Targets,
) -> FloatTensor<B> {
    let bias = has_bias.then_some(&bias);
    B::score_forward(&Problem { hidden: &hidden, weight: &weight, bias, targets }, false).scores
}

impl<B: ScoreKernels, S: CheckpointStrategy> FusedScore for Autodiff<B, S> {
    fn fused_score(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        has_bias: bool,
        targets: Targets,
    ) -> FloatTensor<Self> {
        let wanted = Wanted {
            hidden: hidden.is_tracked(),
            weight: weight.is_tracked(),
            bias: has_bias && bias.is_tracked(),
        };
        let nodes = [hidden.node(), weight.node(), bias.node()];
        let [hidden, weight, bias] = [hidden, weight, bias].map(|tensor| tensor.into_primitive());
        match Score.prepare::<S>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let mut state = State {
                    hidden,
                    weight,
                    bias: has_bias.then_some(bias),
                    targets,
                    wanted,
                    forward: None,
                };
                let forward = B::score_forward(&state.problem(), state.is_direct());
                let scores = forward.scores.clone();
                state.forward = Some(forward);
                prep.finish(state, scores)
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(untracked::<B>(hidden, weight, bias, has_bias, &targets))
            }
        }
    }
}

#[derive(Debug)]
struct Score;

/// What the backward pass needs; no tensor of `[n, vocabulary]`.
#[derive(Clone, Debug)]
struct State<B: Backend> {
    hidden: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    targets: Targets,
    wanted: Wanted,
    forward: Option<Forward<B>>,
}

impl<B: Backend> State<B> {
    fn problem(&self) -> Problem<'_, B> {
        let Self { hidden, weight, bias, targets, .. } = self;
        Problem { hidden, weight, bias: bias.as_ref(), targets }
    }

    /// With a frozen head the forward pass can make the gradient of `hidden` ready, so that logits are made
    /// once; otherwise they are made again anyway.
    fn is_direct(&self) -> bool {
        self.wanted.hidden && !self.wanted.weight && !self.wanted.bias
    }
}

impl<B: ScoreKernels> Backward<B, 3> for Score {
    type State = State<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 3>,
        grads: &mut Tape,
        _checkpointer: &mut Checkpointer,
    ) {
        let upstream = grads.consume::<B>(&ops.node); // [n, 2]
        let state = ops.state;
        let forward = state.forward.as_ref().expect("the forward pass came first");
        let gradients = match &forward.direction {
            Some(direction) if B::is_zero(&upstream, 1) => {
                let of_logprob = fused::columns::<B>(&upstream, &(0..1)); // [n, 1]
                let hidden = B::float_mul(direction.clone(), of_logprob);
                Gradients { hidden: Some(hidden), weight: None, bias: None }
            }
            _ => B::score_backward(&state.problem(), forward, &upstream, state.wanted),
        };
        let gradients = [gradients.hidden, gradients.weight, gradients.bias];
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
