//! The last layer of a language model.

use burn::tensor::Tensor;
use grpo_kernels::batch_invariant_linear;

/// From hidden states to logits: `hidden · weight + bias`.
#[derive(Clone, Debug)]
pub struct Head {
    /// `[width, vocabulary]`. A tied head is the transposed embedding: a view, which is not copied.
    pub weight: Tensor<2>,
    /// `[vocabulary]`.
    pub bias: Option<Tensor<1>>,
}

impl Head {
    /// A head without a bias.
    pub fn new(weight: Tensor<2>) -> Self {
        Self { weight, bias: None }
    }

    /// As [`Self::logits`], off the tape, where no row's logits depend on the other rows
    /// ([`grpo_kernels::batch_invariant_linear`]): what tokens are drawn from.
    pub fn invariant_logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        batch_invariant_linear(hidden, self.weight.clone(), self.bias.clone())
    }

    /// Logits of hidden states: `[n, width]` → `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        let logits = hidden.matmul(self.weight.clone());
        match &self.bias {
            Some(bias) => logits + bias.clone().unsqueeze(),
            None => logits,
        }
    }
}
