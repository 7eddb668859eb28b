//! `grpo import-trl`. The conversion of keys is tested in `grpo-program`. Requires `python3` in `PATH`.

use serde_json::{Value, json};

use crate::support::Place;
use crate::texts::{CONTEXT, VOCABULARY, config};

const YAML: &str = "\
model_name_or_path: Qwen/Qwen3-0.6B
dataset_name: trl-lib/DeepMath-103K
reward_funcs: [rewards.accuracy]
learning_rate: 1e-5
max_steps: 100
beta: 0.04
mask_truncated_completions: true
report_to: wandb
";

fn place() -> Place {
    let place = Place::new();
    place.write("qwen.yaml", YAML);
    place
}

#[test]
fn the_result_is_a_valid_configuration() {
    let place = place();
    let ended = place.succeed(&["import-trl", "qwen.yaml"]);
    for line in [
        "loss.kl_coef = 0.04",
        "optimizer.betas = [0.9, 0.999]",
        "mask_truncated_completions",
        "report_to",
        "model = \"Qwen/Qwen3-0.6B\"",
        "hf://datasets/trl-lib/DeepMath-103K@refs/convert/parquet/default/train/*.parquet",
        "configuration qwen.toml",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    place.succeed(&["train", "qwen.toml", "--check"]);
    let again = place.run(&["import-trl", "qwen.yaml"]);
    assert_eq!(again.code, Some(1), "{}", again.stdout);
    assert!(again.stderr.contains("qwen.toml already exists"), "{}", again.stderr);
    place.succeed(&["import-trl", "qwen.yaml", "--force"]);
    let json = place.succeed(&["import-trl", "qwen.yaml", "-o", "b.toml", "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["to_do"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(place.read("b.toml"), place.read("qwen.toml"));
    assert!(place.succeed(&["import-trl", "qwen.yaml", "--force", "-q"]).stdout.is_empty());
}

#[test]
fn files_that_are_not_configurations_are_refused() {
    let place = place();
    place.write("bomb.yaml", "a: &a [x, x]\nb: [*a, *a]\n");
    place.write("list.json", "[1]");
    place.write("twice.json", "{\"seed\": 1, \"seed\": 2}");
    let refused = |arguments: &[&str], expected: &str| {
        let ended = place.run(arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    };
    let aliases = "bomb.yaml: line 2: aliases (`*name`) are not supported";
    refused(&["import-trl", "bomb.yaml"], aliases);
    refused(&["import-trl", "list.json"], "list.json: the file is a list, not a mapping");
    refused(&["import-trl", "twice.json"], "twice.json: duplicate key `seed`");
    refused(&["import-trl", "absent.yaml"], "cannot read the TRL configuration absent.yaml");
    refused(&["import-trl", "qwen.yaml", "-o", "qwen.yaml"], "qwen.yaml is the input");
    refused(&["import-trl", "qwen.yaml", "-o", "no/a.toml"], "the folder no does not exist");
}

/// What the five recipes of open-r1 for GRPO share.
const RECIPE: &str = "\
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2
bf16: true
use_vllm: true
do_eval: false
gradient_accumulation_steps: 1
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
hub_strategy: every_save
log_completions: true
log_level: info
logging_first_step: true
logging_steps: 1
logging_strategy: steps
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs:
  min_lr_rate: 0.1
max_prompt_length: 512
max_completion_length: 2048
max_steps: -1
num_generations: 4
num_train_epochs: 1
overwrite_output_dir: true
per_device_eval_batch_size: 16
per_device_train_batch_size: 4
push_to_hub: false
report_to:
- wandb
save_strategy: \"epoch\"
save_total_limit: 1
seed: 42
temperature: 0.7
warmup_ratio: 0.1
";

/// A system prompt in the style of open-r1, with the signs that are hard to quote.
const SYSTEM: &str = "system_prompt: \"You are a helpful AI Assistant. Respond in the following format: <think>\\n...\\n</think>\\n<answer>\\n'é' \\\"...\\\"\\n</answer>\"\n";

/// The model, data and reward of each recipe, and the name of the data.
const RECIPES: [(&str, &str, &str); 5] = [
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        "dataset_name: open-r1/OpenR1-Math-220k\ndataset_prompt_column: problem\nreward_funcs:\n- accuracy\n- format\n- tag_count\nreward_weights:\n- 1.0\n- 1.0\n- 1.0\n",
        "open-r1/OpenR1-Math-220k@refs/convert/parquet/default/train/*.parquet",
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "dataset_name: open-r1/OpenR1-Math-220k\ndataset_prompt_column: problem\nchat_template: \"{% for m in messages %}<{{ m['role'] }}>{{ '%s' % m['content'] }}\\n{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}\"\nreward_funcs:\n- accuracy\n- format\n- tag_count\nreward_weights:\n- 1.0\n- 1.0\n- 1.0\n",
        "open-r1/OpenR1-Math-220k@refs/convert/parquet/default/train/*.parquet",
    ),
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        "dataset_name: open-r1/verifiable-coding-problems-python\nbeta: 0.01\nmax_grad_norm: 0.2\nscale_rewards: true\nreward_funcs:\n- code\n- format\nreward_weights:\n- 0.9\n- 0.1\n",
        "open-r1/verifiable-coding-problems-python@refs/convert/parquet/default/train/*.parquet",
    ),
    (
        "Qwen/Qwen2.5-Coder-7B-Instruct",
        "dataset_name: open-r1/codeforces\ndataset_prompt_column: prompt\ndataset_config: verifiable-prompts\ncallbacks:\n- push_to_hub_revision\nbenchmarks:\n- lcb_v4\nreward_funcs:\n- cf_code\n- code_format\ncode_language: python\ncode_eval_test_batch_size: -1\ncode_eval_scoring_mode: weighted_sum\nparallel_code_exec_per_proc: 1\nmask_truncated_completions: true\n",
        "open-r1/codeforces@refs/convert/parquet/verifiable-prompts/train/*.parquet",
    ),
    (
        "Qwen/Qwen2.5-Math-7B",
        "dataset_name: DigitalLearningGmbH/MATH-lighteval\ndataset_config: default\ndataset_prompt_column: problem\nreward_funcs:\n- accuracy\n- format\nreward_weights:\n- 1.0\n- 1.0\n",
        "DigitalLearningGmbH/MATH-lighteval@refs/convert/parquet/default/train/*.parquet",
    ),
];

/// A row with the columns of the data set of a recipe.
fn row(data: &str) -> Value {
    match data.split(['/', '@']).nth(1) {
        Some("OpenR1-Math-220k") => json!({
            "problem": "2 + 2 = ?", "solution": "Add. $\\boxed{4}$", "answer": "4",
            "problem_type": "Algebra", "question_type": "math-word-problem", "source": "olympiads",
            "uuid": "a8e1", "is_reasoning_complete": [true, false], "generations": ["<think>x</think>4", ""],
            "correctness_math_verify": [true, false], "correctness_llama": null, "finish_reasons": null,
            "correctness_count": 1,
            "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "4"}],
        }),
        Some("verifiable-coding-problems-python") => json!({
            "source": "apps", "task_type": "verifiable_code", "in_source_id": "4424",
            "prompt": "4 + 4 = ?", "gold_standard_solution": "```python\nprint(8)\n```",
            "verification_info": {"language": "python", "test_cases": [
                {"fn_name": null, "input": "", "output": "8", "type": "stdin_stdout"},
            ]},
            "metadata": {"difficulty": "introductory"}, "problem_id": "vfcode_0",
        }),
        Some("codeforces") => json!({
            "id": "852/A", "aliases": null, "contest_id": "852", "contest_start": 1_504_535_700, "index": "A",
            "time_limit": 2.0, "memory_limit": 256.0, "title": "Digits", "description": "2 + 3",
            "input_format": "", "output_format": null, "interaction_format": null, "note": null,
            "examples": [{"input": "", "output": "5"}], "rating": 2500, "tags": ["math"],
            "official_tests": [{"input": "", "output": "5"}], "official_tests_complete": true,
            "input_mode": "stdio", "generated_checker": null, "executable": true, "generated_tests": 0,
            "prompt": "2 + 3 = ?", "language": "python",
        }),
        _ => json!({
            "problem": "1 + 1 = ?", "level": "Level 1", "solution": "$1 + 1 = \\boxed{2}$.", "type": "Algebra",
        }),
    }
}

/// Functions of `open_r1.rewards`, which fail unless completions are messages.
const REWARDS: &str = r#"
def accuracy_reward(completions, solution, **kwargs):
    return [float(solution[i] in text[0]["content"]) for i, text in enumerate(completions)]

def format_reward(completions, **kwargs):
    return [float(len(completion[0]["content"])) for completion in completions]

def tag_count_reward(completions, prompts, **kwargs):
    assert all(prompt[-1]["role"] == "user" and "= ?" in prompt[-1]["content"] for prompt in prompts)
    return [completion[0]["content"].count("<") for completion in completions]

def get_code_format_reward():
    return format_reward
"#;

/// Does what the report says.
fn follow(place: &Place, to_do: &[String]) {
    for sentence in to_do {
        let rest = |start: &str| sentence.strip_prefix(start);
        if let Some(names) = rest("Give the model the chat template of the file: cp ") {
            let (from, to) = names.split_once(' ').unwrap();
            std::fs::copy(place.path(from), place.path(to)).unwrap();
        } else if let Some(text) = rest("Write rewards.py") {
            let (names, lines) = text.split_once("one line each: ").unwrap_or((text, ""));
            let names = names.trim_start_matches(" with ").trim_end_matches(", and ");
            let own = names.split(';').next().unwrap().split(", ").filter(|name| !name.is_empty());
            let own: String = own
                .map(|name| format!("from open_r1.rewards import format_reward as {name}\n"))
                .collect();
            place.write("rewards.py", own + &lines.replace("; ", "\n"));
        } else {
            let known = rest("Download the model: ").or(rest("Set train.steps: "));
            assert!(known.is_some(), "{sentence}");
        }
    }
}

#[test]
fn recipes_of_open_r1_lead_to_a_run() {
    let place = Place::new();
    let long = config("llama", VOCABULARY).replace(&CONTEXT.to_string(), "1024");
    place.config_folder("source", &long);
    place.add_tokenizer("source");
    for folder in ["models", "open_r1"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("open_r1/rewards.py", REWARDS);
    for (i, (model, recipe, data)) in RECIPES.into_iter().enumerate() {
        let file = format!("recipe{i}.yaml");
        let text = format!(
            "model_name_or_path: {model}\n{RECIPE}{SYSTEM}{recipe}output_dir: runs/{i}\nlearning_rate: 2.0e-05\n"
        );
        place.write(&file, text);
        let json = place.succeed(&["import-trl", &file, "--json"]).stdout;
        assert!(!json.contains("unknown to TRL"), "{json}");
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        let to_do: Vec<String> = serde_json::from_value(report["to_do"].clone()).unwrap();
        let folder = format!("models/{}", model.rsplit_once('/').unwrap().1);
        if !place.path(&folder).exists() {
            place.succeed(&["init", "source/config.json", "-o", &folder]);
            // Downloaded models have no manifest.
            std::fs::remove_file(place.path(&format!("{folder}/manifest.json"))).unwrap();
        }
        follow(&place, &to_do);
        let toml = format!("recipe{i}.toml");
        place.succeed(&["train", &toml, "--check"]);
        let rows = format!("rows{i}.jsonl");
        place.write(&rows, format!("{}\n", row(data)).repeat(4));
        let (model_set, file_set) = (format!("model={folder}"), format!("data.file={rows}"));
        let mut arguments = vec!["train", &toml];
        for set in [
            model_set.as_str(),
            file_set.as_str(),
            "train.steps=1",
            "schedule.warmup_steps=0",
            "sampling.max_new_tokens=8",
            "eval.samples=0",
        ] {
            arguments.extend(["--set", set]);
        }
        place.succeed(&arguments);
        let table: toml::Table = place.read(&toml).parse().unwrap();
        assert_eq!(table["data"]["file"].as_str(), Some(&*format!("hf://datasets/{data}")));
        let is_named = table["model"].as_str() == Some(model);
        assert_ne!(is_named, recipe.contains("chat_template"), "{table}");
        let system = table["data"]["system"].as_str().unwrap();
        assert!(system.ends_with("<answer>\n'é' \"...\"\n</answer>"), "{system}");
    }
    // The template of the second recipe became the model's.
    let template = place.read("models/DeepSeek-R1-Distill-Qwen-1.5B/chat_template.jinja");
    assert!(template.starts_with("{% for m in messages %}<{{ m['role'] }}>"), "{template}");
    let ended = place.run(&["import-trl", "recipe1.yaml", "-o", "other.toml"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    std::fs::remove_file(place.path("other.toml")).unwrap();
    let ended = place.run(&["import-trl", "recipe1.yaml", "-o", "other.toml"]);
    assert!(ended.stderr.contains("other.chat_template.jinja already exists"), "{}", ended.stderr);
    assert!(!place.path("other.toml").exists());
}
