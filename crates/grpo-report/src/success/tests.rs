//! Compares verdicts with values calculated by hand.

use super::*;

pub(super) fn lines(name: &str, values: &[f64]) -> Vec<Map<String, Value>> {
    values
        .iter()
        .enumerate()
        .map(|(i, value)| {
            let mut line = Map::new();
            line.insert("step".to_owned(), (i + 1).into());
            // NaN becomes `null`, as in the file.
            line.insert(name.to_owned(), Value::from(*value));
            line
        })
        .collect()
}

/// Returns the events of a run that finished.
pub(super) fn finished() -> [Event; 1] {
    [Event { step: 0, at: String::new(), what: EventKind::Finished { ended_by: None } }]
}

#[track_caller]
pub(super) fn check(
    metrics: &[Map<String, Value>],
    place: usize,
    outcome: Outcome,
    sentence: &str,
) {
    let verdict = judge(metrics, &finished(), None, &SuccessCriteria::default());
    let judged = &verdict.criteria[place];
    assert_eq!((judged.outcome, judged.sentence.as_str()), (outcome, sentence));
}

/// Returns the sentence of a change that is less than three standard errors.
fn unclear(change: &str) -> String {
    format!(
        "{change} standard errors, which is not a clear change: less than 3 (required: at least 3)"
    )
}

#[test]
fn a_rise_is_measured_in_standard_errors() {
    // The first tenth is 1, 2, 3, 4, 5 (mean 3, variance 2.5), and the last is 11 … 15. The
    // increase is 10 / √(5/5) = 10 standard errors.
    let rewards: Vec<f64> = (1..=15).map(f64::from).collect();
    let sentence = |rise: &str| format!("{rise} standard errors (required: at least 3)");
    check(
        &lines("reward", &rewards),
        0,
        Outcome::Passed,
        &sentence("from 3.0000 in the first 5 steps to 13.0000 in the last 5, +10.0"),
    );
    let falling: Vec<f64> = rewards.iter().rev().copied().collect();
    check(
        &lines("reward", &falling),
        0,
        Outcome::Failed,
        &sentence("from 13.0000 in the first 5 steps to 3.0000 in the last 5, -10.0"),
    );
    // A tenth of 60 steps is 6 steps.
    let long: Vec<f64> = (0..60).map(|i| f64::from(i % 2)).collect();
    check(
        &lines("reward", &long),
        0,
        Outcome::Failed,
        &unclear("from 0.5000 in the first 6 steps to 0.5000 in the last 6, +0.0"),
    );
}

#[test]
fn the_border_is_exact() {
    // Both ends have 5 steps with variance 1 (-1, -1, 0, 1, 1), so the error is √(2/5).
    let end = [-1.0, -1.0, 0.0, 1.0, 1.0];
    let error = (2.0f64 / 5.0).sqrt();
    for (errors, outcome) in [(2.999, Outcome::Failed), (3.001, Outcome::Passed)] {
        let mut rewards = end.to_vec();
        rewards.extend(end.map(|value| value + errors * error));
        let verdict =
            judge(&lines("reward", &rewards), &finished(), None, &SuccessCriteria::default());
        assert_eq!(verdict.criteria[0].outcome, outcome, "{errors}");
    }
}

#[test]
fn rewards_without_scatter_rise_beyond_doubt_or_not_at_all() {
    let sentence = |numbers: &str| format!("{numbers} standard errors (required: at least 3)");
    let mut rewards = vec![0.25; 10];
    check(
        &lines("reward", &rewards),
        0,
        Outcome::Failed,
        &unclear("from 0.2500 in the first 5 steps to 0.2500 in the last 5, +0.0"),
    );
    rewards[5..].fill(0.5);
    check(
        &lines("reward", &rewards),
        0,
        Outcome::Passed,
        &sentence("from 0.2500 in the first 5 steps to 0.5000 in the last 5, +inf"),
    );
}

