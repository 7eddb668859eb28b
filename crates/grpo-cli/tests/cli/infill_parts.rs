//! `grpo pretrain` for infillers and `grpo train-judge`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::texts::{entries, objects};

pub(crate) const INFILLER: &str = r#"run = "infiller"
seed = 1

[data]
file = "text.txt"
length = 16

[masking]
stages = [{ type = "random", max_ratio = 0.8 }]

[model]
n_layer = 1
n_head = 2
n_embd = 16

[masked_lm]
steps = 200
batch_size = 16
eval_every = 100

[masked_lm.optimizer]
learning_rate = 1e-2

[validation]
batches = 2
"#;

pub(crate) const JUDGE: &str = r#"run = "judge"
seed = 2
infiller = "infiller/model"
natural_share = 0.3

[data]
file = "text.txt"
length = 16

[masking]
stages = [{ type = "random", max_ratio = 0.9 }, { type = "line", min_ratio = 0.1, max_ratio = 0.9 }]

[judge]
steps = 20
batch_size = 8
eval_every = 10

[judge.optimizer]
learning_rate = 1e-2

[validation]
natural = 20
spread = 40

[gate]
max_zero_p90 = 1.0
min_spearman = -1.0
"#;

/// Additional sections for a judge that is trained from scratch.
pub(crate) const OWN_TRUNK: &str = r#"
[model]
n_layer = 1
n_head = 2
n_embd = 16

[masked_lm]
steps = 60
batch_size = 16
eval_every = 60

[masked_lm.optimizer]
learning_rate = 1e-2
"#;

/// Lines that only differ in where their pattern starts.
pub(crate) fn text() -> String {
    (0..120).map(|i| format!("{}\n", &"abcdefgabcdefg"[i % 7..i % 7 + 7])).collect()
}

pub(crate) fn place() -> Place {
    let place = Place::new();
    place.write("text.txt", text());
    place.write("infiller.toml", INFILLER);
    place.write("judge.toml", JUDGE);
    place
}

/// Creates a place with a trained infiller.
pub(crate) fn with_infiller() -> Place {
    let place = place();
    place.succeed(&["pretrain", "infiller.toml", "--set", "masked_lm.steps=3"]);
    place
}

fn with_value(metrics: &str, key: &str) -> Vec<f64> {
    objects(metrics).iter().filter_map(|line| line.get(key)?.as_f64()).collect()
}

#[test]
fn an_infiller_is_learned() {
    let place = place();
    let ended = place.succeed(&["pretrain", "infiller.toml"]);
    assert!(
        ended.stdout.starts_with("text.txt: 120 lines, 960 characters kept: "),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.ends_with("model        infiller/model\n"), "{}", ended.stdout);
    assert_eq!(
        entries(&place.path("infiller/model")),
        ["characters.json", "config.json", "manifest.json", "model.safetensors"]
    );
    let metrics = place.read("infiller/metrics.jsonl");
    let losses = with_value(&metrics, "step_train_loss");
    assert_eq!(losses.len(), 200);
    assert!(losses[199] < 0.6 * losses[0], "{losses:?}");
    let eval_loss = with_value(&metrics, "eval_loss");
    let accuracy = with_value(&metrics, "eval_accuracy");
    assert_eq!(eval_loss.len(), 2);
    assert!(eval_loss[1] < eval_loss[0] && accuracy[1] > 0.6, "{eval_loss:?} {accuracy:?}");

    // Repeat with a different number of threads and from the recorded configuration.
    place.succeed(&["pretrain", "infiller.toml", "--run", "two", "--threads", "2"]);
    place.succeed(&["pretrain", "infiller/config.toml", "--run", "again", "--threads", "1"]);
    let weights =
        |run: &str| fs::read(place.path(&format!("{run}/model/model.safetensors"))).unwrap();
    assert!(weights("infiller") == weights("two"));
    assert!(weights("infiller") == weights("again"));

    // Continue training the model.
    let (above, rest) = INFILLER.split_once("[model]").unwrap();
    let (_, below) = rest.split_once("[masked_lm]").unwrap();
    place.write("on.toml", format!("start = \"infiller/model\"\n{above}[masked_lm]{below}"));
    place.succeed(&["pretrain", "on.toml", "--run", "on", "--set", "masked_lm.steps=3"]);
    let first = with_value(&place.read("on/metrics.jsonl"), "step_train_loss")[0];
    assert!(first < 0.7 * losses[0], "{first}");
}

