//! How diverse the completions of a prompt are, as a term of a loss: the score-function gradient.

use burn::tensor::{Tensor, TensorData};
use grpo_data::{Completion, Group};
use grpo_eval::Diversity;
use grpo_model::LanguageModel;

use crate::TrainError;
use crate::collate::micro_batches;
use crate::error::finite_loss;
use crate::supervised::{Cut, GradientSum};

/// What each completion adds to the diversity of its group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contributions {
    /// `D(Y) − D(Y without y_i)`, group by group.
    pub(crate) advantages: Vec<f64>,
    /// The mean of D over groups.
    pub(crate) score: f64,
}

impl Contributions {
    /// Of groups whose texts are known. A text without a word counts as the empty text it is.
    ///
    /// # Errors
    /// A text that no vector can be made of.
    pub(crate) fn of(groups: &[Group], diversity: &Diversity) -> Result<Self, TrainError> {
        let (mut advantages, mut sum) = (Vec::new(), 0.0);
        for group in groups {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            sum += diversity.of(&texts)?;
            advantages.extend(diversity.leave_one_out(&texts)?);
        }
        Ok(Self { advantages, score: sum / groups.len() as f64 })
    }

    /// Adds the gradient of `−weight/P · Σ_i A_i log π(y_i | x)` over the completions of the P `groups` that it is of: an
    /// unbiased estimate of that of `−weight · E[D]`, where `model` is what sampled them.
    ///
    /// # Errors
    /// A loss that is not finite.
    pub(crate) fn add_gradients<M: LanguageModel>(
        &self,
        model: &M,
        groups: &[Group],
        weight: f64,
        cut: Cut,
        gradients: &mut GradientSum,
    ) -> Result<(), TrainError> {
        let scale = -weight / groups.len() as f64;
        let completions = groups.iter().flat_map(Group::completions);
        let all = completions.zip(&self.advantages);
        let moving = all.filter(|(_, advantage)| scale * **advantage != 0.0);
        let (completions, advantages): (Vec<&Completion>, Vec<f64>) = moving.unzip();
        // All completions alike: nothing would come of it but rounding.
        if completions.is_empty() {
            return Ok(());
        }
        let tokens = cut.tokens.unwrap_or(usize::MAX);
        for micro in micro_batches(&completions, tokens, model.vocabulary_size()) {
            let forward = micro.forward(model, cut.checkpointing);
            let logprobs = micro.score_policy(model, &forward.hidden).logprobs; // [n]
            let weight = |&sequence: &usize| scale * advantages[micro.places.start + sequence];
            let weights: Vec<f32> = micro.sequences.iter().map(|s| weight(s) as f32).collect();
            let actions = weights.len();
            let weights: Tensor<1> =
                Tensor::from_data(TensorData::new(weights, [actions]), &logprobs.device());
            let loss = (logprobs * weights).sum();
            finite_loss(loss.clone())?;
            gradients.add_of(forward, loss, model);
        }
        Ok(())
    }
}
