//! Tests guards on sequences of metric values.

use super::*;
use crate::guard_config::Guarded;
use crate::{RunMetrics, default_guards};

/// Checks a guard of a run that has all metrics of steps.
fn checked(guard: &GuardConfig, place: usize) -> Result<(), grpo_data::ConfigFault> {
    let mut metrics = RunMetrics::default();
    metrics.add(step_metrics().flat_map(|group| group.metrics), |_| true);
    guard.check(place, &Guarded::Grpo { kl_coef: 0.0 }, &metrics)
}

fn guard(watch: &str, action: GuardAction) -> GuardConfig {
    GuardConfig {
        watch: watch.to_owned(),
        above: (watch != NOT_FINITE).then_some(0.5),
        below: None,
        steps: 1,
        from_step: 1,
        action,
        learning_rate_factor: None,
        kl_coef_factor: None,
    }
}

/// Checks in which steps a guard is triggered, along with the streak lengths.
#[track_caller]
fn check(guard: &GuardConfig, values: &[f64], expected: &[(u64, u32)]) {
    let mut guards = Guards::new(std::slice::from_ref(guard));
    let mut tripped = Vec::new();
    for (step, value) in (1..).zip(values) {
        let triggers = guards.observe(step, &Metrics::of_pairs(&[("kl", *value)]));
        tripped.extend(triggers.iter().map(|trigger| (step, trigger.steps)));
    }
    assert_eq!(tripped, expected, "{guard:?}");
}

#[test]
fn warns_once_until_a_step_in_range() {
    let warn = guard("kl", GuardAction::Warn);
    check(&warn, &[0.6, 0.7, 0.8, 0.5, 0.6, 0.6], &[(1, 1), (5, 1)]);
    let two = GuardConfig { steps: 2, ..warn };
    check(&two, &[0.6, 0.7, 0.8, 0.5, 0.6, 0.6], &[(2, 2), (6, 2)]);
    check(&two, &[0.6, 0.5, 0.6, 0.5], &[]);
}

#[test]
fn what_acts_does_so_in_every_step_out_of_range() {
    let stop = guard("kl", GuardAction::Stop);
    check(&stop, &[0.4, 0.6, 0.7, 0.5, 0.6], &[(2, 1), (3, 2), (5, 1)]);
    let later = GuardConfig { from_step: 3, steps: 2, ..stop };
    check(&later, &[0.6, 0.6, 0.6, 0.6, 0.6], &[(4, 2), (5, 3)]);
}

#[test]
fn bounds_on_both_sides_are_inside() {
    let both = GuardConfig { below: Some(0.2), ..guard("kl", GuardAction::Stop) };
    check(&both, &[0.5, 0.2, 0.3, 0.19, 0.51, f64::NAN], &[(4, 1), (5, 2)]);
}

#[test]
fn a_trigger_carries_its_values_and_message() {
    let config = GuardConfig {
        above: None,
        below: Some(0.5),
        steps: 2,
        ..guard("rewards/valid/mean", GuardAction::RollBack)
    };
    let mut guards = Guards::new(&[config]);
    let of = |valid: f64| Metrics::of_pairs(&[("kl", 0.0), ("rewards/valid/mean", valid)]);
    assert_eq!(guards.observe(7, &of(0.4)), []);
    let trigger = GuardTrigger {
        guard: 0,
        watch: "rewards/valid/mean".to_owned(),
        value: Some(0.25),
        bound: Some(0.5),
        steps: 2,
        since: 7,
        action: Action::RollBack { learning_rate_factor: 0.5, kl_coef_factor: 1.0 },
        message: "step 8: rewards/valid/mean was 0.25, below 0.5, 2 steps in a row".to_owned(),
    };
    assert_eq!(guards.observe(8, &of(0.25)), [trigger]);
}

fn declared(name: &str) -> &'static MetricSpec {
    step_metrics().flat_map(|group| group.metrics).find(|metric| metric.name == name).unwrap()
}

/// Small bounds are described in percent, because a factor close to 1 is not informative.
#[test]
fn a_small_bound_of_the_kl_is_said_in_percent() {
    let said = |bound: f64| super::meaning(declared("kl"), "above", bound);
    let words = |more: &str| {
        Some(format!(
            "on average, a token is more than {more} more likely than under the reference"
        ))
    };
    assert_eq!(said(0.05), words("5.1 %"));
    assert_eq!(said(0.001), words("0.1 %"));
    assert_eq!(said(0.1), words("1.1 times"));
    assert_eq!((said(0.0), said(1e9)), (None, None));
}

