//! Multi-armed bandit, the smallest problem that exercises the entire algorithm.

use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation::log_softmax};
use grpo_core::{
    AdvantageConfig, BatchTotals, LossConfig, LossInputs, group_advantages, grpo_loss,
};

use crate::support::{Uniform, vector};

/// A bandit with ten arms, only one of which pays. The policy learns from the rewards for its own
/// samples.
pub(crate) struct Bandit {
    pub(crate) loss: LossConfig,
    pub(crate) advantages: AdvantageConfig,
    /// Number of updates per rollout. Ratios differ from 1 after the first update.
    pub(crate) updates: usize,
}

impl Bandit {
    /// Checks that the policy finds the paying arm within 100 rollouts of 16 samples each. The
    /// reference policy is uniform, and training starts there.
    #[track_caller]
    pub(crate) fn must_learn(&self) {
        let device = Device::flex().autodiff();
        let config = self.loss.checked().unwrap();
        let (arms, good, group) = (10, 3, 16);
        let mut uniform = Uniform(1);
        let mut logits = vec![0.0; arms];
        for _ in 0..100 {
            let policy = softmax(&logits);
            let drawn: Vec<usize> = (0..group).map(|_| drawn(&policy, uniform.draw())).collect();
            let rewards = drawn.iter().map(|&arm| Some(if arm == good { 1.0 } else { 0.0 }));
            let advantages = group_advantages(&[rewards.collect()], &self.advantages).unwrap();
            let totals = BatchTotals {
                sequences: group,
                tokens: group,
                max_completion_length: 1,
                high_entropy: None,
            };
            let old: Vec<f64> = drawn.iter().map(|&arm| policy[arm].ln()).collect();
            for update in 0..self.updates {
                let (leaf, logprobs, exact_kl) = score(&logits, &vec![0.0; arms], &drawn, &device);
                let rows: Vec<usize> = (0..group).collect();
                let reference = vec![-(arms as f64).ln(); group];
                let inputs = LossInputs {
                    old_logprobs: (update > 0).then_some(&old),
                    ref_logprobs: Some(&reference),
                    exact_kl: Some(exact_kl),
                    ..LossInputs::on_policy(logprobs, &rows, &advantages.groups[0])
                };
                let gradients = grpo_loss(&inputs, &config, &totals).loss.backward();
                // A gradient must exist even if a group provides no learning signal.
                let gradient = leaf.grad(&gradients).unwrap().into_data();
                descend(&mut logits, &gradient.iter().collect::<Vec<f64>>(), 1.0);
            }
        }
        let probability = softmax(&logits)[good];
        assert!(probability > 0.9, "{config:?}: {probability}");
    }
}

/// Computes `Σ_a π(a) ∇ L(a)` with respect to the logits, where the current policy is also the
/// sampling policy and A = 0.
pub(crate) fn expected_gradient(
    logits: &[f64],
    reference: &[f64],
    config: &LossConfig,
) -> Vec<f64> {
    let device = Device::flex().autodiff();
    let totals =
        BatchTotals { sequences: 1, tokens: 1, max_completion_length: 1, high_entropy: None };
    let log_reference: Vec<f64> = softmax(reference).iter().map(|p| p.ln()).collect();
    let mut sum = vec![0.0; logits.len()];
    for (arm, probability) in softmax(logits).into_iter().enumerate() {
        let (leaf, logprobs, exact_kl) = score(logits, &log_reference, &[arm], &device);
        let inputs = LossInputs {
            ref_logprobs: Some(&log_reference[arm..=arm]),
            exact_kl: Some(exact_kl),
            ..LossInputs::on_policy(logprobs, &[0], &[0.0])
        };
        let gradients = grpo_loss(&inputs, config, &totals).loss.backward();
        let gradient = leaf.grad(&gradients).unwrap().into_data();
        sum.iter_mut().zip(gradient.iter::<f64>()).for_each(|(sum, g)| *sum += probability * g);
    }
    sum
}

/// Returns the logits as a leaf tensor, along with the log-probability and the exact KL for each
/// sampled arm, `[n]`.
fn score(
    logits: &[f64],
    reference: &[f64],
    drawn: &[usize],
    device: &Device,
) -> (Tensor<1>, Tensor<1>, Tensor<1>) {
    let leaf = vector(logits, DType::F64, device).require_grad(); // [v]
    let log_policy = log_softmax(leaf.clone(), 0);
    let log_reference = log_softmax(vector(reference, DType::F64, device), 0);
    let exact = (log_policy.clone().exp() * (log_policy.clone() - log_reference)).sum_dim(0);
    let ids: Vec<i32> = drawn.iter().map(|&arm| arm as i32).collect();
    let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [drawn.len()]), device);
    (leaf, log_policy.select(0, ids), exact.expand([drawn.len()]))
}

pub(crate) fn descend(parameters: &mut [f64], gradient: &[f64], rate: f64) {
    parameters.iter_mut().zip(gradient).for_each(|(value, gradient)| *value -= rate * gradient);
}

pub(crate) fn softmax(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit.exp() / total).collect()
}

pub(crate) fn divergence(logits: &[f64], reference: &[f64]) -> f64 {
    let (p, q) = (softmax(logits), softmax(reference));
    p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum()
}

pub(crate) fn drawn(policy: &[f64], at: f64) -> usize {
    let mut below = 0.0;
    let position = policy.iter().position(|p| {
        below += p;
        at < below
    });
    position.unwrap_or(policy.len() - 1)
}
