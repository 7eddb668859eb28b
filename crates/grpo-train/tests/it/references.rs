//! Tests reference updates and the adaptive KL coefficient.

use std::sync::Arc;

use grpo_core::{EntropyBonus, KlController, KlEstimator, KlPlacement};
use grpo_model::{Adapted, Adapter, Frozen, LanguageModel, LoraConfig, Policy};
use grpo_train::{
    Grpo, GrpoConfig, GuardAction, GuardConfig, Metrics, NextTokens, Parts, ReferenceSettings,
    default_guards,
};

use crate::support::{
    SEED, chains, config, distance, grpo, model, molecules, parameters, parts, take_step,
    vocabulary,
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

/// Without a penalty, the KL is measured in the first, each tenth and the last step. Measuring it
/// does not change the policy. A guard that acts on the KL needs it in each step.
#[test]
fn the_kl_is_measured_where_it_is_needed() {
    let run = |kl_coef: f64, guards: Option<Vec<GuardConfig>>| {
        let mut config = GrpoConfig { guards, ..config() };
        (config.loss.kl_coef, config.train.steps) = (Some(kl_coef), 12);
        let mut grpo = grpo(config, chains());
        let of_reference = ["kl", "kl_p99", "kl_max", "kl_sequence"];
        let measured = (0..12).map(|step| {
            let metrics = Metrics::of(&take_step(&mut grpo, step), 0);
            of_reference.map(|name| metrics.get(name).is_some())
        });
        let steps: Vec<[bool; 4]> = measured.collect();
        let steps: Vec<usize> = (0..12).filter(|&step| steps[step] != [false; 4]).collect();
        (steps, parameters(grpo.policy()))
    };
    let all: Vec<usize> = (0..12).collect();
    let acting = |action| {
        let mut guards = default_guards();
        let kl = guards.iter_mut().find(|guard| guard.watch == "kl").unwrap();
        (kl.above, kl.action) = (Some(1e9), action);
        Some(guards)
    };
    let (steps, policy) = run(0.0, None);
    assert_eq!(steps, [0, 9, 11]);
    assert_eq!(run(0.0, acting(GuardAction::Warn)), (steps, policy.clone()));
    assert_eq!(run(0.0, acting(GuardAction::Stop)), (all.clone(), policy.clone()));
    assert_eq!(run(0.0, acting(GuardAction::RollBack)), (all.clone(), policy));
    assert_eq!(run(1e-3, None).0, all);
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
        // Recorded tokens need the reference in each step.
        grpo.set_recording(true);
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
    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &base, 1, &base.device()).unwrap();
    let policy = Policy::Adapted(Adapted::new(&base, adapter));
    let Policy::Adapted(adapted) = &policy else { unreachable!() };
    let reference = Frozen::snapshot(&Policy::Whole(adapted.base().clone()));
    let actions = Arc::new(NextTokens { end_ids: vec![vocabulary().boundary()] });
    let parts = Parts { reference, ..parts(actions, molecules(0.7), policy, chains()) };
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
        let controller = KlController { target: 0.02, horizon: 100.0 };
        config.kl_controller = Some(controller);
        let mut grpo = grpo(config, chains());
        let mut expected = 0.05_f64;
        let mut seen = Vec::new();
        for step in 0..12 {
            let metrics = Metrics::of(&take_step(&mut grpo, step), 0);
            let coef = value(&metrics, "kl_coef");
            assert!((coef - expected).abs() < 1e-12, "step {step}: {coef}, expected {expected}");
            let error = (value(&metrics, "kl") / 0.02 - 1.0).clamp(-0.2, 0.2);
            expected *= 1.0 + error * 24.0 / 100.0;
            seen.push(coef);
        }
        assert!(seen[1] < 0.05 && seen.windows(2).any(|pair| pair[0] < pair[1]), "{seen:?}");
        assert!((grpo.learner().kl_coef() - expected).abs() < 1e-12);
        grpo.learner_mut().set_kl_coef(100.0);
        assert_eq!(grpo.learner().kl_coef(), 10.0);
    }
}

