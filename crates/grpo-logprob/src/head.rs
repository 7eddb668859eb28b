//! Output layer of a language model.

use burn::tensor::Tensor;
use grpo_kernels::{batch_invariant_linear, linear};

/// Maps hidden states to logits: `hidden · weight + bias`.
#[derive(Clone, Debug)]
pub struct Head {
    /// `[width, vocabulary]`. If weights are tied, this is a view of the transposed embedding.
    pub weight: Tensor<2>,
    /// `[vocabulary]`.
    pub bias: Option<Tensor<1>>,
}

impl Head {
    /// Creates a head without a bias.
    pub fn new(weight: Tensor<2>) -> Self {
        Self { weight, bias: None }
    }

    /// Computes logits for sampling, without autodiff. Each row is independent of all other rows in
    /// the batch ([`grpo_kernels::batch_invariant_linear`]).
    pub fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        batch_invariant_linear(hidden, self.weight.clone(), self.bias.clone())
    }

    /// Computes logits from hidden states: `[n, width]` → `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        linear(hidden, self.weight.clone(), self.bias.clone())
    }
}
