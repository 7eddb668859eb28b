//! The acceptance list shared by the three systems, as far as it concerns the mathematics. Each test is named
//! after its entry.

use burn::tensor::{Device, Int, Tensor, TensorData, activation::log_softmax};
use grpo_core::{
    AdvantageConfig, BatchTotals, KlConfig, KlEstimator, LossConfig, LossInputs, Preset,
    RewardScale, group_advantages, grpo_loss, token_weights,
};

use crate::gradients::{Scene, flat};
use crate::oracle;
use crate::support::{Batch, Uniform, close, largest, penalised, presets};

/// Parameters of a two-layer network, all the way through loss and network.
#[test]
fn d01_gradients_equal_finite_differences() {
    let scene = Scene::new();
    let toy = scene.toy(&Device::flex().autodiff());
    let totals = scene.batch.totals();
    let old = scene.batch.old.clone().unwrap();
    for config in presets().into_iter().chain(penalised()) {
        assert!(!oracle::near_a_bound(&scene.batch, &config));
        let got = flat(&toy, &scene.gradients(&toy, 0..4, &config));
        let at = |i: usize, step: f64| {
            let mut parameters = scene.parameters.clone();
            parameters[i] += step;
            oracle::loss(&scene.at(&parameters), &old, &config, &totals)
        };
        let step = 1e-5;
        let expected = (0..got.len()).map(|i| (at(i, step) - at(i, -step)) / (2.0 * step));
        let expected: Vec<f64> = expected.collect();
        for (got, expected_one) in got.iter().zip(&expected) {
            close(*got, *expected_one, 2e-6 * largest(&expected), "derivative");
        }
    }
}

#[test]
fn d02_groups_are_independent() {
    let group = |rewards: [f64; 4]| rewards.map(Some).to_vec();
    let groups =
        [group([0.1, 0.9, 0.4, 0.3]), group([5.0, 7.0, -2.0, 1.0]), group([0.5, 0.5, 0.25, 1.0])];
    let of = |order: [usize; 3]| {
        let rewards = order.map(|g| groups[g].clone());
        group_advantages(&rewards, &AdvantageConfig::default()).unwrap().groups
    };
    let [first, second, third] = <[_; 3]>::try_from(of([0, 1, 2])).unwrap();
    assert_eq!(of([2, 0, 1]), [third.clone(), first.clone(), second.clone()]);
    assert_eq!(of([1, 0, 2]), [second, first, third]);

    let scene = Scene::new().batch;
    for scale in [RewardScale::Group, RewardScale::Batch, RewardScale::None] {
        let config = AdvantageConfig { scale, ..AdvantageConfig::default() };
        let equal = group_advantages(&[vec![Some(0.95); 4]], &config).unwrap();
        let batch = Batch { advantages: equal.groups[0].clone(), ..scene.clone() };
        for config in presets() {
            let got = batch.run(&config, &batch.totals());
            assert!(got.gradient.iter().flatten().all(|&g| g == 0.0), "{scale:?}");
        }
    }
}

#[test]
fn d03_the_first_step_starts_from_the_identity() {
    let scene = Scene::new().batch;
    let reference = Some(scene.logprobs.clone());
    let batch = Batch { old: None, reference, ..scene };
    for config in penalised() {
        let got = batch.run(&config, &batch.totals());
        assert_eq!(got.statistics.ratio_range(), [1.0, 1.0]);
        assert_eq!(got.statistics.clip_ratios(), [0.0; 5]);
        assert_eq!(got.statistics.kl(), Some(0.0), "{config:?}");
        // The loss is the one without a penalty.
        let kl = KlConfig { coef: 0.0, ..config.kl };
        let without = batch.run(&LossConfig { kl, ..config }, &batch.totals());
        assert_eq!(got.loss, without.loss);
    }
}

/// With equal rewards only the penalty moves the policy. The expectation over tokens is taken exactly: one
/// sequence of one token for each arm, weighted by its probability.
#[test]
fn d06_the_penalty_pulls_the_policy_back() {
    let displaced = [1.5, -0.5, 0.25, -2.0, 0.75];
    let reference = [0.0, 0.5, -0.5, 0.25, 1.0];
    for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
        for bias_correction in [false, true] {
            let kl = KlConfig { coef: 1.0, estimator, bias_correction };
            let config = LossConfig { kl, ..Preset::Grpo.config() };
            let gradient = expected_gradient(&displaced, &reference, &config);
            if (estimator, bias_correction) == (KlEstimator::K1, false) {
                close(largest(&gradient), 0.0, 2e-7, "uncorrected k1 holds nothing back");
                assert!(config.checked().is_err());
                continue;
            }
            // ∂/∂z_j of what is descended: p_j (c_j − Σ p c), with x = log(p / q) and c = x for KL itself.
            let (p, q) = (softmax(&displaced), softmax(&reference));
            let pulls = p.iter().zip(&q).map(|(p, q)| match (estimator, bias_correction) {
                (KlEstimator::K3, false) => 1.0 - q / p,
                (KlEstimator::K2, true) => (p / q).ln() + (p / q).ln().powi(2) / 2.0,
                _ => (p / q).ln(),
            });
            let pulls: Vec<f64> = pulls.collect();
            let mean: f64 = p.iter().zip(&pulls).map(|(p, pull)| p * pull).sum();
            for (got, (p, pull)) in gradient.iter().zip(p.iter().zip(&pulls)) {
                close(*got, p * (pull - mean), 3e-7, &format!("{kl:?}"));
            }

            let mut logits = displaced.to_vec();
            let before = divergence(&logits, &reference);
            step(&mut logits, &gradient, 0.05);
            assert!(divergence(&logits, &reference) < 0.99 * before, "{kl:?}");
            for _ in 0..100 {
                let gradient = expected_gradient(&logits, &reference, &config);
                step(&mut logits, &gradient, 1.0);
            }
            // A corrected k2 descends the mean of x² / 2, which has valleys elsewhere too.
            let home = (estimator, bias_correction) != (KlEstimator::K2, true);
            let after = divergence(&logits, &reference);
            assert_eq!(after < 1e-6 * before, home, "{kl:?}: {before} to {after}");
        }
    }
}