#[test]
fn what_was_not_measured_is_not_judged() {
    check(
        &lines("reward", &[0.5; 9]),
        0,
        Outcome::NotJudged,
        "`reward` was measured in 9 steps; a comparison needs at least 10",
    );
    // All rewards abstained, so there are no values.
    check(
        &lines("reward", &[f64::NAN; 30]),
        0,
        Outcome::NotJudged,
        "`reward` was measured in 0 steps; a comparison needs at least 10",
    );
    let one = lines("reward", &[0.5]);
    check(&one, 1, Outcome::NotJudged, "`kl` was not measured");
    check(
        &one,
        2,
        Outcome::NotJudged,
        "`rewards/valid/mean` was not measured: the reward has no `valid` component",
    );
    check(&one, 3, Outcome::NotJudged, "`frac_reward_zero_std` was not measured");
    check(&[], 4, Outcome::NotJudged, "no step has finished");
    let verdict = judge(&one, &finished(), None, &SuccessCriteria::default());
    assert_eq!(verdict.outcome(), Outcome::NotJudged);
    let nothing = judge(&[], &[], None, &SuccessCriteria::default());
    assert!(nothing.criteria.iter().all(|judged| judged.outcome == Outcome::NotJudged));
}

#[test]
fn one_step_of_large_kl_is_too_much() {
    check(
        &lines("kl", &[0.0, 0.0999, 0.05]),
        1,
        Outcome::Passed,
        "at most 0.0999 nats per token, in step 2 (required: below 0.1)",
    );
    check(
        &lines("kl", &[0.0, 0.1, 0.05]),
        1,
        Outcome::Failed,
        "at most 0.1000 nats per token, in step 2 (required: below 0.1)",
    );
    check(&lines("kl", &[0.0, f64::NAN, 0.5]), 1, Outcome::Failed, "not a finite number in step 2");
}

#[test]
fn validity_has_a_floor_and_may_fall_only_so_far() {
    let of = |first: f64, last: f64| {
        let mut values = vec![first; 5];
        values.extend([last; 5]);
        lines("rewards/valid/mean", &values)
    };
    for (first, last, outcome) in [
        (0.9, 0.9, Outcome::Passed),
        (0.85, 0.8, Outcome::Passed),
        (0.7, 0.79, Outcome::Failed),
        (0.99, 0.93, Outcome::Failed),
    ] {
        check(
            &of(first, last),
            2,
            outcome,
            &format!(
                "from {first:.3} in the first 5 steps to {last:.3} in the last 5 (required: at least 0.8 at the end and a drop of at most 0.05)"
            ),
        );
    }
}

#[test]
fn most_steps_need_a_signal() {
    let sentence = |n: u32| {
        format!(
            "enough groups had differing rewards in {n} of 4 steps (required: more than half of the steps, each with at most 0.5 of the groups without a difference)"
        )
    };
    for (shares, n, outcome) in [
        ([0.5, 0.5, 0.5, 1.0], 3, Outcome::Passed),
        ([0.0, 0.0, 0.51, 1.0], 2, Outcome::Failed),
        ([0.0, f64::NAN, f64::NAN, 0.0], 2, Outcome::Failed),
    ] {
        check(&lines("frac_reward_zero_std", &shares), 3, outcome, &sentence(n));
    }
}