#[test]
fn default_guards_explain_themselves() {
    // A metric of an extension.
    static OFFERS: MetricSpec = MetricSpec::new("filter/offers", "", "").above("they are too good");
    let of_filter = GuardConfig::new("filter/offers", Some(0.5), None, 5, GuardAction::Warn);
    let all: Vec<GuardConfig> = default_guards().into_iter().chain([of_filter]).collect();
    let mut guards = Guards::new(&all);
    let mut metrics = Metrics::of_pairs(&[
        ("frac_reward_zero_std", 0.95),
        ("entropy", 0.01),
        ("completions/unique_ratio", 0.125),
        ("completions/collapsed_groups", 1.0),
        ("kl", 1.5),
        ("ratio/p99", 3.41),
        ("completions/clipped_ratio", 1.0),
        ("rewards/failed", 0.125),
    ]);
    metrics.push_declared(&OFFERS, 0.75);
    let mut messages = Vec::new();
    for step in 1..=5 {
        let triggers = guards.observe(step, &metrics);
        messages.extend(triggers.into_iter().map(|trigger| trigger.message));
    }
    assert_eq!(
        messages,
        [
            "step 1: kl was 1.5, above 1: on average, a token is more than 2.7 times more likely than under the reference",
            "step 3: completions/collapsed_groups was 1, above 0.99, 3 steps in a row: mode collapse: the policy gives one answer to all prompts, so nothing more can be learned; try a lower optimizer.learning_rate, schedule.warmup_steps or more train.prompts_per_step",
            "step 3: ratio/p99 was 3.41, above 3, 3 steps in a row: one token in a hundred moved by more than a factor of 3 within a step",
            "step 3: rewards/failed was 0.125, above 0, 3 steps in a row: completions whose reward failed do not contribute to training",
            "step 4: completions/collapsed_groups was 1, above 0.99, 4 steps in a row: mode collapse: the policy gives one answer to all prompts, so nothing more can be learned; try a lower optimizer.learning_rate, schedule.warmup_steps or more train.prompts_per_step",
            "step 5: frac_reward_zero_std was 0.95, above 0.9, 5 steps in a row: nearly all groups have equal rewards or none, so there is almost no training signal",
            "step 5: entropy was 0.01, below 0.02, 5 steps in a row: the next token is almost certain; groups will soon contain copies of one completion",
            "step 5: completions/unique_ratio was 0.125, below 0.25, 5 steps in a row: mode collapse: the policy samples the same completions again and again",
            "step 5: completions/collapsed_groups was 1, above 0.99, 5 steps in a row: mode collapse: the policy gives one answer to all prompts, so nothing more can be learned; try a lower optimizer.learning_rate, schedule.warmup_steps or more train.prompts_per_step",
            "step 5: completions/clipped_ratio was 1, above 0.9, 5 steps in a row: few completions reach an end token; sampling.max_new_tokens is too small, or the policy has unlearned the end token",
            "step 5: filter/offers was 0.75, above 0.5, 5 steps in a row: they are too good",
        ]
    );
}

#[test]
fn a_dominant_part_has_a_name() {
    let mut guards = Guards::new(&[guard("reward_dominance", GuardAction::Warn)]);
    let metrics =
        [("reward_share/qed", 0.25), ("reward_share/sa", -0.75), ("reward_dominance", 0.75)];
    let triggers = guards.observe(1, &Metrics::of_pairs(&metrics));
    assert_eq!(triggers[0].message, "step 1: reward_dominance was 0.75 (sa), above 0.5");
}

#[test]
fn what_is_not_finite() {
    let mut guards = Guards::new(&[guard(NOT_FINITE, GuardAction::Stop)]);
    let fine = Metrics::of_pairs(&[("kl", 1.0), ("reward", f64::NAN), ("reward_std", f64::NAN)]);
    assert_eq!(guards.observe(1, &fine), []);
    // If the clock is set back, the measured speed can be infinite.
    let clock = Metrics::of_pairs(&[("tokens_per_second", f64::INFINITY), ("time/eval", f64::NAN)]);
    assert_eq!(guards.observe(1, &clock), []);
    let triggers = guards.observe(2, &Metrics::of_pairs(&[("kl", f64::INFINITY)]));
    assert_eq!(
        (triggers[0].value, triggers[0].bound, triggers[0].action),
        (None, None, Action::Stop)
    );
    assert_eq!(
        triggers[0].message,
        "step 2: kl was inf: a non-finite value gives no useful training signal"
    );

    let diverged = TrainError::Diverged { what: "loss", value: f64::NAN };
    let triggers = guards.failed(3, &diverged);
    assert_eq!(
        triggers[0].message,
        format!(
            "step 3: the step failed: {diverged}, 2 steps in a row: a non-finite value gives no useful training signal"
        )
    );
    let logits = TrainError::Logits(grpo_logprob::NotFinite);
    assert_eq!(guards.failed(4, &logits).len(), 1);
    let other = TrainError::Interrupted;
    assert_eq!(guards.failed(4, &other), []);
    let mut none = Guards::new(&[guard("kl", GuardAction::Stop)]);
    assert_eq!(none.failed(3, &diverged), []);
}

