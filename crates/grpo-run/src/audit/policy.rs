//! Checks that each step was sampled by the current policy.

use super::evidence::Evidence;
use super::finding::{Finding, Violation, count, short};

/// Checks that the policy version of each step equals the number of updates before it, or before one of
/// the last steps if rollouts may be sampled ahead, that all completions have this version, and that
/// each update increases it by one.
pub(super) fn version_match(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let mut completions = 0;
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let version = line.rollout.policy_version;
        let previous = evidence.version_after(line.step.saturating_sub(1));
        let possible: Option<Vec<u64>> =
            evidence.sampled_after(line).map(|step| evidence.version_after(step)).collect();
        if let Some(possible) = possible.filter(|possible| !possible.contains(&version)) {
            let (oldest, newest) = (possible[0], possible[possible.len() - 1]);
            let expected = match oldest == newest {
                true => format!("version {newest}"),
                false => format!("one of versions {oldest} to {newest}"),
            };
            violated(format!(
                "sampled by policy version {version}; expected {expected} after the preceding updates"
            ));
        }
        for completion in &line.rollout.completions {
            completions += 1;
            if completion.policy_version != version {
                violated(format!(
                    "prompt {}, sample {} was sampled by policy version {}, but the step's policy has version {version}",
                    completion.prompt, completion.sample, completion.policy_version
                ));
            }
        }
        // Updates follow those of the previous step, regardless of which policy sampled.
        let mut before = match evidence.plan.staleness {
            0 => Some(version),
            _ => previous,
        };
        for (number, update) in (1..).zip(&line.updates) {
            if let Some(before) = before
                && before.checked_add(1) != Some(update.version)
            {
                violated(format!(
                    "update {number} produces version {} from version {before}",
                    update.version
                ));
            }
            before = Some(update.version);
        }
    }
    let checked = format!(
        "{}, {}",
        count(evidence.ledger.len(), "rollout"),
        count(completions, "completion")
    );
    Finding::new("version match", checked, violations)
}

/// Checks that each step samples with the weights produced by the last update, or by one of the last
/// steps if rollouts may be sampled ahead, i.e. that nothing changed them between steps.
pub(super) fn immediate_update(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let (mut updates, mut moved) = (0, 0);
    for line in &evidence.ledger {
        let found = &line.rollout.weights;
        let previous = line.step.saturating_sub(1);
        // The weights must be those of the version that the step names.
        let is_named =
            |step: &u64| evidence.version_after(*step) == Some(line.rollout.policy_version);
        let sampled_after = evidence.sampled_after(line).find(is_named).unwrap_or(previous);
        let expected = evidence.weights_after(sampled_after);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let what = format!(
                "sampled by weights {}, but the updates of step {sampled_after} produced {}",
                short(found),
                short(expected)
            );
            violations.push(Violation { step: Some(line.step), what });
        }
        let mut before = match evidence.plan.staleness {
            0 => found,
            _ => evidence.weights_after(previous).unwrap_or(found),
        };
        for update in &line.updates {
            updates += 1;
            moved += usize::from(update.weights != *before);
            before = &update.weights;
        }
    }
    let checked = format!(
        "{}, {}, {moved} of which changed the weights",
        count(evidence.ledger.len(), "rollout"),
        count(updates, "update")
    );
    let checked = match evidence.plan.staleness {
        0 => checked,
        steps => format!("{checked}; rollouts are up to {} old", count(steps as usize, "step")),
    };
    Finding::new("immediate update", checked, violations)
}
