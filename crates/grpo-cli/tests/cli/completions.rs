//! `grpo sample` with prompts.

use serde_json::{Map, Value, json};
use snapbox::data::Inline;
use snapbox::str;

use crate::support::{Place, small_model};
use crate::texts::{CONTEXT, END, VOCABULARY, config, distance, entries, logprobs, numbers};

#[test]
fn a_line_for_each_completion() {
    let place = Place::new();
    place.model_of_texts("m", "llama");
    let arguments = [
        "sample",
        "--model",
        "m",
        "--prompt",
        "the assistant",
        "--prompt",
        "2 + 2",
        "-n",
        "3",
        "--max-new-tokens",
        "9",
    ];
    let lines = place.lines(&arguments);
    let places: Vec<(&str, i64)> = lines
        .iter()
        .map(|line| (line["prompt"].as_str().unwrap(), line["sample"].as_i64().unwrap()))
        .collect();
    let two = |prompt| [(prompt, 0), (prompt, 1), (prompt, 2)];
    assert_eq!(places, [two("the assistant"), two("2 + 2")].concat());
    for line in &lines {
        let keys: Vec<&str> = line.keys().map(String::as_str).collect();
        let expected = [
            "prompt",
            "sample",
            "completion",
            "prompt_ids",
            "completion_ids",
            "logprobs",
            "sum",
            "finish",
            "settings",
        ];
        assert_eq!(keys, expected);
        assert_eq!(line["settings"]["max_new_tokens"], 9);
        assert!(line["settings"]["seed"].is_u64() && line["settings"]["top_k"].is_null());
        assert_eq!(line["prompt_ids"][0], 330);
        let (ids, logprobs) = (numbers(line, "completion_ids"), numbers(line, "logprobs"));
        assert_eq!(ids.len(), logprobs.len());
        let sum: f64 = logprobs.iter().sum();
        assert!((line["sum"].as_f64().unwrap() - sum).abs() < 1e-5);
        let at_end = ids.last() == Some(&f64::from(END));
        assert_eq!(line["finish"], if at_end { "end_token" } else { "length" });
        assert!(at_end || ids.len() == 9);
    }
    // All completions use different random numbers.
    for line in &lines[1..] {
        assert_ne!(line["completion_ids"], lines[0]["completion_ids"]);
    }
}

/// The model has more ids than its tokenizer has tokens.
#[test]
fn sampled_ids_without_a_token_are_counted() {
    const TOKENS: f64 = 335.0;
    let place = Place::new();
    place.model_of_texts("m", "llama");
    let arguments =
        ["sample", "--model", "m", "--prompt", "the", "-n", "64", "--max-new-tokens", "12"];
    let sampled = place.succeed(&arguments);
    let lines = sampled.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Map<String, Value>> = lines.collect();
    let ids: Vec<f64> = lines.iter().flat_map(|line| numbers(line, "completion_ids")).collect();
    let without = ids.iter().filter(|id| **id >= TOKENS).count();
    assert!(without > 0);
    let note = format!(
        "note: {without} of {} sampled ids have no token in tokenizer.json; they decode to nothing",
        ids.len()
    );
    assert!(sampled.stderr.contains(&note), "{}", sampled.stderr);
}