#[test]
fn a_judge_is_trained_and_held_against_its_gate() {
    let place = with_infiller();
    let ended = place.succeed(&["train-judge", "judge.toml"]);
    assert!(
        ended.stdout.contains("\njudge        judge/model\npassed       zero_p90 = "),
        "{}",
        ended.stdout
    );
    assert_eq!(
        entries(&place.path("judge/model")),
        ["characters.json", "config.json", "judge.json", "manifest.json", "model.safetensors"]
    );
    let report: Value = serde_json::from_str(&place.read("judge/model/judge.json")).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["gate"], json!({"max_zero_p90": 1.0, "min_spearman": -1.0}));
    assert_eq!(report["texts"], json!({"natural": 20, "spread": 40}));
    // The weights are those of the best validation, so the report uses different texts to avoid
    // selection bias.
    let looks: Vec<Value> = objects(&place.read("judge/metrics.jsonl"))
        .into_iter()
        .map(Value::Object)
        .filter(|line| line.get("zero_p90").is_some())
        .collect();
    assert_eq!(looks.len(), 2);
    let best = looks.iter().rfind(|look| look["best"] == true).unwrap();
    assert!(report["validation"]["zero_p90"].is_f64(), "{report}");
    for key in ["eval_loss", "zero_mean", "pearson", "spearman"] {
        assert_ne!(report["validation"][key], best[key], "{key}");
    }
    assert_eq!(report["train_step"], best["train_step"]);

    place.succeed(&["train-judge", "judge.toml", "--run", "two", "--threads", "2"]);
    place.succeed(&["train-judge", "judge/config.toml", "--run", "again", "--threads", "1"]);
    let weights =
        |run: &str| fs::read(place.path(&format!("{run}/model/model.safetensors"))).unwrap();
    assert!(weights("judge") == weights("two"));
    assert!(weights("judge") == weights("again"));
}

#[test]
fn a_judge_that_does_not_pass_is_written_and_refused() {
    let place = with_infiller();
    place.refuse(
        &["train-judge", "judge.toml", "--set", "validation.spread=10001"],
        "--set validation.spread=10001: validation.spread = 10001 is out of range; expected 2 to 10000",
    );
    let ended = place.run(&["train-judge", "judge.toml", "--set", "gate.min_spearman=1.0"]);
    assert_eq!(ended.code, Some(1));
    let report: Value = serde_json::from_str(&place.read("judge/model/judge.json")).unwrap();
    assert_eq!(report["passed"], false);
    let figure = |key: &str| report["validation"][key].as_f64().unwrap();
    let expected = format!(
        "error: the judge did not pass its gate and cannot be used as a reward: zero_p90 = {:.3} (at most 1), Spearman = {:.3} (at least 1); train it longer, or train a larger one\n",
        figure("zero_p90"),
        figure("spearman")
    );
    assert!(ended.stderr.ends_with(&expected), "{}", ended.stderr);
    assert!(place.path("judge/model/model.safetensors").exists());
}

/// An independent judge with a different seed and size, which does not use the infiller.
#[test]
fn a_judge_can_begin_with_nothing() {
    let place = with_infiller();
    let judge = JUDGE.replace("natural_share", "start_from_infiller = false\nnatural_share");
    place.write("new.toml", format!("{judge}\n[model]\nn_layer = 2\nn_head = 1\nn_embd = 8\n"));
    place.succeed(&["train-judge", "new.toml"]);
    let config: Value = serde_json::from_str(&place.read("judge/model/config.json")).unwrap();
    assert_eq!((&config["model_type"], &config["n_layer"]), (&json!("sequence_scorer"), &json!(2)));
    assert_eq!(
        place.read("judge/model/characters.json"),
        place.read("infiller/model/characters.json")
    );
}

