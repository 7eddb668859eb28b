//! `grpo pretrain` with sampling evaluations, early stopping and a diversity term.

use std::fs;

use serde_json::Value;
use snapbox::data::Inline;
use snapbox::str;

use crate::support::{Ended, Place};
use crate::texts::{config, entries, objects};

const SFT: &str = r#"run = "run"
seed = 1
start = "m"

[lora]
rank = 2
alpha = 4

[data]
file = "texts.jsonl"
validation_fraction = 0.3

[pretrain]
epochs = 2
batch_size = 4
eval_every = 2

[pretrain.optimizer]
learning_rate = 3e-2

[pretrain.eval]
prompts = 2
generations = 3
rows = 1
max_new_tokens = 6
"#;

pub(crate) const POLYCHROMIC: &str = r#"extends = "sft.toml"
run = "polychromic"

[pretrain.diversity]
term = "score_function"
weight = 0.3
embedder = { type = "hashed_ngrams" }
every = 2
max_examples = 2
max_new_tokens = 6
"#;

/// Creates a place with `sft.toml`, `texts.jsonl` and the text model `m`.
pub(crate) fn place() -> Place {
    let place = Place::new();
    place.write("sft.toml", SFT);
    let words = ["the quick brown", "the lazy dog", "two and two", "what is four", "the user asks"];
    let replies = [" fox jumps", " asks", " four", " answers"];
    let pairs = words.iter().flat_map(|prompt| replies.iter().map(move |reply| (prompt, reply)));
    let lines = pairs.map(|(prompt, completion)| {
        format!("{}\n", serde_json::json!({"prompt": prompt, "completion": completion}))
    });
    place.write("texts.jsonl", lines.collect::<String>());
    place.config_folder("source", &config("qwen3", crate::texts::VOCABULARY));
    place.add_tokenizer("source");
    place.succeed(&["init", "source/config.json", "-o", "m"]);
    place
}

fn weights(place: &Place, run: &str) -> Vec<u8> {
    fs::read(place.path(&format!("{run}/adapter/adapter_model.safetensors"))).unwrap()
}

/// Returns the last event of a run and its reason.
fn last_event(place: &Place, run: &str) -> (String, Option<String>) {
    let events = objects(&place.read(&format!("{run}/events.jsonl")));
    let last = events.last().unwrap();
    let text = |key: &str| last.get(key).and_then(Value::as_str).map(str::to_owned);
    (text("event").unwrap(), text("reason"))
}

#[test]
fn a_weight_of_diversity_is_a_layer_on_a_plain_training() {
    let place = place();
    place.write("polychromic.toml", POLYCHROMIC);
    let plain = place.succeed(&["pretrain", "sft.toml"]);
    assert!(plain.stdout.contains("\nbest         step "), "{}", plain.stdout);
    let Ended { stdout, .. } = place.succeed(&["pretrain", "polychromic.toml"]);
    for shown in ["  truth", "self-BLEU", "kept (step ", "distinct-2", "empty replies"] {
        assert!(stdout.contains(shown), "no {shown} in {stdout}");
    }
    assert!(stdout.ends_with("adapter      polychromic/adapter\n"), "{stdout}");
    let mut written = entries(&place.path("polychromic"));
    written.retain(|name| *name != ".lock" && !name.starts_with("events.out.tfevents."));
    assert_eq!(
        written,
        [
            "adapter",
            "checkpoints",
            "completions",
            "config.toml",
            "events.jsonl",
            "metrics.jsonl",
            "run.json",
            "samples.jsonl"
        ]
    );
    assert_eq!(last_event(&place, "polychromic"), ("finished".to_owned(), None));

    let lines = objects(&place.read("polychromic/metrics.jsonl"));
    let steps: Vec<_> = lines.iter().filter(|line| line.contains_key("grad_norm")).collect();
    for (place, step) in steps.iter().enumerate() {
        assert_eq!(step.contains_key("diversity_score"), place % 2 == 0, "{step:?}");
        assert!(
            place % 2 != 0 || step["combined_loss"].as_f64() < step["step_train_loss"].as_f64()
        );
    }
    let seen: Vec<_> = lines.iter().filter(|line| line.contains_key("eval_loss")).collect();
    let keys = ["train_loss", "best", "eval_self_bleu", "eval_distinct_1", "eval_distinct_2"];
    assert!(
        seen.len() > 2 && seen.iter().all(|line| keys.iter().all(|key| line.contains_key(*key)))
    );
    let rows = objects(&place.read("polychromic/samples.jsonl"));
    assert_eq!(rows.len(), seen.len());
    for (row, evaluation) in rows.iter().zip(&seen) {
        assert_eq!(row["train_step"], evaluation["train_step"]);
        assert_eq!((&row["prompt"], row.len()), (&rows[0]["prompt"], 4));
    }

    // λ affects the weights unless it is 0.
    assert!(weights(&place, "run") != weights(&place, "polychromic"));
    let zero = ["pretrain", "polychromic.toml", "--run", "zero", "--set"];
    place.succeed(&[&zero[..], &["pretrain.diversity.weight=0"]].concat());
    assert!(weights(&place, "run") == weights(&place, "zero"));
    // From the recorded configuration with a different number of threads.
    place.succeed(&["pretrain", "polychromic/config.toml", "--run", "again", "--threads", "1"]);
    assert!(weights(&place, "polychromic") == weights(&place, "again"));
}

