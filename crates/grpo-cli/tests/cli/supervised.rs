//! `grpo pretrain` on texts.

use std::fs;

use serde_json::json;
use snapbox::data::Inline;
use snapbox::{IntoData, str};

use crate::support::Place;
use crate::texts::{CONTEXT, config, distance, entries, logprobs, numbers, objects};

/// A configuration that trains an adapter for the model `m`.
const SFT: &str = r#"run = "run"
seed = 1
start = "m"

[lora]
rank = 2
alpha = 4

[data]
file = "texts.jsonl"
validation_fraction = 0.25

[pretrain]
epochs = 4
batch_size = 4

[pretrain.optimizer]
learning_rate = 3e-2
"#;

const TEXTS: &str = concat!(
    "{\"prompt\": \"two and two are\", \"completion\": \" four\"}\n",
    "{\"prompt\": \"the quick brown\", \"completion\": \" fox jumps\"}\n",
    "{\"prompt\": \"the lazy\", \"completion\": \" dog\"}\n",
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2\"}], \"completion\": \"four\"}\n",
    "{\"text\": \"the user asks\"}\n",
    "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4, 5, 6]}\n",
    "{\"prompt\": \"the assistant\", \"completion\": \" answers\"}\n",
    "{\"prompt\": \"what two\", \"completion\": \" are\"}\n",
);

/// Creates a place with `sft.toml`, `texts.jsonl` and the text model `m`, which has a
/// beginning-of-sequence token.
fn place(family: &str) -> Place {
    let place = Place::new();
    place.write("sft.toml", SFT);
    place.write("texts.jsonl", TEXTS);
    place.config_folder(
        "source",
        &config(family, crate::texts::VOCABULARY).replacen('{', "{\"bos_token_id\": 330, ", 1),
    );
    place.add_tokenizer("source");
    place.succeed(&["init", "source/config.json", "-o", "m"]);
    place
}

#[test]
fn trains_an_adapter_on_a_frozen_base() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let place = place(family);
        let before = fs::read(place.path("m/model.safetensors")).unwrap();
        let ended = place.succeed(&["pretrain", "sft.toml"]);
        let expected = "texts.jsonl: 8 records: 6 for training, 2 for validation\n";
        assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
        assert!(ended.stdout.ends_with("adapter      run/adapter\n"), "{}", ended.stdout);
        assert!(before == fs::read(place.path("m/model.safetensors")).unwrap());
        assert!(!place.path("run/model").exists());
        assert_eq!(
            entries(&place.path("run/adapter")),
            ["adapter_config.json", "adapter_model.safetensors", "manifest.json"]
        );
        let losses: Vec<f64> = objects(&place.read("run/metrics.jsonl"))
            .iter()
            .filter_map(|line| line.get("train_loss")?.as_f64())
            .collect();
        assert_eq!(losses.len(), 4);
        assert!(losses[3] < losses[0], "{family}: {losses:?}");

        // Repeat with a different number of threads and from the recorded configuration.
        place.succeed(&["pretrain", "sft.toml", "--run", "two", "--threads", "2"]);
        place.succeed(&["pretrain", "run/config.toml", "--run", "again", "--threads", "1"]);
        for other in ["two", "again"] {
            let bytes = |run: &str| {
                fs::read(place.path(&format!("{run}/adapter/adapter_model.safetensors"))).unwrap()
            };
            assert!(bytes("run") == bytes(other), "{family}, {other}");
        }
    }
}

