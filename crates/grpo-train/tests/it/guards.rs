//! Tests that each guard is triggered by the problem it detects, and not in a healthy run.

use std::sync::Arc;

use grpo_data::Prompt;
use grpo_model::Transformer;
use grpo_rewards::Reward;
use grpo_train::{
    Action, Decode, Grpo, GrpoConfig, GuardAction, GuardConfig, GuardTrigger, Guards, Metrics,
    default_guards, unconditional_prompts,
};

use crate::support::{
    SEED, begin, chains, config, model, molecules, pattern, rewarded, vocabulary,
};

const STEPS: u32 = 60;

fn guard(watch: &str, above: Option<f64>, below: Option<f64>) -> GuardConfig {
    GuardConfig {
        watch: watch.to_owned(),
        above,
        below,
        steps: 1,
        from_step: 1,
        action: GuardAction::Stop,
        learning_rate_factor: None,
        kl_coef_factor: None,
    }
}

/// Returns the first trigger within `steps` steps, along with the step number.
fn watch(
    grpo: &mut Grpo<Transformer>,
    guard: GuardConfig,
    steps: u32,
) -> Option<(u32, GuardTrigger)> {
    let mut guards = Guards::new(&[guard]);
    for step in 0..steps {
        let done = u64::from(step) + 1;
        let triggers = match grpo.step(&unconditional_prompts(3, vocabulary().boundary()), step) {
            Ok(report) => guards.observe(done, &Metrics::of(&report, 0)),
            Err(error) => guards.failed(done, &error),
        };
        if let Some(trigger) = triggers.into_iter().next() {
            return Some((step + 1, trigger));
        }
    }
    None
}

fn trained(config: GrpoConfig, decode: Decode, guard: GuardConfig) -> Option<(u32, GuardTrigger)> {
    trained_for(molecules(0.7), config, decode, guard)
}

fn trained_for(
    reward: Arc<dyn Reward>,
    config: GrpoConfig,
    decode: Decode,
    guard: GuardConfig,
) -> Option<(u32, GuardTrigger)> {
    let (policy, boundary) = (model(vocabulary().len(), 2.0), vocabulary().boundary());
    let grpo = rewarded(reward, policy, config, SEED, boundary, decode);
    watch(&mut grpo.unwrap(), guard, STEPS)
}

/// The default guards end a run in which all prompts get one answer, in the third such step. Two
/// answers in one of the groups are enough to continue, as is a single prompt, whose answer may be right.
#[test]
fn a_policy_that_gives_one_answer_to_all_prompts() {
    let different = || (0..3).map(|id| Prompt::of_ids(id, vec![id])).collect::<Vec<_>>();
    let equal = || unconditional_prompts(3, vocabulary().boundary());
    let stopped = |decode: Decode, prompts: &dyn Fn() -> Vec<Prompt>| {
        let mut grpo = begin(
            model(vocabulary().len(), 2.0),
            with_rate(1e-4),
            SEED,
            vocabulary().boundary(),
            decode,
        )
        .unwrap();
        let mut guards = Guards::new(&default_guards());
        (0..5).find_map(|step| {
            let metrics = Metrics::of(&grpo.step(&prompts(), step).unwrap(), 0);
            let triggers = guards.observe(u64::from(step) + 1, &metrics);
            let stop = triggers.into_iter().find(|trigger| trigger.action == Action::Stop)?;
            Some((step + 1, stop.watch))
        })
    };
    let collapsed = || Some((3, "completions/collapsed_groups".to_owned()));
    let constant = || -> Decode { Arc::new(|_| "C".to_owned()) };
    assert_eq!(stopped(constant(), &different), collapsed());
    assert_eq!(stopped(constant(), &equal), None);
    assert_eq!(stopped(chains(), &different), None);
}

fn with_rate(learning_rate: f64) -> GrpoConfig {
    let mut config = config();
    config.optimizer.learning_rate = learning_rate;
    config.sampling.max_new_tokens = 6;
    config
}

fn letters() -> Decode {
    Arc::new(|ids| ids.iter().map(|id| char::from(b'a' + *id as u8)).collect())
}

/// Rewards completions with at most one token before the end token.
fn short_ones() -> Arc<dyn Reward> {
    let end = char::from(b'a' + vocabulary().boundary() as u8);
    pattern(&format!("^.?{end}$"))
}