#[test]
fn a_guard_that_stops_the_run_fails_it_and_one_that_warns_does_not() {
    let guard = |action: &str| Event {
        step: 7,
        at: "2026-01-31T12:00:00Z".to_owned(),
        what: EventKind::Guard {
            watch: "kl".to_owned(),
            value: Some(0.4),
            bound: Some(0.3),
            steps: 2,
            action: action.to_owned(),
            message: "kl = 0.4 is above 0.3".to_owned(),
        },
    };
    let metrics = lines("reward", &[0.5; 7]);
    let judged = |events: &[Event]| {
        let verdict = judge(&metrics, events, None, &SuccessCriteria::default());
        let judged = verdict.criteria[4].clone();
        (judged.outcome, judged.sentence)
    };
    let event = |what| Event { what, ..guard("warn") };
    let stopped = |reason: &str| event(EventKind::Stopped { reason: reason.to_owned() });
    let finished = || event(EventKind::Finished { ended_by: None });
    let resumed = || event(EventKind::Resumed { device: None, gpu: None });
    let back = || guard("roll_back");
    let message = "kl = 0.4 is above 0.3";
    let spoke = |times: u64| {
        let times = counted(times, "time");
        format!("none in 7 steps; guards triggered {times} and rolled the run back 0 times")
    };
    let goes_on = "; not finished: the run is still active or was killed";
    let none = "none in 7 steps";
    let failed = format!("stopped after step 7: {message}");
    let exhausted = format!("{message}; the run has already rolled back 3 times");
    let early = "no evaluation up to step 7 was better";
    for (events, outcome, sentence) in [
        (vec![finished()], Outcome::Passed, none.to_owned()),
        (vec![guard("warn"), finished()], Outcome::Passed, spoke(1)),
        (vec![guard("warn"), guard("stop")], Outcome::Failed, failed.clone()),
        (vec![guard("stop"), stopped(message)], Outcome::Failed, failed.clone()),
        (
            vec![back(), stopped(&exhausted)],
            Outcome::Failed,
            format!("stopped after step 7: {exhausted}"),
        ),
        // The run stopped once and was resumed.
        (vec![guard("stop"), stopped(message), resumed(), finished()], Outcome::Passed, spoke(1)),
        (
            vec![guard("stop"), stopped(message), resumed()],
            Outcome::NotJudged,
            format!("{}{goes_on}", spoke(1)),
        ),
        (vec![finished(), resumed()], Outcome::NotJudged, format!("{none}{goes_on}")),
        (vec![], Outcome::NotJudged, format!("{none}{goes_on}")),
        (
            vec![event(EventKind::Interrupted {})],
            Outcome::NotJudged,
            format!("{none}; interrupted after step 7"),
        ),
        (
            vec![guard("warn"), stopped(early)],
            Outcome::NotJudged,
            format!("{}; stopped early after step 7: {early}", spoke(1)),
        ),
    ] {
        assert_eq!(judged(&events), (outcome, sentence), "{events:?}");
    }
}

#[test]
fn steps_without_a_reward_are_steps() {
    // A tenth of 60 steps is 6 steps. The first three steps and three of the last six have no
    // rewards.
    let mut rewards: Vec<f64> = (0..60).map(|i| f64::from(i % 2)).collect();
    rewards[..3].fill(f64::NAN);
    rewards[54..57].fill(f64::NAN);
    // The remaining values at both ends are 1, 0, 1.
    check(
        &lines("reward", &rewards),
        0,
        Outcome::Failed,
        &unclear("from 0.6667 in the first 6 steps to 0.6667 in the last 6, +0.0"),
    );
    rewards[57] = f64::NAN;
    let few = "`reward` is missing in 4 of the last 6 steps; a comparison requires values in at least half of the steps";
    check(&lines("reward", &rewards), 0, Outcome::NotJudged, few);
    // Missing metrics are treated like `null`.
    let mut without = lines("reward", &rewards);
    without.reverse();
    for line in &mut without {
        line.remove("reward")
            .filter(|value| !value.is_null())
            .map(|value| line.insert("reward".to_owned(), value));
    }
    check(&without, 0, Outcome::NotJudged, &few.replace("last", "first"));
    check(
        &lines("rewards/valid/mean", &rewards),
        2,
        Outcome::NotJudged,
        &few.replace("reward", "rewards/valid/mean"),
    );
}

#[test]
fn criteria_have_ranges() {
    let default = SuccessCriteria::default();
    assert_eq!(default.check(), Ok(()));
    let refused = |criteria: SuccessCriteria| criteria.check().unwrap_err().to_string();
    assert_eq!(
        refused(SuccessCriteria { max_kl: 0.0, ..default.clone() }),
        "success.max_kl = 0 is out of range; expected a number above 0"
    );
    assert_eq!(
        refused(SuccessCriteria { min_validity: 80.0, ..default.clone() }),
        "success.min_validity = 80 is out of range; expected 0 to 1"
    );
    assert_eq!(
        refused(SuccessCriteria { reward_rise: f64::INFINITY, ..default.clone() }),
        "success.reward_rise = inf is out of range; expected a finite number"
    );
    assert_eq!(
        refused(SuccessCriteria { max_kl_sequence: Some(0.0), ..default.clone() }),
        "success.max_kl_sequence = 0 is out of range; expected a number above 0"
    );
}