/// A KL coefficient that decreases to 0 trains exactly as if it were set before each step. This holds
/// for a penalty in the loss and for one in the reward.
#[test]
fn the_kl_coefficient_is_scheduled() {
    for placement in [KlPlacement::Loss, KlPlacement::Reward] {
        let mut constant = config();
        constant.loss.kl_placement = Some(placement);
        let mut scheduled = constant.clone();
        scheduled.schedule.kl_coef_end = Some(0.0);
        scheduled.schedule.coef_steps = Some(4);
        let (mut by_hand, mut scheduled) = (grpo(constant, chains()), grpo(scheduled, chains()));
        for (step, share) in (0..).zip([1.0, 0.75, 0.5, 0.25, 0.0, 0.0]) {
            let coef = 0.05 * share;
            by_hand.learner_mut().set_kl_coef(coef);
            let [own, others] = [&mut scheduled, &mut by_hand]
                .map(|grpo| (take_step(grpo, step), parameters(grpo.policy())));
            assert_eq!(own.0.learned.kl_coef, coef, "step {step}");
            assert_eq!(own.0.learned.loss(), others.0.learned.loss(), "step {step}");
            assert!(own.1 == others.1, "step {step}");
            let penalty = Metrics::of(&own.0, 0).get("reward_kl");
            assert_eq!(penalty.is_some(), placement == KlPlacement::Reward, "step {step}");
        }
        // A roll-back changes the coefficient that the schedule starts from.
        assert_eq!(scheduled.learner().kl_coef(), 0.05);
    }
}

/// Over the steps of the run, the coefficient of the entropy bonus increases to its final value, and
/// the loss contains it.
#[test]
fn the_entropy_coefficient_is_scheduled() {
    let mut config = config();
    config.loss.kl_coef = Some(0.0);
    config.loss.entropy_bonus = Some(EntropyBonus::Static { coef: 0.01 });
    config.schedule.entropy_coef_end = Some(0.06);
    let mut grpo = grpo(config, chains());
    for step in 0..10 {
        let report = take_step(&mut grpo, step);
        let update = &report.learned.updates[0];
        let coef = 0.01 + 0.005 * f64::from(step);
        assert!((update.entropy_coef.unwrap() - coef).abs() < 1e-15, "step {step}");
        let bonus = coef * update.tokens.kept_entropy().unwrap();
        let expected = update.policy_loss - bonus;
        assert!((update.loss - expected).abs() < 1e-6, "step {step}: {} {expected}", update.loss);
    }
}

/// Each schedule needs a coefficient that it can change.
#[test]
fn schedules_without_a_coefficient_are_refused() {
    let fault = |change: fn(&mut GrpoConfig)| {
        let mut config = config();
        change(&mut config);
        config.check().unwrap_err().to_string()
    };
    assert_eq!(
        fault(|config| {
            config.loss.kl_coef = Some(0.0);
            config.schedule.kl_coef_end = Some(0.1);
        }),
        "schedule.kl_coef_end: there is no KL penalty; remove it, or set loss.kl_coef"
    );
    assert_eq!(
        fault(|config| {
            let controller = KlController { target: 0.02, horizon: 100.0 };
            config.kl_controller = Some(controller);
            config.schedule.kl_coef_end = Some(0.0);
        }),
        "schedule.kl_coef_end: [kl_controller] already changes the KL coefficient; remove one of them"
    );
    assert_eq!(
        fault(|config| config.schedule.kl_coef_end = Some(-0.1)),
        "schedule.kl_coef_end = -0.1 is out of range; expected 0 or more"
    );
    assert_eq!(
        fault(|config| config.schedule.entropy_coef_end = Some(0.0)),
        "schedule.entropy_coef_end: there is no entropy bonus; remove it, or set loss.entropy_bonus with a positive coef"
    );
    assert_eq!(
        fault(|config| {
            let (target, delta, min, max) = (1.0, 0.001, 0.0, 0.1);
            let bonus = EntropyBonus::Adaptive { initial: 0.01, target, delta, min, max };
            config.loss.entropy_bonus = Some(bonus);
            config.schedule.entropy_coef_end = Some(0.0);
        }),
        "schedule.entropy_coef_end: an adaptive entropy bonus already changes its coefficient; remove it, or use a static bonus"
    );
    assert_eq!(
        fault(|config| config.schedule.coef_steps = Some(3)),
        "schedule.coef_steps: no coefficient changes; remove it, or set schedule.kl_coef_end or schedule.entropy_coef_end"
    );
    assert_eq!(
        fault(|config| {
            config.schedule.kl_coef_end = Some(0.0);
            config.schedule.coef_steps = Some(0);
        }),
        "schedule.coef_steps = 0 is out of range; expected 1 to 1000000000"
    );
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
