//! Compares stored weights and completions with the ledger.

use super::evidence::{Evidence, StoredWeights};
use super::finding::{Finding, Violation, count, short};
use crate::{EventKind, LedgerCompletion};
use std::collections::BTreeMap;

/// Checks that the adapter's base model has not changed since the first step. Returns `None` if all
/// weights are trained.
pub(super) fn base(evidence: &Evidence) -> Option<Finding> {
    let first = evidence.ledger.first()?.base.as_ref();
    let mut violations = Vec::new();
    for line in &evidence.ledger {
        if line.base.as_ref() != first {
            let what = "the adapter was trained on a different model than in step 1".to_owned();
            violations.push(Violation { step: Some(line.step), what });
        }
    }
    let (first, now) = match (first, &evidence.base) {
        (None, None) if violations.is_empty() => return None,
        (Some(first), Some(now)) => (first, now),
        (first, _) => {
            let whole =
                "the ledger records training of a full model, but config.toml has an adapter";
            let part =
                "the ledger records training of an adapter, but config.toml has a full model";
            let what = if first.is_none() { whole } else { part }.to_owned();
            violations.push(Violation { step: None, what });
            return Some(Finding::new("base", String::new(), violations));
        }
    };
    let mut checked = count(evidence.ledger.len(), "step");
    match now {
        StoredWeights::Hash(now) if now == first => checked += ", and the current model",
        StoredWeights::Hash(now) => violations.push(Violation {
            step: None,
            what: format!("the model is {} now, but was {}", short(now), short(first)),
        }),
        StoredWeights::Damaged(what) => {
            violations.push(Violation { step: None, what: what.clone() });
        }
        StoredWeights::Unknown(reason) if violations.is_empty() => {
            return Some(Finding::not_recorded("base", reason));
        }
        StoredWeights::Unknown(_) => {}
    }
    Some(Finding::new("base", checked, violations))
}

/// Checks that recorded completions match the sampled ones and that none is missing.
pub(super) fn recorded_completions(evidence: &Evidence) -> Finding {
    const PROPERTY: &str = "recorded completions";
    let mut violations = Vec::new();
    let mut all = 0;
    for (&step, recorded) in &evidence.recorded {
        let mut violated = |what: String| violations.push(Violation { step: Some(step), what });
        let Some(line) = evidence.line(step) else {
            if evidence.is_rewritten(step) {
                continue;
            }
            violated(
                "its completions were recorded, but the step is missing from the ledger".to_owned(),
            );
            continue;
        };
        all += recorded.len();
        let place = |completion: &LedgerCompletion| (completion.prompt, completion.sample);
        let mut found: BTreeMap<(u32, u32), Vec<&LedgerCompletion>> = BTreeMap::new();
        for completion in recorded {
            found.entry(place(completion)).or_default().push(completion);
        }
        for sampled in &line.rollout.completions {
            let (prompt, sample) = place(sampled);
            let words = format!("prompt {prompt}, sample {sample}");
            match found.remove(&(prompt, sample)).as_deref() {
                None => violated(format!(
                    "{words} is not recorded, although other completions of the step are"
                )),
                Some([one]) if *one == sampled => {}
                Some([_]) => violated(format!(
                    "{words} is recorded with different ids, log-probabilities or policy version than it was sampled with"
                )),
                Some(several) => {
                    violated(format!("{words} is recorded {} times", several.len()));
                }
            }
        }
        for (prompt, sample) in found.into_keys() {
            violated(format!("prompt {prompt}, sample {sample} is recorded but was not sampled"));
        }
    }
    let every = evidence.plan.completions_every;
    let last = evidence.ledger.last().map(|line| line.step);
    for line in &evidence.ledger {
        let is_due = every > 0 && line.step.is_multiple_of(every);
        // A killed run may have written the ledger line only.
        let may_lack = evidence.is_rewritten(line.step)
            || (Some(line.step) == last && !evidence.was_written_whole(line.step));
        if is_due && !may_lack && !evidence.recorded.contains_key(&line.step) {
            let what = format!(
                "its completions are missing, although save.completions_every = {every} requires them"
            );
            violations.push(Violation { step: Some(line.step), what });
        }
    }
    violations.sort_by_key(|violation| violation.step);
    if evidence.recorded.is_empty() && violations.is_empty() {
        return Finding::not_recorded(PROPERTY, "the run recorded none");
    }
    let checked =
        format!("{} of {}", count(all, "completion"), count(evidence.recorded.len(), "step"));
    Finding::new(PROPERTY, checked, violations)
}