#[test]
fn steps_without_the_metric_are_ignored() {
    let guards = [guard("kl", GuardAction::Stop), guard("eval_reward", GuardAction::Stop)];
    let mut guards = Guards::new(&guards);
    assert_eq!(guards.observe(1, &Metrics::of_pairs(&[("kl", 0.0)])), []);
    assert_eq!(guards.observe(2, &Metrics::default()), []);
    let triggers = guards.observe(3, &Metrics::of_pairs(&[("eval_reward", 0.6)]));
    assert_eq!(triggers[0].watch, "eval_reward");
}

#[test]
fn what_the_reward_does_not_have_is_found_before_the_first_step() {
    let names = RewardNames {
        terms: vec!["qed".into(), "sa".into()],
        parts: vec!["valid".into(), "qed".into()],
        ..RewardNames::default()
    };
    let check = |watch: &str, names: &RewardNames| {
        refuse_other_rewards(&[guard(watch, GuardAction::Stop)], names).map_err(|e| e.to_string())
    };
    for watch in [
        "kl",
        "eval_reward",
        "rewards/failed",
        "rewards/valid/mean",
        "eval_rewards/qed/std",
        "reward_share/sa",
        "reward_dominance",
    ] {
        assert_eq!(check(watch, &names), Ok(()), "{watch}");
    }
    assert_eq!(
        check("rewards/vaild/mean", &names).unwrap_err(),
        "guards[0]: watch = \"rewards/vaild/mean\": the reward of this run has no such component; did you mean 'rewards/valid/mean'?"
    );
    let one = RewardNames { terms: vec!["qed".into()], ..names };
    for watch in ["eval_rewards/logp/mean", "reward_dominance"] {
        assert!(check(watch, &one).is_err(), "{watch}");
    }
}

#[test]
fn steps_without_the_metric_are_passed_over() {
    let three = GuardConfig { steps: 3, ..guard("kl", GuardAction::Stop) };
    check(&three, &[0.6, f64::NAN, 0.7, f64::NAN, 0.8], &[(5, 3)]);
    check(&three, &[0.6, f64::NAN, 0.5, 0.7, 0.8], &[]);
    let mut guards = Guards::new(&[GuardConfig { steps: 2, ..three }]);
    let high = Metrics::of_pairs(&[("kl", 0.6)]);
    let without = Metrics::of_pairs(&[("reward", 1.0)]);
    for (step, metrics) in [(1, &high), (2, &without), (3, &without)] {
        assert_eq!(guards.observe(step, metrics), [], "{step}");
    }
    let triggers = guards.observe(4, &high);
    assert_eq!((triggers[0].steps, triggers[0].since), (2, 1));
    let triggers = guards.observe(5, &high);
    assert_eq!((triggers[0].steps, triggers[0].since), (3, 1));
    // A streak of non-finite values continues even if other metrics are present.
    let mut guards =
        Guards::new(&[GuardConfig { steps: 2, ..guard(NOT_FINITE, GuardAction::Stop) }]);
    let infinite = Metrics::of_pairs(&[("kl", f64::INFINITY)]);
    for (step, metrics) in [(1, &infinite), (2, &without), (3, &infinite)] {
        assert_eq!(guards.observe(step, metrics), [], "{step}");
    }
}

#[test]
fn a_metric_that_the_first_step_lacks_by_chance() {
    let low = GuardConfig {
        above: None,
        below: Some(0.5),
        ..guard("rewards/valid/mean", GuardAction::Stop)
    };
    let mut guards = Guards::new(&[low]);
    let abstained = Metrics::of_pairs(&[("kl", 0.0)]);
    assert_eq!(guards.observe(1, &abstained), []);
    let triggers = guards.observe(2, &Metrics::of_pairs(&[("rewards/valid/mean", 0.4)]));
    assert_eq!(triggers[0].since, 2);
}

