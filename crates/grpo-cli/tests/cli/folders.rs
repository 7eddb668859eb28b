//! `grpo init` and `grpo merge`.

use std::fs;

use serde_json::{Map, Value};
use snapbox::{Data, IntoData, str};

use crate::support::Place;
use crate::texts::{VOCABULARY, config, distance, entries, logprobs};

const RECORDS: &str = "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4, 5, 6, 7]}\n{\"prompt_ids\": [9], \"completion_ids\": [8]}\n";

/// A model with a trained adapter.
pub(crate) fn with_adapter(place: &Place, family: &str) {
    place.model_of_ids("m", family, 12);
    let line = "{\"prompt_ids\": [1, 2], \"completion_ids\": [3, 4, 5]}\n{\"prompt_ids\": [7], \"completion_ids\": [8]}\n";
    place.write("learn.jsonl", line.repeat(4));
    place.write(
        "learn.toml",
        "run = \"run\"\nseed = 1\nstart = \"m\"\n[lora]\nrank = 2\nalpha = 4\n[data]\nfile = \"learn.jsonl\"\nvalidation_fraction = 0.5\n[pretrain]\nepochs = 3\nbatch_size = 2\n[pretrain.optimizer]\nlearning_rate = 5e-2\n",
    );
    place.succeed(&["pretrain", "learn.toml"]);
    fs::rename(place.path("run/adapter"), place.path("a")).unwrap();
}

#[test]
fn a_merged_model_is_the_model_with_its_adapter() {
    for family in ["gpt2", "llama", "qwen2", "qwen3"] {
        let place = Place::new();
        with_adapter(&place, family);
        let plain = logprobs(&place.logprob("m", RECORDS, &[]));
        let adapted = logprobs(&place.logprob("m", RECORDS, &["--adapter", "a"]));
        assert!(distance(&plain, &adapted) > 0.05, "{family}: nothing was learned");
        let ended = place.succeed(&["merge", "--model", "m", "--adapter", "a", "-o", "new/merged"]);
        assert_eq!(
            (ended.stdout.as_str(), ended.stderr.as_str()),
            ("", "written      new/merged\n")
        );
        let merged = logprobs(&place.logprob("new/merged", RECORDS, &[]));
        let off = distance(&adapted, &merged);
        assert!(off < 1e-4, "{family}: {off}");
        assert_eq!(
            entries(&place.path("new/merged")),
            ["README.md", "config.json", "manifest.json", "model.safetensors"]
        );
        assert_eq!(entries(&place.path("new")), ["merged"]);

        place.succeed(&[
            "merge",
            "--model",
            "m",
            "--adapter",
            "a",
            "-o",
            "half",
            "--dtype",
            "bf16",
        ]);
        let off = distance(&adapted, &logprobs(&place.logprob("half", RECORDS, &[])));
        assert!(off > 0.0 && off < 0.1, "{family} in bf16: {off}");
        let bytes = |name: &str| fs::metadata(place.path(name)).unwrap().len();
        assert!(10 * bytes("half/model.safetensors") < 7 * bytes("new/merged/model.safetensors"));
    }
}

