//! `grpo audit` reports exactly the violations caused by changes of the ledger.

use serde_json::{Value, json};

use crate::audit::{LEDGER, METRICS, Run, at, lines, lists, remove, short, text, violations};

#[test]
fn a_stale_policy_is_found() {
    let run = Run::new();
    let left = short(&run.line(1)["updates"][1]["weights"]);
    let stale = run.line(1)["updates"][0]["weights"].clone();
    let sampled_by = short(&stale);
    // All of step 2 was sampled by the policy before the last update, and all records are
    // consistent.
    run.plant(
        |lines| {
            lines[1]["rollout"]["policy_version"] = json!(1);
            lines[1]["rollout"]["weights"] = stale;
            for list in lists(&mut lines[1]) {
                for entry in list["completions"].as_array_mut().unwrap() {
                    entry[2] = json!(1);
                }
            }
        },
        &[
            &[
                "version match: step 2: sampled by policy version 1; expected version 2 after the preceding updates".to_owned(),
                "version match: step 2: update 1 produces version 3 from version 1".to_owned(),
                format!("immediate update: step 2: sampled by weights {sampled_by}, but the updates of step 1 produced {left}"),
            ][..],
            &all_recorded_otherwise(2),
        ]
        .concat(),
    );
    // A single completion was sampled by an older policy.
    run.plant(
        |lines| lists(&mut lines[2]).for_each(|list| at(list, [1, 3])[2] = json!(2)),
        &[
            "version match: step 3: prompt 1, sample 3 was sampled by policy version 2, but the step's policy has version 4",
            "recorded completions: step 3: prompt 1, sample 3 is recorded with different ids, log-probabilities or policy version than it was sampled with",
        ],
    );
    // The weights changed between two steps.
    let other = "f".repeat(64);
    run.plant(
        |lines| lines[1]["rollout"]["weights"] = json!(other),
        &[format!(
            "immediate update: step 2: sampled by weights ffffffffffff…, but the updates of step 1 produced {left}"
        )],
    );
}

fn all_recorded_otherwise(step: u32) -> Vec<String> {
    let places = (0..2).flat_map(|prompt| (0..4).map(move |sample| (prompt, sample)));
    places
        .map(|(prompt, sample)| {
            format!(
                "recorded completions: step {step}: prompt {prompt}, sample {sample} is recorded with different ids, log-probabilities or policy version than it was sampled with"
            )
        })
        .collect()
}

#[test]
fn wrong_uses_of_completions_are_found() {
    let run = Run::new();
    // A completion was used twice in an update, as an addition or instead of a different one.
    run.plant(
        |lines| {
            let update = &mut lines[0]["updates"][1];
            let again = at(update, [0, 1]).clone();
            update["completions"].as_array_mut().unwrap().push(again);
        },
        &[
            "own completions: step 1: update 2 used prompt 0, sample 1 2 times",
            "no reuse: step 1: prompt 0, sample 1 had been used 3 times, but train.updates_per_rollout is 2",
        ],
    );
    run.plant(
        |lines| {
            let update = &mut lines[2]["updates"][0];
            *at(update, [1, 2]) = at(update, [1, 1]).clone();
        },
        &[
            "own completions: step 3: update 1 used prompt 1, sample 1 2 times",
            "own completions: step 3: update 1 did not use prompt 1, sample 2",
            "no reuse: step 3: prompt 1, sample 1 had been used 3 times, but train.updates_per_rollout is 2",
        ],
    );
    // A completion was used again in a later step, either only in an update or as if it had been
    // sampled there.
    let old = at(&mut run.line(1)["rollout"], [0, 0]).clone();
    let planted = old.clone();
    run.plant(
        |lines| *at(&mut lines[2]["updates"][1], [0, 0]) = planted,
        &[
            "own completions: step 3: update 2 used prompt 0, sample 0 of step 1",
            "no reuse: step 3: prompt 0, sample 0 had been used 3 times, but train.updates_per_rollout is 2",
        ],
    );
    run.plant(
        |lines| {
            let mut planted = old;
            planted[2] = json!(2);
            lists(&mut lines[1]).for_each(|list| *at(list, [0, 0]) = planted.clone());
        },
        &[
            "no reuse: step 2: prompt 0, sample 0 is already a completion of step 1",
            "no reuse: step 2: prompt 0, sample 0 had been used 4 times, but train.updates_per_rollout is 2",
            "recorded completions: step 2: prompt 0, sample 0 is recorded with different ids, log-probabilities or policy version than it was sampled with",
        ],
    );
    // A completion was not used, and a completion that was never sampled was used.
    run.plant(
        |lines| remove(&mut lines[1]["updates"][0], [1, 3]),
        &["own completions: step 2: update 1 did not use prompt 1, sample 3"],
    );
    run.plant(
        |lines| at(&mut lines[1]["updates"][0], [1, 3])[1] = json!(9),
        &[
            "own completions: step 2: update 1 used prompt 1, sample 9, which was not sampled",
            "own completions: step 2: update 1 did not use prompt 1, sample 3",
        ],
    );
}

