//! Imports example files, and checks that `grpo train` reads the result.

use std::path::Path;

use grpo_task::config;
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::defaults::{DEFAULTS, default_of};
use super::draft::Draft;
use super::source::Given;
use super::steps::Setting;
use super::yaml::parse_yaml;
use super::{drafted, elsewhere, import, rules, source, writer};
use crate::train_file::TrainFile;

/// What most files have.
const PLAIN: &str = "\
model_name_or_path: Qwen/Qwen3-0.6B
dataset_name: trl-lib/DeepMath-103K
reward_funcs: [rewards.accuracy]
output_dir: runs/qwen
learning_rate: 1e-6
per_device_train_batch_size: 8
gradient_accumulation_steps: 4
num_generations: 8
max_steps: 200
report_to: none
";

/// DAPO with an adapter.
const DAPO: &str = "\
model_name_or_path: ./models/Qwen3-0.6B
dataset_name: data/prompts.jsonl
reward_funcs:
  - lib.rewards.accuracy
  - lib.rewards.brevity
reward_weights: [1.0, 0.1]
use_peft: yes
lora_r: 8
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
loss_type: dapo
epsilon: 0.2
epsilon_high: 0.28
mask_truncated_completions: true
num_iterations: 2
max_steps: 101
lr_scheduler_type: cosine
warmup_ratio: 0.1
eval_strategy: steps
eval_steps: 20
chat_template_kwargs: {enable_thinking: false}
top_k: 20
use_vllm: true
vllm_gpu_memory_utilization: 0.3
";

fn given(yaml: &str) -> Given {
    Given::new("a.yaml", parse_yaml(yaml).unwrap()).unwrap()
}

/// Imports a text with two processes and 1,000 prompts.
fn draft(given: &Given) -> Draft<'_> {
    drafted(given, "a", &Setting { processes: Some(2), prompts: Some(1000) }).unwrap()
}

/// Reads the result like `grpo train` does, and returns it with all defaults.
fn read(draft: &Draft<'_>) -> Table {
    let text = writer::toml_of(draft, "a.yaml");
    let tasks = crate::tasks_of(&[]);
    let layers = config::of_text(Path::new("a.toml"), text.clone())
        .unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    let loaded =
        TrainFile::parse(layers, &tasks).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    loaded.value.check(&loaded.origin).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    loaded.value.resolved().unwrap()
}

fn at<'a>(table: &'a Table, key: &str) -> &'a Value {
    key.split('.')
        .fold(None, |value: Option<&Value>, part| match value {
            None => table.get(part),
            Some(value) => value.get(part),
        })
        .unwrap_or_else(|| panic!("{key} is missing in\n{table}"))
}

/// Compares values, of which f32 ones may be rounded.
#[track_caller]
fn assert_values(table: &Table, expected: &[(&str, &str)]) {
    for (key, expected) in expected {
        let parsed: Table = toml::from_str(&format!("value = {expected}")).unwrap();
        let (found, expected) = (at(table, key), &parsed["value"]);
        match (found.as_float(), expected.as_float()) {
            (Some(found), Some(expected)) => {
                assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{key}: {found}");
            }
            _ => assert_eq!(found, expected, "{key}"),
        }
    }
}

#[test]
fn a_plain_file_keeps_the_defaults_of_trl() {
    let given = given(PLAIN);
    let draft = draft(&given);
    assert_values(
        &read(&draft),
        &[
            ("model", "\"Qwen/Qwen3-0.6B\""),
            ("run", "\"runs/qwen\""),
            ("seed", "42"),
            (
                "data.file",
                "\"hf://datasets/trl-lib/DeepMath-103K@refs/convert/parquet/default/train/*.parquet\"",
            ),
            ("reward.file", "\"rewards.py\""),
            ("reward.function", "[\"accuracy\"]"),
            // 8 · 4 · 2 / 8
            ("train.prompts_per_step", "8"),
            ("train.group_size", "8"),
            ("train.steps", "200"),
            ("train.activation_checkpointing", "true"),
            ("sampling.max_new_tokens", "512"),
            ("loss.preset", "\"dapo\""),
            ("loss.surrogate.epsilon_low", "0.2"),
            ("loss.surrogate.epsilon_high", "0.2"),
            ("loss.kl_bias_correction", "true"),
            ("advantage.scale", "\"group\""),
            ("optimizer.learning_rate", "1e-6"),
            ("optimizer.betas", "[0.9, 0.999]"),
            ("optimizer.weight_decay", "0.0"),
            ("schedule.floor", "0.0"),
            ("save.every", "500"),
        ],
    );
    let other = |trl: &str| draft.report.other_defaults.iter().any(|one| one.trl == trl);
    assert!(other("loss_type") && other("weight_decay") && !other("learning_rate"));
    assert!(!draft.report.to_do.iter().any(|one| one.contains("train.steps")));
}

