//! GRPO with the KL penalty in the reward is the log-variance loss (Richter et al. 2020), for
//! completions from any source.

use burn::tensor::{DType, Device};
use grpo_core::{
    AdvantageConfig, BatchTotals, KlEstimator, LossInputs, Preset, RewardScale, group_advantages,
    grpo_loss, sequence_kl,
};

use crate::support::{Uniform, close, vector};

const BETA: f64 = 0.05;
const LENGTHS: [usize; 4] = [3, 1, 5, 2];
const MAX_LENGTH: usize = 8;

/// `1/(2N) Σ (h − mean h)²` with `h = r − β Σ_t (log π − log π_ref)`, as a plain loop.
fn variance(logprobs: &[f64], reference: &[f64], rewards: &[f64]) -> f64 {
    let mut place = 0;
    let h: Vec<f64> = (LENGTHS.iter().zip(rewards))
        .map(|(length, reward)| {
            let tokens = place..place + length;
            place += length;
            let ratio: f64 = tokens.map(|token| logprobs[token] - reference[token]).sum();
            reward - BETA * ratio
        })
        .collect();
    let mean = h.iter().sum::<f64>() / h.len() as f64;
    h.iter().map(|h| (h - mean).powi(2)).sum::<f64>() / (2.0 * h.len() as f64)
}

#[test]
fn grpo_with_a_penalised_reward_minimises_the_log_variance() {
    let mut uniform = Uniform(9);
    let tokens: usize = LENGTHS.iter().sum();
    let mut draws =
        |count: usize| -> Vec<f64> { (0..count).map(|_| -3.0 * uniform.draw()).collect() };
    let (logprobs, reference, rewards) = (draws(tokens), draws(tokens), draws(LENGTHS.len()));

    // A step of the trainer: penalised rewards, unscaled advantages, the loss of Dr. GRPO.
    let rows: Vec<usize> =
        LENGTHS.iter().enumerate().flat_map(|(row, length)| vec![row; *length]).collect();
    let mut place = 0;
    let penalised = LENGTHS.iter().zip(&rewards).map(|(length, reward)| {
        let own = place..place + length;
        place += length;
        let kl = sequence_kl(KlEstimator::K1, &logprobs[own.clone()], &reference[own], None);
        Some(reward - BETA * kl)
    });
    let config = AdvantageConfig { scale: RewardScale::None, ..AdvantageConfig::default() };
    let advantages = group_advantages(&[penalised.collect()], &config).unwrap().groups.concat();
    let parameter = vector(&logprobs, DType::F64, &Device::flex().autodiff()).require_grad();
    let inputs = LossInputs::on_policy(parameter.clone(), &rows, &advantages);
    let totals = BatchTotals {
        sequences: LENGTHS.len(),
        tokens,
        max_completion_length: MAX_LENGTH,
        high_entropy: None,
    };
    let loss = grpo_loss(&inputs, &Preset::DrGrpo.config(), &totals).loss;
    let gradient = parameter.grad(&loss.backward()).unwrap().into_data();

    let step = 1e-5;
    for (token, got) in gradient.iter::<f64>().enumerate() {
        let moved = |by: f64| {
            let mut logprobs = logprobs.clone();
            logprobs[token] += by;
            variance(&logprobs, &reference, &rewards)
        };
        let expected = (moved(step) - moved(-step)) / (2.0 * step);
        close(BETA * MAX_LENGTH as f64 * got, expected, 1e-9, "derivative");
    }
}
