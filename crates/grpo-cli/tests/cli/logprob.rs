//! `grpo logprob`.

use grpo_data::ObjectReader;
use serde_json::{Value, json};
use snapbox::{Data, IntoData, str};

use crate::support::Place;
use crate::texts::{CONTEXT, VOCABULARY, config, distance, entries, logprobs, numbers, objects};
use crate::wrong_inputs::with_numbers;

/// Returns a record for each token id with the same prompt.
fn every_id(count: usize) -> String {
    let line = |id| json!({"prompt_ids": [3, 1], "completion_ids": [id]}).to_string() + "\n";
    (0..count).map(line).collect()
}

#[test]
fn all_completions_of_one_id_are_a_distribution() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let lines = place.logprob("m", &every_id(12), &[]);
    assert_eq!(lines.len(), 12);
    let probabilities: Vec<f64> = logprobs(&lines).iter().map(|logprob| logprob.exp()).collect();
    let sum: f64 = probabilities.iter().sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    // The distribution must be far from uniform for the following checks to be useful.
    assert!(probabilities.iter().copied().fold(0.0, f64::max) > 0.2, "{probabilities:?}");
    let entropy: f64 = probabilities.iter().map(|p| -p * p.ln()).sum();
    for line in &lines {
        assert!((numbers(line, "entropies")[0] - entropy).abs() < 1e-5, "{line:?}, {entropy}");
    }

    // A temperature raises probabilities to a power and renormalises them.
    for temperature in [0.5, 2.0] {
        let bent = place.logprob("m", &every_id(12), &["--temperature", &temperature.to_string()]);
        let powers: Vec<f64> = probabilities.iter().map(|p| p.powf(1.0 / temperature)).collect();
        let sum: f64 = powers.iter().sum();
        let expected: Vec<f64> = powers.iter().map(|power| (power / sum).ln()).collect();
        assert!(distance(&logprobs(&bent), &expected) < 1e-4, "at {temperature}");
    }
}

#[test]
fn each_line_has_input_and_results() {
    let place = Place::new();
    place.model_of_ids("m", "qwen3", 12);
    let records = concat!(
        "{\"prompt\": [3, 1], \"completion\": [4, 5, 6]}\n",
        "\n",
        "{\"prompt_ids\": [3, 1], \"completion_ids\": [4], \"answer\": 7}\n",
        "{\"prompt_ids\": [3, 1, 4], \"completion_ids\": [5]}\n",
        "{\"prompt_ids\": [3, 1, 4, 5], \"completion_ids\": [6]}\n",
    );
    let lines = place.logprob("m", records, &[]);
    assert_eq!(lines.len(), 4);
    for line in &lines {
        let keys = line.keys().map(String::as_str).filter(|key| *key != "answer");
        let own = ["prompt", "completion", "logprobs", "entropies", "sum"];
        assert_eq!(keys.collect::<Vec<&str>>(), own);
        let sum: f64 = numbers(line, "logprobs").iter().sum();
        assert!((line["sum"].as_f64().unwrap() - sum).abs() < 1e-12);
    }
    assert_eq!((&lines[0]["prompt"], &lines[0]["completion"]), (&json!([3, 1]), &json!([4, 5, 6])));
    assert_eq!(lines[1]["answer"], 7);
    // Scores each token separately with a growing prompt.
    let apart = logprobs(&lines[1..]);
    assert!(distance(&logprobs(&lines[..1]), &apart) < 1e-5);
    assert!(lines[0]["sum"].as_f64().unwrap() < 0.0);
}