#[test]
fn dapo_with_an_adapter() {
    let given = given(DAPO);
    let draft = draft(&given);
    assert_values(
        &read(&draft),
        &[
            ("model", "\"./models/Qwen3-0.6B\""),
            ("lora.rank", "8"),
            ("lora.alpha", "32.0"),
            ("lora.targets", "[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]"),
            ("data.thinking", "false"),
            ("reward.file", "\"lib/rewards.py\""),
            ("reward.weights", "[1.0, 0.1]"),
            // 8 · 1 · 2 / 8
            ("train.prompts_per_step", "2"),
            ("train.updates_per_rollout", "2"),
            // 101 optimizer steps, 2 per rollout
            ("train.steps", "51"),
            ("sampling.top_k", "20"),
            ("loss.surrogate.epsilon_high", "0.28"),
            // a tenth of 102 optimizer steps
            ("schedule.warmup_steps", "6"),
            ("eval.every", "10"),
            ("eval.group_size", "8"),
        ],
    );
    let truncated = draft.report.without_counterpart.iter().find(|one| one.changes_training);
    assert_eq!(truncated.unwrap().trl, ["mask_truncated_completions"]);
}

/// Every loss with everything that has a counterpart.
#[test]
fn every_loss_with_every_key_is_valid() {
    for loss in ["grpo", "dr_grpo", "bnpo", "dapo", "cispo", "sapo", "luspo", "vespo"] {
        for (level, aggregation) in
            [("token", "sum_then_normalize"), ("sequence", "normalize_then_sum")]
        {
            let values = json!({
                "model_name_or_path": "openai-community/gpt2", "use_peft": true, "dtype": "bfloat16",
                "use_rslora": true, "use_dora": true, "lora_modules_to_save": ["lm_head"],
                "loss_type": loss, "importance_sampling_level": level,
                "multi_objective_aggregation": aggregation, "scale_rewards": false, "beta": 0.04,
                "use_bias_correction_kl": true, "delta": 4.0, "off_policy_mask_threshold": 0.5,
                "top_entropy_quantile": 0.2, "use_adaptive_entropy": true, "entropy_coef": 0.001,
                "sync_ref_model": true, "ref_model_sync_steps": 64, "temperature": 0.7, "top_p": 0.9,
                "top_k": -1, "min_p": 0.05, "repetition_penalty": 1.1, "max_prompt_length": 256,
                "max_grad_norm": 0.0, "lr_scheduler_type": "cosine_with_min_lr",
                "lr_scheduler_kwargs": {"min_lr_rate": 0.1}, "warmup_steps": 10,
                "eval_strategy": "epoch", "num_generations_eval": 2, "save_strategy": "no",
                "save_total_limit": 3, "log_completions": true, "seed": 7,
                "reward_funcs": ["accuracy_reward", "mine.length"],
            });
            let given = Given::new("a.json", values).unwrap();
            let draft = draft(&given);
            let table = read(&draft);
            assert_values(
                &table,
                &[
                    ("lora.targets", "[\"c_attn\"]"),
                    ("lora.dora", "true"),
                    ("lora.modules_to_save", "[\"lm_head\"]"),
                    ("base_precision", "\"bf16\""),
                    ("loss.kl_coef", "0.04"),
                    ("loss.high_entropy_share", "0.2"),
                    ("loss.entropy_bonus.initial", "0.001"),
                    ("reference.every_steps", "64"),
                    ("reference.mix", "0.6"),
                    ("sampling.min_p", "0.05"),
                    ("schedule.floor", "0.1"),
                    ("eval.group_size", "2"),
                    ("save.every", "0"),
                    ("save.completions_every", "10"),
                ],
            );
            assert_eq!(at(&table, "loss.preset").as_str(), Some(loss));
        }
    }
}

