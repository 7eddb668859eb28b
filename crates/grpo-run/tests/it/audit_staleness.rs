//! Runs whose rollouts are sampled ahead of the policy's updates.

use grpo_run::{Evidence, LedgerCompletion};

use crate::audit::{FIXED, check, evidence};

/// A run in which each step is sampled by the policy from `staleness` steps before.
fn stale(staleness: u64) -> Evidence {
    let mut run = evidence(5, FIXED, &[], 1.0);
    run.plan.staleness = staleness;
    for step in 1..=5 {
        sampled_after(&mut run, step, (step - 1).saturating_sub(staleness));
    }
    run
}

/// Makes the policy after the step `after` sample a step.
fn sampled_after(run: &mut Evidence, step: u64, after: u64) {
    let (version, weights) = match after {
        0 => (0, run.ledger[0].rollout.weights.clone()),
        _ => {
            let update = run.ledger[after as usize - 1].updates.last().unwrap();
            (update.version, update.weights.clone())
        }
    };
    let line = &mut run.ledger[step as usize - 1];
    let entry = |sample| LedgerCompletion::of(step, [0, sample], version, [1, 2], &[-1.0, -2.0]);
    let completions: Vec<LedgerCompletion> = (0..3).map(entry).collect();
    for update in &mut line.updates {
        update.completions.clone_from(&completions);
    }
    line.rollout.policy_version = version;
    line.rollout.weights = weights;
    line.rollout.completions = completions;
}

#[test]
fn rollouts_may_be_as_old_as_configured() {
    for staleness in 0..=6 {
        check(&stale(staleness), &[]);
    }
    // Younger ones are fine, for example after a rollout that failed.
    let mut run = stale(2);
    sampled_after(&mut run, 4, 3);
    check(&run, &[]);
    sampled_after(&mut run, 4, 2);
    check(&run, &[]);
}

#[test]
fn older_rollouts_and_other_weights_are_violations() {
    let mut run = stale(1);
    sampled_after(&mut run, 4, 1);
    let version = "version match: step 4: sampled by policy version 2; expected one of versions 4 to 6 after the preceding updates";
    let weights = "immediate update: step 4: sampled by weights weights afte…, but the updates of step 3 produced weights afte…";
    check(&run, &[version, weights]);
    // The version of one policy and the weights of another one, both of which are possible.
    let mut run = stale(1);
    let other = run.ledger[2].updates[1].weights.clone();
    run.ledger[3].rollout.weights = other;
    check(
        &run,
        &[
            "immediate update: step 4: sampled by weights weights afte…, but the updates of step 2 produced weights afte…",
        ],
    );
    // Updates do not follow those of the previous step.
    let mut run = stale(1);
    run.ledger[3].updates[0].version = 3;
    run.ledger[3].updates[1].version = 4;
    let found = crate::audit::violations(&run);
    let first = "version match: step 4: update 1 produces version 3 from version 6";
    assert_eq!(found[0], first);
}