#[test]
fn a_run_that_need_not_gain_may_fall_by_noise_alone() {
    // Both ends have 5 steps with variance 1 as above, so the error is √(2/5).
    let end = [-1.0, -1.0, 0.0, 1.0, 1.0];
    let error = (2.0f64 / 5.0).sqrt();
    let criteria = SuccessCriteria { reward_rise: -2.0, ..SuccessCriteria::default() };
    let verdict = |fall: f64| {
        let mut rewards = end.to_vec();
        rewards.extend(end.map(|value| value - fall * error));
        let what = EventKind::Finished { ended_by: None };
        let finished = Event { step: 10, at: String::new(), what };
        judge(&lines("reward", &rewards), &[finished], None, &criteria)
    };
    for (fall, outcome) in [(1.999, Outcome::Passed), (2.001, Outcome::Failed)] {
        let judged = &verdict(fall).criteria[0];
        assert_eq!((&*judged.name, judged.outcome), ("Reward has not fallen", outcome), "{fall}");
    }
    assert_eq!(verdict(1.0).outcome(), Outcome::Passed);
    // No change passes as well.
    assert_eq!(verdict(0.0).criteria[0].outcome, Outcome::Passed);
}

#[test]
fn the_kl_of_a_sequence_is_judged_where_it_is_asked_for() {
    let lines = lines("kl_sequence", &[1.0, 4.5, 2.0]);
    let of = |max_kl_sequence| {
        let criteria = SuccessCriteria { max_kl_sequence, ..SuccessCriteria::default() };
        let verdict = judge(&lines, &finished(), None, &criteria).criteria.into_iter();
        verdict.filter(|judged| judged.name == "Sequence KL stays small").collect::<Vec<_>>()
    };
    assert!(of(None).is_empty());
    assert_eq!(of(Some(5.0))[0].outcome, Outcome::Passed);
    let failed = &of(Some(4.5))[0];
    assert_eq!(failed.outcome, Outcome::Failed);
    assert_eq!(
        failed.sentence,
        "at most 4.5000 nats per completion, in step 2 (required: below 4.5)"
    );
}

#[test]
fn diversity_may_fall_only_so_far() {
    use grpo_run::{DiversityScale, Measure};
    let measure = |name: &str, before: f64, after: f64, diversity| Measure {
        name: name.to_owned(),
        before: Some(before),
        after: Some(after),
        error: None,
        diversity,
    };
    let higher = Some(DiversityScale::HigherIsDiverse);
    let judged = |scaffolds: f64, step: u64| {
        let comparison = Comparison {
            step: 80,
            measures: vec![
                measure("validity", 0.9, 0.1, None),
                measure("uniqueness", 1.0, 0.99, higher),
                measure("scaffolds", 0.8, scaffolds, higher),
            ],
            ..Comparison::default()
        };
        let metrics = [Map::from_iter([("step".to_owned(), step.into())])];
        let verdict = judge(&metrics, &finished(), Some(&comparison), &SuccessCriteria::default());
        let judged = verdict.criteria.into_iter().find(|judged| judged.name == DIVERSITY).unwrap();
        (judged.outcome, judged.sentence)
    };
    let sentence = |words: &str| format!("scaffolds {words} (required: at most 50 % lost)");
    assert_eq!(judged(0.4, 80), (Outcome::Passed, sentence("fell from 0.800 to 0.400, 50 % lost")));
    assert_eq!(
        judged(0.36, 80),
        (Outcome::Failed, sentence("fell from 0.800 to 0.360, 55 % lost"))
    );
    // Passes if all diversity metrics have improved.
    assert_eq!(judged(1.2, 80).0, Outcome::Passed);
    // The run was resumed, so the evaluation belongs to an earlier end.
    assert_eq!(judged(0.36, 90).0, Outcome::NotJudged);
    assert_eq!(diversity_is_kept(None, 0.5).outcome, Outcome::NotJudged);
}