/// Our defaults, compared with those that the program fills in.
#[test]
fn the_defaults_are_those_of_the_program() {
    let text = "run = \"r\"\nmodel = \"m\"\nseed = 1\n[lora]\nrank = 1\nalpha = 1\n\
        [train]\nsteps = 1\nprompts_per_step = 1\ngroup_size = 2\n\
        [sampling]\nmax_new_tokens = 1\n[reward]\ntype = \"pattern\"\npattern = \"a\"\n\
        [optimizer]\nlearning_rate = 0.1\n";
    let layers = config::of_text(Path::new("a.toml"), text.to_owned()).unwrap();
    let table = TrainFile::parse(layers, &crate::tasks_of(&[])).unwrap().value.resolved().unwrap();
    assert_values(&table, DEFAULTS);
    assert!(DEFAULTS.iter().all(|(key, _)| default_of(key).is_some()));
}

/// Fields of GRPOConfig, ModelConfig and the script arguments of TRL 1.16.
const FIELDS: &str = include_str!("fields.txt");

#[test]
fn every_field_of_trl_has_one_place() {
    let mut count = 0;
    for field in FIELDS.split_whitespace() {
        let places =
            [super::BY_CODE.contains(&field), rules::is_known(field), source::is_renamed(field)];
        let places = places.into_iter().filter(|is_there| *is_there).count();
        assert_eq!(places + usize::from(elsewhere::is_known(field)), 1, "{field}");
        count += 1;
    }
    assert!(count > 200, "{count}");
}

/// Imports a text, and returns the draft's configuration with what remains to be done, and what has no counterpart.
fn imported(yaml: &str) -> (Table, Vec<String>, Vec<String>) {
    let given = given(yaml);
    let draft = draft(&given);
    let table = read(&draft);
    let without = draft.report.without_counterpart.iter().map(|one| one.remedy.clone()).collect();
    (table, draft.report.to_do, without)
}