#[test]
fn text_is_scored_as_its_ids() {
    let place = Place::new();
    place.model_of_texts("m", "llama");
    let records = concat!(
        "{\"prompt\": \"the assistant\", \"completion\": \" answers: four\"}\n",
        "{\"text\": \"the assistant\"}\n",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"2 + 2\"}, {\"role\": \"assistant\", \"content\": \"four\"}]}\n",
    );
    // Texts without a prompt start with the beginning-of-sequence token, which is only defined in
    // the tokenizer.
    let text = place.read("m/tokenizer_config.json");
    let with_begin = text.replacen('{', "{\"bos_token\": \"<|endoftext|>\", ", 1);
    place.write("m-source/tokenizer_config.json", &with_begin);
    place.succeed(&["init", "m-source/config.json", "-o", "begun"]);
    let lines = place.logprob("begun", records, &[]);
    assert_eq!(lines[0]["prompt"], "the assistant");
    assert_eq!(lines[0]["completion"], " answers: four");
    assert_eq!(lines[1]["prompt"], "");
    assert_eq!(lines[2]["prompt"], json!([{"role": "user", "content": "2 + 2"}]));

    // Get the prompt ids from a different command.
    let drawn = place.lines(&[
        "sample",
        "--model",
        "begun",
        "--prompts",
        "scored.jsonl",
        "--max-new-tokens",
        "1",
    ]);
    let mut by_ids = String::new();
    for (line, drawn) in lines.iter().zip(&drawn) {
        let completion = &line["completion_ids"];
        assert_eq!(completion.as_array().unwrap().len(), numbers(line, "logprobs").len());
        let record = json!({"prompt_ids": drawn["prompt_ids"], "completion_ids": completion});
        by_ids += &format!("{record}\n");
    }
    // Texts start with the beginning-of-sequence token, and messages start as defined by the
    // template.
    assert_eq!(drawn[0]["prompt_ids"][0], 330);
    assert_eq!(drawn[1]["prompt_ids"], json!([330]));
    assert_eq!(drawn[2]["prompt_ids"][0], 331);
    assert_eq!(logprobs(&place.logprob("begun", &by_ids, &[])), logprobs(&lines));
}

#[test]
fn thinking_is_the_templates_to_say() {
    let place = Place::new();
    place.model_of_texts("m", "qwen2");
    let record =
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"2\"}], \"completion\": \"4\"}\n";
    let unsaid = logprobs(&place.logprob("m", record, &[]));
    assert_eq!(logprobs(&place.logprob("m", record, &["--thinking", "true"])), unsaid);
    assert_ne!(logprobs(&place.logprob("m", record, &["--thinking", "false"])), unsaid);
}

#[test]
fn how_many_are_scored_at_once_does_not_matter() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let place = Place::new();
        place.model_of_ids("m", family, 30);
        let line = |n: u32| {
            let prompt: Vec<u32> = (0..1 + n * 5 % 7).map(|i| (i * 7 + n) % 30).collect();
            let completion: Vec<u32> = (0..1 + n * 3 % 11).map(|i| (i * 11 + n) % 30).collect();
            json!({"prompt_ids": prompt, "completion_ids": completion}).to_string() + "\n"
        };
        let records: String = (0..9).map(line).collect();
        let one = logprobs(&place.logprob("m", &records, &["--batch-size", "1"]));
        for size in ["2", "5", "100"] {
            let together = logprobs(&place.logprob("m", &records, &["--batch-size", size]));
            assert!(distance(&one, &together) < 1e-5, "{family}, {size}");
        }
        // Results with lower precision are close, but not equal.
        for (precision, near) in [("bf16", 0.2), ("q8", 0.5)] {
            let fewer = logprobs(&place.logprob("m", &records, &["--weights", precision]));
            let off = distance(&one, &fewer);
            assert!(off > 0.0 && off < near, "{family} in {precision}: {off}");
        }
    }
}

#[test]
fn molecules_too() {
    let place = Place::new();
    place.copy_model();
    let lines = place.logprob("model", "{\"prompt\": \"CC\", \"completion\": \"O\"}\n", &[]);
    assert_eq!(lines[0]["completion_ids"].as_array().unwrap().len(), 1);
    place.write("unknown.jsonl", "{\"prompt\": \"CC\", \"completion\": \"Br\"}\n");
    place.refuse(
        &["logprob", "--model", "model", "--input", "unknown.jsonl"],
        str!["unknown.jsonl:1: `Br` (character 1 of `Br`) is not in the vocabulary; remove the molecule, or use a vocabulary that contains the token"],
    );
}

#[test]
fn a_file_for_the_output() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    place.write("in.jsonl", every_id(3));
    let to =
        |name: &str| place.run(&["logprob", "--model", "m", "--input", "in.jsonl", "-o", name]);
    let shown = place.succeed(&["logprob", "--model", "m", "--input", "in.jsonl"]).stdout;
    let ended = to("out.jsonl");
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (Some(0), "", "written      out.jsonl (3 completions)\n")
    );
    assert_eq!(place.read("out.jsonl"), shown);
    assert_eq!(to("out.jsonl.gz").code, Some(0));
    let again = ["sample", "--model", "m", "--prompts", "out.jsonl.gz", "--max-new-tokens", "1"];
    assert_eq!(place.lines(&again).len(), 3);
    let expected = ["in.jsonl", "m", "m-source", "out.jsonl", "out.jsonl.gz"];
    assert_eq!(entries(&place.path(".")), expected);
    to("absent/out.jsonl").assert_refused(str![
        "cannot write absent/out.jsonl: the folder absent does not exist; create it first"
    ]);
}