/// With the same seed, sizes, text and masking, `grpo pretrain` creates an identical trunk. If the
/// trunk is frozen, the judge contains it unchanged.
#[test]
fn a_judge_trains_its_own_trunk() {
    let place = with_infiller();
    let judge = JUDGE.replace("natural_share", "start_from_infiller = false\nnatural_share");
    place.write("own.toml", format!("{judge}{OWN_TRUNK}\n[transfer]\nfreeze_trunk = true\n"));
    place.succeed(&["train-judge", "own.toml"]);

    let (above, _) = INFILLER.split_once("[model]").unwrap();
    let above = above.replace("seed = 1", "seed = 2").replace("0.8", "0.9");
    place.write("trunk.toml", format!("{above}{OWN_TRUNK}"));
    place.succeed(&["pretrain", "trunk.toml", "--run", "trunk"]);
    let of_infiller = tensors(&place.path("trunk/model/model.safetensors"));
    let of_judge = tensors(&place.path("judge/model/model.safetensors"));
    let shared = of_infiller.iter().filter(|(name, _)| of_judge.contains_key(*name));
    assert_eq!(shared.clone().count(), of_infiller.len(), "{:?}", of_judge.keys());
    for (name, values) in shared {
        assert!(*values == of_judge[name], "{name}");
    }

    // The trunk is trained in a separate stage. The metrics of the judge only contain its own
    // steps.
    let own = place.read("judge/trunk/metrics.jsonl");
    let losses = with_value(&own, "step_train_loss");
    assert!(losses.len() == 60 && losses[59] < 0.9 * losses[0], "{losses:?}");
    let steps = with_value(&place.read("judge/metrics.jsonl"), "step_train_loss");
    assert_eq!(steps.len(), 20);
}

/// Reads the bytes of each tensor in a safetensors file.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).unwrap();
    let entries = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let of_entry = |(name, entry): (String, Value)| {
        let offset = |i: usize| entry["data_offsets"][i].as_u64().unwrap() as usize;
        let bytes = data[offset(0)..offset(1)].to_vec();
        (name, bytes)
    };
    entries.map(of_entry).collect()
}

/// Without blanks, there is no accuracy for blanks.
#[test]
fn replaced_characters_are_learned_without_a_blank() {
    let place = place();
    let stages = "masking.stages=[{type=\"replacement\",max_ratio=0.5,mask=0.0,fragment=0.0}]";
    let arguments = ["pretrain", "infiller.toml", "--set", "masked_lm.steps=3", "--set", stages];
    let ended = place.succeed(&arguments);
    assert!(!ended.stderr.contains("NaN"), "{}", ended.stderr);
    let metrics = place.read("infiller/metrics.jsonl");
    assert_eq!(with_value(&metrics, "eval_loss").len(), 1);
    assert!(!metrics.contains("eval_accuracy"), "{metrics}");
}

/// A judge that passed its test can weight the training texts of an infiller.
#[test]
fn an_infiller_can_be_trained_with_a_judge_that_passed() {
    let place = with_infiller();
    place.succeed(&["train-judge", "judge.toml"]);
    let arguments =
        ["pretrain", "infiller.toml", "--run", "new", "--set", "masked_lm.steps=3", "--set"];
    let with_judge = [&arguments[..], &["modifiers.judge.model=judge/model"]].concat();
    place.succeed(&with_judge);
    let losses =
        |run: &str| with_value(&place.read(&format!("{run}/metrics.jsonl")), "step_train_loss");
    let (with, without) = (losses("new"), losses("infiller"));
    assert_ne!(with[0], without[0], "the judge's weights are not 1");

    let report = place.read("judge/model/judge.json");
    let failed = report.replace("\"passed\": true", "\"passed\": false");
    place.write("judge/model/judge.json", failed);
    fs::remove_file(place.path("judge/model/manifest.json")).unwrap();
    let ended = place.run(&[&with_judge[..], &["--force"]].concat());
    assert_eq!(ended.code, Some(1));
    let expected =
        "error: modifiers.judge.model: judge/model: the judge did not pass its gate: zero_p90 = ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("; train a better one, or set modifiers.judge.accept_failed_judge"),
        "{}",
        ended.stderr
    );
    let all_the_same = ["--force", "--set", "modifiers.judge.accept_failed_judge=true"];
    place.succeed(&[&with_judge[..], &all_the_same].concat());
    assert_eq!(losses("new"), with);
}

/// A judge whose context is too short cannot detect every replacement.
#[test]
fn a_judge_that_sees_too_little_weighs_no_texts() {
    let place = with_infiller();
    let judge = JUDGE.replace("length = 16", "length = 12");
    let judge = judge.replace("natural_share", "start_from_infiller = false\nnatural_share");
    place.write("short.toml", format!("{judge}\n[model]\nn_layer = 1\nn_head = 1\nn_embd = 8\n"));
    place.succeed(&["train-judge", "short.toml"]);
    place.refuse(
        &["pretrain", "infiller.toml", "--run", "new", "--set", "modifiers.judge.model=judge/model"],
        str!["--set modifiers.judge.model=judge/model: modifiers.judge.model: the judge's context is 12 characters, but texts have up to 16 (data.length); lower data.length, or use a judge trained on longer texts"],
    );
}
