//! Checks that each update used all completions of its own step exactly once.

use super::evidence::Evidence;
use super::finding::{Finding, Violation, count};
use crate::{CompletionDigest, LedgerCompletion, LedgerStep};
use std::collections::BTreeMap;

/// Checks that each prompt of a step has the samples 0, 1, 2, … of a full group.
pub(super) fn whole_groups(evidence: &Evidence) -> Finding {
    let plan = &evidence.plan;
    let expected: Vec<u32> = (0..plan.group_size).collect();
    let mut violations = Vec::new();
    let mut all = 0;
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for completion in &line.rollout.completions {
            groups.entry(completion.prompt).or_default().push(completion.sample);
        }
        all += groups.len();
        if !groups.keys().copied().eq(0..plan.prompts_per_step) {
            violated(format!(
                "has prompts {}; expected 0 to {}",
                listed(groups.keys()),
                plan.prompts_per_step.saturating_sub(1)
            ));
        }
        for (prompt, mut samples) in groups {
            samples.sort_unstable();
            if samples != expected {
                violated(format!(
                    "prompt {prompt} has samples {}; expected 0 to {}",
                    listed(&samples),
                    plan.group_size.saturating_sub(1)
                ));
            }
        }
    }
    let checked = format!("{} of {}", count(all, "group"), plan.group_size);
    Finding::new("whole groups", checked, violations)
}

fn listed<'a>(numbers: impl IntoIterator<Item = &'a u32>) -> String {
    numbers.into_iter().map(u32::to_string).collect::<Vec<String>>().join(", ")
}

/// Checks that each step has the configured number of updates, and that each update used every
/// sampled completion once.
pub(super) fn own_completions(evidence: &Evidence) -> Finding {
    let plan = &evidence.plan;
    let steps = steps_of(evidence);
    let mut violations = Vec::new();
    let (mut updates, mut uses) = (0, 0);
    for line in &evidence.ledger {
        let mut violated =
            |what: String| violations.push(Violation { step: Some(line.step), what });
        let (made, on_rollout) = (line.updates.len(), plan.updates_per_rollout);
        let (other, replays) = (plan.further(false), plan.further(true));
        let planned = on_rollout + other;
        // Nothing is replayed before the reward has scored two completions, or if it has scored none of the
        // step.
        if made != planned + replays && made != planned {
            let adds = plan.further_updates.iter().filter(|further| further.count > 0);
            let adds: String =
                adds.map(|of| format!(", and {} adds {}", of.key, of.count)).collect();
            violated(format!(
                "has {}, but train.updates_per_rollout is {on_rollout}{adds}",
                count(made, "update")
            ));
        }
        for (number, update) in (1..).zip(&line.updates) {
            updates += 1;
            uses += update.completions.len();
            let is_replay = replays > 0 && number > planned;
            if update.replayed.is_some() != is_replay {
                let kind = if is_replay { "must use" } else { "must not use" };
                violated(format!("update {number} {kind} replayed completions"));
            }
            if is_replay || (other > 0 && number > on_rollout) {
                if !update.completions.is_empty() {
                    violated(format!(
                        "update {number} used completions of the rollout, but is for others only"
                    ));
                }
                continue;
            }
            for difference in differences(line, &update.completions, &steps) {
                violated(format!("update {number} {difference}"));
            }
        }
    }
    let checked = format!("{}, {}", count(updates, "update"), count(uses, "use"));
    Finding::new("own completions", checked, violations)
}

/// Describes the differences between the completions used in an update and the sampled ones.
fn differences(
    line: &LedgerStep,
    used: &[LedgerCompletion],
    steps: &BTreeMap<CompletionDigest, u64>,
) -> Vec<String> {
    let place = |completion: &LedgerCompletion| (completion.prompt, completion.sample);
    let sampled: BTreeMap<(u32, u32), &LedgerCompletion> =
        line.rollout.completions.iter().map(|completion| (place(completion), completion)).collect();
    let mut uses: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut differences = Vec::new();
    for completion in used {
        let (prompt, sample) = place(completion);
        let words = format!("prompt {prompt}, sample {sample}");
        *uses.entry((prompt, sample)).or_default() += 1;
        let of_step = steps.get(&completion.digest);
        match (sampled.get(&(prompt, sample)), of_step) {
            (Some(own), _) if *own == completion => {}
            (_, Some(&step)) if step != line.step => {
                differences.push(format!("used {words} of step {step}"));
            }
            (Some(_), _) => {
                differences
                    .push(format!("used {words} with values that differ from the sampled ones"));
            }
            (None, _) => differences.push(format!("used {words}, which was not sampled")),
        }
    }
    for &(prompt, sample) in sampled.keys() {
        let words = format!("prompt {prompt}, sample {sample}");
        match uses.get(&(prompt, sample)) {
            None => differences.push(format!("did not use {words}")),
            Some(1) => {}
            Some(times) => differences.push(format!("used {words} {times} times")),
        }
    }
    differences
}

/// The updates that use a completion.
struct Uses {
    times: usize,
    last_step: u64,
    completion: LedgerCompletion,
}

/// Checks that no completion was used in more updates than configured or in a different step.
pub(super) fn no_reuse(evidence: &Evidence) -> Finding {
    let planned = evidence.plan.updates_per_rollout;
    let mut violations = Vec::new();
    let mut sampled: BTreeMap<CompletionDigest, u64> = BTreeMap::new();
    let mut all: BTreeMap<CompletionDigest, Uses> = BTreeMap::new();
    for line in &evidence.ledger {
        for completion in &line.rollout.completions {
            if let Some(step) = sampled.insert(completion.digest, line.step) {
                let LedgerCompletion { prompt, sample, .. } = completion;
                let what = format!(
                    "prompt {prompt}, sample {sample} is already a completion of step {step}"
                );
                violations.push(Violation { step: Some(line.step), what });
            }
        }
        for completion in line.updates.iter().flat_map(|update| &update.completions) {
            let uses = all.entry(completion.digest).or_insert(Uses {
                times: 0,
                last_step: line.step,
                completion: *completion,
            });
            uses.times += 1;
            uses.last_step = line.step;
        }
    }
    let completions = count(all.len(), "completion");
    for Uses { times, last_step, completion } in all.into_values() {
        if times > planned {
            let LedgerCompletion { prompt, sample, .. } = completion;
            let what = format!(
                "prompt {prompt}, sample {sample} had been used {times} times, but train.updates_per_rollout is {planned}"
            );
            violations.push(Violation { step: Some(last_step), what });
        }
    }
    violations.sort_by_key(|violation| violation.step);
    let checked = format!("{completions}, each in at most {}", count(planned, "update"));
    Finding::new("no reuse", checked, violations)
}

/// Maps each completion to the step in which it was first sampled.
fn steps_of(evidence: &Evidence) -> BTreeMap<CompletionDigest, u64> {
    let mut steps = BTreeMap::new();
    for line in &evidence.ledger {
        for completion in &line.rollout.completions {
            steps.entry(completion.digest).or_insert(line.step);
        }
    }
    steps
}