/// Checks the error for an invalid third line and that no output file is created.
#[track_caller]
fn check_third(place: &Place, model: &str, third: &Value, expected: impl IntoData) {
    check_third_text(place, model, &third.to_string(), expected);
}

#[track_caller]
fn check_third_text(place: &Place, model: &str, third: &str, expected: impl IntoData) {
    let good = "{\"prompt_ids\": [1], \"completion_ids\": [2]}\n";
    place.write("in.jsonl", format!("{good}{good}{third}\n{good}"));
    let expected = expected.into_data();
    // With a batch size of 1, two lines are written before the third is read.
    for size in ["1", "16"] {
        place.refuse_after(
            "in.jsonl:3: ",
            &[
                "logprob",
                "--model",
                model,
                "--input",
                "in.jsonl",
                "-o",
                "out.jsonl",
                "--batch-size",
                size,
            ],
            &expected,
        );
    }
}

#[test]
fn refuses_lines_that_cannot_be_scored() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let check = |third: Value, expected: Data| check_third(&place, "m", &third, expected);
    let outside = "the id 12 is outside the model's vocabulary of 12 tokens";
    check(json!({"prompt_ids": [12], "completion_ids": [2]}), outside.into());
    check(json!({"prompt_ids": [1], "completion_ids": [2, 12]}), outside.into());
    let long = vec![1; CONTEXT];
    check(
        json!({"prompt_ids": long, "completion_ids": [1, 1]}),
        str!["prompt and completion have 50 tokens, more than the model's context of 48"].into(),
    );
    check(
        json!({"prompt_ids": [1]}),
        str![
            "nothing to score: a line requires `completion` or `completion_ids` in addition to its prompt"
        ].into(),
    );
    check(
        json!({"prompt_ids": [1], "completion_ids": []}),
        str!["nothing to score: the completion has no tokens"].into(),
    );
    check(
        json!({"prompt_ids": [], "completion_ids": [1]}),
        str!["a prompt has no tokens; expected at least one"].into(),
    );
    let no_tokenizer = "`m` has no tokenizer.json, so text cannot be tokenized; add the model's tokenizer.json to the folder, or provide `prompt_ids` and `completion_ids`";
    check(json!({"prompt": "2 + 2", "completion_ids": [1]}), no_tokenizer.into());
    check(json!({"prompt_ids": [1], "completion": "4"}), no_tokenizer.into());
    check(json!({"text": "4"}), no_tokenizer.into());
    // The last token is scored, but not fed to the model.
    let fits = json!({"prompt_ids": long, "completion_ids": [1]}).to_string() + "\n";
    assert_eq!(place.logprob("m", &fits, &[]).len(), 1);
}

#[test]
fn lines_that_are_no_records() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let check = |third: &str, expected: Data| {
        check_third_text(&place, "m", third, expected);
    };
    check(
        "{\"prompt_ids\": [1], ",
        str![[
            r#"the line is not a JSON object: unexpected end of input at column 19; write one object per line, such as {"prompt": "2 + 2 ="}"#
        ]].into(),
    );
    check(
        "[1]",
        str![[
            r#"the line is not a JSON object: found a list; expected an object; write one object per line, such as {"prompt": "2 + 2 ="}"#
        ]].into(),
    );
    check(
        "{\"question\": \"?\"}",
        str![
            "the prompt is missing; use one of the keys `prompt`, `messages`, `prompt_ids`, `text` (found `question`); rename `question` with `jq -c '.prompt = .question | del(.question)' OLD > NEW`"
        ].into(),
    );
    check(
        "{\"prompt_ids\": [-1]}",
        str![
            "`prompt_ids[0]` is the value -1; expected a token id, which is a whole number from 0 to 4294967295"
        ].into(),
    );
}

