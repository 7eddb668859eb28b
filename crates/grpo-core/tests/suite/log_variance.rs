//! GRPO with the KL penalty in the reward is the log-variance loss (Richter et al. 2020), for
//! completions from any source. Compared with other completions, it is trajectory balance (Malkin et
//! al. 2022) with the partition function that is estimated from them.

use burn::tensor::{DType, Device};
use grpo_core::{
    AdvantageConfig, BatchTotals, KlEstimator, LossInputs, Preset, RewardScale, advantages_against,
    group_advantages, grpo_loss, sequence_kl,
};

use crate::support::{Uniform, close, vector};

const BETA: f64 = 0.05;
const LENGTHS: [usize; 4] = [3, 1, 5, 2];
const MAX_LENGTH: usize = 8;

/// Log-probabilities per token, and rewards.
struct Completions {
    logprobs: Vec<f64>,
    reference: Vec<f64>,
    rewards: Vec<f64>,
}

impl Completions {
    fn random() -> Self {
        let mut uniform = Uniform(9);
        let mut draws =
            |count: usize| -> Vec<f64> { (0..count).map(|_| -3.0 * uniform.draw()).collect() };
        let tokens = LENGTHS.iter().sum();
        Self { logprobs: draws(tokens), reference: draws(tokens), rewards: draws(LENGTHS.len()) }
    }

    /// `r − β Σ_t (log π − log π_ref)`, as a plain loop.
    fn penalised(&self, logprobs: &[f64]) -> Vec<f64> {
        let mut offset = 0;
        (LENGTHS.iter().zip(&self.rewards))
            .map(|(length, reward)| {
                let tokens = offset..offset + length;
                offset += length;
                let ratio: f64 = tokens.map(|token| logprobs[token] - self.reference[token]).sum();
                reward - BETA * ratio
            })
            .collect()
    }

    /// A step of the trainer: penalised rewards, unscaled advantages, the loss of Dr. GRPO. Returns its
    /// derivatives.
    fn gradient(&self, advantages: impl Fn(&[f64], &AdvantageConfig) -> Vec<f64>) -> Vec<f64> {
        let rows: Vec<usize> =
            LENGTHS.iter().enumerate().flat_map(|(row, length)| vec![row; *length]).collect();
        let mut offset = 0;
        let penalised = LENGTHS.iter().zip(&self.rewards).map(|(length, reward)| {
            let own = offset..offset + length;
            offset += length;
            let (logprobs, reference) = (&self.logprobs[own.clone()], &self.reference[own]);
            reward - BETA * sequence_kl(KlEstimator::K1, logprobs, reference, None)
        });
        let config = AdvantageConfig { scale: RewardScale::None, ..AdvantageConfig::default() };
        let advantages = advantages(&penalised.collect::<Vec<f64>>(), &config);
        let parameter =
            vector(&self.logprobs, DType::F64, &Device::flex().autodiff()).require_grad();
        let inputs = LossInputs::on_policy(parameter.clone(), &rows, &advantages);
        let totals = BatchTotals {
            sequences: LENGTHS.len(),
            tokens: self.logprobs.len(),
            max_completion_length: MAX_LENGTH,
            high_entropy: None,
        };
        let loss = grpo_loss(&inputs, &Preset::DrGrpo.config(), &totals).loss;
        parameter.grad(&loss.backward()).unwrap().into_data().iter().collect()
    }

    /// Compares derivatives with finite differences of `expected`.
    fn check(&self, gradient: &[f64], expected: impl Fn(&[f64]) -> f64) {
        let step = 1e-5;
        for (token, got) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut logprobs = self.logprobs.clone();
                logprobs[token] += by;
                expected(&self.penalised(&logprobs))
            };
            let expected = (moved(step) - moved(-step)) / (2.0 * step);
            close(BETA * MAX_LENGTH as f64 * got, expected, 1e-9, "derivative");
        }
    }
}

/// `1/(2N) Σ (h − center)²`
fn half_mean_square(h: &[f64], center: f64) -> f64 {
    h.iter().map(|h| (h - center).powi(2)).sum::<f64>() / (2.0 * h.len() as f64)
}

#[test]
fn grpo_with_a_penalised_reward_minimises_the_log_variance() {
    let completions = Completions::random();
    let gradient = completions.gradient(|penalised, config| {
        let group = penalised.iter().copied().map(Some).collect();
        group_advantages(&[group], config).unwrap().groups.concat()
    });
    completions.check(&gradient, |h| half_mean_square(h, h.iter().sum::<f64>() / h.len() as f64));
}

#[test]
fn compared_with_other_completions_it_minimises_trajectory_balance() {
    let completions = Completions::random();
    let sampled = [0.3, -0.2, 0.5].map(Some);
    let gradient = completions.gradient(|penalised, config| {
        let rewards: Vec<Vec<Option<f64>>> = penalised.iter().map(|h| vec![Some(*h)]).collect();
        advantages_against(&sampled, &rewards, &[1.0], config).unwrap()
    });
    completions.check(&gradient, |h| half_mean_square(h, 0.2));
}
