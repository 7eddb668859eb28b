//! A head that scores a sequence based on the hidden state of its first token.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

use crate::ModelError;
use crate::layers::Linear;
use crate::parameters::Parameters;
use crate::precision::operand;

/// Computes `σ(A · w·h + B)` from a hidden state `h`.
#[derive(Module, Debug)]
pub(crate) struct ScoreHead {
    /// The vector w. This layer has no bias.
    direction: Linear,
    /// The factor A, `[1]`, initialised to 1.
    scale: Param<Tensor<1>>,
    /// The offset B, `[1]`, initialised to 0.
    shift: Param<Tensor<1>>,
}

impl ScoreHead {
    pub(crate) fn new(
        parameters: &mut Parameters,
        name: &str,
        width: usize,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            direction: Linear::new(parameters, &format!("{name}.direction"), [width, 1], false)?,
            scale: parameters.ones(&format!("{name}.scale"), [1])?,
            shift: parameters.zeros(&format!("{name}.shift"), [1])?,
        })
    }

    /// Computes `[sequences, width]` → `[sequences]`, with values between 0 and 1.
    pub(crate) fn forward(&self, hidden: Tensor<2>) -> Tensor<1> {
        let raw: Tensor<1> = self.direction.product(hidden).squeeze_dim(1);
        let (scale, shift) = (operand(self.scale.val(), &raw), operand(self.shift.val(), &raw));
        sigmoid(raw * scale + shift)
    }
}
