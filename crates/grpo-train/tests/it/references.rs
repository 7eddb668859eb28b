//! Tests reference updates and the adaptive KL coefficient.

use std::sync::Arc;

use grpo_core::{KlController, KlEstimator, KlPlacement};
use grpo_model::{Adapted, Adapter, Frozen, LanguageModel, LoraConfig, Policy};
use grpo_train::{Grpo, GrpoConfig, Metrics, NextTokens, Parts, ReferenceSettings};

use crate::support::{
    SEED, chains, config, distance, grpo, model, molecules, parameters, take_step, vocabulary,
};

fn following(reference: ReferenceSettings) -> GrpoConfig {
    GrpoConfig { reference, ..config() }
}

fn value(metrics: &Metrics, name: &str) -> f64 {
    metrics.get(name).unwrap()
}

/// The reference is replaced by the policy after every second step, so the KL is 0 at the start of
/// the next step.
#[test]
fn a_reference_that_copies_the_policy() {
    let every = ReferenceSettings { every_steps: Some(2), ..ReferenceSettings::default() };
    let mut grpo = grpo(following(every), chains());
    let mut last = parameters(grpo.policy());
    for step in 0..6 {
        let report = take_step(&mut grpo, step);
        let metrics = Metrics::of(&report, 0);
        assert_eq!(report.reference_updated, (step % 2 == 1).then_some(1.0), "step {step}");
        assert_eq!(value(&metrics, "reference_age"), f64::from(step % 2));
        let largest = value(&metrics, "kl_max");
        assert_eq!(largest == 0.0, step % 2 == 0, "step {step}: {largest}");
        // The reference must not change along with the policy.
        let now = parameters(grpo.policy());
        assert!(distance(&now, &last) > 1e-4);
        last = now;
    }
}

/// A reference that moves halfway towards the policy results in a smaller KL than a constant one.
#[test]
fn a_reference_that_moves_towards_the_policy() {
    let kls = |mix: Option<f64>| -> Vec<f64> {
        let reference =
            ReferenceSettings { every_steps: mix.map(|_| 1), mix, ..Default::default() };
        let mut config = following(reference);
        config.loss.kl_coef = Some(0.0);
        let mut grpo = grpo(config, chains());
        (0..4).map(|step| value(&Metrics::of(&take_step(&mut grpo, step), 0), "kl")).collect()
    };
    let [fixed, half, whole] = [None, Some(0.5), Some(1.0)].map(kls);
    // There is no penalty, so the policy is the same in all three runs.
    for step in 1..4 {
        assert!(whole[step] == 0.0 && whole[step] < half[step], "{whole:?} {half:?}");
        assert!(half[step] < 0.5 * fixed[step], "{half:?} {fixed:?}");
    }
}

/// A reference without an adapter is updated from a policy with an adapter.
#[test]
fn a_base_that_follows_an_adapter() {
    let base = model(vocabulary().len(), 2.0);
    let lora = LoraConfig { rank: 3, alpha: 6.0, dropout: 0.0, targets: vec![], rslora: false };
    let adapter = Adapter::random(&lora, &base, 1, &base.device()).unwrap();
    let policy = Policy::Adapted(Adapted::new(&base, adapter));
    let Policy::Adapted(adapted) = &policy else { unreachable!() };
    let reference = Frozen::snapshot(&Policy::Whole(adapted.base().clone()));
    let parts = Parts {
        policy,
        reference,
        actions: Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] }),
        reward: molecules(0.7),
        bonus: None,
        filter: None,
        identify: None,
        variation: None,
        combined: None,
        longest_prompt: 1,
        epoch: None,
        decode: chains(),
    };
    let every = ReferenceSettings { every_steps: Some(2), ..ReferenceSettings::default() };
    let mut grpo = Grpo::new(parts, following(every), SEED).unwrap();
    for step in 0..4 {
        let largest = value(&Metrics::of(&take_step(&mut grpo, step), 0), "kl_max");
        assert_eq!(largest == 0.0, step % 2 == 0, "step {step}: {largest}");
    }
    assert_eq!(grpo.learner().reference().parameters_on_tape(), 0);
}

/// The coefficient in each step follows Ziegler's rule, applied to the metrics of the previous
/// steps. This holds for a penalty in the loss and for one in the reward.
#[test]
fn the_coefficient_follows_the_kl() {
    for placement in [KlPlacement::Loss, KlPlacement::Reward] {
        let mut config = config();
        config.loss.kl_placement = Some(placement);
        config.loss.kl_estimator = Some(KlEstimator::K3);
        let controller = KlController { target: 0.02, horizon: 100.0, min: 0.04, max: 0.06 };
        config.kl_controller = Some(controller);
        let mut grpo = grpo(config, chains());
        let mut expected = 0.05_f64;
        let mut seen = Vec::new();
        for step in 0..12 {
            let metrics = Metrics::of(&take_step(&mut grpo, step), 0);
            let coef = value(&metrics, "kl_coef");
            assert!((coef - expected).abs() < 1e-12, "step {step}: {coef}, expected {expected}");
            let error = (value(&metrics, "kl") / 0.02 - 1.0).clamp(-0.2, 0.2);
            expected = (expected * (1.0 + error * 24.0 / 100.0)).clamp(0.04, 0.06);
            seen.push(coef);
        }
        assert!(seen[1] < 0.05 && seen.iter().any(|&coef| coef > 0.05), "{seen:?}");
        assert_eq!(grpo.learner().kl_coef(), expected);
        grpo.learner_mut().set_kl_coef(1.0);
        assert_eq!(grpo.learner().kl_coef(), 0.06);
    }
}

/// A new coefficient takes effect in the next step.
#[test]
fn the_coefficient_can_be_set() {
    let norm = |coef: Option<f64>| {
        let mut grpo = grpo(config(), chains());
        take_step(&mut grpo, 0);
        coef.into_iter().for_each(|coef| grpo.learner_mut().set_kl_coef(coef));
        let report = take_step(&mut grpo, 1);
        (report.learned.kl_coef, report.learned.loss())
    };
    let (usual, raised) = (norm(None), norm(Some(5.0)));
    assert_eq!((usual.0, raised.0), (0.05, 5.0));
    assert!(raised.1 > usual.1, "{usual:?} {raised:?}");
}
