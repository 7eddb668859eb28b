//! Checks that each step was sampled by the current policy.

use super::evidence::{Before, Evidence};
use super::finding::{Finding, Violation, count, short};

/// Checks that the policy version of each step equals the number of previous updates, that all
/// completions have this version, and that each update increases it by one.
pub(super) fn version_match(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let mut completions = 0;
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let version = line.rollout.policy_version;
        let expected = match evidence.before(line) {
            Before::Start => Some(0),
            Before::Line(before) => Some(before.version_after()),
            Before::Unknown => None,
        };
        if let Some(expected) = expected.filter(|&expected| expected != version) {
            violated(format!(
                "sampled by policy version {version}; expected version {expected} after the preceding updates"
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
        let mut before = version;
        for (number, update) in (1..).zip(&line.updates) {
            if before.checked_add(1) != Some(update.version) {
                violated(format!(
                    "update {number} produces version {} from version {before}",
                    update.version
                ));
            }
            before = update.version;
        }
    }
    let checked = format!(
        "{}, {}",
        count(evidence.ledger.len(), "rollout"),
        count(completions, "completion")
    );
    Finding::new("version match", checked, violations)
}

/// Checks that each step samples with the weights produced by the last update, i.e. that nothing
/// changed them between steps.
pub(super) fn immediate_update(evidence: &Evidence) -> Finding {
    let mut violations = Vec::new();
    let (mut updates, mut moved) = (0, 0);
    for line in &evidence.ledger {
        let found = &line.rollout.weights;
        let expected = match evidence.before(line) {
            Before::Start => evidence.weights_after(0).map(|weights| (0, weights)),
            Before::Line(before) => Some((before.step, before.weights_after())),
            Before::Unknown => None,
        };
        if let Some((step, expected)) = expected.filter(|(_, expected)| *expected != found) {
            let what = format!(
                "sampled by weights {}, but the updates of step {step} produced {}",
                short(found),
                short(expected)
            );
            violations.push(Violation { step: Some(line.step), what });
        }
        let mut before = found;
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
    Finding::new("immediate update", checked, violations)
}
