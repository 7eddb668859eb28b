//! Scores a sequence from the hidden state of its first token.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::activation::sigmoid;

use crate::ModelError;
use crate::layers::Linear;
use crate::parameters::Parameters;
use crate::precision::operand;

/// `σ(A · w·h + B)`
#[derive(Module, Debug)]
pub(crate) struct ScoreHead {
    /// w, without a bias.
    direction: Linear,
    /// A, `[1]`, initially 1.
    scale: Param<Tensor<1>>,
    /// B, `[1]`, initially 0.
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

    /// `[sequences, width]` → `[sequences]`, each in 0..1
    pub(crate) fn forward(&self, hidden: Tensor<2>) -> Tensor<1> {
        let raw: Tensor<1> = self.direction.product(hidden).squeeze_dim(1);
        let (scale, shift) = (operand(self.scale.val(), &raw), operand(self.shift.val(), &raw));
        sigmoid(raw * scale + shift)
    }
}
