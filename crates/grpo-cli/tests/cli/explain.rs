//! `grpo explain`: explanations based on the files of a run.

use std::fs;

use grpo_run::{CompletionRecord, RecordedOutcome, RunFolder};
use serde_json::{Value, json};
use snapbox::data::Inline;
use snapbox::str;

use crate::support::Place;
use crate::training_texts;

fn trained(more: &[&str]) -> Place {
    let place = Place::for_training();
    let sets = more.iter().flat_map(|set| ["--set", set]);
    place.succeed(
        &["train", "train.toml", "--set", "eval.samples=0"]
            .into_iter()
            .chain(sets)
            .collect::<Vec<_>>(),
    );
    place
}

fn explain(place: &Place, more: &[&str]) -> String {
    let before = place.files();
    let said = place.succeed(&[&["explain", "run"], more].concat()).stdout;
    assert_eq!(place.files(), before, "it reads, and writes nothing");
    said
}

fn as_json(place: &Place, more: &[&str]) -> Value {
    serde_json::from_str(&explain(place, &[more, &["--json"]].concat())).unwrap()
}

/// Modifies the completions file of a step.
fn rewrite(place: &Place, step: u64, change: impl FnOnce(&mut Vec<CompletionRecord>)) {
    let folder = RunFolder::open(&place.path("run")).unwrap();
    let mut records = folder.completions_of(step).unwrap();
    change(&mut records);
    folder.write_completions(step, &records, &["valid", "qed", "sa"]).unwrap();
}

/// Returns the lines between the step and the metrics.
fn answer(said: &str) -> Vec<&str> {
    said.lines().skip(1).take_while(|line| !line.starts_with("reward ")).collect()
}

#[test]
fn the_numbers_are_those_of_the_record() {
    let place = trained(&[]);
    let records = place.completions("run");
    let of_step: Vec<&CompletionRecord> =
        records.iter().filter(|record| record.step == 3).collect();
    let whole = as_json(&place, &["--step", "3"]);
    assert_eq!(whole["step"], 3);
    assert_eq!((&whole["group_count"], &whole["updates"]), (&json!(2), &json!(1)));
    let tokens: u32 = of_step.iter().map(|record| record.actions).sum();
    assert_eq!(whole["tokens"], json!(tokens));
    let moved =
        of_step.iter().flat_map(|record| &record.outcomes).filter(|outcome| *outcome == "moved");
    assert_eq!(whole["outcomes"]["moved"], json!(moved.count()));
    let explained = whole["groups"].as_array().unwrap().iter();
    let explained: Vec<&Value> =
        explained.flat_map(|group| group["completions"].as_array().unwrap()).collect();
    assert_eq!(explained.len(), of_step.len());
    let mut pulled = false;
    for (explained, record) in explained.iter().zip(&of_step) {
        let sum = |values: &[f32]| values.iter().map(|&value| f64::from(value)).sum::<f64>();
        let close = |name: &str, expected: f64| {
            let got = explained[name].as_f64().unwrap();
            assert!((got - expected).abs() < 1e-12, "{name}: {got}, expected {expected}");
        };
        close("push", -sum(&record.tokens["surrogate_gradients"]));
        close(
            "kl_pull",
            sum(&record.tokens["surrogate_gradients"]) - sum(&record.tokens["gradients"]),
        );
        close("reward", record.reward.unwrap());
        close("advantage", record.advantage);
        assert_eq!(explained["tokens"], Value::Null);
        pulled |= explained["kl_pull"] != 0.0;
        // Completions with positive advantages become more likely.
        let push = explained["push"].as_f64().unwrap();
        assert_eq!(push > 0.0, record.advantage > 0.0, "{explained}");
    }
    assert!(pulled, "there is a KL penalty");

    let one = as_json(&place, &["--step", "3", "--prompt", "1", "--sample", "2"]);
    let completions = one["groups"][0]["completions"].as_array().unwrap();
    assert_eq!((one["groups"].as_array().unwrap().len(), completions.len()), (1, 1));
    let record = of_step.iter().find(|r| (r.prompt, r.sample) == (1, 2)).unwrap();
    let tokens = completions[0]["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), record.actions as usize);
    let pieces: String = tokens.iter().map(|token| token["piece"].as_str().unwrap()).collect();
    assert_eq!(pieces, record.text);
    for (token, logprob) in tokens.iter().zip(&record.tokens["logprobs"]) {
        assert_eq!(token["logprob"].as_f64().unwrap() as f32, *logprob);
    }

    // Output for humans, with all completions and token by token.
    let said = explain(&place, &["--step", "3"]);
    assert!(said.starts_with("step 3\n"), "{said}");
    for words in ["KL pull", "effect", "valid", "qed", "\nprompt 0  ", "\nprompt 1  "] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("log π_ref"), "{said}");
    for words in [
        "\nColumns:\n  advantage       how much better",
        "\n  push            how strongly the rewards make the completion more (above 0)",
        "\n  KL pull         the contribution of the KL penalty",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("\n  ∂loss/∂log π"), "{said}");
    let said = explain(&place, &["--step", "3", "--prompt", "1"]);
    assert_eq!(said.matches("log π_ref").count(), 4, "{said}");
    assert!(said.contains("\n  ∂loss/∂log π    gradient of the loss"), "{said}");
    assert!(!said.contains("\nprompt 0 "), "{said}");
}