/// The shapes match, so only the recorded hash shows that the adapter belongs to a different model.
#[test]
fn an_adapter_of_another_base_of_the_same_shapes_is_refused_everywhere() {
    let place = Place::new();
    with_adapter(&place, "qwen3");
    let ended = place.succeed(&["init", "m-source/config.json", "-o", "other", "--seed", "7"]);
    assert_eq!(ended.stderr, "written      other\n");
    place.write("prompts.jsonl", "{\"prompt_ids\": [1, 2, 3], \"completion_ids\": [4]}\n");
    let train = "run = \"grpo\"\nseed = 1\nmodel = \"m\"\nadapter = \"a\"\n[data]\nfile = \"prompts.jsonl\"\n[train]\nsteps = 1\nprompts_per_step = 1\ngroup_size = 2\n[sampling]\nmax_new_tokens = 4\n[reward]\ntype = \"pattern\"\npattern = \"3\"\n[optimizer]\nlearning_rate = 1e-3\n";
    place.write("train.toml", train);
    place.write("other.toml", train.replace("model = \"m\"", "model = \"other\""));
    let learn = place.read("learn.toml").replace("[lora]\nrank = 2\nalpha = 4\n", "");
    let learn = learn.replace("run = \"run\"", "run = \"more\"\nadapter = \"a\"");
    place.write("more.toml", learn.replace("start = \"m\"", "start = \"other\""));
    let commands = |model: &'static str| {
        let of_train = if model == "m" { "train.toml" } else { "other.toml" };
        [
            vec!["merge", "--model", model, "--adapter", "a", "-o", "new"],
            vec!["sample", "--model", model, "--adapter", "a", "--prompts", "prompts.jsonl"],
            vec!["logprob", "--model", model, "--adapter", "a", "--input", "prompts.jsonl"],
            vec!["train", of_train, "--plain"],
        ]
    };
    let trained_on = place.path("m").display().to_string();
    for arguments in commands("other").into_iter().chain([vec!["pretrain", "more.toml"]]) {
        let ended = place.run(&arguments);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
        let said = format!("a was trained on a different base model: {trained_on} with weights ");
        assert!(ended.stderr.contains(&said), "{arguments:?}: {}", ended.stderr);
        let other = ", but other has weights ";
        assert!(ended.stderr.contains(other), "{arguments:?}: {}", ended.stderr);
    }
    for folder in ["new", "grpo", "more"] {
        assert!(!place.path(folder).exists(), "{folder}");
    }
    commands("m").iter().for_each(|arguments| drop(place.succeed(arguments)));
    // An adapter that was trained further records its base as well.
    let ended =
        place.run(&["merge", "--model", "other", "--adapter", "grpo/adapter", "-o", "again"]);
    assert!(ended.stderr.contains("was trained on a different base model"), "{}", ended.stderr);
}

#[test]
fn refuses_adapters_that_cannot_be_merged() {
    let place = Place::new();
    with_adapter(&place, "llama");
    let merge = |model: &str, adapter: &str, to: &str, expected: Data| {
        place.refuse(&["merge", "--model", model, "--adapter", adapter, "-o", to], expected);
    };
    let exists = |to: &str| {
        format!("{to} already exists; choose another folder, or replace it with --force")
    };
    merge("m", "a", "m", exists("m").into());
    merge("m", "a", "learn.toml", exists("learn.toml").into());
    for folder in ["m", "a"] {
        let to = format!("{folder}/new/deeper");
        let inside = place.path(folder).canonicalize().unwrap();
        let expected = format!(
            "{to} is inside the model folder {}; use another folder for -o",
            inside.display()
        );
        merge("m", "a", &to, expected.into());
    }
    merge(
        "absent",
        "a",
        "new",
        str![
            "model folder absent does not exist; a model folder contains config.json and model.safetensors; check the path"
        ].into(),
    );
    merge(
        "m",
        "absent",
        "new",
        str![
            "adapter folder absent does not exist; an adapter folder contains adapter_config.json and adapter_model.safetensors; `grpo pretrain` and `grpo train` write one to the run folder if the configuration has a [lora] section"
        ].into(),
    );
    merge(
        "m",
        "m",
        "new",
        str!["m is a model folder, not an adapter folder; an adapter folder contains adapter_config.json and adapter_model.safetensors"].into(),
    );
}

#[test]
fn layers_of_an_adapter_are_measured() {
    let place = Place::new();
    with_adapter(&place, "llama");
    let ended = place.succeed(&["adapter-layers", "a", "a", "-o", "layers.json"]);
    assert!(ended.stdout.contains("effective rank"), "{}", ended.stdout);
    assert!(ended.stdout.contains("larger in 0 and smaller in 0 layers"), "{}", ended.stdout);
    let found: Value = serde_json::from_str(&place.read("layers.json")).unwrap();
    let of = &found["adapters"][0];
    assert_eq!(of["n_layers"].as_u64(), of["layers"].as_array().map(|all| all.len() as u64));
    assert_eq!(of["layers"][0]["layer"], "model.layers.0.mlp.down_proj");
    assert_eq!(found["comparison"]["n_common_layers"], of["n_layers"]);
    place.refuse(
        &["adapter-layers", "m"],
        str!["m is not an adapter folder (no adapter_config.json); an adapter of a run is in its folder `adapter`"],
    );
}