/// As in supervised training, a text needs no prompt. Without a beginning-of-text token, its first token
/// is not scored.
#[test]
fn a_text_without_a_prompt_is_scored_from_its_second_token() {
    let place = crate::training_texts::place("qwen3");
    let text = "the dog is late";
    place.write("a.jsonl", format!("{}\n", json!({"text": text, "source": 7})));
    let score = ["logprob", "--model", "m", "--input", "a.jsonl", "-o", "out.jsonl", "--force"];
    let ended = place.succeed(&score);
    assert_eq!(ended.stderr, "written      out.jsonl (1 completion)\n");
    let line = objects(&place.read("out.jsonl")).remove(0);
    let scored = numbers(&line, "logprobs");
    assert!(line["source"] == 7 && !scored.is_empty(), "{line:?}");
    // The same as the completion of a prompt that is the first token.
    let ids: Vec<u64> =
        line["completion_ids"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!(ids.len(), scored.len());
    let config: Value = serde_json::from_str(&place.read("m/config.json")).unwrap();
    let count = config["vocab_size"].as_u64().unwrap();
    let record = |first| json!({"prompt_ids": [first], "completion_ids": ids}).to_string() + "\n";
    let lines = place.logprob("m", &(0..count).map(record).collect::<String>(), &[]);
    let is_equal = |other: &&serde_json::Map<String, Value>| {
        numbers(other, "logprobs")
            .iter()
            .zip(&scored)
            .all(|(one, other)| (one - other).abs() < 1e-4)
    };
    assert_eq!(lines.iter().filter(is_equal).count(), 1, "{line:?}");
    place.write("a.jsonl", "{\"text\": \"\"}\n");
    let ended = place.run(&score);
    let said = "nothing to score: the completion has no tokens\n";
    assert!(ended.code == Some(1) && ended.stderr.ends_with(said), "{}", ended.stderr);
    // A prompt that somebody wrote is not missing, but empty.
    for record in [
        json!({"prompt": "", "completion": text}),
        json!({"prompt": "", "completion_ids": [1, 2]}),
        json!({"prompt_ids": [], "completion": text}),
    ] {
        place.write("a.jsonl", format!("{record}\n"));
        let ended = place.run(&score);
        let said = "error: a.jsonl:1: a prompt has no tokens; expected at least one\n";
        assert!(ended.code == Some(1) && ended.stderr.ends_with(said), "{}", ended.stderr);
    }
}

#[test]
fn refuses_files_that_cannot_be_scored() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let check = |name: &str, expected: Data| {
        let arguments = ["logprob", "--model", "m", "--input", name, "-o", "out.jsonl"];
        place.refuse(&arguments, expected);
    };
    for (name, text) in [("empty.jsonl", ""), ("blank.jsonl", "\n \n")] {
        place.write(name, text);
        check(name, format!("{name} contains nothing to score").into());
    }
    check("absent.jsonl", str!["`absent.jsonl` does not exist; check the path"].into());
    place.write("in.txt", "2 + 2\n");
    check(
        "in.txt",
        str![
            "`in.txt` is plain text, which cannot be read here; expected a name ending in `.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`; `jq -Rc 'sub(\"\\\\s+$\"; \"\") | select(. != \"\") | {text: .}' < in.txt > in.jsonl` makes each line a text"
        ].into(),
    );
    place.write("in.parquet", "no parquet");
    let ended = place.run(&["logprob", "--model", "m", "--input", "in.parquet"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1));
    assert!(ended.stderr.contains("`in.parquet` cannot be read as Parquet"), "{}", ended.stderr);
}

#[test]
fn settings_that_score_nothing() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    place.write("in.jsonl", every_id(1));
    let check = |more: &[&str], expected: Data| {
        let arguments = [&["logprob", "--model", "m", "--input", "in.jsonl"], more].concat();
        place.refuse(&arguments, expected);
    };
    for bad in ["0", "0.0001", "1001", "NaN", "inf"] {
        let expected = format!("--temperature {bad} is out of range; expected 0.001 to 1000");
        check(&["--temperature", bad], expected.into());
    }
    check(
        &["--temperature=-1"],
        str!["--temperature -1 is out of range; expected 0.001 to 1000"].into(),
    );
    check(
        &["--batch-size", "0"],
        str!["--batch-size 0 is out of range; expected 1 or more"].into(),
    );
    check(
        &["--adapter", "absent"],
        str![
            "adapter folder absent does not exist; an adapter folder contains adapter_config.json and adapter_model.safetensors; `grpo pretrain` and `grpo train` write one to the run folder if the configuration has a [lora] section"
        ].into(),
    );
    place.config_folder("bert-source", &config("bert", VOCABULARY));
    place.succeed(&["init", "bert-source/config.json", "-o", "bert"]);
    place.refuse(
        &["logprob", "--model", "bert", "--input", "in.jsonl"],
        str!["bert is an encoder (bert), which does not predict next tokens; use a causal language model"],
    );
}

