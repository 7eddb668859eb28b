//! The residual stream.

use burn::tensor::Tensor;
use grpo_kernels::add;

use crate::layers::Norm;

/// The sum of the embeddings and the outputs of all layers so far, `[tokens, width]`. Its last term
/// is only added when the sum is needed, because a GPU adds and normalises with one launch.
pub(crate) struct Residual {
    sum: Tensor<2>,
    term: Option<Tensor<2>>,
}

impl Residual {
    pub(crate) fn new(x: Tensor<2>) -> Self {
        Self { sum: x, term: None }
    }

    pub(crate) fn plus(self, term: Tensor<2>) -> Self {
        Self { sum: self.into_sum(), term: Some(term) }
    }

    pub(crate) fn into_sum(self) -> Tensor<2> {
        match self.term {
            Some(term) => add(term, self.sum),
            None => self.sum,
        }
    }

    /// Returns the norm of the sum, and the sum.
    pub(crate) fn normalised(self, norm: &Norm) -> (Tensor<2>, Self) {
        match self.term {
            Some(term) => {
                let [sum, normal] = norm.forward_sum(term, self.sum);
                (normal, Self::new(sum))
            }
            None => (norm.forward(self.sum.clone()), self),
        }
    }
}
