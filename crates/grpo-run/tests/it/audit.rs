//! Properties that do not occur in the small runs of the `grpo-cli` tests: reference updates,
//! roll-backs and failed runs. Manipulated runs are tested in `grpo-cli`.

use grpo_run::{
    Event, EventKind, Evidence, LedgerCompletion, LedgerRollout, LedgerStep, LedgerUpdate, Period,
    Plan, ReferenceChange, ReferencePlan, ReferenceUpdate, StoredWeights, Verdict, audit,
};
use std::collections::BTreeMap;

pub(crate) const FIXED: ReferencePlan = ReferencePlan { from_base: false, update: None };

fn every(every: Period, mix: f64) -> ReferencePlan {
    ReferencePlan { update: Some(ReferenceUpdate { every, mix }), ..FIXED }
}

/// The weight hash after `version` updates.
fn weights(version: u64) -> String {
    format!("weights after {version:03} updates")
}

/// A run with two updates per step. The reference changes after each of the steps in `changes`.
pub(crate) fn evidence(
    steps: u64,
    reference: ReferencePlan,
    changes: &[u64],
    mix: f64,
) -> Evidence {
    let mut held_by = weights(0);
    let line = |step: u64| {
        let version = 2 * (step - 1);
        let entry =
            |sample| LedgerCompletion::of(step, [0, sample], version, [1, 2], &[-1.0, -2.0]);
        let completions: Vec<LedgerCompletion> = (0..3).map(entry).collect();
        let update = |version| LedgerUpdate {
            version,
            weights: weights(version),
            learning_rate: 1e-3,
            completions: completions.iter().rev().copied().collect(),
            replayed: None,
        };
        let before = held_by.clone();
        let change = changes.contains(&step).then(|| {
            held_by = if mix == 1.0 { weights(version + 2) } else { format!("mixed in {step:02}") };
            ReferenceChange { mix, weights: held_by.clone() }
        });
        LedgerStep {
            step,
            updates: vec![update(version + 1), update(version + 2)],
            rollout: LedgerRollout {
                policy_version: version,
                weights: weights(version),
                completions,
            },
            reference: before,
            reference_changed: change,
            base: None,
            recorded: None,
            previous: None,
        }
    };
    Evidence {
        ledger: (1..=steps).map(line).collect(),
        metrics: (1..=steps).collect(),
        events: vec![],
        plan: Plan {
            steps,
            prompts_per_step: 1,
            group_size: 3,
            staleness: 0,
            updates_per_rollout: 2,
            further_updates: Vec::new(),
            endings: Vec::new(),
            may_end_early: false,
            completions_every: 0,
            reference,
        },
        recorded: BTreeMap::new(),
        checkpoints: BTreeMap::from([
            (0, StoredWeights::Hash(weights(0))),
            (2, StoredWeights::Hash(weights(4))),
        ]),
        trained: Some(StoredWeights::Hash(weights(2 * steps))),
        base: None,
    }
}

/// Returns all violations as `property: sentence`.
pub(crate) fn violations(evidence: &Evidence) -> Vec<String> {
    let findings = audit(evidence);
    let of = |finding: &grpo_run::Finding| {
        let words = |violation| format!("{}: {violation}", finding.property);
        finding.violations().iter().map(words).collect::<Vec<String>>()
    };
    findings.iter().flat_map(of).collect()
}

#[track_caller]
pub(crate) fn check(evidence: &Evidence, expected: &[&str]) {
    assert_eq!(violations(evidence), expected);
}

fn finding(evidence: &Evidence, property: &str) -> grpo_run::Finding {
    audit(evidence).into_iter().find(|finding| finding.property == property).unwrap()
}

fn event(step: u64, what: EventKind) -> Event {
    Event { step, at: "2026-01-31T12:00:00Z".into(), what }
}