#[test]
fn the_most_severe_action_counts() {
    let roll_back =
        |rate, coef| Action::RollBack { learning_rate_factor: rate, kl_coef_factor: coef };
    let of = |actions: &[Action]| {
        let trigger = |action: &Action| GuardTrigger {
            guard: 0,
            watch: String::new(),
            value: None,
            bound: None,
            steps: 1,
            since: 1,
            action: *action,
            message: String::new(),
        };
        Action::of(&actions.iter().map(trigger).collect::<Vec<GuardTrigger>>())
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[Action::Warn]), Some(Action::Warn));
    assert_eq!(of(&[Action::Warn, roll_back(0.5, 1.0), Action::Warn]), Some(roll_back(0.5, 1.0)));
    assert_eq!(of(&[Action::Stop, roll_back(0.5, 1.0)]), Some(Action::Stop));
    assert_eq!(of(&[roll_back(0.5, 1.0), Action::Stop]), Some(Action::Stop));
    assert_eq!(
        of(&[roll_back(0.5, 1.0), roll_back(0.25, 1.0), roll_back(1.0, 2.0)]),
        Some(roll_back(0.25, 2.0))
    );
}

#[test]
fn the_state_goes_through_a_checkpoint() {
    let configs = [GuardConfig { steps: 2, ..guard("kl", GuardAction::Warn) }];
    let high = Metrics::of_pairs(&[("kl", 0.6)]);
    let mut first = Guards::new(&configs);
    assert_eq!(first.observe(1, &high), []);
    let saved = serde_json::to_string(first.state()).unwrap();
    let mut second = Guards::new(&configs);
    second.restore(serde_json::from_str(&saved).unwrap()).unwrap();
    assert_eq!(second, first);
    assert_eq!(second.observe(2, &high)[0].since, 1);
    // Older versions did not save the start of a streak.
    let mut older: serde_json::Value = serde_json::from_str(&saved).unwrap();
    older.as_object_mut().unwrap().remove("first").unwrap();
    let mut second = Guards::new(&configs);
    second.restore(serde_json::from_value(older).unwrap()).unwrap();
    assert_eq!(second.observe(2, &high)[0].since, 1);
    let mut other = Guards::new(&[]);
    assert_eq!(
        other.restore(first.state().clone()).unwrap_err().to_string(),
        "the checkpoint was saved by a run with 1 guards, but this run has 0; restore config.toml"
    );
}

#[test]
fn the_guards_of_a_run_without_any_are_in_range() {
    for (place, guard) in default_guards().iter().enumerate() {
        checked(guard, place).unwrap();
    }
    assert_eq!(default_guards()[0].watch, NOT_FINITE);
}

#[track_caller]
fn refused(config: &GuardConfig, expected: &str) {
    let error = checked(config, 2).unwrap_err().to_string();
    assert_eq!(error, format!("guards[2]: {expected}"));
}

#[test]
fn refuses_invalid_settings() {
    let kl = guard("kl", GuardAction::Warn);
    let roll_back = guard("kl", GuardAction::RollBack);
    checked(&kl, 0).unwrap();
    checked(&roll_back, 0).unwrap();
    refused(
        &guard("ratio_p99", GuardAction::Warn),
        "watch = \"ratio_p99\" is not a metric that a guard can watch; did you mean 'ratio/p99'? `not_finite` watches all of them for NaN and infinity",
    );
    refused(
        &GuardConfig { above: None, ..kl.clone() },
        "watch = \"kl\" requires a bound; add `above`, `below` or both",
    );
    refused(
        &GuardConfig { below: Some(1.0), ..guard(NOT_FINITE, GuardAction::Stop) },
        "below is not valid with watch = \"not_finite\"; remove it",
    );
    refused(
        &GuardConfig { above: Some(f64::INFINITY), ..kl.clone() },
        "above = inf is not a finite number",
    );
    refused(
        &GuardConfig { below: Some(0.75), ..kl.clone() },
        "every value is above 0.5 or below 0.75; `below` must be at most `above`",
    );
    refused(
        &GuardConfig { steps: 0, ..kl.clone() },
        "steps = 0 is out of range; expected 1 or more",
    );
    refused(
        &GuardConfig { from_step: 0, ..kl.clone() },
        "from_step = 0 is out of range; expected 1 or more",
    );
    refused(
        &GuardConfig { learning_rate_factor: Some(0.5), ..kl },
        "learning_rate_factor is only valid with action = \"roll_back\"; remove it",
    );
    refused(
        &GuardConfig { learning_rate_factor: Some(2.0), ..roll_back.clone() },
        "learning_rate_factor = 2 is out of range; expected 0.000001 to 1",
    );
    refused(
        &GuardConfig { kl_coef_factor: Some(0.5), ..roll_back.clone() },
        "kl_coef_factor = 0.5 is out of range; expected 1 to 1000000",
    );
    refused(
        &GuardConfig { kl_coef_factor: Some(2.0), ..roll_back.clone() },
        "kl_coef_factor has no effect because loss.kl_coef is 0; remove it, or set loss.kl_coef",
    );
    refused(
        &GuardConfig { learning_rate_factor: Some(1.0), ..roll_back },
        "rolling back without changes repeats the same steps; set learning_rate_factor below 1 or kl_coef_factor above 1",
    );
}