/// Ten arms, one of which pays: the whole algorithm on one screen, once for each preset.
#[test]
fn d07_a_bandit_finds_the_arm_that_pays() {
    for preset in [Preset::Grpo, Preset::DrGrpo, Preset::Dapo] {
        let device = Device::flex().autodiff();
        let config = preset.config().checked().unwrap();
        let scale = preset.reward_scale();
        let advantages = AdvantageConfig { scale, ..AdvantageConfig::default() };
        let (good, group) = (3, 16);
        let mut uniform = Uniform(1);
        let mut logits = vec![0.0; 10];
        for _ in 0..100 {
            let policy = softmax(&logits);
            let arms: Vec<usize> = (0..group).map(|_| drawn(&policy, uniform.draw())).collect();
            let rewards = arms.iter().map(|&arm| Some(if arm == good { 1.0 } else { 0.0 }));
            let advantages = group_advantages(&[rewards.collect()], &advantages).unwrap();
            let mask = vec![vec![true]; group];
            let totals = BatchTotals { sequences: group, tokens: group, max_completion_length: 1 };
            let old: Vec<f64> = arms.iter().map(|&arm| policy[arm].ln()).collect();
            // Two updates a rollout, so that the second one has ratios other than 1.
            for old in [None, Some(old)] {
                let (leaf, logprobs) = score(&logits, &arms, &device);
                let inputs = LossInputs {
                    logprobs,
                    old_logprobs: old.map(|old| column(&old, &device)),
                    ref_logprobs: None,
                    advantages: column(&advantages.groups[0], &device),
                    weights: Tensor::from_data(
                        TensorData::new(
                            token_weights(&mask, config.reduction, &totals),
                            [group, 1],
                        ),
                        &device,
                    ),
                };
                let gradients = grpo_loss(inputs, &config).backward();
                let gradient: Vec<f64> =
                    leaf.grad(&gradients).unwrap().into_data().iter().collect();
                step(&mut logits, &gradient, 1.0);
            }
        }
        let probability = softmax(&logits)[good];
        assert!(probability > 0.9, "{preset:?}: {probability}");
    }
}

/// `Σ_a π(a) ∇ L(a)` by logits, with the policy at hand as the one that sampled.
fn expected_gradient(logits: &[f64], reference: &[f64], config: &LossConfig) -> Vec<f64> {
    let device = Device::flex().autodiff();
    let arms: Vec<usize> = (0..logits.len()).collect();
    let (leaf, logprobs) = score(logits, &arms, &device);
    let reference: Vec<f64> = softmax(reference).iter().map(|p| p.ln()).collect();
    let inputs = LossInputs {
        logprobs,
        old_logprobs: None,
        ref_logprobs: Some(column(&reference, &device)),
        advantages: column(&vec![0.0; logits.len()], &device),
        weights: column(&softmax(logits), &device),
    };
    let gradients = grpo_loss(inputs, config).backward();
    leaf.grad(&gradients).unwrap().into_data().iter().collect()
}

/// The logits as a leaf, and the log-probabilities of `arms`, `[n, 1]`.
fn score(logits: &[f64], arms: &[usize], device: &Device) -> (Tensor<2>, Tensor<2>) {
    let leaf = column(logits, device).require_grad(); // [v, 1]
    let ids: Vec<i32> = arms.iter().map(|&arm| arm as i32).collect();
    let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [arms.len()]), device);
    (leaf.clone(), log_softmax(leaf, 0).select(0, ids))
}

fn column(values: &[f64], device: &Device) -> Tensor<2> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let shape = [values.len(), 1];
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn step(logits: &mut [f64], gradient: &[f64], rate: f64) {
    logits.iter_mut().zip(gradient).for_each(|(logit, gradient)| *logit -= rate * gradient);
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit.exp() / total).collect()
}

fn divergence(logits: &[f64], reference: &[f64]) -> f64 {
    let (p, q) = (softmax(logits), softmax(reference));
    p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum()
}

fn drawn(policy: &[f64], at: f64) -> usize {
    let mut below = 0.0;
    let position = policy.iter().position(|p| {
        below += p;
        at < below
    });
    position.unwrap_or(policy.len() - 1)
}