#[test]
fn the_first_step_has_no_loss_and_yet_moves() {
    let place = trained(&[]);
    let said = explain(&place, &["--step", "1"]);
    let answer = answer(&said);
    assert!(answer[0].starts_with("The loss is 0 ("), "{said}");
    assert!(answer[0].contains("but the policy changed: while every ratio is 1, the advantages of a group sum to 0 and so does the loss, but not its gradient (grad_norm "), "{said}");
    assert!(answer[1].ends_with(" were moved by the rewards."), "{said}");
}

#[test]
fn explains_first_why_nothing_moved() {
    // No completion contains a Z.
    let reward = "reward={type=\"pattern\",pattern=\"Z\"}";
    let place = trained(&[reward]);
    let said = explain(&place, &["--step", "1"]);
    assert_eq!(
        answer(&said),
        [
            "The rewards did not move any token: in all 2 groups, all rewards are 0.",
            "There was no KL penalty either: the loss and its gradient with respect to every token are 0.",
        ]
    );
    assert!(said.contains("\n  zero_advantage  the completion was as good as its group"), "{said}");
    assert!(!said.contains("\n  moved "), "{said}");
    assert!(said.contains("all rewards of its group are 0"), "{said}");

    let place = trained(&["optimizer.learning_rate=0"]);
    let said = explain(&place, &["--step", "2"]);
    assert_eq!(
        answer(&said)[0],
        "The learning rate of the step is 0: gradients were computed, but the weights did not change."
    );

    // Outcomes that do not occur in such a small run.
    let kinds = |outcome: &str| {
        rewrite(&place, 3, |records| {
            for record in records {
                record.outcomes.fill(outcome.to_owned());
                record.tokens["surrogate_gradients"].fill(0.0);
            }
        });
        explain(&place, &["--step", "3"])
    };
    for (outcome, words) in [
        ("clipped", "clipped"),
        ("off_policy", "dropped by the off-policy mask"),
        ("low_entropy", "dropped by the high-entropy mask"),
        ("mismatch", "masked for sampler mismatch"),
    ] {
        let said = kinds(outcome);
        let tokens: u32 =
            place.completions("run").iter().filter(|r| r.step == 3).map(|r| r.actions).sum();
        let expected =
            format!("The rewards did not move any token: of {tokens} tokens, {tokens} {words}.");
        assert_eq!(answer(&said)[1], expected);
        assert!(said.contains(&format!(" all {words}")), "{said}");
    }
    rewrite(&place, 3, |records| {
        for record in records {
            record.outcome = RecordedOutcome::Failed;
            record.reason = Some("no chemistry today".to_owned());
            (record.reward, record.advantage) = (None, 0.0);
            record.outcomes.fill("not_scored".to_owned());
        }
    });
    let said = explain(&place, &["--step", "3"]);
    assert_eq!(
        answer(&said)[1],
        "The rewards did not move any token: the reward abstained or failed for every completion."
    );
    assert!(said.contains("the reward failed: no chemistry today"), "{said}");
}

