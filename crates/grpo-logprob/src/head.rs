//! The last layer of a language model.

use burn::tensor::Tensor;

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

    /// Logits of hidden states: `[n, width]` → `[n, vocabulary]`.
    pub fn logits(&self, hidden: Tensor<2>) -> Tensor<2> {
        let logits = hidden.matmul(self.weight.clone());
        match &self.bias {
            Some(bias) => logits + bias.clone().unsqueeze(),
            None => logits,
        }
    }
}