#[test]
fn references_that_change_as_they_should() {
    check(&evidence(7, FIXED, &[], 1.0), &[]);
    for mix in [1.0, 0.5] {
        let plan = every(Period::Steps(3), mix);
        let run = evidence(7, plan, &[3, 6], mix);
        check(&run, &[]);
        assert_eq!(finding(&run, "reference").checked, "2 changes in 7 steps");
        // A change after the last step is optional.
        check(&evidence(6, plan, &[3, 6], mix), &[]);
        check(&evidence(6, plan, &[3], mix), &[]);
    }
    check(&evidence(7, every(Period::Epochs(1), 0.5), &[2, 3, 5], 0.5), &[]);
    check(&evidence(7, every(Period::Epochs(1), 0.5), &[], 0.5), &[]);
    // No file records when epochs end, so the updates are not proven.
    let reason = "the reference changes after every epoch, but the run does not record the number of prompts, so the expected steps are unknown";
    let run = evidence(7, every(Period::Epochs(1), 0.5), &[2, 3, 5], 0.5);
    assert_eq!(
        finding(&run, "reference epochs").verdict,
        Verdict::NotRecorded { reason: reason.into() }
    );
    let of_steps = audit(&evidence(7, every(Period::Steps(3), 0.5), &[3, 6], 0.5));
    assert!(of_steps.iter().all(|finding| finding.property != "reference epochs"));
}

#[test]
fn references_that_change_otherwise() {
    check(
        &evidence(7, every(Period::Steps(3), 1.0), &[3], 1.0),
        &[
            "reference: step 6: the reference did not change, but the configuration requires a change after every 3 steps",
        ],
    );
    check(
        &evidence(4, every(Period::Steps(1), 1.0), &[1, 3], 1.0),
        &[
            "reference: step 2: the reference did not change, but the configuration requires a change after every step",
        ],
    );
    check(
        &evidence(7, every(Period::Steps(3), 1.0), &[3, 4, 6], 1.0),
        &[
            "reference: step 4: the reference changed, but the configuration allows changes only after every 3 steps",
        ],
    );
    check(
        &evidence(7, FIXED, &[3], 0.5),
        &["reference: step 3: the reference changed, but the configuration does not allow changes"],
    );
    check(
        &evidence(7, every(Period::Steps(3), 0.5), &[3, 6], 0.25),
        &[
            "reference: step 3: the reference was mixed with 0.25 of the policy, but the configuration has 0.5",
            "reference: step 6: the reference was mixed with 0.25 of the policy, but the configuration has 0.5",
        ],
    );
    // The reference changed to something other than the policy and was used.
    let mut run = evidence(7, every(Period::Steps(3), 1.0), &[3, 6], 1.0);
    run.ledger[2].reference_changed.as_mut().unwrap().weights = "something else".into();
    run.ledger[3..6].iter_mut().for_each(|line| line.reference = "something else".into());
    check(
        &run,
        &["reference: step 3: the reference became something el…, but the policy is weights afte…"],
    );
    // The reference changed correctly, but was not used.
    let mut run = evidence(7, every(Period::Steps(3), 0.5), &[3, 6], 0.5);
    run.ledger[3].reference = weights(0);
    run.ledger[4].reference = weights(0);
    check(
        &run,
        &[
            "reference: step 4: the reference is weights afte…, but the previous step left mixed in 03…",
            "reference: step 6: the reference is mixed in 03…, but the previous step left weights afte…",
        ],
    );
}

#[test]
fn the_reference_of_the_beginning() {
    let mut run = evidence(2, ReferencePlan { from_base: true, ..FIXED }, &[], 1.0);
    run.base = Some(StoredWeights::Hash("the base".into()));
    for line in &mut run.ledger {
        line.base = Some("the base".into());
    }
    check(
        &run,
        &[
            "reference: step 1: the reference is weights afte…, but the base of the adapter is the base…",
        ],
    );
    run.ledger.iter_mut().for_each(|line| line.reference = "the base".into());
    check(&run, &[]);
    run.plan.reference = FIXED;
    check(
        &run,
        &["reference: step 1: the reference is the base…, but the policy started as weights afte…"],
    );
    run.plan.reference.from_base = true;
    // The base model differs from the first step, and from the current one.
    run.ledger[1].base = Some("another".into());
    run.base = Some(StoredWeights::Hash("a third".into()));
    check(
        &run,
        &[
            "base: step 2: the adapter was trained on a different model than in step 1",
            "base: the model is a third… now, but was the base…",
        ],
    );
    run.base = None;
    run.ledger[1].base = Some("the base".into());
    check(
        &run,
        &["base: the ledger records training of an adapter, but config.toml has a full model"],
    );
    run.ledger.iter_mut().for_each(|line| line.base = None);
    run.base = Some(StoredWeights::Hash("the base".into()));
    check(
        &run,
        &["base: the ledger records training of a full model, but config.toml has an adapter"],
    );
}

