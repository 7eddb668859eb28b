//! `Grpo::step`: sampling, a reward that costs nothing, the reference, the loss, backward, AdamW.

use std::sync::Arc;
use std::time::Instant;

use grpo_data::Prompt;
use grpo_model::{Frozen, Policy};
use grpo_rewards::PatternReward;
use grpo_train::{Actions, Decode, Grpo, GrpoConfig, Parts};
use regex::Regex;
use serde_json::{Value, json};

use crate::case::{Measured, Repetition};
use crate::kinds::sampling::Shape;
use crate::models::Model;

pub(crate) struct Step {
    grpo: Grpo<Policy>,
    prompts: Vec<Prompt>,
    steps: u32,
    flops: f64,
    next: u32,
}

impl Step {
    /// `steps` of them a repetition.
    pub(crate) fn new(model: Model, shape: Shape, steps: u32) -> anyhow::Result<Self> {
        let policy = model.build()?;
        let reference = Frozen::snapshot(&policy);
        let config: GrpoConfig = serde_json::from_value(config(shape))?;
        let parts = Parts {
            reward: Arc::new(PatternReward { pattern: Regex::new("ab|ba")? }),
            reference,
            policy,
            actions: Actions::Next { end_ids: Vec::new() },
            bonus: None,
            combined: None,
            longest_prompt: shape.prompt_tokens,
            epoch: None,
            decode: decode(),
        };
        Ok(Self {
            grpo: Grpo::new(parts, config, 1)?,
            prompts: shape.prompts(model),
            steps,
            flops: f64::from(steps) * flops(model, shape),
            next: 0,
        })
    }
}

/// Sampling, log-probabilities under the reference, and training on them.
fn flops(model: Model, shape: Shape) -> f64 {
    let fed = shape.prompt_tokens + shape.tokens - 1;
    let learned =
        model.forward_flops(0, fed, shape.tokens) + model.training_flops(fed, shape.tokens);
    shape.flops(model) + shape.completions() as f64 * learned
}

/// A letter an id: what the reward's pattern looks at.
fn decode() -> Decode {
    Arc::new(|ids| ids.iter().map(|id| char::from(b'a' + (id % 26) as u8)).collect())
}

/// Groups with rewards of 0 and 1, KL on, micro-batches of 4,096 tokens. Read as a user's file is, so that
/// a key that comes later has its default here.
pub(crate) fn config(shape: Shape) -> Value {
    json!({
        "train": {
            "steps": 1_000_000_000, "prompts_per_step": shape.prompts, "group_size": shape.group,
            "micro_batch_tokens": 4096,
        },
        "sampling": {"max_new_tokens": shape.tokens, "batch_size": shape.completions()},
        "loss": {"preset": "grpo", "kl_coef": 0.04},
        "optimizer": {"learning_rate": 1e-6, "betas": [0.9, 0.999], "weight_decay": 0.01},
    })
}

impl Measured for Step {
    fn run(&mut self) -> anyhow::Result<Repetition> {
        let (mut rollout, mut reward, mut update) = (0.0, 0.0, 0.0);
        let started = Instant::now();
        for _ in 0..self.steps {
            let report = self.grpo.step(&self.prompts, self.next)?;
            self.next += 1;
            rollout += report.observed.times.rollout.as_secs_f64();
            reward += report.observed.times.reward.as_secs_f64();
            update += report.observed.times.update.as_secs_f64();
        }
        let repetition = Repetition::since(started, f64::from(self.steps), Some(self.flops));
        let details = json!({"rollout": rollout, "reward": reward, "update": update});
        Ok(Repetition { details: Some(details), ..repetition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Size;

    const MODEL: Model = Model { size: Size::Tiny, context: 64 };
    const SHAPE: Shape = Shape { prompts: 2, prompt_tokens: 1, group: 8, tokens: 24 };

    /// A reward that is the same for all would leave nothing to learn, and be no step.
    #[test]
    fn rewards_differ_within_a_step() {
        let mut step = Step::new(MODEL, SHAPE, 1).unwrap();
        let report = step.grpo.step(&step.prompts, 0).unwrap();
        let rewards: Vec<f64> = report.samples().map(|sample| sample.reward().unwrap()).collect();
        assert!(rewards.contains(&0.0) && rewards.contains(&1.0), "{rewards:?}");
        assert!(report.learned.grad_norm() > 0.0);
    }

    #[test]
    fn work_is_counted_in_steps() {
        let mut step = Step::new(MODEL, SHAPE, 3).unwrap();
        let repetition = step.run().unwrap();
        assert_eq!((repetition.work, step.next), (3.0, 3));
        let one = SHAPE.flops(MODEL) + 16.0 * 4.0 * MODEL.forward_flops(0, 24, 24);
        assert_eq!(repetition.flops, Some(3.0 * one));
    }
}