/// Weights are finite, but too large to compute with.
#[test]
fn logits_that_are_no_numbers() {
    let place = Place::new();
    place.model_of_ids("model", "gpt2", 12);
    std::fs::remove_file(place.path("model/manifest.json")).unwrap();
    with_numbers(&place, 1e30);
    place.write("in.jsonl", every_id(2));
    let ended =
        place.run(&["logprob", "--model", "model", "--input", "in.jsonl", "-o", "out.jsonl"]);
    let [warning, error] = ended.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", ended.stderr)
    };
    assert!(warning.starts_with("warning: the weights of model reach "), "{warning}");
    assert_eq!(error, "error: in.jsonl:1: cannot score: the model's logits are not finite");
    assert!(!place.path("out.jsonl").exists());
}

#[test]
fn the_input_is_not_written_over() {
    let place = Place::new();
    place.model_of_ids("m", "llama", 12);
    let line = "{\"prompt_ids\": [3], \"completion_ids\": [4]}\n";
    place.write("in.jsonl", line);
    place.refuse(
        &["logprob", "--model", "m", "--input", "in.jsonl", "-o", "./in.jsonl"],
        str!["./in.jsonl is the input; use another file for -o"],
    );
    place.refuse(
        &["sample", "--model", "m", "--prompts", "in.jsonl", "-o", "in.jsonl"],
        str!["in.jsonl is the input; use another file for -o"],
    );
    assert_eq!(place.read("in.jsonl"), line);
    // The output of `sample` and `logprob` is a valid input.
    place.succeed(&["sample", "--model", "m", "--prompts", "in.jsonl", "-n", "2", "-o", "s.jsonl"]);
    place.succeed(&["logprob", "--model", "m", "--input", "s.jsonl", "-o", "scores.jsonl"]);
    place.succeed(&["logprob", "--model", "m", "--input", "scores.jsonl"]);
    assert_eq!(place.read("scores.jsonl").lines().count(), 2);
}

#[test]
fn all_log_probabilities_go_into_a_file_of_their_own() {
    let place = Place::new();
    place.model_of_ids("m", "gpt2", 12);
    let longer = "{\"prompt_ids\": [3, 1], \"completion_ids\": [4, 0, 7]}\n";
    place.write("in.jsonl", every_id(12) + longer);
    let logprob = ["logprob", "--model", "m", "--input", "in.jsonl"];
    let plain = place.succeed(&logprob).stdout;
    let with_all = [&logprob[..], &["--full", "all.parquet"]].concat();
    assert_eq!(place.succeed(&with_all).stdout, plain);
    let scored = objects(&plain);
    let mut reader = ObjectReader::open(&place.path("all.parquet"), "ids").unwrap();
    let mut tokens = 0;
    while let Some(row) = reader.next_row().unwrap() {
        let (_, row) = row.object.unwrap();
        let [line, position, id] =
            ["line", "position", "id"].map(|key| row[key].as_u64().unwrap() as usize);
        let all = numbers(&row, "logprobs");
        assert_eq!((all.len(), &scored[line - 1]["completion"][position]), (12, &json!(id)));
        let total: f64 = all.iter().map(|logprob| logprob.exp()).sum();
        assert!(total.ln().abs() < 1e-6, "{row:?}");
        let logprob = numbers(&scored[line - 1], "logprobs")[position];
        assert!((all[id] - logprob).abs() < 1e-6, "{logprob}: {row:?}");
        tokens += 1;
    }
    assert_eq!(tokens, 12 + 3);
    place.refuse(
        &[&logprob[..], &["--full", "all.json"]].concat(),
        str!["--full all.json: the output is a Parquet file; use a name that ends in .parquet"],
    );
    place.refuse(
        &[&logprob[..], &["--full", "x.parquet", "-o", "x.parquet"]].concat(),
        str!["--output and --full are both x.parquet; use different files"],
    );
}