#[test]
fn a_stop_string_ends_a_completion() {
    let place = Place::new();
    place.model_of_texts("m", "llama");
    let arguments =
        ["sample", "--model", "m", "--prompt", "the", "-n", "8", "--max-new-tokens", "12"];
    let stop = ["--stop", "e", "--stop", "zzz", "--stop", "t"];
    let plain = place.lines(&arguments);
    let stopped = place.lines(&[&arguments[..], &stop].concat());
    let mut kinds = Vec::new();
    for (stopped, plain) in stopped.iter().zip(&plain) {
        let (text, whole) = (stopped["completion"].as_str().unwrap(), &plain["completion"]);
        let is_stopped = text.contains(['e', 't']);
        kinds.push(is_stopped);
        let ids = numbers(stopped, "completion_ids");
        assert_eq!(ids, numbers(plain, "completion_ids")[..ids.len()]);
        if is_stopped {
            assert_eq!(stopped["finish"], "stop", "{text}");
            // The text ends with the token that completes the stop string.
            let last = text.find(['e', 't']).unwrap();
            assert!(whole.as_str().unwrap().starts_with(&text[..=last]));
        } else {
            assert_eq!(
                (&stopped["completion_ids"], &stopped["finish"]),
                (&plain["completion_ids"], &plain["finish"])
            );
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, [false, true], "some are stopped and some are not");
}

#[test]
fn refuses_invalid_stop_strings() {
    let place = Place::new();
    place.model_of_texts("m", "llama");
    place.refuse(
        &["sample", "--model", "m", "--prompt", "the", "--stop", "", "-o", "drawn.jsonl"],
        str!["sampling: stop string is empty, which would end every completion after its first token; remove it"],
    );
    place.model_of_ids("ids", "llama", 20);
    place.refuse(
        &["sample", "--model", "ids", "--stop", "1"],
        str!["--stop requires a tokenizer, but `ids` has no tokenizer.json; remove --stop, or add the model's tokenizer.json to the folder"],
    );
}

#[test]
fn a_seed_gives_its_completions() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let place = Place::new();
        place.model_of_texts("m", family);
        place.write(
            "p.jsonl",
            "{\"prompt\": \"the\"}\n{\"prompt_ids\": [1, 2, 3, 4, 5, 6]}\n{\"prompt\": \"2\"}\n",
        );
        let arguments =
            ["sample", "--model", "m", "--prompts", "p.jsonl", "-n", "3", "--max-new-tokens", "12"];
        let more = |more: &[&str]| place.succeed(&[&arguments[..], more].concat()).stdout;
        let first = more(&["--seed", "3"]);
        assert_eq!(first.lines().count(), 9);
        assert_eq!(more(&["--seed", "3"]), first, "{family}");
        assert_eq!(more(&["--seed", "3", "--threads", "1"]), first, "{family}");
        assert_ne!(more(&["--seed", "4"]), first, "{family}");
        let ids = |text: &str| -> Vec<Value> {
            crate::texts::objects(text)
                .into_iter()
                .map(|line| line["completion_ids"].clone())
                .collect()
        };
        for size in ["1", "2", "7"] {
            assert_eq!(ids(&more(&["--seed", "3", "--batch-size", size])), ids(&first), "{family}");
        }
    }
}

/// Samples are drawn from the distribution that `grpo logprob` computes.
#[test]
fn what_was_drawn_can_be_scored() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    for temperature in ["1", "0.7"] {
        place.succeed(&[
            "sample",
            "--model",
            "m",
            "--prompt",
            "the",
            "-n",
            "5",
            "--max-new-tokens",
            "8",
            "--temperature",
            temperature,
            "-o",
            "drawn.jsonl",
            "--force",
        ]);
        // Texts and token ids give the same result.
        let drawn = crate::texts::objects(&place.read("drawn.jsonl"));
        let record = |line: &Map<String, Value>| json!({"prompt_ids": line["prompt_ids"], "completion_ids": line["completion_ids"]});
        let records: String = drawn.iter().map(|line| format!("{}\n", record(line))).collect();
        let scored = place.logprob("m", &records, &["--temperature", temperature]);
        assert!(distance(&logprobs(&scored), &logprobs(&drawn)) < 1e-4, "at {temperature}");
    }
}

