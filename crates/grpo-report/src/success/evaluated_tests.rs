//! Compares verdicts on evaluations, components and signals with values calculated by hand.

use super::tests::{check, finished, lines};
use super::*;

/// Groups without any reward may look like groups with differing rewards.
#[test]
fn steps_without_any_reward_have_no_signal() {
    let of = |rewards: &[Option<f64>]| -> Vec<Map<String, Value>> {
        let mut metrics = lines("frac_reward_zero_std", &vec![0.0; rewards.len()]);
        for (line, reward) in metrics.iter_mut().zip(rewards) {
            line.insert("reward".to_owned(), (*reward).into());
        }
        metrics
    };
    let none = "no completion had a reward in 12 steps";
    check(&of(&[None; 12]), 3, Outcome::Failed, none);
    let verdict = judge(&of(&[None; 12]), &[], None, &SuccessCriteria::default());
    assert_eq!(verdict.headline(), "Criteria not met");
    let rule = "(required: more than half of the steps, each with at most 0.5 of the groups without a difference)";
    for (with, without, outcome) in [(3, 3, Outcome::Failed), (4, 3, Outcome::Passed)] {
        let rewards = [vec![Some(0.5); with], vec![None; without]].concat();
        let sentence = format!(
            "enough groups had differing rewards in {with} of {} steps; {without} steps had no reward at all {rule}",
            with + without
        );
        check(&of(&rewards), 3, outcome, &sentence);
    }
}

/// Returns an evaluation of `count` completions after `step`, with the mean reward and components.
fn evaluated(
    step: u64,
    count: usize,
    reward: (f64, f64, f64),
    parts: &[(&str, f64, f64, f64)],
) -> Comparison {
    let measure = |name: &str, before: f64, after: f64, error: f64| grpo_run::Measure {
        name: name.to_owned(),
        before: Some(before),
        after: Some(after),
        error: error.is_finite().then_some(error),
        diversity: None,
    };
    Comparison {
        step,
        samples: "completions".to_owned(),
        count,
        reward: Some(measure("mean reward", reward.0, reward.1, reward.2)),
        parts: parts.iter().map(|part| measure(part.0, part.1, part.2, part.3)).collect(),
        ..Comparison::default()
    }
}

/// The training rewards of a few steps say little, so evaluations decide if there are any.
#[test]
fn evaluations_are_judged_rather_than_training_rewards() {
    let noise = [0.2, 0.4, 0.3, 0.3, 0.3, 0.3, 0.4, 0.3, 0.4, 0.35];
    let metrics = lines("reward", &noise);
    let judged = |comparison: &Comparison, criteria: &SuccessCriteria| {
        let verdict = judge(&metrics, &finished(), Some(comparison), criteria);
        let judged = verdict.criteria[0].clone();
        (judged.outcome, judged.sentence)
    };
    let default = SuccessCriteria::default();
    let rose = evaluated(10, 300, (0.32, 0.5, 0.0327), &[]);
    let sentence = "from 0.3200 before to 0.5000 after training (evaluations of 300 completions), +5.5 standard errors (required: at least 3)";
    assert_eq!(judged(&rose, &default), (Outcome::Passed, sentence.to_owned()));
    let unsure = judged(&evaluated(10, 300, (0.32, 0.40, 0.03), &[]), &default);
    assert_eq!(unsure.0, Outcome::Failed);
    assert!(unsure.1.contains("+2.7 standard errors, which is not a clear change: less than 3 "));
    let fell = evaluated(10, 300, (0.32, 0.1, 0.03), &[]);
    assert_eq!(judged(&fell, &default).0, Outcome::Failed);
    // A run that need not gain.
    let criteria = SuccessCriteria { reward_rise: -4.0, ..default.clone() };
    assert_eq!(judged(&fell, &criteria).0, Outcome::Failed);
    assert_eq!(judged(&evaluated(10, 300, (0.32, 0.25, 0.03), &[]), &criteria).0, Outcome::Passed);
    // Evaluations of another step, of few completions, or without an error are not used.
    for other in [
        evaluated(9, 300, (0.32, 0.5, 0.0327), &[]),
        evaluated(10, 9, (0.32, 0.5, 0.0327), &[]),
        evaluated(10, 300, (0.32, 0.5, f64::NAN), &[]),
    ] {
        let (outcome, sentence) = judged(&other, &default);
        assert_eq!(outcome, Outcome::Failed);
        assert!(sentence.starts_with("from 0.3000 in the first 5 steps to 0.3500 in the last 5, "));
    }
}