#[test]
fn groups_that_are_not_whole_are_found() {
    let run = Run::new();
    run.plant(
        |lines| lists(&mut lines[0]).for_each(|list| remove(list, [1, 2])),
        &[
            "whole groups: step 1: prompt 1 has samples 0, 1, 3; expected 0 to 3",
            "recorded completions: step 1: prompt 1, sample 2 is recorded but was not sampled",
        ],
    );
    run.plant(
        |lines| {
            for list in lists(&mut lines[0]) {
                let double = at(list, [1, 1]).clone();
                *at(list, [1, 2]) = double;
            }
        },
        &[
            "whole groups: step 1: prompt 1 has samples 0, 1, 1, 3; expected 0 to 3",
            "own completions: step 1: update 1 used prompt 1, sample 1 2 times",
            "own completions: step 1: update 2 used prompt 1, sample 1 2 times",
            "no reuse: step 1: prompt 1, sample 1 is already a completion of step 1",
            "no reuse: step 1: prompt 1, sample 1 had been used 4 times, but train.updates_per_rollout is 2",
            "recorded completions: step 1: prompt 1, sample 1 is not recorded, although other completions of the step are",
            "recorded completions: step 1: prompt 1, sample 2 is recorded but was not sampled",
        ],
    );
    run.plant(
        |lines| {
            for list in lists(&mut lines[2]) {
                (0..4).for_each(|sample| remove(list, [1, sample]));
            }
        },
        &[
            "whole groups: step 3: has prompts 0; expected 0 to 1",
            "recorded completions: step 3: prompt 1, sample 0 is recorded but was not sampled",
            "recorded completions: step 3: prompt 1, sample 1 is recorded but was not sampled",
            "recorded completions: step 3: prompt 1, sample 2 is recorded but was not sampled",
            "recorded completions: step 3: prompt 1, sample 3 is recorded but was not sampled",
        ],
    );
}

#[test]
fn updates_that_were_skipped_or_added_are_found() {
    let run = Run::new();
    let after = |step: usize, update: usize| short(&run.line(step)["updates"][update]["weights"]);
    run.plant(
        |lines| {
            lines[2]["updates"].as_array_mut().unwrap().pop();
        },
        &[
            "own completions: step 3: has 1 update, but train.updates_per_rollout is 2",
            &format!(
                "checkpoints: step 3: the checkpoint has weights {}, but the updates produced {}",
                after(3, 1),
                after(3, 0)
            ),
            &format!(
                "final model: it has weights {}, but the updates of step 3 produced {}",
                after(3, 1),
                after(3, 0)
            ),
        ],
    );
    run.plant(
        |lines| {
            let updates = lines[2]["updates"].as_array_mut().unwrap();
            let mut third = updates[1].clone();
            third["version"] = json!(7);
            updates.push(third);
        },
        &[
            &["own completions: step 3: has 3 updates, but train.updates_per_rollout is 2"
                .to_owned()][..],
            &used_three_times(&run.line(3)),
        ]
        .concat(),
    );
    // An update did not increase the version.
    run.plant(
        |lines| lines[2]["updates"][1]["version"] = json!(5),
        &["version match: step 3: update 2 produces version 5 from version 5"],
    );
}

/// Sorted by digest.
fn used_three_times(line: &Value) -> Vec<String> {
    let mut entries = line["rollout"]["completions"].as_array().unwrap().clone();
    entries.sort_by_key(|entry| entry[3].as_str().unwrap().to_owned());
    entries
        .iter()
        .map(|entry| {
            format!(
                "no reuse: step 3: prompt {}, sample {} had been used 3 times, but train.updates_per_rollout is 2",
                entry[0], entry[1]
            )
        })
        .collect()
}

#[test]
fn another_reference_is_found() {
    let run = Run::new();
    let first = short(&run.line(1)["reference"]);
    let other = json!("e".repeat(64));
    run.plant(
        |lines| {
            lines[1]["reference_changed"] = json!({"mix": 0.5, "weights": other});
            lines[2]["reference"] = other.clone();
        },
        &["reference: step 2: the reference changed, but the configuration does not allow changes"],
    );
    run.plant(
        |lines| lines[2]["reference"] = other.clone(),
        &[format!(
            "reference: step 3: the reference is eeeeeeeeeeee…, but the previous step left {first}"
        )],
    );
    run.plant(
        |lines| lines.iter_mut().for_each(|line| line["reference"] = other.clone()),
        &[format!(
            "reference: step 1: the reference is eeeeeeeeeeee…, but the policy started as {first}"
        )],
    );
}

