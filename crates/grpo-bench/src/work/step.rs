//! Benchmarks `Grpo::step`, i.e. sampling, a cheap reward, the reference policy, the loss, the
//! backward pass and AdamW.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use grpo_model::{Frozen, Policy, ProductPrecision};
use grpo_rewards::PatternReward;
use grpo_runtime::ResidentMemory;
use grpo_train::{Decode, Grpo, GrpoConfig, NextTokens, Parts};
use regex::Regex;
use serde_json::json;

use super::{Repetition, Shape, Work};
use crate::models::{Model, Size};

/// Runs `steps` training steps of all weights per repetition.
pub fn step(
    model: Model,
    shape: Shape,
    steps: u32,
    precision: ProductPrecision,
) -> anyhow::Result<Work> {
    step_of(grpo(model.build()?, shape, precision)?, model, shape, steps)
}

/// Runs a training step of an adapter per repetition.
pub fn adapter_step(
    model: Model,
    shape: Shape,
    precision: ProductPrecision,
) -> anyhow::Result<Work> {
    let grpo = grpo(model.build_with_adapter()?, shape, precision)?;
    step_of(grpo, model, shape, 1)
}

fn step_of(mut grpo: Grpo<Policy>, model: Model, shape: Shape, steps: u32) -> anyhow::Result<Work> {
    let prompts = shape.prompts(model);
    let flops = f64::from(steps) * step_flops(model, shape);
    let mut next = 0;
    Ok(Box::new(move || {
        let (mut rollout, mut reward, mut update) = (0.0, 0.0, 0.0);
        let started = Instant::now();
        for _ in 0..steps {
            let times = grpo.step(&prompts, next)?.observed.times;
            next += 1;
            rollout += times.rollout.as_secs_f64();
            reward += times.reward.as_secs_f64();
            update += times.update.as_secs_f64();
        }
        let repetition = Repetition::since(started, f64::from(steps), Some(flops));
        let details = json!({"rollout": rollout, "reward": reward, "update": update});
        Ok(Repetition { details: Some(details), ..repetition })
    }))
}

/// Measures the resident memory over `steps` steps.
///
/// The model is tiny, so a leak of a few kilobytes per step is visible. The result contains pairs
/// of step and memory in bytes, and the growth after the first tenth of the steps. At that point,
/// all buffers have been allocated.
pub fn resident(steps: u32) -> anyhow::Result<Work> {
    /// Number of steps between two measurements.
    const EVERY: u32 = 10;
    let model = Model { size: Size::Tiny, context: 32 };
    let mut step = step(model, Shape::groups(2, 24), 1, ProductPrecision::F32)?;
    Ok(Box::new(move || {
        let started = Instant::now();
        let mut readings: Vec<(u32, u64)> = Vec::new();
        for done in 1..=steps {
            step()?;
            if done % EVERY == 0 {
                let memory = ResidentMemory::of_this_process();
                readings.push((
                    done,
                    memory.context("the system does not report how much memory is in use")?.now,
                ));
            }
        }
        let settled = readings.iter().find(|(done, _)| *done >= steps / 10);
        let (first, last) =
            settled.zip(readings.last()).with_context(|| format!("{steps} steps are too few"))?;
        let growth = last.1 as i64 - first.1 as i64;
        let repetition = Repetition::since(started, f64::from(steps), None);
        let details = json!({"resident_bytes": readings, "growth_bytes": growth});
        Ok(Repetition { details: Some(details), ..repetition })
    }))
}

fn grpo(policy: Policy, shape: Shape, precision: ProductPrecision) -> anyhow::Result<Grpo<Policy>> {
    let parts = Parts {
        reward: Arc::new(PatternReward { pattern: Regex::new("ab|ba")? }),
        reference: Frozen::snapshot(&policy),
        policy,
        engine: Arc::new(NextTokens { end_ids: Vec::new() }),
        extensions: Vec::new(),
        longest_prompt: shape.prompt_tokens,
        epoch: None,
        decode: decode(),
    };
    Ok(Grpo::new(parts, grpo_config(shape, precision)?, 1)?)
}

/// Decodes each id to a letter, which the pattern reward needs.
fn decode() -> Decode {
    Arc::new(|ids| ids.iter().map(|id| char::from(b'a' + (id % 26) as u8)).collect())
}

/// Returns the FLOPs for sampling, reference log-probabilities and training.
fn step_flops(model: Model, shape: Shape) -> f64 {
    let fed = shape.prompt_tokens + shape.tokens - 1;
    let learned =
        model.forward_flops(0, fed, shape.tokens) + model.training_flops(fed, shape.tokens);
    shape.flops(model) + shape.completions() as f64 * learned
}

/// Returns a configuration with rewards of 0 and 1, a KL penalty, and micro-batches of 4,096
/// tokens. It is parsed like a user's configuration file, so new keys have their default values.
pub fn grpo_config(shape: Shape, precision: ProductPrecision) -> anyhow::Result<GrpoConfig> {
    let config = json!({
        "train": {
            "steps": 1_000_000_000, "prompts_per_step": shape.prompts, "group_size": shape.group,
            "micro_batch_tokens": 4096, "precision": precision,
        },
        "sampling": {"max_new_tokens": shape.tokens, "batch_size": shape.completions()},
        "loss": {"preset": "grpo", "kl_coef": 0.04},
        // Only changes something where sampling and training add in different orders: in bf16 on
        // a GPU.
        "sampler_check": {"above": if precision.is_f32() { "stop" } else { "correct" }},
        "optimizer": {"learning_rate": 1e-6, "betas": [0.9, 0.999], "weight_decay": 0.01},
    });
    Ok(serde_json::from_value(config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: Model = Model { size: Size::Tiny, context: 64 };
    const SHAPE: Shape = Shape::groups(2, 24);

    /// If all rewards were equal, there would be no gradient.
    #[test]
    fn rewards_differ_within_a_step() {
        let mut grpo = grpo(MODEL.build().unwrap(), SHAPE, ProductPrecision::F32).unwrap();
        let report = grpo.step(&SHAPE.prompts(MODEL), 0).unwrap();
        let rewards: Vec<f64> = report.samples().map(|sample| sample.reward().unwrap()).collect();
        assert!(rewards.contains(&0.0) && rewards.contains(&1.0), "{rewards:?}");
        assert!(report.learned.grad_norm() > 0.0);
    }

    #[test]
    fn work_is_counted_in_steps() {
        let repetition = step(MODEL, SHAPE, 3, ProductPrecision::F32).unwrap()().unwrap();
        assert_eq!(repetition.work, 3.0);
        let one = SHAPE.flops(MODEL) + 16.0 * 4.0 * MODEL.forward_flops(0, 24, 24);
        assert_eq!(repetition.flops, Some(3.0 * one));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_read_every_ten_steps() {
        let details = resident(30).unwrap()().unwrap().details.unwrap();
        let readings = details["resident_bytes"].as_array().unwrap();
        let steps: Vec<u64> = readings.iter().map(|r| r[0].as_u64().unwrap()).collect();
        assert_eq!(steps, [10, 20, 30]);
        let bytes = |i: usize| readings[i][1].as_i64().unwrap();
        assert_eq!(details["growth_bytes"].as_i64(), Some(bytes(2) - bytes(0)));
    }
}