/// Regression test: patience and threshold were ignored.
#[test]
fn a_training_that_gains_nothing_ends_early_and_keeps_its_best() {
    let place = place();
    let sets = ["pretrain.epochs=9", "pretrain.eval_every=1", "pretrain.patience=2"];
    // A larger gain than a single step can achieve.
    let more = ["pretrain.min_gain=5", "pretrain.optimizer.learning_rate=1e-3"];
    let sets = sets.into_iter().chain(more).flat_map(|pair| ["--set", pair]);
    let arguments: Vec<&str> = ["pretrain", "sft.toml"].into_iter().chain(sets).collect();
    let Ended { stdout, .. } = place.succeed(&arguments);
    let said = "\nstopped      the validation loss did not improve enough up to step 3 (pretrain.patience, pretrain.min_gain); the lowest is ";
    assert!(stdout.contains(said), "{stdout}");
    // The run is finished, and the previous event contains the reason for ending early.
    assert_eq!(last_event(&place, "run"), ("finished".to_owned(), None));
    let events = objects(&place.read("run/events.jsonl"));
    let stopped = &events[events.len() - 2];
    assert_eq!(stopped["event"], "stopped");
    assert!(said.contains(&stopped["reason"].as_str().unwrap()[..40]));
    let lines = objects(&place.read("run/metrics.jsonl"));
    assert_eq!(lines.iter().filter(|line| line.contains_key("grad_norm")).count(), 3);
    let best = lines.iter().rfind(|line| line.get("best") == Some(&Value::Bool(true)));
    let best = best.unwrap()["train_step"].as_u64().unwrap();
    assert!(stdout.contains(&format!("\nbest         step {best}, validation loss ")), "{stdout}");
    assert!(place.path("run/adapter/manifest.json").exists());
}

#[test]
fn the_kept_adapter_is_that_of_the_lowest_validation_loss() {
    let place = place();
    let sets = ["pretrain.epochs=9", "pretrain.eval_every=1", "pretrain.patience=2"];
    // The learning rate is so high that the loss rises after the first step.
    let more = ["pretrain.optimizer.learning_rate=1", "save.every=1", "save.keep_last=9"];
    let sets = sets.into_iter().chain(more).flat_map(|pair| ["--set", pair]);
    let arguments: Vec<&str> = ["pretrain", "sft.toml"].into_iter().chain(sets).collect();
    let Ended { stdout, .. } = place.succeed(&arguments);
    assert!(stdout.contains("\nbest         step 1, validation loss "), "{stdout}");
    let of_step = |step: u64| {
        let file = format!("run/checkpoints/step-{step}/adapter_model.safetensors");
        fs::read(place.path(&file)).unwrap()
    };
    assert!(weights(&place, "run") == of_step(1));
    assert!(of_step(1) != of_step(3));
}

#[test]
fn limits_warn_or_end() {
    let place = place();
    let run = |action: &str, name: &str| {
        let limits = format!("pretrain.limits={{max_valid_loss=0.5, action=\"{action}\"}}");
        place.run(&["pretrain", "sft.toml", "--run", name, "--set", &limits])
    };
    let warned = run("warn", "warned");
    let said = "limit        after step 2 the validation loss ";
    assert_eq!(
        (warned.code, warned.stdout.matches(said).count()),
        (Some(0), 1),
        "{}",
        warned.stdout
    );
    assert_eq!(warned.stdout.matches("limit  ").count(), 1, "{}", warned.stdout);
    let stopped = run("stop", "stopped");
    assert_eq!(stopped.code, Some(1));
    let said = "error: a limit stopped training run stopped: after step 2 the validation loss ";
    assert!(stopped.stderr.contains(said), "{}", stopped.stderr);
    assert!(place.path("stopped/adapter/manifest.json").exists());
    assert_eq!(last_event(&place, "stopped").0, "stopped");
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let place = place();
    place.write("polychromic.toml", POLYCHROMIC);
    let check = |pair: &str, expected: Inline| {
        place.refuse(&["pretrain", "polychromic.toml", "--set", pair], expected);
    };
    check(
        "pretrain.diversity.weigth=1",
        str![
            "--set pretrain.diversity.weigth=1: unknown key 'pretrain.diversity.weigth'; did you mean 'weight'?"
        ],
    );
    check(
        "pretrain.diversity.generations=1",
        str![
            "--set pretrain.diversity.generations=1: pretrain.diversity.generations = 1 is out of range; expected 2 to 10000"
        ],
    );
    check(
        "pretrain.min_gain=0.01",
        str![
            "--set pretrain.min_gain=0.01: pretrain.min_gain has no effect with pretrain.patience = 0; set pretrain.patience, or remove min_gain"
        ],
    );
    check(
        "pretrain.diversity.max_new_tokens=100",
        str![
            "--set pretrain.diversity.max_new_tokens=100: pretrain.diversity: a prompt of 7 tokens with max_new_tokens = 100 exceeds the model's context of 48 tokens; set max_new_tokens to at most 42"
        ],
    );
    check(
        "pretrain.diversity.measure=bleu",
        str![[
            r#"polychromic.toml:7: pretrain.diversity.embedder is only valid for the measure "semantic"; remove it"#
        ]],
    );
    place.write("none.toml", POLYCHROMIC.replace("embedder = { type = \"hashed_ngrams\" }\n", ""));
    let ended = place.run(&["pretrain", "none.toml"]);
    assert_eq!(ended.code, Some(1));
    let said = "pretrain.diversity.measure = \"semantic\" requires an embedder; ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    let folder = "pretrain.diversity.embedder={type=\"sentence_transformers\", folder=\"absent\"}";
    let ended = place.run(&["pretrain", "polychromic.toml", "--set", folder]);
    assert!(ended.stderr.contains("absent") && ended.code == Some(1), "{}", ended.stderr);
    assert!(!place.path("polychromic").exists());
}
