//! `grpo train` with prompts.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value, json};
use snapbox::data::Inline;
use snapbox::{IntoData, str};

use crate::resume;
use crate::support::Place;
use crate::texts::{CONTEXT, config, distance, entries, logprobs};

/// A configuration that trains an adapter for the model `m`.
pub(crate) const TRAIN: &str = r#"run = "run"
model = "m"
seed = 1

[lora]
rank = 2
alpha = 4

[data]
file = "prompts.jsonl"

[train]
steps = 3
prompts_per_step = 2
group_size = 4
micro_batch_tokens = 3

[sampling]
max_new_tokens = 6

[reward]
type = "pattern"
pattern = "[aeiou]"

[loss]
kl_coef = 0.05

[optimizer]
learning_rate = 2e-2

[eval]
samples = 3

[save]
completions_every = 1
"#;

const PROMPTS: &str = concat!(
    "{\"prompt\": \"two and two are\", \"answer\": 4}\n",
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2\"}], \"answer\": 4}\n",
    "{\"prompt_ids\": [1, 2, 3], \"answer\": \"7\"}\n",
);

/// Creates a place with `train.toml`, `prompts.jsonl` and the text model `m`.
pub(crate) fn place(family: &str) -> Place {
    let place = Place::new();
    place.write("train.toml", TRAIN);
    place.write("prompts.jsonl", PROMPTS);
    place.model_of_texts("m", family);
    place
}

/// Returns the configuration without the `[lora]` section.
fn without_lora() -> String {
    let (above, rest) = TRAIN.split_once("[lora]").unwrap();
    let (_, below) = rest.split_once("[data]").unwrap();
    format!("{above}[data]{below}")
}

/// Returns the lines of `metrics.jsonl` without timings.
fn metrics(place: &Place, run: &str) -> Vec<Map<String, Value>> {
    resume::metrics(&place.path(run))
}

#[test]
fn stop_strings_need_text() {
    let place = place("llama");
    place.model_of_ids("ids", "llama", 20);
    place.write("ids.jsonl", "{\"prompt_ids\": [1, 2, 3]}\n");
    let sets = ["model=ids", "data.file=ids.jsonl", "sampling.stop=[\"1\"]"];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["train", "train.toml"].into_iter().chain(sets).collect();
    place.refuse(
        &arguments,
        str!["sampling.stop requires a tokenizer, but `ids` has no tokenizer.json; remove sampling.stop, or add the model's tokenizer.json to the folder"],
    );
}

/// Guards on metrics of extensions are also known where the number of steps follows from the prompts.
#[test]
fn a_run_of_epochs_has_the_guards_of_its_extensions() {
    let place = place("llama");
    let filter = "\n[diversity_filter]\nbucket = \"text\"\nmin_reward = 0.0\n";
    place.write("train.toml", TRAIN.replace("steps = 3", "epochs = 1") + filter);
    place.succeed(&["train", "train.toml", "--check"]);
    place.succeed(&["train", "train.toml"]);
    let recorded = place.read("run/config.toml");
    assert!(recorded.contains("watch = \"diversity_filter/penalized\""), "{recorded}");
}

#[test]
fn trains_an_adapter_without_changing_its_base() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let place = place(family);
        let before = fs::read(place.path("m/model.safetensors")).unwrap();
        let ended = place.succeed(&["train", "train.toml"]);
        for words in [
            "run folder   run\n",
            "prompts      prompts.jsonl: 3 records\n",
            "3 completions",
            "mean reward",
            "adapter      run/adapter\n",
        ] {
            assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
        }
        assert!(before == fs::read(place.path("m/model.safetensors")).unwrap());
        assert!(!place.path("run/model").exists());
        let names = ["adapter_config.json", "adapter_model.safetensors", "manifest.json"];
        assert_eq!(entries(&place.path("run/adapter")), names);
        let lines = metrics(&place, "run");
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["kl"].as_f64(), Some(0.0));
        assert!(lines[2]["kl"].as_f64().unwrap() > 0.0, "{family}");
        let completions = place.completions("run");
        assert_eq!(completions.len(), 3 * 2 * 4);
        // Three prompts for six groups, so each is used twice.
        let first = Some("two and two are");
        let of_first = completions.iter().filter(|record| record.prompt_text.as_deref() == first);
        assert_eq!(of_first.count(), 2 * 4, "{completions:?}");
        let info: Map<String, Value> = serde_json::from_str(&place.read("run/run.json")).unwrap();
        let roles: Vec<&Value> =
            info["data"].as_array().unwrap().iter().map(|file| &file["role"]).collect();
        assert!(
            roles.contains(&&json!("prompts")) && roles.contains(&&json!("model")),
            "{roles:?}"
        );

        // Repeat with any number of threads and from the recorded configuration.
        let adapter = |run: &str| {
            fs::read(place.path(&format!("{run}/adapter/adapter_model.safetensors"))).unwrap()
        };
        for (run, from, threads) in [("one", "train.toml", "1"), ("two", "run/config.toml", "2")] {
            place.succeed(&["train", from, "--run", run, "--threads", threads]);
            assert_eq!(metrics(&place, run), lines, "{family}, {run}");
            assert_eq!(place.completions(run), completions, "{family}, {run}");
            assert!(adapter(run) == adapter("run"), "{family}, {run}");
        }
        place.succeed(&["train", "train.toml", "--run", "seed", "--set", "seed=2"]);
        assert_ne!(metrics(&place, "seed"), lines);

        // Training has changed the model.
        let record = "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4, 5, 6]}\n";
        let plain = logprobs(&place.logprob("m", record, &[]));
        let trained = logprobs(&place.logprob("m", record, &["--adapter", "run/adapter"]));
        assert!(distance(&plain, &trained) > 1e-3, "{family}");
    }
}