/// The exact KL penalty and the entropy bonus affect all tokens of the vocabulary, which is not
/// recorded.
#[test]
fn what_no_record_has_is_said() {
    let exact = "The exact KL penalty (loss.kl_estimator = \"exact\") also changes the policy; these numbers do not include it.";
    let bonus = "The entropy bonus (loss.entropy_bonus) also changes the policy; these numbers do not include it.";
    let settings = ["loss.kl_estimator=exact", "loss.entropy_bonus={type=\"static\",coef=0.01}"];
    let place = trained(&settings);
    let said = explain(&place, &["--step", "2"]);
    assert_eq!(answer(&said)[answer(&said).len() - 2..], [exact, bonus], "{said}");
    let nothing = "reward={type=\"pattern\",pattern=\"Z\"}";
    let standstill = "The rewards did not move any token: in all 2 groups, all rewards are 0.";
    for (setting, sentence) in settings.into_iter().zip([exact, bonus]) {
        let coef = if sentence == bonus { "loss.kl_coef=0" } else { "loss.kl_coef=0.1" };
        let place = trained(&[nothing, setting, coef]);
        assert_eq!(answer(&explain(&place, &["--step", "2"])), [standstill, sentence]);
    }
    // Without a weight or as part of the reward, the exact KL has no missing gradient.
    let place = trained(&[nothing, settings[0], "loss.kl_coef=0"]);
    let said = explain(&place, &["--step", "2"]);
    assert!(!said.contains("exact KL penalty"), "{said}");
}

#[test]
fn explains_later_updates_and_truncated_completions() {
    let place = training_texts::place("gpt2");
    let far =
        ["train.updates_per_rollout=2", "optimizer.learning_rate=0.5", "reward.pattern=\"e\""];
    let sets = far.iter().flat_map(|set| ["--set", set]);
    place.succeed(&["train", "train.toml"].into_iter().chain(sets).collect::<Vec<_>>());
    let records = place.completions("run");
    let is_clipped = |record: &&CompletionRecord| {
        record.outcomes.iter().any(|outcome| outcome == "moved+clipped")
    };
    let clipped = records.iter().find(is_clipped).expect("a step far enough to clip");
    let (step, prompt) = (clipped.step.to_string(), clipped.prompt.to_string());
    let whole = as_json(&place, &["--step", &step]);
    assert_eq!(whole["updates"], 2);
    let outcomes = whole["outcomes"].as_object().unwrap();
    let counted: u64 = outcomes.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted, 2 * whole["tokens"].as_u64().unwrap());
    let of_step = records.iter().filter(|record| record.step == clipped.step);
    let words = of_step.flat_map(|record| &record.outcomes);
    let of_words = |words: &String| match words.as_str() {
        "clipped" => 2,
        words => words.matches("clipped").count(),
    };
    assert_eq!(outcomes["clipped"], json!(words.map(of_words).sum::<usize>()));
    let said = explain(&place, &["--step", &step, "--prompt", &prompt]);
    assert!(said.contains("moved+clipped"), "{said}");
    assert!(said.contains(" (each counted in 2 updates) were moved by the rewards"), "{said}");
    assert!(said.contains("; truncated at the token limit"), "{said}");
    // Without the model, only token ids are known.
    fs::rename(place.path("m"), place.path("gone")).unwrap();
    let one = as_json(&place, &["--step", "1", "--prompt", "0", "--sample", "0"]);
    assert_eq!(one["groups"][0]["completions"][0]["tokens"][0]["piece"], Value::Null);
}

#[test]
fn refuses_steps_that_were_not_recorded() {
    let place = trained(&["save.completions_every=2"]);
    let check = |more: &[&str], expected: Inline| {
        place.refuse(&[&["explain", "run"], more].concat(), expected);
    };
    check(
        &["--step", "3"],
        str![
            "the completions of step 3 were not recorded (save.completions_every = 2; 1 records every step); recorded steps: 2"
        ],
    );
    check(
        &["--step", "2", "--prompt", "2"],
        str![
            "`run/completions/step-2.parquet`: --prompt 2 is out of range; step 2 has prompts 0 to 1"
        ],
    );
    check(
        &["--step", "2", "--prompt", "1", "--sample", "4"],
        str![
            "`run/completions/step-2.parquet`: --sample 4 is out of range; prompt 1 of step 2 has samples 0 to 3"
        ],
    );
    place.refuse(
        &["explain", "none", "--step", "1"],
        str!["`none` is not a run folder (no `run.json`); check the path"],
    );
    place.falsify([2, 1, 3], |record| record.outcomes[0] = "moved+lost".to_owned());
    check(
        &["--step", "2"],
        str![
            "`run/completions/step-2.parquet`: step 2, prompt 1, sample 3: `lost` is not a token outcome"
        ],
    );
    fs::write(place.path("run/completions/step-2.parquet"), "PAR1").unwrap();
    let ended = place.run(&["explain", "run", "--step", "2"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    let expected = "error: `run/completions/step-2.parquet` is damaged: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
}