#[test]
fn a_chat_goes_through_the_template() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    let arguments = ["sample", "--model", "m", "--prompt", "2 + 2", "--max-new-tokens", "2"];
    let ids = |more: &[&str]| {
        let line = place.lines(&[&arguments[..], more].concat()).remove(0);
        (line["prompt"].clone(), line["prompt_ids"].as_array().unwrap().clone())
    };
    let (plain, plain_ids) = ids(&[]);
    let (chat, chat_ids) = ids(&["--chat"]);
    assert_eq!(plain, "2 + 2");
    assert_eq!(chat, json!([{"role": "user", "content": "2 + 2"}]));
    assert_eq!((&plain_ids[0], &chat_ids[0]), (&json!(330), &json!(331)));
    let (_, thoughtless) = ids(&["--chat", "--thinking", "false"]);
    assert_eq!(thoughtless.len(), chat_ids.len() + 2);
    assert_eq!(&thoughtless[chat_ids.len()..], [json!(333), json!(334)]);
    // The same messages from a file.
    place.write("p.jsonl", format!("{}\n", json!({"messages": chat})));
    let from_file =
        place.lines(&["sample", "--model", "m", "--prompts", "p.jsonl", "--max-new-tokens", "2"]);
    assert_eq!(from_file[0]["prompt_ids"].as_array(), Some(&chat_ids));
}