#[test]
fn a_roll_back_explains_no_older_weights() {
    let back =
        EventKind::RolledBack { number: 1, from_step: 4, learning_rate_factor: 0.5, kl_coef: 0.05 };
    // Undone steps are not in the ledger. Each later step follows the preceding line.
    let mut run = evidence(6, FIXED, &[], 1.0);
    run.events = vec![event(2, back)];
    check(&run, &[]);
    // Step 5 was sampled by the policy after step 2, regardless of events.
    run.ledger[4].rollout.policy_version = 4;
    run.ledger[4].rollout.weights = weights(4);
    let found = violations(&run);
    for sentence in [
        "version match: step 5: sampled by policy version 4; expected version 8 after the preceding updates",
        "immediate update: step 5: sampled by weights weights afte…, but the updates of step 4 produced weights afte…",
    ] {
        assert!(found.iter().any(|what| what == sentence), "{found:?}");
    }
}

#[test]
fn a_step_may_lack_its_metrics_where_the_run_was_ended_from_outside() {
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.metrics.pop();
    let lacks = "steps: ledger.jsonl ends with step 3, but metrics.jsonl with step 2";
    check(&run, &[]);
    let words = "3 steps in ledger.jsonl and metrics.jsonl; the run ended while writing step 3";
    assert_eq!(finding(&run, "steps").checked, words);
    let stopped = |reason: &str| EventKind::Stopped { reason: reason.into() };
    let guard = EventKind::Guard {
        watch: "kl".into(),
        value: None,
        bound: None,
        steps: 1,
        action: "stop".into(),
        message: "step 3: kl was 2, above 1".into(),
    };
    let reference = EventKind::Reference { mix: 1.0, weights: weights(6) };
    let whole = [
        EventKind::Finished { ended_by: None },
        EventKind::Interrupted {},
        stopped("enough"),
        guard,
        reference,
    ];
    for what in whole {
        run.events = vec![event(3, what.clone())];
        check(&run, &[lacks]);
        // The event belongs to an earlier step or precedes a resumption.
        run.events = vec![event(2, what.clone())];
        if what != (EventKind::Finished { ended_by: None }) {
            check(&run, &[]);
        }
        run.events = vec![event(3, what), event(2, EventKind::Resumed { device: None, gpu: None })];
        check(&run, &[]);
    }
    // The disk was full, so the line itself could not be written.
    run.events = vec![event(3, stopped("`run/metrics.jsonl` could not be written"))];
    check(&run, &[]);
}

/// A roll-back moves the completions, writes the event, then truncates the ledger and finally the
/// metrics. A checkpoint event completes it.
#[test]
fn a_run_may_be_killed_during_a_roll_back() {
    let event = |step, what| Event { step, at: String::new(), what };
    let guard = EventKind::Guard {
        watch: "kl".into(),
        value: Some(1.0),
        bound: Some(0.5),
        steps: 1,
        action: "roll_back".into(),
        message: "kl was 1".into(),
    };
    let back =
        EventKind::RolledBack { number: 1, from_step: 3, learning_rate_factor: 0.5, kl_coef: 0.0 };
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.trained = None;
    run.plan.steps = 9;
    run.plan.completions_every = 1;
    run.events = vec![event(3, guard)];
    assert!(violations(&run).is_empty(), "{:?}", violations(&run));
    run.events.push(event(2, back));
    let kept = run.ledger.iter().take(2);
    run.recorded = kept.map(|line| (line.step, line.rollout.completions.clone())).collect();
    run.ledger.pop();
    assert!(violations(&run).is_empty(), "{:?}", violations(&run));
    run.events.push(event(2, EventKind::Checkpoint { best: false }));
    // Only the last step may have been interrupted before its completions were written.
    assert_eq!(
        violations(&run),
        ["steps: ledger.jsonl ends with step 2, but metrics.jsonl with step 3",]
    );
}

#[test]
fn a_run_that_finished_has_all_of_its_steps() {
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.events = vec![event(3, EventKind::Finished { ended_by: None })];
    check(&run, &[]);
    run.plan.steps = 5;
    let lacks = "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 3; train.steps is 5";
    check(&run, &[lacks]);
    // The run was extended and resumed.
    run.events.push(event(3, EventKind::Resumed { device: None, gpu: None }));
    check(&run, &[]);
}

