//! Model folders from other programs: output layers that should be tied, adapters that overflow, long
//! lists of end tokens, chat templates without a switch, and ids without a token.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use snapbox::str;

use crate::support::Place;
use crate::texts::{TEMPLATE, config, entries, logprobs, numbers, objects};
use crate::training_texts;

const RECORDS: &str = "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4, 5, 6, 7]}\n";

/// Creates the model `m` and a trained adapter `a` for it, without its manifest.
fn with_adapter(place: &Place) {
    crate::folders::with_adapter(place, "llama");
    fs::remove_file(place.path("a/manifest.json")).unwrap();
}

/// Replaces all weights of a safetensors file in f32 by `value`.
fn fill(path: &Path, value: f32) {
    let mut bytes = fs::read(path).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for weight in bytes[8 + header..].chunks_exact_mut(4) {
        weight.copy_from_slice(&value.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

/// Expected values are those of transformers (`tests/peers/transformers/make_stored_heads.py`).
#[test]
fn a_stored_output_layer_is_used_and_said() {
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-model/tests/fixtures/stored_head");
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let (place, from) = (Place::new(), fixtures.join(family));
        fs::create_dir(place.path("m")).unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::copy(from.join(name), place.path("m").join(name)).unwrap();
        }
        let expected = fs::read_to_string(from.join("expected.json")).unwrap();
        let expected = objects(&expected.replace('\n', " ")).remove(0);
        let record =
            json!({"prompt_ids": expected["prompt"], "completion_ids": expected["completion"]});
        place.write("in.jsonl", format!("{record}\n"));
        let ended = place.succeed(&["logprob", "--model", "m", "--input", "in.jsonl"]);
        assert_eq!(
            ended.stderr,
            "note: m has tie_word_embeddings = true, but its lm_head.weight differs from the token embedding; lm_head.weight is used, as in transformers 5\n"
        );
        let found = logprobs(&objects(&ended.stdout));
        for (found, expected) in found.iter().zip(numbers(&expected, "logprobs")) {
            assert!((found - expected).abs() < 1e-4, "{family}: {found} {expected}");
        }
    }
}

#[test]
fn an_adapter_that_changes_nothing_is_said() {
    let place = Place::new();
    with_adapter(&place);
    place.write("in.jsonl", RECORDS);
    let logprob = ["logprob", "--model", "m", "--adapter", "a", "--input", "in.jsonl"];
    let merge = ["merge", "--model", "m", "--adapter", "a", "-o"];
    let note = "note: adapter a changes nothing: its update of every weight is 0\n";
    let ended = place.succeed(&logprob);
    assert!(!ended.stderr.contains("changes nothing"), "{}", ended.stderr);
    fill(&place.path("a/adapter_model.safetensors"), 0.0);
    let ended = place.succeed(&logprob);
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
    let ended = place.succeed(&[&merge[..], &["merged"]].concat());
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
}

#[test]
fn a_merge_that_overflows_writes_nothing() {
    let place = Place::new();
    with_adapter(&place);
    let config = place.read("a/adapter_config.json");
    let merge = ["merge", "--model", "m", "--adapter", "a", "-o", "merged"];
    for alpha in ["1e39", "1e308", "1e-50"] {
        place.write(
            "a/adapter_config.json",
            config.replace("4.0", alpha).replace(": 4,", &format!(": {alpha},")),
        );
        let said = place.run(&merge);
        assert!(
            said.code == Some(1)
                && said.stderr.contains(" is out of range; expected 1.2e-38 to 3.4e38"),
            "{alpha}: {}",
            said.stderr
        );
    }
    place.write("a/adapter_config.json", config);
    for (weight, format) in [(1e20, "f32"), (1e38, "bf16"), (f32::MAX, "f32")] {
        fill(&place.path("a/adapter_model.safetensors"), weight);
        let before = place.files();
        let ended = place.run(&[&merge[..], &["--dtype", format]].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let expected = "error: cannot merge a into m: model.safetensors is not written: tensor 'model.layers.0.";
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert!(ended.stderr.ends_with("has values that are not finite\n"), "{}", ended.stderr);
        assert_eq!(place.files(), before);
    }
}

#[test]
fn force_replaces_a_merged_model_and_nothing_else() {
    let place = Place::new();
    with_adapter(&place);
    let merge = |to| ["merge", "--model", "m", "--adapter", "a", "-o", to, "--force"];
    place.succeed(&merge("new"));
    let before = place.files();
    place.succeed(&merge("new"));
    assert_eq!(place.files(), before);
    place.refuse(&merge("m"), str!["m is an input of the merge; choose another folder for -o"]);
    place.refuse(&merge("a"), str!["a is an input of the merge; choose another folder for -o"]);
    fs::create_dir(place.path("other")).unwrap();
    place.write("other/mine.txt", "x");
    for other in ["other", "learn.toml", "run"] {
        let expected = format!(
            "{other} is not a model folder, so --force does not replace it; choose another folder for -o"
        );
        place.refuse(&merge(other), expected);
    }
    assert_eq!(entries(&place.path("other")), ["mine.txt"]);
}

#[test]
fn a_million_end_tokens_are_refused() {
    let place = Place::new();
    place.model_of_ids("m", "llama", 12);
    let ids: Vec<u32> = (0..1_000_000).collect();
    place.write("m/generation_config.json", json!({"eos_token_id": ids}).to_string());
    fs::remove_file(place.path("m/manifest.json")).unwrap();
    place.write("in.jsonl", RECORDS);
    place.refuse(
        &["sample", "--model", "m", "--prompts", "in.jsonl"],
        str!["`eos_token_id` in `m/generation_config.json` lists 1000000 ids; expected at most 1000; copy the file from the original model again"],
    );
}

#[test]
fn thinking_without_a_switch_is_refused_or_noted() {
    let place = training_texts::place("qwen3");
    let template = TEMPLATE.replace("enable_thinking", "another_name");
    let tokenizer = json!({"eos_token": "<|im_end|>", "chat_template": template});
    place.write("m/tokenizer_config.json", tokenizer.to_string());
    fs::remove_file(place.path("m/manifest.json")).unwrap();
    let because = "because the chat template of the model does not use `enable_thinking`";
    let (on, off) = (["--set", "data.thinking=true"], ["--set", "data.thinking=false"]);
    for command in [&["train", "train.toml"][..], &["train", "train.toml", "--check"]] {
        place.refuse(
            &[command, &on].concat(),
            format!("data.thinking = true has no effect, {because}; remove it"),
        );
        let said = place.succeed(&[command, &off].concat()).stdout;
        let note = format!("data.thinking = false has no effect, {because}");
        assert!(said.contains(&note), "{said}");
    }
    // A model whose template does not mention thinking does what `false` asks for.
    let silent = template.replace("<think></think>", "");
    let tokenizer = json!({"eos_token": "<|im_end|>", "chat_template": silent.replace("not enable_thinking", "true")});
    let with_thoughts = place.read("m/tokenizer_config.json");
    place.write("m/tokenizer_config.json", tokenizer.to_string().replace("thinking", "reasoning"));
    let said = place.succeed(&[&["train", "train.toml", "--check"][..], &off].concat()).stdout;
    assert!(!said.contains("data.thinking"), "{said}");
    place.write("m/tokenizer_config.json", with_thoughts);
    let sample = [
        "sample",
        "--model",
        "m",
        "--prompt",
        "2",
        "--chat",
        "--max-new-tokens",
        "2",
        "--thinking",
    ];
    place.refuse(
        &[&sample[..], &["true"]].concat(),
        str!["--thinking true has no effect, because the chat template of m does not use `enable_thinking`; remove it"],
    );
    let ended = place.succeed(&[&sample[..], &["false"]].concat());
    let note = "note: --thinking false has no effect, because the chat template of m does not use `enable_thinking`\n";
    assert!(ended.stderr.contains(note), "{}", ended.stderr);
}

#[test]
fn the_first_prompt_is_shown_as_the_model_reads_it() {
    let place = training_texts::place("qwen3");
    place.write(
        "prompts.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"2 + 2\"}]}]}\n",
    );
    let said = place.succeed(&["train", "train.toml", "--set", "train.steps=1"]).stdout;
    let line = said.lines().find(|line| line.starts_with("first prompt ")).unwrap_or_default();
    let expected = r#"first prompt "<|im_start|>user\n2 + 2<|im_end|>\n<|im_start|>assistant\n" ("#;
    assert!(line.starts_with(expected) && line.ends_with(" tokens)"), "{said}");
    let note = said.lines().find(|line| line.contains(" have no token in tokenizer.json"));
    assert!(note.is_some_and(|note| note.starts_with("note         ")), "{said}");
}

/// The chain sample, then eval: the answer comes along.
#[test]
fn samples_keep_their_answers_for_an_evaluation() {
    let place = Place::new();
    place.model_of_texts("m", "llama");
    let line = |prompt: &str, answer: Value| json!({"prompt": prompt, "answer": answer, "reward_model": {"ground_truth": "x"}, "sum": 3});
    let lines = [line("one", json!(4)), line("two", json!("no such text"))];
    place.write("p.jsonl", lines.map(|line| format!("{line}\n")).concat());
    let sample =
        ["sample", "--model", "m", "--prompts", "p.jsonl", "-n", "3", "--max-new-tokens", "4"];
    let sampled = place.lines(&sample);
    assert_eq!(sampled.len(), 6);
    assert_eq!(sampled[5]["answer"], "no such text");
    assert_eq!(sampled[0]["reward_model"]["ground_truth"], "x");
    // The program's own keys stay its own.
    assert_ne!(sampled[0]["sum"], 3);
    place.succeed(&[&sample[..], &["-o", "s.jsonl"]].concat());
    for (rule, more) in [("exact", &[][..]), ("answer", &["--extract", "([a-z]+)"])] {
        place.succeed(&[&["eval", "s.jsonl", "--pass", rule], more].concat());
    }
    let nested = ["--reference-column", "reward_model.ground_truth"];
    place.succeed(&[&["eval", "s.jsonl", "--pass", "answer"], &nested[..]].concat());
    // What is scored keeps the answer as well.
    let scored = place.lines(&["logprob", "--model", "m", "--input", "s.jsonl"]);
    assert_eq!(scored[5]["answer"], "no such text");

    let right = |n: usize, of: usize| -> String {
        let of_prompt = |i: usize| {
            let text = if i < n { "It is 4.0, no, 4." } else { "It is 5." };
            json!({"prompt": format!("{n} {of}"), "completion": text, "answer": 4})
        };
        (0..of).map(|i| format!("{}\n", of_prompt(i))).collect()
    };
    place.write("known.jsonl", [right(1, 4), right(3, 4)].concat());
    let known = ["eval", "known.jsonl", "--pass", "answer", "--extract", "([0-9.]*[0-9])"];
    let ended = place.succeed(&[&known[..], &["-o", "e.json"]].concat());
    assert_eq!(
        ended.stderr,
        "known.jsonl: 50.0 ± 25.0 % of completions pass (mean ± standard error over 2 prompts)\n"
    );
    let found: Value = serde_json::from_str(&place.read("e.json")).unwrap();
    assert_eq!(found["metrics"]["pass_at_1"], 0.5);
    assert_eq!(found["standard_errors"]["pass_at_1"], 0.25);
}

/// The log-probabilities are those that the run recorded.
#[test]
fn recorded_completions_are_scored() {
    let place = training_texts::place("qwen3");
    place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    let scored =
        place.lines(&["logprob", "--model", "m", "--input", "run/completions/step-1.parquet"]);
    let recorded = place.completions("run");
    assert_eq!(scored.len(), recorded.len());
    for (line, record) in scored.iter().zip(&recorded) {
        assert_eq!(line["prompt"], json!(record.prompt_text));
        assert_eq!(line["completion"], json!(record.text));
        assert_eq!(line["completion_ids"], json!(record.completion_ids));
        assert_eq!(line["reward"], json!(record.reward));
        assert!(line.get("sampling_logprobs").is_none());
        for (now, then) in numbers(line, "logprobs").iter().zip(&record.tokens["logprobs"]) {
            assert!((now - f64::from(*then)).abs() < 1e-4, "{now} {then}");
        }
    }
}

/// Ids of transformers' configuration classes can be outside of the vocabulary, and are then ignored.
#[test]
fn a_model_with_foreign_end_tokens_is_loaded() {
    let place = Place::new();
    let with_end = config("gpt2", 12).replacen('{', "{\"eos_token_id\": 50256, ", 1);
    place.config_folder("source", &with_end);
    place.succeed(&["init", "source/config.json", "-o", "m"]);
    assert_eq!(place.logprob("m", RECORDS, &[]).len(), 1);
}