#[test]
fn components_have_criteria() {
    let metrics =
        lines("rewards/sa/mean", &[1.0, 2.0, 3.0, 4.0, 5.0, 11.0, 12.0, 13.0, 14.0, 15.0]);
    let of = |required: RequiredChange, comparison: Option<&Comparison>| {
        let components = [("sa".to_owned(), required)].into();
        let criteria = SuccessCriteria { components, ..SuccessCriteria::default() };
        judge(&metrics, &finished(), comparison, &criteria).criteria[1].clone()
    };
    use RequiredChange::{DoesNotFall, DoesNotRise, Falls, Rises};
    let names = ["rises", "falls", "does not rise", "does not fall"];
    let all = [Rises, Falls, DoesNotRise, DoesNotFall];
    let outcomes =
        |comparison: Option<&Comparison>| all.map(|required| of(required, comparison).outcome);
    for (required, name) in all.into_iter().zip(names) {
        assert_eq!(of(required, None).name, format!("Component sa {name}"));
    }
    let (passed, failed) = (Outcome::Passed, Outcome::Failed);
    // By the steps, it rises by 10 standard errors.
    assert_eq!(outcomes(None), [passed, failed, failed, passed]);
    let sentence =
        "from 3.0000 in the first 5 steps to 13.0000 in the last 5, +10.0 standard errors";
    assert_eq!(of(Rises, None).sentence, sentence);
    // The evaluations contradict the steps, and win.
    let part = |before, after, error| {
        evaluated(
            10,
            300,
            (0.1, 0.2, 0.1),
            &[("qed", 0.1, 0.9, 0.01), ("sa", before, after, error)],
        )
    };
    assert_eq!(outcomes(Some(&part(4.0, 3.0, 0.1))), [failed, passed, passed, failed]);
    assert_eq!(outcomes(Some(&part(4.0, 4.2, 0.1))), [failed, failed, passed, passed]);
    assert_eq!(outcomes(Some(&part(4.0, 4.4, 0.1))), [passed, failed, failed, passed]);
    // A component that no completion has is not judged.
    let absent = SuccessCriteria {
        components: [("none".to_owned(), Rises)].into(),
        ..SuccessCriteria::default()
    };
    assert_eq!(judge(&metrics, &finished(), None, &absent).criteria[1].outcome, Outcome::NotJudged);
    let known = ["sa", "qed"];
    assert_eq!(
        absent.check_components(&known).unwrap_err().to_string(),
        "success.components.none: the reward of this run has no such component; expected one of sa, qed"
    );
    let part = SuccessCriteria { components: [("sa".to_owned(), Falls)].into(), ..absent };
    assert_eq!(part.check_components(&known), Ok(()));
}

#[test]
fn validity_is_judged_by_evaluations() {
    let metrics = lines("rewards/valid/mean", &[0.9; 10]);
    let comparison = evaluated(10, 300, (0.1, 0.2, 0.1), &[("valid", 0.95, 0.7, 0.01)]);
    let judged =
        &judge(&metrics, &finished(), Some(&comparison), &SuccessCriteria::default()).criteria[2];
    assert_eq!(judged.outcome, Outcome::Failed);
    assert_eq!(
        judged.sentence,
        "from 0.950 before to 0.700 after training (evaluations of 300 completions) (required: at least 0.8 at the end and a drop of at most 0.05)"
    );
}

/// The heading says of the reward what the sentence below it and the table of the run say.
#[test]
fn the_headline_agrees_with_the_sentences() {
    let headline = |last: f64, least: f64| {
        let criteria = SuccessCriteria { reward_rise: least, ..SuccessCriteria::default() };
        let comparison = evaluated(10, 300, (0.5, last, 0.03), &[]);
        let verdict =
            judge(&lines("reward", &[0.5; 10]), &finished(), Some(&comparison), &criteria);
        let is_unclear = verdict.criteria[0].sentence.contains("not a clear change");
        (verdict.headline(), is_unclear)
    };
    for (last, least, expected) in [
        (0.58, 3.0, ("No clear change in the reward", true)),
        (0.42, 3.0, ("No clear change in the reward", true)),
        (0.5, 3.0, ("No clear change in the reward", true)),
        (0.2, 3.0, ("Reward fell", false)),
        (0.6, 5.0, ("Reward rose less than required", false)),
        (0.2, -4.0, ("Reward fell more than allowed", false)),
    ] {
        assert_eq!(headline(last, least), expected, "{last} {least}");
    }
    let losses = lines("eval_loss", &[1.0, 1.5]);
    assert_eq!(judge_supervised(&losses, &finished()).headline(), "Validation loss did not fall");
}

/// What a run has not reached yet is not missed, whether it is active or was interrupted. What fell
/// did fall.
#[test]
fn a_run_that_has_not_finished_has_not_failed_yet() {
    let interrupted = Event { step: 10, at: String::new(), what: EventKind::Interrupted {} };
    let components = [("sa".to_owned(), RequiredChange::Falls)].into();
    let criteria = SuccessCriteria { components, ..SuccessCriteria::default() };
    let of = |first: f64, last: f64, events: &[Event]| {
        // Ten values with scatter at each end.
        let value = |i: u32| 0.1 * f64::from(i % 2) + if i < 10 { first } else { last };
        let values: Vec<f64> = (0..20).map(value).collect();
        let mut metrics = lines("reward", &values);
        for (line, value) in metrics.iter_mut().zip(&values) {
            line.insert("rewards/sa/mean".to_owned(), (*value).into());
        }
        let verdict = judge(&metrics, events, None, &criteria);
        let outcomes = [0, 1].map(|place| verdict.criteria[place].outcome);
        (verdict.headline(), outcomes)
    };
    use Outcome::{Failed, NotJudged};
    for events in [&[][..], &[interrupted]] {
        let unclear = of(0.5, 0.5, events);
        assert_eq!(unclear, ("Not finished", [NotJudged, NotJudged]));
        assert_eq!(of(0.5, 0.1, events).1[0], Failed, "the reward fell");
        assert_eq!(of(0.5, 0.9, events).1[1], Failed, "the component rose");
        let losses = lines("eval_loss", &[1.0, 1.5]);
        assert_eq!(judge_supervised(&losses, events).headline(), "Not finished");
    }
    let unclear = of(0.5, 0.5, &finished());
    assert_eq!(unclear, ("No clear change in the reward", [Failed, Failed]));
}
