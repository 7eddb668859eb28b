//! Backend dispatch and autodiff for the fused score.
//!
//! This is the only module in the crate that depends on specific backends. Backends implement
//! [`ScoreKernels`], and Burn dispatches [`FusedScore`].

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, TensorMetadata, backend_extension};
use burn::tensor::{DType, Tensor};
use grpo_kernels::tape::{Operation, record, run};

use crate::fused::plain::Plain;
use crate::fused::{self, Forward, Gradients, Problem, Steps, Wanted};
use crate::product::Product;
use crate::{Head, Targets};

/// Returns log-probabilities and entropies, `[n, 2]`.
pub(crate) fn fused_score(hidden: Tensor<2>, head: &Head, targets: Targets) -> Tensor<2> {
    // Burn can only dispatch on tensors, so a dummy tensor with a single element replaces a missing
    // bias.
    let has_bias = head.bias.is_some();
    let bias = head.bias.clone().unwrap_or_else(|| Tensor::zeros([1], &head.weight.device()));
    Tensor::from_dispatch(Dispatch::fused_score(
        hidden.into_dispatch(),
        head.weight.clone().into_dispatch(),
        bias.into_dispatch(),
        Score { has_bias, targets },
    ))
}

/// The passes of the fused score on a backend.
pub(crate) trait ScoreKernels: Product {
    /// Element-wise operations in `f32`. Other formats use [`Plain`].
    type InF32: Steps<Self>;

    /// See [`fused::forward`].
    fn score_forward(problem: &Problem<'_, Self>, direct: bool) -> Forward<Self> {
        match problem.hidden.dtype() {
            DType::F32 => fused::forward::<Self, Self::InF32>(problem, direct),
            _ => fused::forward::<Self, Plain>(problem, direct),
        }
    }

    /// See [`fused::backward`].
    fn score_backward(
        problem: &Problem<'_, Self>,
        forward: &Forward<Self>,
        upstream: &FloatTensor<Self>,
        wanted: Wanted,
    ) -> Gradients<Self> {
        match problem.hidden.dtype() {
            DType::F32 => fused::backward::<Self, Self::InF32>(problem, forward, upstream, wanted),
            _ => fused::backward::<Self, Plain>(problem, forward, upstream, wanted),
        }
    }

    /// Returns whether all values in column `c` of an `[n, 2]` tensor are 0.
    fn is_zero(of: &FloatTensor<Self>, column: usize) -> bool {
        let part = Self::float_abs(fused::columns::<Self>(of, &(column..column + 1)));
        let data = burn::tensor::try_read_sync(Self::float_into_data(Self::float_sum(part)));
        let data = data
            .expect("the backend supports synchronous reads")
            .expect("the device returns the data");
        data.iter::<f64>().all(|sum| sum == 0.0)
    }
}

/// Fused score operation, dispatched by device.
#[backend_extension(Autodiff, Flex: cfg(feature = "flex"), Cube: cfg(feature = "gpu"))]
pub(crate) trait FusedScore: Backend {
    /// Returns log-probabilities and entropies, `[n, 2]`.
    fn fused_score(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        score: Score,
    ) -> FloatTensor<Self>;
}

#[cfg(feature = "flex")]
mod flex {
    use super::*;
    use crate::fused::cpu::Fused;
    use burn::backend::Flex;

    impl Product for Flex {}

    impl ScoreKernels for Flex {
        type InF32 = Fused;
    }

    impl FusedScore for Flex {
        fn fused_score(
            hidden: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: FloatTensor<Self>,
            score: Score,
        ) -> FloatTensor<Self> {
            run::<Self, _, _>(&score, [hidden, weight, bias])
        }
    }
}

#[cfg(feature = "gpu")]
mod cube {
    use super::*;
    use crate::fused::gpu::OnGpu;
    use burn::backend::Cube;
    use burn::backend::ops::FloatTensorOps;

    impl ScoreKernels for Cube {
        type InF32 = OnGpu;
    }

    impl Product for Cube {
        /// Burn's product would round to `tf32`.
        fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
            match (a.dtype(), b.dtype()) {
                (DType::F32, DType::F32) => grpo_kernels::product(&a, &b),
                _ => Self::float_matmul(a, b),
            }
        }
    }

    impl FusedScore for Cube {
        fn fused_score(
            hidden: FloatTensor<Self>,
            weight: FloatTensor<Self>,
            bias: FloatTensor<Self>,
            score: Score,
        ) -> FloatTensor<Self> {
            run::<Self, _, _>(&score, [hidden, weight, bias])
        }
    }
}

impl<B: ScoreKernels, S: CheckpointStrategy> FusedScore for Autodiff<B, S> {
    fn fused_score(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        score: Score,
    ) -> FloatTensor<Self> {
        record::<_, S, _, _>(score, [hidden, weight, bias])
    }
}

/// Autodiff operation that scores `targets`. The inputs are hidden states, the head weight and a
/// bias, which is ignored unless `has_bias` is set.
#[derive(Debug)]
pub(crate) struct Score {
    has_bias: bool,
    targets: Targets,
}

impl Score {
    fn problem<'a, B: Backend>(
        &'a self,
        [hidden, weight, bias]: &'a [FloatTensor<B>; 3],
    ) -> Problem<'a, B> {
        let bias = self.has_bias.then_some(bias);
        Problem { hidden, weight, bias, targets: &self.targets }
    }

    fn wanted(&self, [hidden, weight, bias]: [bool; 3]) -> Wanted {
        Wanted { hidden, weight, bias: self.has_bias && bias }
    }
}

/// State saved for the backward pass. None of these tensors has the size `[n, vocabulary]`.
#[derive(Clone, Debug)]
pub(crate) struct Saved<B: Backend> {
    inputs: [FloatTensor<B>; 3],
    forward: Forward<B>,
}

impl<B: ScoreKernels> Operation<B, 3> for Score {
    type Saved = Saved<B>;

    fn forward(
        &self,
        inputs: [FloatTensor<B>; 3],
        tracked: [bool; 3],
    ) -> (FloatTensor<B>, Saved<B>) {
        let wanted = self.wanted(tracked);
        // If the head is frozen, the forward pass also prepares the gradient of `hidden`, so that
        // logits only have to be computed once.
        let direct = wanted.hidden && !wanted.weight && !wanted.bias;
        let forward = B::score_forward(&self.problem(&inputs), direct);
        (forward.scores.clone(), Saved { inputs, forward })
    }

    /// `upstream` has the shape `[n, 2]`.
    fn backward(
        self,
        Saved { inputs, forward }: Saved<B>,
        upstream: FloatTensor<B>,
        tracked: [bool; 3],
    ) -> [Option<FloatTensor<B>>; 3] {
        if let Some(direction) = &forward.direction
            && B::is_zero(&upstream, 1)
        {
            let of_logprob = fused::columns::<B>(&upstream, &(0..1)); // [n, 1]
            return [Some(B::float_mul(direction.clone(), of_logprob)), None, None];
        }
        let wanted = self.wanted(tracked);
        let gradients = B::score_backward(&self.problem(&inputs), &forward, &upstream, wanted);
        [gradients.hidden, gradients.weight, gradients.bias]
    }
}
