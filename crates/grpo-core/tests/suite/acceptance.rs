//! Tests from the shared acceptance list that only require this crate. Each test is named after its
//! entry in the list.

use burn::tensor::{DType, Device, Tensor, activation::log_softmax};
use grpo_core::{
    AdvantageConfig, KlConfig, KlEstimator, LossConfig, LossInputs, Preset, group_advantages,
    grpo_loss,
};
use grpo_oracle as oracle;

use crate::advantages::settings;
use crate::bandit::{descend, divergence, drawn, expected_gradient, softmax};
use crate::strategies::{corrections, every_option, kl, penalties, presets};
use crate::support::{Batch, Run, Uniform, close, largest, on_policy, tensor};
use crate::toy::{PARAMETERS, Scene, flat};

/// Checks the gradients of all parameters of a two-layer network, propagated through the loss, the
/// entropies and the exact KL.
#[test]
fn d01_gradients_equal_finite_differences() {
    for config in every_option() {
        let adaptive = config.entropy_bonus.map_or(0.0, |_| 0.1);
        let scene = Scene::new().with_entropy_coef(adaptive);
        let batch = scene.batch();
        assert!(!oracle::near_a_kink(&batch, &config, 1e-4));
        // Chain rule: `outer` is the gradient with respect to the outputs, which in turn depend on
        // the parameters.
        let outer = oracle::gradient(&batch, &config, &batch.totals(config.high_entropy_share));
        let step = 1e-5;
        let derivative = |i: usize| -> f64 {
            let at = |step: f64| {
                let mut parameters = scene.parameters.clone();
                parameters[i] += step;
                let batch = scene.at(&parameters);
                [batch.logprobs, batch.entropies, batch.exact_kl.unwrap()].map(|rows| rows.concat())
            };
            let outer = [&outer.logprobs, &outer.entropies, outer.exact_kl.as_ref().unwrap()];
            let both = at(step).into_iter().zip(at(-step)).zip(outer);
            both.map(|((above, below), outer)| {
                let slopes = above.iter().zip(below).map(|(a, b)| (a - b) / (2.0 * step));
                slopes.zip(outer.concat()).map(|(slope, outer)| slope * outer).sum::<f64>()
            })
            .sum()
        };
        let expected: Vec<f64> = (0..PARAMETERS).map(derivative).collect();
        for (dtype, tolerance) in [(DType::F64, 1e-8), (DType::F32, 3e-6)] {
            let toy = scene.toy(dtype);
            let got = flat(&toy, &scene.gradients(&toy, 0..batch.rows(), &config));
            for (got, expected_one) in got.iter().zip(&expected) {
                let tolerance = tolerance * largest(&expected).max(0.01);
                close(*got, *expected_one, tolerance, &format!("derivative of {config:?}"));
            }
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

    let scene = Scene::new().batch();
    for settings in settings() {
        let equal = group_advantages(&[vec![Some(0.95); 4]], &settings).unwrap();
        let batch = Batch { advantages: equal.groups[0].clone(), ..scene.clone() };
        for config in every_option() {
            if !config.kl.in_loss() {
                let got = batch.run(&config);
                assert!(got.gradient.iter().flatten().all(|&g| g == 0.0), "{settings:?}");
            }
        }
    }
}

#[test]
fn d03_the_first_step_starts_from_the_identity() {
    let scene = Scene::new().batch();
    let exact_kl = Some(vec![vec![0.0; scene.width()]; scene.rows()]);
    let reference = Some(scene.logprobs.clone());
    let batch = Batch { old: None, reference, exact_kl, ..scene };
    for preset in presets() {
        for kl in penalties() {
            let config = LossConfig { kl, ..preset };
            let statistics = batch.statistics(&config);
            assert_eq!(statistics.ratio_range(), Some([1.0, 1.0]));
            for (name, value) in statistics.metrics() {
                assert!(!name.contains("clip") || value == 0.0, "{name} = {value}");
            }
            assert_eq!(statistics.kl(), Some(0.0), "{config:?}");
            // Without a penalty, the loss must be the same.
            let without = LossConfig { kl: KlConfig { coef: 0.0, ..kl }, ..preset };
            let totals = batch.totals(None);
            for dtype in [DType::F32, DType::F64] {
                let loss = |config| batch.run_as(dtype, config, &totals).loss;
                assert_eq!(loss(&config), loss(&without));
            }
        }
    }
}

/// Tokens sampled with a temperature and forbidden ids are scored with the same settings.
#[test]
fn d04_what_was_recorded_is_what_is_scored() {
    let mut uniform = Uniform(4);
    let (temperature, forbidden) = (0.7, 2);
    let logits: Vec<f64> = (0..8).map(|_| 4.0 * uniform.draw() - 2.0).collect();
    let allowed = |v: usize, logit: f64| if v == forbidden { f64::NEG_INFINITY } else { logit };
    let sampler: Vec<f64> =
        logits.iter().enumerate().map(|(v, logit)| allowed(v, logit / temperature)).collect();
    let policy = softmax(&sampler);
    let tokens: Vec<usize> = (0..64).map(|_| drawn(&policy, uniform.draw())).collect();
    assert!(!tokens.contains(&forbidden));
    let recorded = vec![tokens.iter().map(|&token| policy[token].ln()).collect::<Vec<f64>>()];

    let device = Device::flex();
    let scored = |logits: &[f64]| {
        let scores = log_softmax(tensor(logits, [1, 8], DType::F32, &device), 1);
        let scores: Vec<f64> = scores.into_data().iter().collect();
        vec![tokens.iter().map(|&token| scores[token]).collect::<Vec<f64>>()]
    };
    let config = LossConfig { mismatch: Some(corrections()[0]), ..Preset::Grpo.config() };
    let difference = |logits: &[f64]| {
        let batch = on_policy(scored(logits), vec![1.0]);
        let batch = Batch { sampling: Some(recorded.clone()), ..batch };
        batch.statistics(&config).metric("sampling/sampling_logp_difference/max").unwrap()
    };
    assert!(difference(&sampler) < 1e-5);
    assert!(difference(&logits) > 0.01, "without temperature and mask");
    let hot: Vec<f64> = logits.iter().map(|logit| logit / temperature).collect();
    assert!(difference(&hot) > 0.01, "without the mask");

    // Recorded log-probabilities are exact, so no mode needs to correct them.
    let batch = on_policy(recorded.clone(), vec![1.0]);
    let batch = Batch { sampling: Some(recorded), ..batch };
    let plain = batch.run(&Preset::Grpo.config());
    for correction in corrections() {
        let corrected = LossConfig { mismatch: Some(correction), ..Preset::Grpo.config() };
        assert_eq!(batch.run(&corrected).gradient, plain.gradient);
    }
}

/// Uses two prompt tokens and three action tokens, the last of which ends the completion, followed
/// by padding.
#[test]
fn d05_only_actions_have_gradients_by_logits() {
    let device = Device::flex().autodiff();
    let (places, vocabulary) = (7, 5);
    let (first, end) = (2, 4);
    let mut uniform = Uniform(5);
    let mut numbers = |count: usize| -> Vec<f64> { (0..count).map(|_| uniform.draw()).collect() };
    let [logits, reference] = [(); 2].map(|()| numbers(places * vocabulary));
    for config in every_option() {
        let leaf = tensor(&logits, [places, vocabulary], DType::F64, &device).require_grad();
        let reference = tensor(&reference, [places, vocabulary], DType::F64, &device);
        let (policy, reference) = (log_softmax(leaf.clone(), 1), log_softmax(reference, 1));
        // Logits of token 0 at each action position.
        let actions = |of: Tensor<2>| of.slice([first..end + 1, 0..1]).reshape([end - first + 1]);
        let mean = |of: Tensor<2>| actions((policy.clone().exp() * of).sum_dim(1));
        let entropies = mean(policy.clone().neg());
        let given = |of: Tensor<2>| actions(of).into_data().iter().collect::<Vec<f64>>();
        let (taken, sampling) = (given(reference.clone()), given(policy.clone()));
        let inputs = LossInputs {
            ref_logprobs: Some(&taken),
            sampling_logprobs: Some(&sampling),
            exact_kl: Some(mean(policy.clone() - reference)),
            entropies: Some(entropies.clone()),
            entropy_coef: config.entropy_bonus.map_or(0.0, |_| 0.1),
            ..LossInputs::on_policy(actions(policy.clone()), &[0; 3], &[1.5])
        };
        let batch = on_policy(vec![vec![0.0; end - first + 1]], vec![1.5]);
        let kept: Vec<f64> = entropies.into_data().iter().collect();
        let batch = Batch { entropies: vec![kept], ..batch };
        // All tokens are kept, so that every action has a gradient.
        let totals = batch.totals(config.high_entropy_share.map(|_| 1.0));
        let gradients = grpo_loss(&inputs, &config, &totals).loss.backward();
        let gradient: Vec<f64> = leaf.grad(&gradients).unwrap().into_data().iter().collect();
        for (t, gradient) in gradient.chunks(vocabulary).enumerate() {
            let action = (first..=end).contains(&t);
            assert_eq!(gradient.iter().any(|&g| g != 0.0), action, "place {t}, {config:?}");
        }
    }
}

/// If all rewards are equal, only the penalty has a gradient. The expectation over tokens is exact:
/// every arm is weighted by its probability.
#[test]
fn d06_the_penalty_pulls_the_policy_back() {
    let displaced = [1.5, -0.5, 0.25, -2.0, 0.75];
    let reference = [0.0, 0.5, -0.5, 0.25, 1.0];
    let uncorrected_k1 = kl(1.0, KlEstimator::K1, false);
    let penalties = penalties().into_iter().map(|kl| KlConfig { coef: 1.0, ..kl });
    for kl in penalties.chain([uncorrected_k1]) {
        let config = LossConfig { kl, ..Preset::Grpo.config() };
        let gradient = expected_gradient(&displaced, &reference, &config);
        if kl == uncorrected_k1 {
            close(largest(&gradient), 0.0, 1e-15, "uncorrected k1 holds nothing back");
            assert!(config.checked().is_err());
            continue;
        }
        // Gradient of the objective, ∂/∂z_j: p_j (c_j − Σ p c), where x = log(p / q), and c = x for
        // the KL itself.
        let (p, q) = (softmax(&displaced), softmax(&reference));
        let pulls = p.iter().zip(&q).map(|(p, q)| match (kl.estimator, kl.bias_correction) {
            (KlEstimator::K3, false) => 1.0 - q / p,
            (KlEstimator::K2, true) => (p / q).ln() + (p / q).ln().powi(2) / 2.0,
            _ => (p / q).ln(),
        });
        let pulls: Vec<f64> = pulls.collect();
        let mean: f64 = p.iter().zip(&pulls).map(|(p, pull)| p * pull).sum();
        for (got, (p, pull)) in gradient.iter().zip(p.iter().zip(&pulls)) {
            close(*got, p * (pull - mean), 1e-14, &format!("{kl:?}"));
        }

        let mut logits = displaced.to_vec();
        let before = divergence(&logits, &reference);
        descend(&mut logits, &gradient, 0.05);
        assert!(divergence(&logits, &reference) < 0.99 * before, "{kl:?}");
        for _ in 0..100 {
            let gradient = expected_gradient(&logits, &reference, &config);
            descend(&mut logits, &gradient, 1.0);
        }
        // A corrected k2 minimises the mean of x² / 2, which also has other minima.
        let home = (kl.estimator, kl.bias_correction) != (KlEstimator::K2, true);
        let after = divergence(&logits, &reference);
        assert_eq!(after < 1e-6 * before, home, "{kl:?}: {before} to {after}");
    }
}