#[test]
fn open_r1_describes_the_messages() {
    for (yaml, save, values) in [
        (
            "dataset_name: open-r1/Math\ndataset_prompt_column: problem\nsystem_prompt: \"Think: <think>\\n'é\\\"\"\n",
            None,
            &[
                ("data.columns.prompt", "\"problem\""),
                ("data.system", "\"Think: <think>\\n'é\\\"\""),
                (
                    "data.file",
                    "\"hf://datasets/open-r1/Math@refs/convert/parquet/default/train/*.parquet\"",
                ),
            ][..],
        ),
        (
            "dataset_name: b\ndataset_config: all\ndataset_train_split: s\nsystem_prompt: S\n",
            Some(r#"datasets.load_dataset("b", name="all", split="s").to_json("data/b.jsonl")"#),
            &[("data.columns.prompt", "\"prompt\""), ("data.system", "\"S\"")],
        ),
        (
            "dataset_name: my/rows.parquet\ndataset_prompt_column: q\neval_strategy: steps\n",
            None,
            &[("data.columns.prompt", "\"q\""), ("data.file", "\"my/rows.parquet\"")],
        ),
        (
            "dataset_name: a/b\ndataset_config: all\ndataset_test_split: t\neval_strategy: steps\n",
            None,
            &[
                ("data.file", "\"hf://datasets/a/b@refs/convert/parquet/all/train/*.parquet\""),
                ("eval.file", "\"hf://datasets/a/b@refs/convert/parquet/all/t/*.parquet\""),
            ],
        ),
    ] {
        let (table, to_do, without) = imported(yaml);
        let saved = to_do.iter().find_map(|one| one.strip_prefix("Save the prompts, in Python: "));
        assert_eq!(saved, save);
        assert!(without.is_empty(), "{yaml}");
        assert_values(&table, values);
    }
    let given = given("dataset_name: my/rows.jsonl\n");
    assert_values(&read(&draft(&given)), &[("data.file", "\"my/rows.jsonl\"")]);
}

#[test]
fn mixtures_are_files_with_weights() {
    let name = |of: &str, split: &str| {
        format!("hf://datasets/{of}@refs/convert/parquet/{split}/*.parquet")
    };
    // TRL.
    let (table, to_do, without) = imported(
        "datasets:\n  - path: a/b\n    name: all\n    columns: [prompt]\n  - path: a/c\n    data_files: x.jsonl\n  - path: a/b\n    split: train[:9]\ndataset_name: ignored/x\n",
    );
    let train = name("a/b", "all/train");
    let files = [train.as_str(), "hf://datasets/a/c/x.jsonl", "data/b-3.jsonl"];
    assert_values(&table, &[("data.file", &format!("{files:?}"))]);
    let save = r#"Save the prompts, in Python: datasets.load_dataset("a/b", split="train[:9]").to_json("data/b-3.jsonl")"#;
    assert!(to_do.contains(&save.to_owned()), "{to_do:?}");
    assert_eq!(without, ["no effect in combination with the other keys"]);
    let (_, _, without) = imported("datasets:\n  - path: a/b\n    fraction: 0.5\n");
    assert!(without[0].starts_with("`fraction` is a share of the mixture"), "{without:?}");
    // open-r1.
    let (table, to_do, without) = imported(
        "dataset_mixture:\n  datasets:\n    - id: a/b\n      config: all\n      split: train\n      columns: [problem, solution]\n      weight: 0.5\n    - id: a/c\n      weight: 1.0\n  seed: 42\n  test_split_size: 0.1\ndataset_prompt_column: problem\n",
    );
    let expected = format!(
        "[{{ file = {:?}, weight = 0.5 }}, {:?}]",
        name("a/b", "all/train"),
        name("a/c", "default/train")
    );
    assert_values(&table, &[("data.file", &expected), ("data.columns.prompt", "\"problem\"")]);
    assert!(!to_do.iter().any(|one| one.contains("Python: ")), "{to_do:?}");
    assert_eq!(without, ["test_split_size: save the held-out prompts in a file and set eval.file"]);
    for (yaml, expected) in [
        ("datasets: [x]\n", "datasets[0] is \"x\"; expected keys such as `path: org/name`"),
        (
            "dataset_mixture: {datasets: []}\n",
            "dataset_mixture.datasets is not a list of data sets; expected entries such as `- path: org/name`",
        ),
    ] {
        let given = given(yaml);
        let setting = Setting { processes: None, prompts: None };
        let error = drafted(&given, "a", &setting).err().unwrap().to_string();
        assert_eq!(error, format!("a.yaml: {expected}"));
    }
}

#[test]
fn models_are_named_as_on_the_hub() {
    let check = |yaml: &str, model: &str, to_do: Option<&str>| {
        let given = given(yaml);
        let draft = draft(&given);
        assert_values(&read(&draft), &[("model", &format!("{model:?}"))]);
        let found = draft.report.to_do.iter().find(|one| one.contains("model"));
        assert_eq!(found.map(String::as_str), to_do);
    };
    check("model_name_or_path: a/b\nmodel_revision: main\n", "a/b", None);
    check("model_name_or_path: a/b\nmodel_revision: refs/pr/1\n", "a/b@refs%2Fpr%2F1", None);
    check("model_name_or_path: ./a/b\n", "./a/b", None);
    check(
        "model_name_or_path: gpt2\n",
        "gpt2",
        Some("Set model to a folder, or to the name with its organisation: org/gpt2"),
    );
    check(
        "model_name_or_path: a/b\nmodel_revision: v1\nchat_template: x\n",
        "models/b",
        Some("Download the model: mkdir -p models && cp -rL \"$(grpo download a/b@v1)\" models/b"),
    );
}

#[test]
fn functions_of_several_modules_are_imported_into_one_file() {
    let own = "functions written for TRL run unchanged.";
    for (names, file, functions, expected) in [
        ("[rewards.accuracy]", "rewards.py", "[\"accuracy\"]", format!("Check that rewards.py has accuracy; {own}")),
        ("[a.b.x, a.b.y]", "a/b.py", "[\"x\", \"y\"]", format!("Check that a/b.py has x, y; {own}")),
        ("[mine]", "rewards.py", "[\"mine\"]", format!("Write rewards.py with mine; {own}")),
        (
            "[accuracy_reward, my_rewards.short]",
            "rewards.py",
            "[\"accuracy_reward\", \"short\"]",
            "Write rewards.py, one line each: from trl.rewards import accuracy_reward; from my_rewards import short".into(),
        ),
        (
            "[a.f, b.c.f, code]",
            "rewards.py",
            "[\"a_f\", \"b_c_f\", \"code\"]",
            "Write rewards.py with code, and one line each: from a import f as a_f; from b.c import f as b_c_f".into(),
        ),
        (
            "[accuracy, tag_count]",
            "rewards.py",
            "[\"accuracy\", \"tag_count\"]",
            "Write rewards.py, one line each: from open_r1.rewards import accuracy_reward as accuracy; from open_r1.rewards import tag_count_reward as tag_count".into(),
        ),
    ] {
        let given = given(&format!("reward_funcs: {names}\n"));
        let draft = draft(&given);
        let file = format!("\"{file}\"");
        assert_values(&read(&draft), &[("reward.file", &file), ("reward.function", functions)]);
        assert!(draft.report.to_do.contains(&expected), "{:?}", draft.report.to_do);
    }
}

#[test]
fn both_names_of_a_key_may_have_one_value() {
    let values = json!({"gradient_checkpointing": false, "activation_checkpointing": false});
    let given = Given::new("a.json", values).unwrap();
    let expected = [("train.activation_checkpointing", "false")];
    assert_values(&read(&draft(&given)), &expected);
}

#[test]
fn no_key_is_dropped() {
    let values = FIELDS.split_whitespace().filter_map(|field| {
        let value = match field {
            // Keys that other keys make useless, and keys of a type that 1 does not fit.
            "max_steps" | "num_train_epochs" | "weight_decay" | "lora_r" => json!(1),
            _ => return None,
        };
        Some((field.to_owned(), value))
    });
    let mut values: serde_json::Map<String, Json> = values.collect();
    values.insert("learnign_rate".to_owned(), json!(1));
    values.insert("nothing".to_owned(), Json::Null);
    let given = Given::new("a.json", Json::Object(values)).unwrap();
    let report = draft(&given).report;
    let without = |key: &str| {
        let mut all = report.without_counterpart.iter();
        all.find(|one| one.trl.iter().any(|trl| trl == key)).map(|one| one.remedy.as_str())
    };
    let useless = Some("no effect in combination with the other keys");
    assert_eq!(without("lora_r"), useless);
    assert_eq!(without("num_train_epochs"), useless);
    assert_eq!(without("learnign_rate"), Some(super::UNKNOWN));
    assert_eq!(without("nothing"), Some(super::UNKNOWN));
    let taken = |key: &str| report.taken.iter().any(|one| one.trl == key);
    assert!(taken("max_steps") && taken("weight_decay"));
}

#[test]
fn a_complete_dump_tells_the_number_of_processes() {
    let values = json!({
        "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
        "steps_per_generation": 2, "generation_batch_size": 64, "num_generations": 8,
    });
    let given = Given::new("a.json", values).unwrap();
    let setting = Setting { processes: None, prompts: Some(100) };
    let draft = drafted(&given, "a", &setting).unwrap();
    // 64 / (4 · 2) processes, 64 completions per step; 3 epochs of 100 prompts, 8 per step
    let expected = [("train.prompts_per_step", "8"), ("train.steps", "38")];
    assert_values(&read(&draft), &expected);
}

#[test]
fn what_yaml_gets_wrong() {
    for (text, expected) in [
        ("a: 1\na: 2\n", "line 2: duplicate key `a`"),
        ("a: &x [1]\nb: *x\n", "line 2: aliases (`*name`) are not supported; write the value out"),
        ("a: !!python/object:os.system x\n", "line 1: tags (`!name`) are not supported; remove it"),
        ("? [a]\n: 1\n", "line 1: a key is a list or a mapping; expected a name"),
        ("a: 1\n---\nb: 2\n", "line 2: a second document begins; expected a single one"),
    ] {
        assert_eq!(parse_yaml(text).unwrap_err(), expected, "{text}");
    }
    let deep = format!("a: {}1{}\n", "[".repeat(200), "]".repeat(200));
    assert_eq!(
        parse_yaml(&deep).unwrap_err(),
        "line 1: the values are nested more than 32 levels deep"
    );
    let long = format!("a: [{}]\n", "1, ".repeat(30_000));
    assert_eq!(
        parse_yaml(&long).unwrap_err(),
        "line 1: the file has more than 20000 keys and values"
    );
    assert!(parse_yaml("a: [1\nb: }\n").is_err());
    let read = parse_yaml("a: 1e-6\nb: \"1\"\nc: no\nd: ~\ne:\n  - 1_000\n  - x y\nf: -.5\n");
    let expected =
        json!({"a": 1e-6, "b": "1", "c": false, "d": null, "e": [1000, "x y"], "f": -0.5});
    assert_eq!(read.unwrap(), expected);
}

#[test]
fn what_values_get_wrong() {
    for (text, expected) in [
        ("learning_rate: fast\n", "learning_rate is \"fast\"; expected a number"),
        ("num_generations: 2.5\n", "num_generations is 2.5; expected a whole number"),
        ("num_generations: 1\n", "num_generations = 1 is out of range; expected 2 to 1000000"),
        ("use_peft: 3\n", "use_peft is 3; expected true or false"),
        (
            "save_strategy: often\n",
            "save_strategy = \"often\" is unknown; expected one of steps, no, epoch, best",
        ),
        (
            "reward_funcs: [a]\nreward_weights: [1, 2]\n",
            "reward_weights has 2 numbers, but reward_funcs has 1 names; expected one weight per function",
        ),
    ] {
        let given = given(text);
        let setting = Setting { processes: None, prompts: None };
        let error = drafted(&given, "a", &setting).err().unwrap().to_string();
        assert_eq!(error, format!("a.yaml: {expected}"));
    }
    let list = Given::new("a.yaml", json!([1])).unwrap_err().to_string();
    assert!(list.starts_with("a.yaml: the file is a list, not a mapping; "), "{list}");
    let both = json!({"dtype": "float32", "torch_dtype": "bfloat16"});
    let both = Given::new("a.yaml", both).unwrap_err().to_string();
    assert_eq!(both, "a.yaml: torch_dtype is the old name of dtype; remove one of the two");
}

#[test]
fn a_value_out_of_our_range_is_something_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yml");
    std::fs::write(&path, "learning_rate: 2\nmodel_name_or_path: \"a\\nb\"\n").unwrap();
    let setting = Setting { processes: None, prompts: None };
    let imported = import(&path, Path::new("a.toml"), &setting, &crate::tasks_of(&[])).unwrap();
    let to_do = &imported.report.to_do;
    let change = to_do.iter().find(|sentence| sentence.starts_with("Change a value: a.toml:"));
    assert!(change.unwrap().contains("optimizer.learning_rate"), "{to_do:?}");
    assert!(to_do.iter().any(|sentence| sentence.starts_with("Set train.steps: 3 epochs")));
    // A line feed in a name does not end a comment.
    assert!(toml::from_str::<Table>(&imported.toml).is_ok(), "{}", imported.toml);
    let other = folder.path().join("a.ini");
    let error = import(&other, Path::new("a.toml"), &setting, &crate::tasks_of(&[])).err().unwrap();
    assert!(error.to_string().contains("unknown file type"), "{error}");
}
