//! `grpo train` for infillers, configured by the `[passages]` section.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::Value;
use snapbox::data::Inline;
use snapbox::str;
use tempfile::TempDir;

use crate::infill_parts::{INFILLER, JUDGE, text};
use crate::resume::{kill_and_resume, result};
use crate::support::Place;
use crate::texts::objects;

const TRAIN: &str = r#"run = "run"
model = "infiller/model"
seed = 3

[passages]
file = "text.txt"
length = 16

[masking]
stages = [{ type = "random", min_ratio = 0.2, max_ratio = 0.7 }]

[train]
steps = 5
prompts_per_step = 4
group_size = 4
micro_batch_tokens = 40

[sampling]
temperature = 0.8
top_p = 0.95

[reward]
type = "infill"
judge = "judge/model"
second_judge = "second/model"

[loss]
preset = "reinforce"
kl_coef = 0.1
kl_estimator = "exact"

[optimizer]
learning_rate = 1e-3

[eval]
samples = 30
every = 2

[save]
every = 1
completions_every = 1
"#;

/// Trains an infiller and two judges, which all tests share.
fn parts() -> &'static Path {
    static PARTS: OnceLock<TempDir> = OnceLock::new();
    PARTS
        .get_or_init(|| {
            let place = Place::new();
            place.write("text.txt", text());
            place.write("infiller.toml", INFILLER);
            place.write("judge.toml", JUDGE);
            place.succeed(&["pretrain", "infiller.toml"]);
            place.succeed(&["train-judge", "judge.toml"]);
            place.succeed(&["train-judge", "judge.toml", "--run", "second", "--set", "seed=9"]);
            place.into_folder()
        })
        .path()
}

/// Creates a place with `train.toml` and the models that it uses.
pub(crate) fn place() -> Place {
    let place = Place::new();
    for model in ["infiller", "judge", "second"] {
        let target = place.path(model).join("model");
        fs::create_dir_all(&target).unwrap();
        for entry in fs::read_dir(parts().join(model).join("model")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
        }
    }
    place.write("text.txt", text());
    place.write("train.toml", TRAIN);
    place
}

/// All commands for runs work for infillers as well.
#[test]
fn an_infiller_is_trained_like_every_policy() {
    let place = place();
    let ended = place.succeed(&["train", "train.toml"]);
    for said in [
        "prompts      text.txt: 120 lines, 960 characters kept: ",
        "blanks on average\n",
        "30 completions",
        "mean judge",
        "mean recovery",
        "mean second_judge",
        "mean fill_entropy",
    ] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    let metrics = objects(&place.read("run/metrics.jsonl"));
    assert_eq!(metrics.len(), 5);
    let number = |step: usize, name: &str| {
        let value = metrics[step].get(name).and_then(Value::as_f64);
        value.unwrap_or_else(|| panic!("{name} in step {step}"))
    };
    // Initially, policy and reference are equal.
    assert!(number(0, "kl").abs() < 1e-6);
    assert!(number(4, "kl") > 0.0);
    for step in 0..5 {
        assert!(number(step, "sampling/sampling_logp_difference/max") < 1e-4);
        let (judge, reward) = (number(step, "rewards/judge/mean"), number(step, "reward"));
        assert!((1.0 - judge - reward).abs() < 1e-9, "{judge} {reward}");
    }
    for name in ["eval_reward", "eval_rewards/recovery/mean", "eval_rewards/second_judge/mean"] {
        assert!(number(1, name).is_finite() && metrics[0].get(name).is_none());
    }

    let completions = place.completions("run");
    assert_eq!(completions.len(), 5 * 16);
    for record in &completions {
        let (prompt, text) = (record.prompt_text.as_ref().unwrap(), &record.text);
        let blanks = prompt.chars().filter(|c| *c == '␣').count();
        assert_eq!(
            (blanks, prompt.chars().count()),
            (record.actions as usize, text.chars().count())
        );
        let same = prompt.chars().zip(text.chars()).filter(|(asked, now)| asked == now).count();
        assert_eq!(same, prompt.chars().count() - blanks, "{prompt} {text}");
        assert!(!text.contains('␣'), "{text}");
    }

    place.succeed(&["audit", "run"]);
    let again = place.succeed(&["replay", "run", "--step", "3", "--prompt", "2", "--sample", "1"]);
    assert!(again.stdout.contains(" equal bit for bit\n"), "{}", again.stdout);
    place.succeed(&["explain", "run", "--step", "2"]);
    place.succeed(&["explain", "run", "--step", "2", "--prompt", "1"]);
    place.succeed(&["report", "run"]);

    // The trained infiller can be used in place of the initial one.
    place.succeed(&["train", "train.toml", "--run", "on", "--set", "model=run/model"]);
}

