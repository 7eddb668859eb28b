//! Audits of runs with replay or a limit of reward calls.

use grpo_run::{EndedBy, Event, EventKind, FurtherUpdates};

use crate::audit::{FIXED, check, evidence, violations};

/// A run ends before its last step if the reward has used its calls.
#[test]
fn a_run_may_finish_by_its_calls() {
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.plan.steps = 9;
    let finished = |step, calls: Option<u64>| {
        let ended_by = calls.map(EndedBy::calls_used);
        Event { step, at: String::new(), what: EventKind::Finished { ended_by } }
    };
    let scored = |calls: u64| {
        format!("the reward has scored {calls} distinct completions (train.max_reward_calls)")
    };
    let said = |calls: u64, step: u64, expected: &str| {
        format!(
            "steps: events.jsonl records that `archive` ended the run after step {step} because {}, but ledger.jsonl ends with step 3, and its configuration {expected}",
            scored(calls)
        )
    };
    run.events = vec![finished(3, Some(70))];
    check(&run, &[&said(70, 3, "never ends runs early")]);
    run.plan.endings = vec![EndedBy::calls_used(70)];
    check(&run, &[]);
    let expected = format!("ends runs early only if {}", scored(70));
    run.events = vec![finished(3, Some(60))];
    check(&run, &[&said(60, 3, &expected)]);
    run.events = vec![finished(2, Some(70))];
    check(&run, &[&said(70, 2, &expected)]);
    run.events = vec![finished(3, None)];
    check(
        &run,
        &[
            "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 3; train.steps is 9",
        ],
    );
}

/// Events of older versions name the number of calls only.
#[test]
fn an_event_with_a_number_of_calls_is_read() {
    let read = |rest: &str| -> Event {
        let line = format!(r#"{{"step":3,"at":"2026-01-31T12:34:56Z","event":"finished"{rest}}}"#);
        serde_json::from_str(&line).unwrap()
    };
    let finished = |ended_by| EventKind::Finished { ended_by };
    assert_eq!(read("").what, finished(None));
    let old = read(r#","calls":70"#);
    assert_eq!(old.what, finished(Some(EndedBy::calls_used(70))));
    let new = serde_json::to_string(&old).unwrap();
    assert!(new.contains(r#""ended_by":{"extension":"archive","reason":"#), "{new}");
    assert_eq!(serde_json::from_str::<Event>(&new).unwrap(), old);
}

/// Replayed completions are used in updates of their own.
#[test]
fn updates_with_replayed_completions_follow_those_of_the_rollout() {
    let mut run = evidence(2, FIXED, &[], 1.0);
    let last = run.ledger[1].updates.len() - 1;
    run.ledger[1].updates[last].replayed = Some("hash".to_owned());
    check(&run, &["own completions: step 2: update 2 must not use replayed completions"]);
    run.plan.updates_per_rollout = 1;
    run.plan.further_updates =
        vec![FurtherUpdates { key: "replay.updates", count: 1, replay: true }];
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
