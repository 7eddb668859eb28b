//! Audits of runs with replay or a limit of reward calls.

use grpo_run::{Event, EventKind};

use crate::audit::{FIXED, check, evidence, violations};

/// A run ends before its last step if the reward has used its calls.
#[test]
fn a_run_may_finish_by_its_calls() {
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.plan.steps = 9;
    let finished =
        |step, calls| Event { step, at: String::new(), what: EventKind::Finished { calls } };
    let said = |calls: u64, step: u64, limit: &str| {
        format!(
            "steps: events.jsonl records that the run finished after step {step} and {calls} calls of the reward, but ledger.jsonl ends with step 3, and train.max_reward_calls is {limit}"
        )
    };
    run.events = vec![finished(3, Some(70))];
    check(&run, &[&said(70, 3, "not set")]);
    run.plan.max_reward_calls = Some(70);
    check(&run, &[]);
    run.events = vec![finished(3, Some(60))];
    check(&run, &[&said(60, 3, "70")]);
    run.events = vec![finished(2, Some(70))];
    check(&run, &[&said(70, 2, "70")]);
    run.events = vec![finished(3, None)];
    check(
        &run,
        &[
            "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 3; train.steps is 9",
        ],
    );
}

/// Replayed completions are used in updates of their own.
#[test]
fn updates_with_replayed_completions_follow_those_of_the_rollout() {
    let mut run = evidence(2, FIXED, &[], 1.0);
    let last = run.ledger[1].updates.len() - 1;
    run.ledger[1].updates[last].replayed = Some("hash".to_owned());
    check(&run, &["own completions: step 2: update 2 must not use replayed completions"]);
    run.plan.updates_per_rollout = 1;
    run.plan.replay_updates = 1;
    for line in &mut run.ledger {
        line.updates[1].replayed = Some("hash".to_owned());
        line.updates[1].completions.clear();
    }
    check(&run, &[]);
    run.ledger[0].updates[1].replayed = None;
    run.ledger[1].updates[1].completions = run.ledger[1].updates[0].completions.clone();
    let found = violations(&run);
    assert!(
        found.contains(
            &"own completions: step 1: update 2 must use replayed completions".to_owned()
        ),
        "{found:?}"
    );
    let others =
        "own completions: step 2: update 2 used completions of the rollout, but is for others only";
    assert!(found.contains(&others.to_owned()), "{found:?}");
}
