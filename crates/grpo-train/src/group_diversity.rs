//! Score-function gradient for completion diversity.

use burn::tensor::{Tensor, TensorData};
use grpo_data::{Completion, Group};
use grpo_eval::Diversity;
use grpo_model::LanguageModel;

use crate::TrainError;
use crate::collate::micro_batches;
use crate::error::finite_loss;
use crate::supervised::{Cut, GradientSum};

/// How much each completion contributes to the diversity of its group.
#[derive(Clone, Debug, PartialEq)]
pub struct Contributions {
    /// `D(Y) − D(Y without y_i)` for each completion, ordered by group.
    pub advantages: Vec<f64>,
    /// D averaged over groups.
    pub score: f64,
}

impl Contributions {
    /// Computes the contributions. A text without words is treated like an empty one.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub fn of(groups: &[Group], diversity: &Diversity) -> Result<Self, TrainError> {
        let (mut advantages, mut sum) = (Vec::new(), 0.0);
        for group in groups {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            sum += diversity.of(&texts)?;
            advantages.extend(diversity.leave_one_out(&texts)?);
        }
        Ok(Self { advantages, score: sum / groups.len() as f64 })
    }

    /// Adds the gradient of `−weight/P · Σ_i A_i log π(y_i | x)` over all completions in the P
    /// `groups`. If the completions were sampled from `model`, this is an unbiased estimate of the
    /// gradient of `−weight · E[D]`.
    ///
    /// # Errors
    /// Returns an error if the loss is not finite.
    pub fn add_gradients<M: LanguageModel>(
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
        // If all completions are equal, the gradient would consist of rounding errors only.
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
