//! An infiller's second head, which says of each character of a filled text whether it is wrong.

use crate::infilling::refused;
use burn::module::Module;
use burn::tensor::activation::sigmoid;
use grpo_model::{Dropout, LanguageModel, TokenBatch, Transformer};
use grpo_rollout::RolloutError;

/// A model with a critic, off the tape: the infiller itself, or another one (a remasking model).
#[derive(Clone, Debug)]
pub struct Critic(Transformer);

impl Critic {
    /// Takes a copy of `model` off the tape.
    ///
    /// # Errors
    /// The model has no critic.
    pub fn new(model: &Transformer) -> Result<Self, RolloutError> {
        if !model.description().critic {
            let fault = "the model has no critic (`critic` in its config.json), so it cannot say which characters are wrong";
            return Err(refused(fault));
        }
        let is_on_tape = model.device().is_autodiff();
        Ok(Self(if is_on_tape { model.valid() } else { model.clone() }))
    }

    /// The probability that each token of a text is wrong, `[tokens]`. The text is read alone.
    ///
    /// # Panics
    /// Where the text is empty or longer than the model's context.
    pub fn wrongness(&self, ids: &[u32]) -> Vec<f64> {
        let hidden = self.0.hidden(&TokenBatch::from_iter([ids]), None, &mut Dropout::off());
        let logits = self.0.critic(hidden).expect("it has a critic");
        sigmoid(logits).into_data().iter().collect()
    }
}