/// The letters of a line tell whether it is held out.
#[test]
fn only_held_out_texts_are_evaluated() {
    let place = place();
    let line = |letters: &str, mut number: usize| -> String {
        let mut letter = || {
            let index = number % letters.len();
            number /= letters.len();
            &letters[index..=index]
        };
        (0..6).map(|_| letter()).collect()
    };
    let (for_training, held_out) = ("abc", "defg");
    let lines = (0..90).map(|i| line(for_training, i)).chain((0..30).map(|i| line(held_out, i)));
    let lines: Vec<String> = lines.collect();
    place.write("text.txt", lines.join("\n") + "\n");
    let sets = ["passages.unit=line", "passages.validation_fraction=0.25", "eval.every=0"];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["train", "train.toml"].into_iter().chain(sets).collect();
    place.succeed(&arguments);

    let evaluated = objects(&place.read("run/evaluation-before.jsonl"));
    let texts: BTreeSet<&str> =
        evaluated.iter().map(|group| group["prompt"]["fields"]["text"].as_str().unwrap()).collect();
    assert!(texts.len() > 10, "{texts:?}");
    assert!(texts.iter().all(|text| lines[90..].iter().any(|line| line == text)), "{texts:?}");
    for record in place.completions("run") {
        let prompt = record.prompt_text.unwrap();
        let is_of = |letters: &str| prompt.contains(|letter: char| letters.contains(letter));
        assert!(is_of(for_training) && !is_of(held_out), "{prompt}");
    }
}

/// An adapter for the infiller, and other settings of the loss.
#[test]
fn choices_of_the_loss_are_those_of_every_policy() {
    let place = place();
    let short = ["train", "train.toml", "--set", "train.steps=2", "--run"];
    let more: [&[&str]; 3] = [
        &["lora", "--set", "lora.rank=2", "--set", "lora.alpha=2", "--set", "lora.dropout=0.5"],
        &["clipped", "--set", "loss.preset=grpo", "--set", "train.updates_per_rollout=2"],
        &["sum", "--set", "loss.reduction=sequence_sum", "--set", "advantage.scale=batch"],
    ];
    for more in more {
        place.succeed(&[&short[..], more].concat());
        place.succeed(&["audit", more[0]]);
    }
    // Dropout is only used in supervised training, so the log-probabilities of trainer and sampler
    // match.
    let metrics = objects(&place.read("lora/metrics.jsonl"));
    let number = |name: &str| metrics[1].get(name).and_then(Value::as_f64).unwrap();
    assert!(number("kl") > 0.0);
    let difference = number("sampling/sampling_logp_difference/max");
    assert!(difference < 1e-5, "{difference}");
    // A mixture with a reward for recovering the original characters.
    let weights = ["--set", "reward.judge_weight=0.5", "--set", "reward.recovery_weight=0.5"];
    place.succeed(&[&short[..], &["mix"], &weights[..]].concat());
    let metrics = objects(&place.read("mix/metrics.jsonl"));
    let number = |name: &str| metrics[0].get(name).and_then(Value::as_f64).unwrap();
    let mix = 0.5 * (1.0 - number("rewards/judge/mean") + number("rewards/recovery/mean"));
    assert!((mix - number("reward")).abs() < 1e-9);
}