/// Three passes over three prompts, two in each step, take five steps.
#[test]
fn the_length_of_a_run_can_be_given_in_epochs() {
    let place = place("llama");
    place.write("train.toml", TRAIN.replace("steps = 3", "epochs = 3"));
    place.succeed(&["train", "train.toml"]);
    assert_eq!(metrics(&place, "run").len(), 5);
    let mut uses = BTreeMap::<_, u32>::new();
    for record in place.completions("run").into_iter().filter(|record| record.sample == 0) {
        *uses.entry(record.prompt_ids).or_default() += 1;
    }
    let mut uses: Vec<u32> = uses.into_values().collect();
    uses.sort_unstable();
    assert_eq!(uses, [3, 3, 4]);
}

#[test]
fn all_of_a_model_is_trained_without_an_adapter() {
    let place = place("gpt2");
    place.write("train.toml", without_lora());
    let ended = place.succeed(&["train", "train.toml", "--set", "save.every=2"]);
    assert!(ended.stdout.contains("model        run/model\n"), "{}", ended.stdout);
    let names = [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    assert_eq!(entries(&place.path("run/model")), names);
    let of_checkpoint = [&names[..], &["trainer"]].concat();
    assert_eq!(entries(&place.path("run/checkpoints/step-2")), of_checkpoint);
    let lines = place.lines(&["sample", "--model", "run/model", "--prompt", "the", "-n", "2"]);
    assert_eq!(lines.len(), 2);
}

#[test]
fn an_adapter_is_gone_on_with_and_held_to_its_start_or_its_base() {
    let place = place("llama");
    place.write(
        "sft.toml",
        "run = \"sft\"\nseed = 1\nstart = \"m\"\n[lora]\nrank = 2\nalpha = 4\n[data]\nfile = \"texts.jsonl\"\nvalidation_fraction = 0.5\n[pretrain]\nepochs = 5\nbatch_size = 2\n[pretrain.optimizer]\nlearning_rate = 5e-2\n",
    );
    place.write("texts.jsonl", "{\"prompt\": \"two and two are\", \"completion\": \" four\"}\n{\"prompt\": \"the lazy\", \"completion\": \" dog\"}\n");
    place.succeed(&["pretrain", "sft.toml"]);
    place.write("train.toml", format!("adapter = \"sft/adapter\"\n{}", without_lora()));
    place.succeed(&["train", "train.toml"]);
    let kl = |run: &str| metrics(&place, run)[0]["kl"].as_f64().unwrap();
    assert_eq!(kl("run"), 0.0);
    place.succeed(&["train", "train.toml", "--run", "base", "--set", "reference.from=base"]);
    assert!(kl("base") > 1e-3, "{}", kl("base"));
    // Both runs start from the same base model, so the first samples are equal.
    let first = |run: &str| {
        let record = place.completions(run).swap_remove(0);
        (record.completion_ids, record.sampling_logprobs, record.reward, record.advantage)
    };
    assert_eq!(first("run"), first("base"));
    let settings = |folder: &str| place.read(&format!("{folder}/adapter/adapter_config.json"));
    assert_eq!(settings("run"), settings("sft"));

    let both = ["train", "train.toml", "--run", "both", "--set", "lora={rank=2, alpha=4}"];
    for arguments in [&both[..], &[&both[..], &["--check"]].concat()] {
        place.refuse(
            arguments,
            str!["the configuration has both `adapter` and [lora]; keep `adapter` to train an existing adapter, or [lora] to create a new one"],
        );
    }
    // The adapter belongs to a different base model.
    place.model_of_texts("other", "gpt2");
    let ended = place.run(&["train", "train.toml", "--run", "none", "--set", "model=other"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .starts_with("error: model = \"other\": sft/adapter/adapter_model.safetensors: "),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.ends_with(", but the linear layers of this model are c_attn, c_fc, c_proj; was the adapter trained on a different base model?\n"), "{}", ended.stderr);
    assert!(!place.path("none").exists());
}

#[test]
fn a_base_in_fewer_bits() {
    let place = place("qwen2");
    let mut seen = Vec::new();
    for precision in ["f32", "bf16", "q8"] {
        let base = format!("base_precision={precision}");
        place.succeed(&["train", "train.toml", "--run", precision, "--set", &base]);
        let lines = metrics(&place, precision);
        assert!(lines[2]["kl"].as_f64().unwrap() > 0.0);
        assert!(!seen.contains(&lines), "{precision}");
        seen.push(lines);
    }
    place.write("train.toml", without_lora());
    place.refuse(
        &["train", "train.toml", "--set", "base_precision=bf16"],
        str![
            "base_precision requires an adapter; add [lora] or `adapter`, or remove base_precision"
        ],
    );
    place.refuse(
        &["train", "train.toml", "--set", "reference.from=base"],
        str![[
            r#"reference.from = "base" requires an adapter; remove it, or add [lora] or `adapter`"#
        ]],
    );
}

#[test]
fn answers_are_found_in_the_records() {
    let place = place("llama");
    let pattern = "type = \"pattern\"\npattern = \"[aeiou]\"";
    assert!(TRAIN.contains(pattern));
    let with = |reward: &str| place.write("answer.toml", TRAIN.replace(pattern, reward));
    with("type = \"answer\"\nextract = '[0-9]+'");
    place.succeed(&["train", "answer.toml"]);
    // A record without an answer is reported before sampling starts.
    place.write("prompts.jsonl", format!("{PROMPTS}{{\"prompt\": \"the dog\"}}\n"));
    place.refuse(
        &["train", "answer.toml", "--run", "none"],
        str!["prompts.jsonl:4: the prompt's record is missing field 'answer'"],
    );
    with("type = \"answer\"\nfield = \"wrong\"");
    place.refuse(
        &["train", "answer.toml", "--run", "none"],
        str!["prompts.jsonl:1: the prompt's record is missing field 'wrong'"],
    );
    place.write("prompts.jsonl", "{\"prompt\": \"the\", \"wrong\": [4]}\n");
    place.refuse(
        &["train", "answer.toml", "--run", "none"],
        str!["prompts.jsonl:1: field 'wrong' of the prompt's record is not an answer"],
    );
    place.refuse(
        &["train", "train.toml", "--run", "none", "--set", "reward.pattern=\"(\""],
        str![[r#"--set reward.pattern="(": reward.pattern = '(' is not a valid regular expression: unclosed group"#]],
    );
}

/// Keys of the previous reward type are dropped.
#[test]
fn another_reward_takes_the_place_of_the_whole_section() {
    let place = place("llama");
    let answer = ["--set", "reward.type=answer", "--set", "reward.extract=[0-9]+"];
    place.succeed(&[&["train", "train.toml"], answer.as_slice()].concat());
    assert!(place.read("run/config.toml").contains("extract = \"[0-9]+\""));
    place.write("over.toml", "extends = \"train.toml\"\n[reward]\ntype = \"answer\"\n");
    place.succeed(&["train", "over.toml", "--run", "over"]);
    assert!(!place.read("over/config.toml").contains("pattern"));
    place.refuse(
        &[
            "train",
            "train.toml",
            "--run",
            "none",
            "--set",
            "reward.type=answer",
            "--set",
            "reward.pattern=a",
        ],
        str!["--set reward.pattern=a: unknown key 'reward.pattern'; there are: field, extract"],
    );
}

#[test]
fn prompts_too_long_are_counted() {
    let place = place("llama");
    let long = json!({"prompt_ids": vec![1; CONTEXT]}).to_string();
    place.write("prompts.jsonl", format!("{PROMPTS}{long}\n"));
    let ended = place.succeed(&["train", "train.toml", "--set", "train.steps=1"]);
    let expected =
        "prompts      prompts.jsonl: 4 records, 1 skipped with more than 43 tokens (line 4: 48)\n";
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
    let check = |pair: &str, expected: Inline| {
        place.refuse(&["train", "train.toml", "--run", "none", "--set", pair], expected);
    };
    check(
        "data.max_prompt_tokens=2",
        str![
            "`prompts.jsonl` has no usable record: 4 records, 4 skipped with more than 2 tokens (line 1: 8, line 2: 16, line 3: 3, …)"
        ],
    );
    check(
        "sampling.max_new_tokens=49",
        str![
            "sampling.max_new_tokens = 49 leaves no room for a prompt in the model's context of 48 tokens; expected at most 48"
        ],
    );
    check(
        "sampling.max_new_tokens=48",
        str![
            "sampling.max_new_tokens = 48 leaves only 1 of the model's 48 tokens for a prompt: `prompts.jsonl` has no usable record: 4 records, 4 skipped with more than 1 token (line 1: 8, line 2: 16, line 3: 3, …)"
        ],
    );
    check(
        "data.max_prompt_tokens=48",
        str![
            "sampling: a prompt of 48 tokens with max_new_tokens = 6 exceeds the model's context of 48 tokens; set max_new_tokens to at most 1"
        ],
    );
}

/// Trains on a file with the given contents.
#[track_caller]
fn check_file(content: &str, expected: impl IntoData) {
    let place = place("llama");
    place.write("prompts.jsonl", content);
    place.refuse(&["train", "train.toml"], expected);
}

#[test]
fn refuses_files_without_prompts() {
    check_file(
        "",
        str![
            "`prompts.jsonl` has no records; write one JSON object per line, such as {\"prompt\": \"…\", \"completion\": \"…\"}"
        ],
    );
    check_file(
        "{\"prompt\": \"the\"}\n{\"prompt_ids\": [1, 340]}\n",
        str!["prompts.jsonl:2: the id 340 is outside the model's vocabulary of 340 tokens"],
    );
    check_file(
        "{\"prompt\": \"the\"}\n{\"query\": \"the\"}\n",
        str![
            "prompts.jsonl:2: the prompt is missing; use one of the keys `prompt`, `messages`, `prompt_ids`, `text` (found `query`); name its column with data.columns = { prompt = \"query\" } or data.template, or rename it with `jq -c '.prompt = .query | del(.query)' OLD > NEW`"
        ],
    );
    let place = place("llama");
    place.refuse(
        &["train", "train.toml", "--set", "data.file=absent.jsonl"],
        str!["`absent.jsonl` does not exist; check the path"],
    );
    place.refuse(
        &["train", "train.toml", "--set", "data.fiel=prompts.jsonl"],
        str!["--set data.fiel=prompts.jsonl: unknown key 'data.fiel'; did you mean 'file'?"],
    );
    place.refuse(
        &["train", "train.toml", "--set", "lora.targets=[\"qkv\"]"],
        str![[r#"model = "m": lora.targets: no linear layer is named 'qkv'; available: down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj; also embed_tokens, lm_head"#]],
    );
    place.refuse(
        &["train", "train.toml", "--set", "reference.from=nothing"],
        str!["--set reference.from=nothing: reference.from: unknown value `nothing`, expected `start` or `base`"],
    );
}

#[test]
fn models_that_take_no_prompts() {
    let place = Place::for_training();
    place.write("prompts.jsonl", PROMPTS);
    place.refuse(
        &["train", "train.toml", "--set", "data.file=prompts.jsonl"],
        str!["data.file: a molecule model starts from its begin token and does not take prompts; remove [data] (`grpo pretrain` trains the model on a file of molecules)"],
    );
    // Text models without a beginning-of-sequence token require prompts.
    let place = self::place("llama");
    let (above, rest) = TRAIN.split_once("[data]").unwrap();
    let (_, below) = rest.split_once("[train]").unwrap();
    place.write("train.toml", format!("{above}[train]{below}"));
    place.refuse(
        &["train", "train.toml"],
        str!["the model has no beginning-of-text token, so training requires prompts; add a [data] section with `file`"],
    );
    place.config_folder("bert-source", &config("bert", 12));
    place.succeed(&["init", "bert-source/config.json", "-o", "bert"]);
    place.refuse(
        &["train", "train.toml", "--set", "model=bert"],
        str![[r#"model = "bert": bert is an encoder (bert), which does not predict next tokens; use a causal language model"#]],
    );
}

/// An adapter for a molecule model, which needs no prompts.
#[test]
fn an_adapter_for_molecules() {
    let place = Place::for_training();
    let ended = place.succeed(&["train", "train.toml", "--set", "lora={rank=2, alpha=4}"]);
    assert!(ended.stdout.contains("adapter      run/adapter\n"), "{}", ended.stdout);
    let model = crate::support::small_model().to_str().unwrap();
    let sampled =
        place.succeed(&["sample", "--model", model, "--adapter", "run/adapter", "-n", "20"]);
    assert_eq!(sampled.stdout.lines().count(), 20);
    assert_ne!(sampled.stdout, place.succeed(&["sample", "--model", model, "-n", "20"]).stdout);
}