#[test]
fn attention_is_drawn() {
    let place = Place::new();
    with_adapter(&place, "llama");
    place.copy_model();
    let model = ["attention", "CCO", "--model", "model", "-o"];
    place.succeed(&[&model[..], &["a.svg"]].concat());
    assert!(place.read("a.svg").contains("mean of heads"));
    place.succeed(&[&model[..], &["a.json"]].concat());
    let found: Value = serde_json::from_str(&place.read("a.json")).unwrap();
    assert_eq!(found["tokens"].as_array().map(Vec::len), Some(4));
    let last = found["attention"][0][0][3].as_array().unwrap();
    let sum: f64 = last.iter().map(|weight| weight.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{last:?}");
    place.refuse(
        &[&model[..], &["a.png"]].concat(),
        str!["-o a.png: the output is a picture or JSON; use a name that ends in .svg or .json"],
    );
    place.refuse(&["attention", "Xx", "--model", "model", "-o", "b.svg"], str!["the text: [..]"]);
}

#[test]
fn refuses_to_merge_an_adapter_of_another_base_or_an_altered_one() {
    let place = Place::new();
    with_adapter(&place, "llama");
    // The adapter belongs to a different model family.
    place.model_of_ids("gpt2", "gpt2", 12);
    let ended = place.run(&["merge", "--model", "gpt2", "--adapter", "a", "-o", "new"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(ended.stderr.ends_with(", but the linear layers of this model are c_attn, c_fc, c_proj; was the adapter trained on a different base model?\n"), "{}", ended.stderr);
    let wider = place
        .read("m-source/config.json")
        .replace("\"intermediate_size\": 32", "\"intermediate_size\": 40");
    place.config_folder("wider-source", &wider);
    place.succeed(&["init", "wider-source/config.json", "-o", "wider"]);
    let ended = place.run(&["merge", "--model", "wider", "--adapter", "a", "-o", "new"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("require [2, 40]; was the adapter trained on a different base model?")
            || ended
                .stderr
                .contains("require [40, 2]; was the adapter trained on a different base model?"),
        "{}",
        ended.stderr
    );
    assert!(!place.path("new").exists());

    // The adapter folder was modified.
    let config = place.read("a/adapter_config.json");
    let length = config.len();
    place.write("a/adapter_config.json", format!("{config} "));
    place.refuse(
        &["merge", "--model", "m", "--adapter", "a", "-o", "new"],
        format!(
            "`a/adapter_config.json` is damaged: it has {} bytes, but the manifest has {length}; use another checkpoint",
            length + 1
        ),
    );
    fs::remove_file(place.path("a/manifest.json")).unwrap();
    place.write("a/adapter_config.json", config.replace("\"LORA\"", "\"IA3\""));
    let ended = place.run(&["merge", "--model", "m", "--adapter", "a", "-o", "new"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("IA3"), "{}", ended.stderr);
}

#[test]
fn a_seed_gives_its_weights() {
    let place = Place::new();
    for family in ["gpt2", "llama", "qwen2", "qwen3", "bert"] {
        let source = format!("{family}-source");
        place.config_folder(&source, &config(family, 12));
        let make = |to: &str, more: &[&str]| {
            let config = format!("{source}/config.json");
            let folder = format!("{family}-{to}");
            let ended = place.succeed(&[&["init", &config, "-o", &folder], more].concat());
            assert_eq!(
                (ended.stdout, ended.stderr),
                (String::new(), format!("written      {folder}\n"))
            );
            fs::read(place.path(&format!("{folder}/model.safetensors"))).unwrap()
        };
        let first = make("first", &[]);
        assert!(first == make("again", &["--threads", "1"]), "{family}");
        assert!(first == make("said", &["--seed", "42"]), "{family}");
        let other = make("other", &["--seed", "43"]);
        assert!(first != other && first.len() == other.len(), "{family}");
        let half = make("half", &["--dtype", "bf16"]);
        assert!(half.len() < first.len(), "{family}");
        assert_eq!(
            entries(&place.path(&format!("{family}-first"))),
            ["config.json", "manifest.json", "model.safetensors"]
        );
    }
    // The data type of the weights is recorded in the configuration.
    let written = |name: &str| -> Map<String, Value> {
        serde_json::from_str(&place.read(&format!("{name}/config.json"))).unwrap()
    };
    assert_eq!(written("gpt2-first")["torch_dtype"], "float32");
    assert_eq!(written("gpt2-half")["torch_dtype"], "bfloat16");
    // bf16 weights are rounded f32 weights.
    let [first, half] =
        ["llama-first", "llama-half"].map(|name| logprobs(&place.logprob(name, RECORDS, &[])));
    let off = distance(&first, &half);
    assert!(off > 0.0 && off < 0.1, "{off}");
}

/// Hash maps have a different order in every process, which must not affect the file.
#[test]
fn a_model_of_molecules_is_the_same_file_each_time() {
    let place = Place::new();
    place.copy_model();
    let bytes = |run: usize| {
        let folder = format!("new-{run}");
        place.succeed(&["init", "model/config.json", "-o", &folder]);
        fs::read(place.path(&format!("{folder}/model.safetensors"))).unwrap()
    };
    let first = bytes(0);
    assert!((1..8).all(|run| bytes(run) == first));
    assert_eq!(place.succeed(&["sample", "--model", "new-0", "-n", "5"]).stdout.lines().count(), 5);
}

#[test]
fn a_tokenizer_comes_along() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    assert_eq!(
        entries(&place.path("m")),
        [
            "config.json",
            "manifest.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json"
        ]
    );
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        assert_eq!(place.read(&format!("m/{name}")), place.read(&format!("m-source/{name}")));
    }
    // A relative path without a folder.
    let mut here = place.command(&["init", "config.json", "-o", "new"]);
    assert!(here.current_dir(place.path("m-source")).status().unwrap().success());
    assert!(place.path("m-source/new/tokenizer.json").exists());
}

/// Checks the error message for an invalid `config.json`.
#[track_caller]
fn check(config: &str, expected: impl IntoData) {
    let place = Place::new();
    place.config_folder("source", config);
    place.refuse_after(
        "source/config.json: ",
        &["init", "source/config.json", "-o", "new"],
        expected,
    );
}

#[test]
fn refuses_configurations_without_a_model() {
    let known = "supported model families: gpt2, llama, qwen2, qwen3, mistral, ministral, granite, smollm3, olmo2, olmo3, gemma3_text, bert, molgpt, infiller, sequence_scorer, token_classifier";
    check(
        "{}",
        format!("missing model_type (transformers) or architecture (models of tasks); {known}"),
    );
    check("{\"model_type\": \"mamba\"}", format!("unknown model family \"mamba\"; {known}"));
    check("{\"model_type\": 3}", format!("unknown model family 3; {known}"));
    check(
        "{\"model_type\": \"gpt2\", ",
        str!["unexpected end of input at line 1 column 23; copy the file from the original again"],
    );
    check("{\"model_type\": \"gpt2\"}", str!["missing key 'n_embd'"]);
    check(
        &config("gpt2", 12).replace("\"n_head\": 2", "\"n_head\": 3"),
        str!["n_embd = 16 is not a multiple of n_head = 3"],
    );
    check(
        &config("gpt2", 12).replace("\"n_layer\": 2", "\"n_layer\": \"two\""),
        str![[r#"n_layer = "two"; expected a non-negative integer"#]],
    );
    check(
        &config("llama", 12).replace(
            "\"initializer_range\": 0.4",
            "\"rope_scaling\": {\"rope_type\": \"longrope\"}",
        ),
        str![[
            r#"rope_type = "longrope" is not supported; supported: default, linear, llama3, yarn"#
        ]],
    );
    let place = Place::new();
    place.config_folder("source", &config("molgpt", 9));
    place.refuse(
        &["init", "source/config.json", "-o", "new"],
        str!["`source/vocabulary.json` does not exist; check the path"],
    );
}

#[test]
fn what_cannot_be_made() {
    let place = Place::new();
    place.config_folder("source", &config("llama", VOCABULARY));
    let init = |config: &str, to: &str, expected: Data| {
        place.refuse(&["init", config, "-o", to], expected);
    };
    let exists = "`source` already exists; use another path, or remove it first";
    init("source/config.json", "source", exists.into());
    let nowhere = "cannot write `source/config.json/new`: part of the path is not a folder; choose another path";
    init("source/config.json", "source/config.json/new", nowhere.into());
    init("absent.json", "new", str!["cannot read absent.json: no such file or folder"].into());
    init("source", "new", str!["cannot read source: it is a folder, not a regular file"].into());
    // The tokenizer has more tokens than the model.
    place.add_tokenizer("source");
    place.write("source/config.json", config("llama", 300));
    init(
        "source/config.json",
        "new",
        str![
            "source: tokenizer.json has 335 tokens, but config.json has vocab_size = 300; they belong to different models"
        ].into(),
    );
    place.write("source/config.json", config("llama", VOCABULARY));
    place.write("source/tokenizer.json", "{\"version\": \"1.0\"");
    let ended = place.run(&["init", "source/config.json", "-o", "new"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    assert!(
        ended.stderr.starts_with("error: `source/tokenizer.json` is not a usable tokenizer: "),
        "{}",
        ended.stderr
    );
    assert!(!place.path("new").exists());
}