/// A trial checks that all parts load and fit, that rewards vary, and that a short run is stable
/// and can be resumed.
#[test]
fn a_trial_of_an_infiller_ends_with_a_verdict() {
    let place = place();
    let ended = place.run(&["trial", "train.toml", "--steps", "12", "--set", "success.max_kl=0.5"]);
    for said in ["passed      Resume is exact: ", "passed      Audit: ", "verdict      go ahead"] {
        assert!(ended.stdout.contains(said), "{said}: {}{}", ended.stdout, ended.stderr);
    }
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Acceptance test 14 for infillers.
#[test]
fn a_killed_run_of_an_infiller_ends_as_one_that_was_not() {
    let place = place();
    let begun = Instant::now();
    place.succeed(&["train", "train.toml", "--run", "whole"]);
    let whole = begun.elapsed();
    kill_and_resume(&place, "train", 4, 6, whole, &result(&place.path("whole")));
    // Repeat with a different number of threads.
    place.succeed(&["train", "train.toml", "--run", "one", "--threads", "1"]);
    assert!(result(&place.path("one")) == result(&place.path("whole")));
}

#[test]
fn missing_texts_are_noted() {
    let place = place();
    let check = ["train", "train.toml", "--check", "--set", "passages.file=none.txt"];
    let checked = place.succeed(&check).stdout;
    let note = "note         none.txt does not exist yet; check the path\n";
    assert!(checked.contains(note), "{checked}");
}

#[test]
fn refuses_invalid_settings_with_a_message() {
    let place = place();
    let refuse = |more: &[&str], expected: Inline| {
        place.refuse(&[&["train", "train.toml", "--run", "none"], more].concat(), expected);
    };
    refuse(
        &["--set", "reward.judge=infiller/model"],
        str![
            "reward.judge: infiller/model is not a judge: its model family is infiller; expected sequence_scorer, as written by `grpo train-judge`"
        ],
    );
    refuse(
        &["--set", "model=judge/model"],
        str![[
            r#"model = "judge/model": judge/model is not an infiller: its model belongs to the family sequence_scorer; `grpo pretrain` with a [masked_lm] section creates an infiller"#
        ]],
    );
    refuse(
        &["--set", "passages.length=17"],
        str![
            "passages.length = 17 exceeds the infiller's context length of 16 characters (block_size); reduce passages.length"
        ],
    );
    refuse(
        &["--set", "sampling.max_new_tokens=5"],
        str![
            "--set sampling.max_new_tokens=5: sampling.max_new_tokens is only valid for models that continue a prompt and cannot be combined with [passages]; remove it"
        ],
    );
    refuse(
        &["--set", "masking.corruption=bert"],
        str![[
            r#"masking: completions are only valid at blanks, but `corruption` is "bert", so other positions would be wrong or would count; use `corruption` = "none""#
        ]],
    );
    let without = |section: &str, until: &str| {
        let (above, rest) = TRAIN.split_once(section).unwrap();
        let (_, below) = rest.split_once(until).unwrap();
        place.write("other.toml", format!("{above}{until}{below}"));
    };
    let refuse_other = |expected: Inline| {
        place.refuse(&["train", "other.toml", "--run", "none"], expected);
    };
    without("[masking]", "[train]");
    refuse_other(str![[
        r#"other.toml:5: [passages] requires a [masking] section; add it, for example with preset = "complex""#
    ]]);
    without("[passages]", "[masking]");
    refuse_other(str![
        "other.toml:5: [masking] requires a [passages] section; add it, or remove [masking]"
    ]);
    without("[passages]", "[train]");
    refuse_other(str![[
        r#"other.toml:15: reward.type = "infill" requires texts with filled blanks; add the [passages] and [masking] sections"#
    ]]);
    place.refuse(
        &["train", "other.toml", "--set", "reward.type=pattern", "--set", "reward.pattern=a"],
        str!["other.toml:11: sampling.max_new_tokens is missing or 0; set the maximum number of tokens per completion, from 1 to 1000000"],
    );
    // A reward for blanks in a run without blanks.
    place.write(
        "other.toml",
        TRAIN
            .replace("top_p = 0.95", "max_new_tokens = 4")
            .split("[passages]")
            .map(|part| part.split_once("[train]").map_or(part, |(_, below)| below))
            .collect::<Vec<&str>>()
            .join("[train]"),
    );
    refuse_other(str![[
        r#"other.toml:15: reward.type = "infill" requires texts with filled blanks; add the [passages] and [masking] sections"#
    ]]);
}

#[test]
fn judges_and_texts_that_do_not_fit_are_refused_in_a_sentence() {
    let place = place();
    let refuse = |more: &[&str], expected: Inline| {
        place.refuse(&[&["train", "train.toml", "--run", "none"], more].concat(), expected);
    };
    // The judge's context is shorter than the longest passage.
    place.write("judge.toml", JUDGE);
    // A judge initialized from the infiller would have the same context length.
    let set = [
        "data.length=12",
        "judge.steps=2",
        "start_from_infiller=false",
        "model={ n_layer = 1, n_head = 2, n_embd = 16 }",
    ];
    let short: Vec<&str> = set.into_iter().flat_map(|pair| ["--set", pair]).collect();
    place.succeed(&[&["train-judge", "judge.toml", "--run", "short"], &short[..]].concat());
    refuse(
        &["--set", "reward.judge=short/model"],
        str![
            "reward: the text has 16 characters, but the judge's context is 12; use shorter passages, or a judge with a larger block_size"
        ],
    );
    // A weak judge is only accepted as a reward if configured explicitly.
    let report = place.path("judge/model/judge.json");
    let weak =
        place.read("judge/model/judge.json").replace("\"passed\": true", "\"passed\": false");
    fs::remove_file(place.path("judge/model/manifest.json")).unwrap();
    fs::write(&report, weak).unwrap();
    let ended = place.run(&["train", "train.toml", "--run", "none"]);
    assert_eq!(ended.code, Some(1));
    let said = "error: reward.judge (reward.accept_failed_judge = true accepts it anyway): judge/model: the judge did not pass its gate: zero_p90 = ";
    assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
    let meant = ["--set", "reward.accept_failed_judge=true", "--set", "train.steps=1"];
    place.succeed(&[&["train", "train.toml", "--run", "weak"], &meant[..]].concat());
    // The text contains a character that is not in the infiller's vocabulary.
    place.write("text.txt", text().replace("gab", "gäb"));
    refuse(
        &["--set", "reward.accept_failed_judge=true"],
        str![[
            r#"passages: text.txt:3: 'ä' (character 6 of "cdefgäb\n") is not one of the 8 characters of the model; replace it, or train a model on text that has it"#
        ]],
    );
}