/// Matrix products overflow with weights this large.
#[test]
fn a_number_that_is_not_finite() {
    let broken = model(vocabulary().len(), 1e38);
    let boundary = vocabulary().boundary();
    let mut grpo = begin(broken, config(), SEED, boundary, chains()).unwrap();
    let (step, trigger) = watch(&mut grpo, guard("not_finite", None, None), STEPS).unwrap();
    assert_eq!((step, trigger.action), (1, Action::Stop));
    assert!(trigger.message.starts_with("step 1: the step failed: "), "{}", trigger.message);
    assert_eq!(trained(with_rate(1e-3), chains(), guard("not_finite", None, None)), None);
}

#[test]
fn a_leap_away_from_the_reference() {
    for name in ["kl", "kl_sequence", "kl_p99"] {
        let spike = || guard(name, Some(1.0), None);
        // Adam changes each weight by the learning rate.
        let (step, trigger) = trained(with_rate(0.5), chains(), spike()).unwrap();
        assert!((2..=5).contains(&step) && trigger.value > Some(1.0), "{trigger:?}");
        assert_eq!(trained(with_rate(1e-4), chains(), spike()), None);
    }
}

/// Only one kind of completion is rewarded, so there is soon little else.
#[test]
fn entropy_collapses_and_duplicates_fill_the_step() {
    for (name, floor) in [("entropy", 0.5), ("completions/unique_ratio", 0.4)] {
        let low = || guard(name, None, Some(floor));
        let free = |learning_rate| {
            let mut config = with_rate(learning_rate);
            config.loss.kl_coef = None;
            config
        };
        let (step, trigger) = trained_for(short_ones(), free(2e-2), letters(), low()).unwrap();
        assert!(step > 1 && trigger.value < Some(floor), "{trigger:?}");
        assert_eq!(trained_for(short_ones(), free(1e-5), letters(), low()), None);
    }
}

/// An untrained model rarely produces a valid molecule, so its reward is low.
#[test]
fn validity_and_reward_below_their_floors() {
    let smiles: Decode = Arc::new(|ids| format!("C({}", ids.len()));
    for (name, floor) in [("rewards/valid/mean", 0.3), ("reward", 0.1)] {
        let low = || GuardConfig { steps: 3, ..guard(name, None, Some(floor)) };
        let (step, trigger) = trained(with_rate(1e-3), smiles.clone(), low()).unwrap();
        assert_eq!((step, trigger.steps, trigger.value), (3, 3, Some(0.0)));
        assert_eq!(trained(with_rate(1e-3), chains(), low()), None);
    }
}

/// Performs several updates per rollout with a learning rate that is too high.
#[test]
fn ratios_with_a_heavy_tail() {
    let four = |learning_rate| {
        let mut config = with_rate(learning_rate);
        config.train.updates_per_rollout = 4;
        config
    };
    let heavy = || guard("ratio/p99", Some(2.0), None);
    let (step, trigger) = trained(four(5e-2), chains(), heavy()).unwrap();
    assert!(step < 10 && trigger.value > Some(2.0), "{trigger:?}");
    assert_eq!(trained(four(1e-4), chains(), heavy()), None);
}

#[test]
fn rewards_that_are_all_equal() {
    let equal = || GuardConfig { steps: 2, ..guard("frac_reward_zero_std", Some(0.9), None) };
    let (step, trigger) = trained_for(pattern(".*"), with_rate(1e-3), letters(), equal()).unwrap();
    assert_eq!((step, trigger.value), (2, Some(1.0)));
    assert_eq!(trained(with_rate(1e-3), chains(), equal()), None);
}

/// Almost all of the weight is on a single reward component.
#[test]
fn one_part_of_the_reward_decides() {
    let dominant = || guard("reward_dominance", Some(0.9), None);
    let weighing = |qed| trained_for(molecules(qed), with_rate(1e-3), chains(), dominant());
    let (step, trigger) = weighing(0.99).unwrap();
    assert_eq!(step, 1);
    assert!(trigger.message.contains(" (qed), above 0.9"), "{}", trigger.message);
    assert_eq!(weighing(0.6), None);
}

/// Guards can watch all metrics of a step except time and memory measurements.
#[test]
fn every_metric_has_a_name_that_is_known() {
    let mut grpo = crate::support::grpo(config(), chains());
    let report = grpo.step(&unconditional_prompts(3, vocabulary().boundary()), 0).unwrap();
    for (name, _) in Metrics::of(&report, 0).iter().filter(|(name, _)| *name != "step") {
        let of_machine = ["time", "memory", "tokens_per_second"].iter().any(|of| name.contains(of));
        let guards = Some(vec![guard(name, Some(0.5), None)]);
        let checked = GrpoConfig { guards, ..config() }.check();
        assert_eq!(checked.is_err(), of_machine, "{name}: {checked:?}");
    }
}