#[test]
fn lines_that_are_missing_double_or_elsewhere_are_found() {
    let run = Run::new();
    run.plant(
        |lines| {
            lines.remove(1);
        },
        &[
            "steps: step 3: ledger.jsonl jumps from step 1 to step 3; expected step 2",
            "recorded completions: step 2: its completions were recorded, but the step is missing from the ledger",
            "checkpoints: step 2: it has a checkpoint, but the step is missing from the ledger",
        ],
    );
    run.plant(
        |lines| {
            lines.remove(0);
        },
        &[
            "steps: step 2: ledger.jsonl starts with step 2; expected step 1",
            "recorded completions: step 1: its completions were recorded, but the step is missing from the ledger",
            "checkpoints: step 1: it has a checkpoint, but the step is missing from the ledger",
        ],
    );
    let weights = |step: usize| short(&run.line(step)["updates"][1]["weights"]);
    let model = format!(
        "final model: it has weights {}, but the updates of step 2 produced {}",
        weights(3),
        weights(2)
    );
    run.plant(
        |lines| {
            lines.pop();
        },
        &[
            "steps: ledger.jsonl ends with step 2, but metrics.jsonl with step 3",
            "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 2; train.steps is 3",
            "recorded completions: step 3: its completions were recorded, but the step is missing from the ledger",
            "checkpoints: step 3: it has a checkpoint, but the step is missing from the ledger",
            &model,
        ],
    );
    run.plant(
        |lines| lines.swap(1, 2),
        &[
            "steps: step 3: ledger.jsonl jumps from step 1 to step 3; expected step 2",
            "steps: step 2: ledger.jsonl jumps from step 3 to step 2; expected step 4",
            "steps: ledger.jsonl ends with step 2, but metrics.jsonl with step 3",
            "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 2; train.steps is 3",
            "final model: it has the weights after step 3; expected those after the last step, 2",
        ],
    );
    let found = {
        let mut lines = lines(&run.ledger);
        lines.insert(1, lines[0].clone());
        run.place.write(LEDGER, text(&lines));
        violations(&run.place)
    };
    assert_eq!(
        found[0],
        "steps: step 1: ledger.jsonl jumps from step 1 to step 1; expected step 2"
    );
    // All completions of the step occur twice and were used twice as often.
    assert_eq!(found.iter().filter(|what| what.starts_with("no reuse: step 1:")).count(), 16);
    assert_eq!(found.len(), 17);
}

/// Numbers from files never cause an overflow.
#[test]
fn numbers_at_the_end_of_their_range_are_found() {
    let run = Run::new();
    let has = |found: &[String], what: &str| {
        assert!(found.iter().any(|found| found == what), "{what}: {found:?}");
    };
    let with = |change: fn(&mut Vec<Value>)| {
        let mut lines = lines(&run.ledger);
        change(&mut lines);
        run.place.write(LEDGER, text(&lines));
        violations(&run.place)
    };
    let found = with(|lines| lines[2]["rollout"]["policy_version"] = json!(u64::MAX));
    has(
        &found,
        "version match: step 3: update 1 produces version 5 from version 18446744073709551615",
    );
    let found = with(|lines| lines[2]["step"] = json!(u64::MAX));
    has(
        &found,
        "steps: step 18446744073709551615: ledger.jsonl jumps from step 2 to step 18446744073709551615; expected step 3",
    );
    with(|lines| lines[2]["updates"][0]["version"] = json!(u64::MAX));
    run.place.write(LEDGER, &run.ledger);
    run.place
        .write(METRICS, run.metrics.clone() + "{\"step\":18446744073709551615}\n{\"step\":1}\n");
    has(
        &violations(&run.place),
        "steps: step 18446744073709551615: metrics.jsonl jumps from step 3 to step 18446744073709551615; expected step 4",
    );
    for command in [&["report", "run"][..], &["train", "--resume", "run", "--plain"]] {
        let ended = run.place.run(command);
        assert!(ended.code == Some(0) || ended.code == Some(1), "{}", ended.stderr);
    }
}

/// The later steps are renumbered.
#[test]
fn a_step_that_was_taken_out_of_both_files_is_found() {
    let run = Run::new();
    let mut metrics = lines(&run.metrics);
    metrics.remove(1);
    metrics[1]["step"] = json!(2);
    run.place.write(METRICS, text(&metrics));
    let after = |step: usize| short(&run.line(step)["updates"][1]["weights"]);
    let (left, sampled) = (after(1), short(&run.line(3)["rollout"]["weights"]));
    run.plant(
        |lines| {
            lines.remove(1);
            lines[1]["step"] = json!(2);
        },
        &[
            &[
                "steps: events.jsonl records that the run finished after step 3, but ledger.jsonl ends with step 2; train.steps is 3".to_owned(),
                "version match: step 2: sampled by policy version 4; expected version 2 after the preceding updates".to_owned(),
                format!("immediate update: step 2: sampled by weights {sampled}, but the updates of step 1 produced {left}"),
            ][..],
            &all_recorded_otherwise(2),
            &[
                "recorded completions: step 3: its completions were recorded, but the step is missing from the ledger".to_owned(),
                format!("checkpoints: step 2: the checkpoint has weights {}, but the updates produced {}", after(2), after(3)),
                "checkpoints: step 3: it has a checkpoint, but the step is missing from the ledger".to_owned(),
            ],
        ]
        .concat(),
    );
}