#[test]
fn a_run_that_no_longer_improves_may_finish_early() {
    let stopped = || event(3, EventKind::Stopped { reason: "no evaluation improved".into() });
    let finished = || event(3, EventKind::Finished { ended_by: None });
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.plan.steps = 5;
    run.plan.may_end_early = true;
    run.events = vec![stopped(), finished()];
    check(&run, &[]);
    let lacks = "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 3; train.steps is 5";
    run.events = vec![finished()];
    check(&run, &[lacks]);
    // The configuration has no early stopping.
    run.events = vec![stopped(), finished()];
    run.plan.may_end_early = false;
    check(&run, &[lacks]);
    // Lines at the end of the ledger were removed.
    run.plan.may_end_early = true;
    run.events = vec![
        event(4, EventKind::Stopped { reason: "no evaluation improved".into() }),
        event(4, EventKind::Finished { ended_by: None }),
    ];
    check(&run, &[&lacks.replace("after step 3", "after step 4")]);
}

#[test]
fn what_the_run_left() {
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.checkpoints.insert(9, StoredWeights::Hash(weights(18)));
    run.checkpoints.insert(3, StoredWeights::Damaged("a file is missing".into()));
    check(
        &run,
        &[
            "checkpoints: step 3: a file is missing",
            "checkpoints: step 9: it has a checkpoint, but the step is missing from the ledger",
        ],
    );
    let mut run = evidence(3, FIXED, &[], 1.0);
    run.trained = Some(StoredWeights::Hash("of nobody".into()));
    let other = [
        "final model: it has weights of nobody…, but the updates of step 3 produced weights afte…",
    ];
    check(&run, &other);
    // A step that failed halfway may have changed the weights without being recorded.
    run.plan.steps = 5;
    check(&run, &[]);
    let reason = "training failed in step 4, but the model includes that step".to_owned();
    assert_eq!(finding(&run, "final model").verdict, Verdict::NotRecorded { reason });
    // This does not apply to a run that ended normally.
    run.events = vec![event(3, EventKind::Stopped { reason: "enough".into() })];
    check(&run, &other);
    run.events = vec![event(3, EventKind::Finished { ended_by: None })];
    let steps = "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 3; train.steps is 5";
    check(&run, &[steps, other[0]]);
}

#[test]
fn completions_that_were_written_down() {
    const PROPERTY: &str = "recorded completions";
    let mut run = evidence(3, FIXED, &[], 1.0);
    let sampled = run.ledger[2].rollout.completions.clone();
    run.recorded = BTreeMap::from([(3, sampled.clone())]);
    check(&run, &[]);
    assert_eq!(finding(&run, PROPERTY).checked, "3 completions of 1 step");
    run.recorded = BTreeMap::from([(3, [&sampled[..], &sampled[1..2]].concat())]);
    check(&run, &["recorded completions: step 3: prompt 0, sample 1 is recorded 2 times"]);
    // Completion files are written atomically, so they are never incomplete.
    run.recorded = BTreeMap::from([(3, sampled[..2].to_vec())]);
    let lacks = "recorded completions: step 3: prompt 0, sample 2 is not recorded, although other completions of the step are";
    check(&run, &[lacks]);
    run.trained = None;
    check(&run, &[lacks]);
    let of_first = run.ledger[0].rollout.completions[..2].to_vec();
    run.recorded = BTreeMap::from([(1, of_first)]);
    check(&run, &[&lacks.replace("step 3", "step 1")]);
}

#[test]
fn reports_missing_completion_records() {
    let missing = |step: u64, every: u64| {
        format!(
            "recorded completions: step {step}: its completions are missing, although save.completions_every = {every} requires them"
        )
    };
    let mut run = evidence(5, FIXED, &[], 1.0);
    run.plan.completions_every = 2;
    check(&run, &[&missing(2, 2), &missing(4, 2)]);
    run.recorded.insert(2, run.ledger[1].rollout.completions.clone());
    check(&run, &[&missing(4, 2)]);
    run.recorded.insert(4, run.ledger[3].rollout.completions.clone());
    check(&run, &[]);
    // A killed run may lack the completions of its last step only.
    run.plan.completions_every = 1;
    check(&run, &[&missing(1, 1), &missing(3, 1)]);
    run.events = vec![event(5, EventKind::Finished { ended_by: None })];
    check(&run, &[&missing(1, 1), &missing(3, 1), &missing(5, 1)]);
}
