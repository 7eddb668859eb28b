//! The critic of an infiller, which predicts the wrong characters in a filled text.

use crate::infilling::refused;
use burn::module::Module;
use burn::tensor::activation::sigmoid;
use grpo_model::{Dropout, LanguageModel, TokenBatch, Transformer};
use grpo_rollout::RolloutError;

/// A frozen model with a critic head. It can be the infiller or a different model.
#[derive(Clone, Debug)]
pub struct Critic(Transformer);

impl Critic {
    /// Copies `model` without autodiff.
    ///
    /// # Errors
    /// Returns an error if the model does not have a critic head.
    pub fn new(model: &Transformer) -> Result<Self, RolloutError> {
        if !model.description().critic {
            let fault = "the model has no critic (`critic` in its config.json), so it cannot tell which characters are wrong";
            return Err(refused(fault));
        }
        let is_on_tape = model.device().is_autodiff();
        Ok(Self(if is_on_tape { model.valid() } else { model.clone() }))
    }

    /// Returns the probability that each token of a text is wrong. The result has one element per
    /// token and does not depend on any other text.
    ///
    /// # Panics
    /// Panics if the text is empty or longer than the context.
    pub fn wrongness(&self, ids: &[u32]) -> Vec<f64> {
        let hidden = self.0.hidden(&TokenBatch::from_iter([ids]), &mut Dropout::off());
        let logits = self.0.critic(hidden).expect("the model has a critic");
        sigmoid(logits).into_data().iter().collect()
    }
}