#[test]
fn without_a_template_there_is_no_chat() {
    let place = Place::new();
    place.model_of_texts("m", "gpt2");
    std::fs::remove_file(place.path("m/manifest.json")).unwrap();
    place.write("m/tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    place.refuse(
        &["sample", "--model", "m", "--prompt", "2 + 2", "--chat"],
        str!["--prompt 2 + 2: `m` has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so messages cannot be converted to a prompt; provide the prompt as text"],
    );
    place.write("m/chat_template.jinja", "{% for m in messages %}\n{{ m.content }\n{% endfor %}");
    let ended = place.run(&["sample", "--model", "m", "--prompt", "2 + 2", "--chat"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    let expected = "error: line 2 of the chat template in `m/chat_template.jinja` does not parse: ";
    assert!(ended.stderr.starts_with(expected), "{}", ended.stderr);
    place.write("m/chat_template.jinja", "{{ raise_exception('no chats today') }}");
    let ended = place.run(&["sample", "--model", "m", "--prompt", "2 + 2", "--chat"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot render the messages"), "{}", ended.stderr);
    assert!(ended.stderr.contains("no chats today"), "{}", ended.stderr);
}

#[test]
fn a_model_that_begins_nowhere_needs_a_prompt() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    place.refuse(
        &["sample", "--model", "m"],
        str!["the model has no beginning-of-text token, so a prompt is required; use --prompt TEXT or --prompts FILE"],
    );
    place.refuse(
        &["sample", "--model", "m", "--prompt", "2 + 2"],
        str!["--prompt 2 + 2: `m` has no tokenizer.json, so text cannot be tokenized; add the model's tokenizer.json to the folder, or provide `prompt_ids` and `completion_ids`"],
    );
    // Token ids as input and output.
    place.write("p.jsonl", "{\"prompt_ids\": [1, 2]}\n");
    let lines = place.lines(&["sample", "--model", "m", "--prompts", "p.jsonl"]);
    assert_eq!(lines[0]["prompt"], json!([1, 2]));
    assert!(!lines[0].contains_key("completion"));
    // A model with a beginning-of-sequence token needs no prompt.
    let config = place.read("m-source/config.json").replacen('{', "{\"bos_token_id\": 7,", 1);
    place.write("m-source/config.json", config);
    place.succeed(&["init", "m-source/config.json", "-o", "begun"]);
    let lines = place.lines(&["sample", "--model", "begun", "-n", "2"]);
    assert_eq!((lines.len(), &lines[1]["prompt_ids"]), (2, &json!([7])));
    assert!(!lines[0].contains_key("prompt"));
}

#[test]
fn a_molecule_can_be_gone_on_from() {
    let place = Place::new();
    let model = small_model().to_str().unwrap();
    let lines = place.lines(&["sample", "--model", model, "--prompt", "CC(", "-n", "4"]);
    assert_eq!(lines.len(), 4);
    for line in &lines {
        assert_eq!(
            (&line["prompt"], line["prompt_ids"].as_array().unwrap().len()),
            (&json!("CC("), 4)
        );
        assert!(!line["completion"].as_str().unwrap().contains('<'), "{line:?}");
    }
    place.refuse(
        &["sample", "--model", model, "--prompt", "CX"],
        str!["--prompt CX: `X` (character 2 of `CX`) is not in the vocabulary of this molecule model; use a SMILES or its beginning, such as `c1ccccc1`, or no prompt"],
    );
    for argument in [&["--distinct"][..], &["--not-in", "absent.smi"]] {
        place.refuse(
            &[&["sample", "--model", model, "--prompt", "CC"], argument].concat(),
            format!(
                "{} is only valid for molecules, but this model completes prompts",
                argument[0]
            ),
        );
    }
    place.refuse(
        &["sample", "--model", model, "--prompt", "C", "--chat"],
        format!("--prompt C: `{model}` has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so messages cannot be converted to a prompt; provide the prompt as text"),
    );
}

#[test]
fn what_cannot_be_continued() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let check = |file: &str, more: &[&str], expected: Inline| {
        place.write("p.jsonl", file);
        let arguments = ["sample", "--model", "m", "--prompts", "p.jsonl", "-o", "out.jsonl"];
        place.refuse(&[&arguments[..], more].concat(), expected);
    };
    check("", &[], str!["p.jsonl has no prompts"]);
    check(
        "{\"prompt_ids\": [1]}\n{\"prompt_ids\": [12]}\n",
        &[],
        str!["p.jsonl:2: the id 12 is outside the model's vocabulary of 12 tokens"],
    );
    let long = format!("{}\n", json!({"prompt_ids": vec![1; CONTEXT + 1]}));
    let full = format!("{}\n", json!({"prompt_ids": vec![1; CONTEXT]}));
    check(
        &long,
        &["--max-new-tokens", "1"],
        str![
            "p.jsonl:1: the prompt has 49 tokens, but the model's context is 48; shorten or remove the prompt"
        ],
    );
    check(
        &full,
        &["--max-new-tokens", "2"],
        str![
            "sampling: a prompt of 48 tokens with max_new_tokens = 2 exceeds the model's context of 48 tokens; set max_new_tokens to at most 1"
        ],
    );
    place.write("p.jsonl", &full);
    let lines = place.lines(&["sample", "--model", "m", "--prompts", "p.jsonl"]);
    assert_eq!(numbers(&lines[0], "completion_ids").len(), 1);
    place.refuse(
        &["sample", "--model", "m", "--prompts", "absent.jsonl"],
        str!["`absent.jsonl` does not exist; check the path"],
    );
}

#[test]
fn an_encoder_has_no_logits() {
    let place = Place::new();
    place.config_folder("source", &config("bert", VOCABULARY));
    place.succeed(&["init", "source/config.json", "-o", "bert"]);
    place.refuse(
        &["sample", "--model", "bert", "--prompt", "2 + 2"],
        str!["bert is an encoder (bert), which does not predict next tokens; use a causal language model"],
    );
    assert_eq!(entries(&place.path(".")), ["bert", "source"]);
}

/// Configuration classes of transformers write the default end tokens regardless of the vocabulary
/// size.
#[test]
fn marks_outside_the_vocabulary_fail_only_when_used() {
    let place = Place::new();
    let config = config("gpt2", 12).replacen(
        '{',
        "{\"bos_token_id\": 50256, \"eos_token_id\": [50256, 3], ",
        1,
    );
    place.config_folder("source", &config);
    place.succeed(&["init", "source/config.json", "-o", "m"]);
    place.write("in.jsonl", "{\"prompt_ids\": [1], \"completion_ids\": [2]}\n");
    place.succeed(&["logprob", "--model", "m", "--input", "in.jsonl"]);
    place.succeed(&["sample", "--model", "m", "--prompts", "in.jsonl"]);
    place.refuse(
        &["sample", "--model", "m"],
        str!["prompt token id 50256 is outside the vocabulary of 12 tokens"],
    );
}