/// Checks that each checkpoint contains the weights of its step.
pub(super) fn checkpoints(evidence: &Evidence) -> Finding {
    const PROPERTY: &str = "checkpoints";
    let mut violations = Vec::new();
    let mut unknown = None;
    let mut all = 0;
    for (&step, stored) in &evidence.checkpoints {
        let what = match (stored, evidence.weights_after(step)) {
            (StoredWeights::Unknown(reason), Some(_)) => {
                unknown = unknown.or(Some(reason));
                continue;
            }
            (StoredWeights::Hash(_) | StoredWeights::Unknown(_), None)
                if evidence.is_rewritten(step) =>
            {
                continue;
            }
            (StoredWeights::Damaged(what), _) => what.clone(),
            (StoredWeights::Hash(_) | StoredWeights::Unknown(_), None) => {
                "it has a checkpoint, but the step is missing from the ledger".to_owned()
            }
            (StoredWeights::Hash(found), Some(expected)) if found == expected => {
                all += 1;
                continue;
            }
            (StoredWeights::Hash(found), Some(expected)) => format!(
                "the checkpoint has weights {}, but the updates produced {}",
                short(found),
                short(expected)
            ),
        };
        violations.push(Violation { step: Some(step), what });
    }
    match unknown {
        Some(reason) if violations.is_empty() => Finding::not_recorded(PROPERTY, reason),
        None if evidence.checkpoints.is_empty() => {
            Finding::not_recorded(PROPERTY, "the run kept none")
        }
        _ => Finding::new(PROPERTY, count(all, "checkpoint"), violations),
    }
}

/// Checks that the final weights are the ones produced by the last update.
pub(super) fn trained(evidence: &Evidence) -> Finding {
    const PROPERTY: &str = "final model";
    let violated =
        |what: String| Finding::new(PROPERTY, String::new(), vec![Violation { step: None, what }]);
    let Some(last) = evidence.ledger.last() else {
        return Finding::not_recorded(PROPERTY, "the ledger has no steps");
    };
    let found = match &evidence.trained {
        None => {
            let reason = "no final model: the run has not finished or was killed";
            return Finding::not_recorded(PROPERTY, reason);
        }
        Some(StoredWeights::Unknown(reason)) => return Finding::not_recorded(PROPERTY, reason),
        Some(StoredWeights::Damaged(what)) => return violated(what.clone()),
        Some(StoredWeights::Hash(found)) => found,
    };
    if found == last.weights_after() {
        let checked = format!("the weights after step {}", last.step);
        return Finding::new(PROPERTY, checked, vec![]);
    }
    let other = evidence.ledger.iter().find(|line| line.weights_after() == found);
    if let Some(line) = other {
        return violated(format!(
            "it has the weights after step {}; expected those after the last step, {}",
            line.step, last.step
        ));
    }
    let has_ended = |event: &crate::Event| {
        matches!(event.what, EventKind::Finished { .. } | EventKind::Stopped { .. })
    };
    if last.step < evidence.plan.steps && !evidence.events.iter().any(has_ended) {
        return Finding::not_recorded(
            PROPERTY,
            format!(
                "training failed in step {}, but the model includes that step",
                last.step.saturating_add(1)
            ),
        );
    }
    violated(format!(
        "it has weights {}, but the updates of step {} produced {}",
        short(found),
        last.step,
        short(last.weights_after())
    ))
}