#[test]
fn all_of_a_model_is_learned_without_an_adapter() {
    let place = place("llama");
    let (above, rest) = SFT.split_once("[lora]").unwrap();
    let (_, below) = rest.split_once("[data]").unwrap();
    place.write("whole.toml", format!("{above}[data]{below}"));
    let ended = place.succeed(&["pretrain", "whole.toml"]);
    assert!(ended.stdout.ends_with("model        run/model\n"), "{}", ended.stdout);
    assert_eq!(
        entries(&place.path("run/model")),
        [
            "config.json",
            "manifest.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    let score = |model: &str| logprobs(&place.logprob(model, TEXTS, &[])).iter().sum::<f64>();
    assert!(score("run/model") > score("m") + 1.0);
}

/// Training and validation losses are means over the completion tokens and the end token.
#[test]
fn nothing_is_learned_from_a_prompt() {
    let place = Place::new();
    place.model_of_ids("m", "llama", 12);
    let records = [
        json!({"prompt_ids": [1, 2, 3, 4, 5], "completion_ids": [6, 7]}),
        json!({"prompt_ids": [8], "completion_ids": [9, 1, 2]}),
    ];
    place.write(
        "texts.jsonl",
        records.iter().map(|record| format!("{record}\n")).collect::<String>(),
    );
    place.write("sft.toml", SFT);
    place.succeed(&[
        "pretrain",
        "sft.toml",
        "--set",
        "pretrain.epochs=1",
        "--set",
        "pretrain.optimizer.learning_rate=1e-9",
        "--set",
        "data.validation_fraction=0.5",
    ]);
    let metrics = objects(&place.read("run/metrics.jsonl"));
    let number = |key: &str| metrics.iter().find_map(|line| line.get(key)?.as_f64()).unwrap();
    let mut got = [number("step_train_loss"), number("eval_loss")];
    got.sort_by(f64::total_cmp);
    // 11 is the end token.
    let ended = records.map(|record| {
        let mut ids = record["completion_ids"].as_array().unwrap().clone();
        ids.push(json!(11));
        format!("{}\n", json!({"prompt_ids": record["prompt_ids"], "completion_ids": ids}))
    });
    let mut expected: Vec<f64> = place
        .logprob("m", &ended.concat(), &[])
        .iter()
        .map(|line| -line["sum"].as_f64().unwrap() / numbers(line, "logprobs").len() as f64)
        .collect();
    expected.sort_by(f64::total_cmp);
    assert!(distance(&got, &expected) < 1e-4, "{got:?}, {expected:?}");
}

#[test]
fn texts_too_long_are_counted() {
    let place = place("llama");
    let long = json!({"prompt_ids": [1], "completion_ids": vec![2; CONTEXT]}).to_string();
    place.write("texts.jsonl", format!("{TEXTS}{long}\n"));
    // Including the end token, the text is one token longer than the model can learn.
    let ended = place.succeed(&["pretrain", "sft.toml", "--set", "pretrain.epochs=1"]);
    let expected = "texts.jsonl: 9 records, 1 skipped with more than 49 tokens (line 9: 50): 6 for training, 2 for validation\n";
    assert!(ended.stdout.starts_with(expected), "{}", ended.stdout);
    let arguments = ["pretrain", "sft.toml", "--run", "short", "--set", "pretrain.epochs=1"];
    let ended = place.succeed(&[&arguments[..], &["--set", "data.max_tokens=8"]].concat());
    assert!(
        ended.stdout.contains(" skipped with more than 8 tokens (line 1: "),
        "{}",
        ended.stdout
    );
    place.refuse(
        &["pretrain", "sft.toml", "--run", "none", "--set", "data.max_tokens=1"], str!["`texts.jsonl` has no usable record: 9 records, 9 skipped with more than 1 token (line 1: 11, line 2: 13, line 3: 7, …)"],
    );
}

#[test]
fn an_adapter_is_gone_on_with() {
    let place = place("qwen3");
    place.succeed(&["pretrain", "sft.toml"]);
    let (above, rest) = SFT.split_once("[lora]").unwrap();
    let (_, below) = rest.split_once("[data]").unwrap();
    place.write("on.toml", format!("adapter = \"run/adapter\"\n{above}[data]{below}"));
    place.succeed(&["pretrain", "on.toml", "--run", "on"]);
    let first = |run: &str| {
        objects(&place.read(&format!("{run}/metrics.jsonl")))[0]["step_train_loss"]
            .as_f64()
            .unwrap()
    };
    assert!(first("on") < first("run"), "{} after {}", first("on"), first("run"));
    let settings = |run: &str| place.read(&format!("{run}/adapter/adapter_config.json"));
    assert_eq!(settings("on"), settings("run"));

    // A base model with lower precision.
    place.succeed(&["pretrain", "sft.toml", "--run", "q8", "--set", "base_precision=q8"]);
    let off = (first("q8") - first("run")).abs();
    assert!(off > 0.0 && off < 0.2, "{off}");
}

/// Adds a `--set` option to a valid training command.
#[track_caller]
fn check_set(pair: &str, expected: impl IntoData) {
    place("llama").refuse(&["pretrain", "sft.toml", "--set", pair], expected);
}

#[test]
fn refuses_invalid_adapter_settings() {
    check_set(
        "lora.targets=[\"q_proj\", \"qkv\"]",
        str![[
            r#"start = "m": lora.targets: no linear layer is named 'qkv'; available: down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; also embed_tokens, lm_head"#
        ]],
    );
    check_set(
        "lora.rank=0",
        str!["--set lora.rank=0: lora.rank = 0 is out of range; expected 1 to 65536"],
    );
    check_set(
        "lora.alpha=0",
        str!["--set lora.alpha=0: lora.alpha = 0 is out of range; expected more than 0"],
    );
    check_set(
        "lora.dropout=1",
        str![
            "--set lora.dropout=1: lora.dropout = 1 is out of range; expected 0 or more and less than 1"
        ],
    );
    check_set(
        "adapter=run/adapter",
        str![
            "the configuration has both `adapter` and [lora]; keep `adapter` to train an existing adapter, or [lora] to create a new one"
        ],
    );
    check_set(
        "base_precision=int8",
        str![
            "--set base_precision=int8: base_precision: unknown value `int8`, expected one of `f32`, `bf16`, `q8`, `q4`"
        ],
    );
    check_set(
        "lora.bogus=1",
        str![
            "--set lora.bogus=1: unknown key 'lora.bogus'; there are: rank, alpha, dropout, targets, rslora, dora, modules_to_save"
        ],
    );
    check_set(
        "start=absent",
        str![[
            r#"start = "absent": model folder absent does not exist; a model folder contains config.json and model.safetensors; check the path"#
        ]],
    );

    let place = place("llama");
    place.write("sft.toml", without_lora());
    place.refuse(
        &["pretrain", "sft.toml", "--set", "base_precision=bf16"],
        str![
            "base_precision requires an adapter; add [lora] or `adapter`, or remove base_precision"
        ],
    );
    place.refuse(
        &["pretrain", "sft.toml", "--set", "adapter=absent"],
        str![[r#"start = "m": adapter folder absent does not exist; an adapter folder contains adapter_config.json and adapter_model.safetensors; `grpo pretrain` and `grpo train` write one to the run folder if the configuration has a [lora] section"#]],
    );
}

fn without_lora() -> String {
    let (above, rest) = SFT.split_once("[lora]").unwrap();
    let (_, below) = rest.split_once("[data]").unwrap();
    format!("{above}[data]{below}")
}

#[test]
fn refuses_an_adapter_of_another_family() {
    let place = place("llama");
    place.model_of_ids("other", "gpt2", 12);
    place.write("ids.jsonl", "{\"prompt_ids\": [1], \"completion_ids\": [2]}\n{\"prompt_ids\": [3], \"completion_ids\": [4]}\n");
    place.write("other.toml", SFT);
    place.write("sft.toml", without_lora());
    place.succeed(&[
        "pretrain",
        "other.toml",
        "--set",
        "start=other",
        "--set",
        "data.file=ids.jsonl",
        "--run",
        "other-run",
    ]);
    place.write("adapter.toml", SFT.replace("[lora]\nrank = 2\nalpha = 4\n", ""));
    let ended = place.run(&["pretrain", "adapter.toml", "--set", "adapter=other-run/adapter"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(
        ended.stderr.ends_with("was the adapter trained on a different base model?\n"),
        "{}",
        ended.stderr
    );
    assert!(!place.path("run").exists());
}

#[test]
fn new_models_are_of_molecules() {
    let place = Place::for_pretraining();
    let check = |pairs: &[&str], expected: Inline| {
        let sets = pairs.iter().flat_map(|pair| ["--set", pair]);
        let arguments: Vec<&str> = ["pretrain", "pretrain.toml"].into_iter().chain(sets).collect();
        place.refuse(&arguments, expected);
    };
    place.write("texts.jsonl", TEXTS);
    check(
        &["data.file=texts.jsonl"],
        str![
            "pretrain.toml:7: data.min_molecules: this key is only valid for files of molecules (.smi, .csv), not for texts.jsonl; remove it"
        ],
    );
    check(
        &["lora={rank=2, alpha=4}"],
        str![
            "an adapter requires an existing model; replace the [model] table with the key `start`, set to the model's folder"
        ],
    );
    check(
        &["base_precision=bf16"],
        str![
            "base_precision requires an adapter on an existing model, but [model] creates a new one; remove base_precision"
        ],
    );
}

/// Trains on a file with the given name and contents.
#[track_caller]
fn check_file(name: &str, content: &str, expected: impl IntoData) {
    let place = place("llama");
    place.write(name, content);
    place.refuse(&["pretrain", "sft.toml", "--set", &format!("data.file={name}")], expected);
}

#[test]
fn refuses_files_without_texts() {
    check_file(
        "empty.jsonl",
        "",
        str![
            "`empty.jsonl` has no records; write one JSON object per line, such as {\"prompt\": \"…\", \"completion\": \"…\"}"
        ],
    );
    let one = "{\"text\": \"the dog\"}\n";
    check_file(
        "one.jsonl",
        one,
        str![
            "no text in one.jsonl is left for validation, so the best model cannot be selected; use a file with at least 2"
        ],
    );
    let nothing = "no tokens to train on: a record requires `text`, or a completion of at least one token (`completion`, `completion_ids`, or a final assistant message), whose column data.columns.completion can name";
    check_file(
        "t.jsonl",
        &format!("{one}{{\"prompt\": \"the dog\"}}\n"),
        format!("t.jsonl:2: {nothing}"),
    );
    check_file(
        "t.jsonl",
        &format!("{one}{{\"prompt_ids\": [340], \"completion\": \"the\"}}\n"),
        str!["t.jsonl:2: the id 340 is outside the model's vocabulary of 340 tokens"],
    );
    check_file(
        "t.jsonl",
        &format!("{one}{{\"prompt\": \"the\", \"completion_ids\": [1, 9999]}}\n"),
        str!["t.jsonl:2: the id 9999 is outside the model's vocabulary of 340 tokens"],
    );
    check_file(
        "t.jsonl",
        &format!("{one}{{\"prompt\": \"the\", \"completion\": 4}}\n"),
        str![[
            r#"t.jsonl:2: `completion` is the value 4; expected text, a list of token ids, or a list with one assistant message (an empty completion is "" or `completion_ids`: [])"#
        ]],
    );
    check_set(
        "data.smiles_column=smiles",
        str![
            "--set data.smiles_column=smiles: data.smiles_column: this key is only valid for files of molecules (.smi, .csv), not for texts.jsonl; remove it"
        ],
    );
    check_set("data.file=absent.jsonl", str!["`absent.jsonl` does not exist; check the path"]);
    check_file(
        "molecules.smi",
        "CC\n",
        str![[
            r#"data.file = "molecules.smi" is read as molecules because of its name, but the model is trained on text; convert it to JSON lines (.jsonl) with `text`, or with `prompt` and `completion`"#
        ]],
    );
    check_set(
        "data.vocabulary=tokens.json",
        str![
            "--set data.vocabulary=tokens.json: data.vocabulary: this key is only valid for files of molecules (.smi, .csv), not for texts.jsonl; remove it"
        ],
    );
}

#[test]
fn models_that_learn_no_text() {
    let place = place("llama");
    // The model has no tokenizer.
    place.model_of_ids("ids", "gpt2", 12);
    place.refuse(
        &["pretrain", "sft.toml", "--set", "start=ids"],
        str!["texts.jsonl:1: `ids` has no tokenizer.json, so text cannot be tokenized; add the model's tokenizer.json to the folder, or provide `prompt_ids` and `completion_ids`"],
    );
    place.config_folder("bert-source", &config("bert", 12));
    place.succeed(&["init", "bert-source/config.json", "-o", "bert"]);
    place.refuse(
        &["pretrain", "sft.toml", "--set", "start=bert"],
        str![[r#"start = "bert": bert is an encoder (bert), which does not predict next tokens; use a causal language model"#]],
    );
    // A template that does not parse, and one that raises an error.
    fs::remove_file(place.path("m/manifest.json")).unwrap();
    place.write("m/chat_template.jinja", "{% for m in messages %}");
    let ended = place.run(&["pretrain", "sft.toml"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    let expected = "error: start = \"m\": line 1 of the chat template in `m/chat_template.jinja` does not parse: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    place.write("m/chat_template.jinja", "{{ raise_exception('no chats') }}");
    let ended = place.run(&["pretrain", "sft.toml"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    let expected = "error: texts.jsonl:4: line 1 of the chat template in `m/chat_template.jinja` cannot render the messages: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    assert!(!place.path("run").exists());
}
