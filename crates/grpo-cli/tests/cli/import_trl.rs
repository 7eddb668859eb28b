//! `grpo import-trl`. The conversion of keys is tested in `grpo-program`. Requires `python3` in `PATH`.

use std::process::Command;

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
        "- Download the model: hf download Qwen/Qwen3-0.6B --local-dir models/Qwen3-0.6B",
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
    assert_eq!(report["to_do"].as_array().unwrap().len(), 3, "{json}");
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

/// The model, data and reward of each recipe.
const RECIPES: [(&str, &str); 5] = [
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        "dataset_name: open-r1/OpenR1-Math-220k\ndataset_prompt_column: problem\nreward_funcs:\n- accuracy\n- format\n- tag_count\nreward_weights:\n- 1.0\n- 1.0\n- 1.0\n",
    ),
    (
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "dataset_name: open-r1/OpenR1-Math-220k\ndataset_prompt_column: problem\nchat_template: \"{% for m in messages %}<{{ m['role'] }}>{{ '%s' % m['content'] }}\\n{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}\"\nreward_funcs:\n- accuracy\n- format\n- tag_count\nreward_weights:\n- 1.0\n- 1.0\n- 1.0\n",
    ),
    (
        "Qwen/Qwen2.5-1.5B-Instruct",
        "dataset_name: open-r1/verifiable-coding-problems-python\nbeta: 0.01\nmax_grad_norm: 0.2\nscale_rewards: true\nreward_funcs:\n- code\n- format\nreward_weights:\n- 0.9\n- 0.1\n",
    ),
    (
        "Qwen/Qwen2.5-Coder-7B-Instruct",
        "dataset_name: open-r1/codeforces\ndataset_prompt_column: prompt\ndataset_config: verifiable-prompts\ncallbacks:\n- push_to_hub_revision\nbenchmarks:\n- lcb_v4\nreward_funcs:\n- cf_code\n- code_format\ncode_language: python\ncode_eval_test_batch_size: -1\ncode_eval_scoring_mode: weighted_sum\nparallel_code_exec_per_proc: 1\nmask_truncated_completions: true\n",
    ),
    (
        "Qwen/Qwen2.5-Math-7B",
        "dataset_name: DigitalLearningGmbH/MATH-lighteval\ndataset_config: default\ndataset_prompt_column: problem\nreward_funcs:\n- accuracy\n- format\nreward_weights:\n- 1.0\n- 1.0\n",
    ),
];

/// Stands for the package `datasets`: rows with the columns of these data sets.
const DATASETS: &str = r#"
import json

class Rows:
    column_names = ["problem", "prompt", "solution", "answer", "messages"]

    def __init__(self, rows):
        self.rows = rows

    def map(self, function, remove_columns):
        kept = [{k: v for k, v in row.items() if k not in remove_columns} for row in self.rows]
        return Rows([{**old, **function(row)} for old, row in zip(kept, self.rows)])

    def to_json(self, path):
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)

def load_dataset(path, split, **options):
    row = {"problem": "2 + 2 = ?", "prompt": "4 + 4 = ?", "solution": "4", "answer": "4", "messages": [{"role": "user", "content": "?"}]}
    return Rows([row] * 4)
"#;

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
        if let Some(code) = rest("Save the prompts, in Python: ") {
            let code = format!("import datasets; {code}");
            let python =
                Command::new("python3").args(["-c", &code]).current_dir(place.path("")).output();
            let python = python.unwrap();
            assert!(python.status.success(), "{code}: {}", String::from_utf8_lossy(&python.stderr));
        } else if let Some(names) = rest("Give the model the chat template of the file: cp ") {
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
    for folder in ["data", "models", "open_r1"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("datasets.py", DATASETS);
    place.write("open_r1/rewards.py", REWARDS);
    for (i, (model, recipe)) in RECIPES.into_iter().enumerate() {
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
        let mut arguments = vec!["train", &toml];
        for set in [
            "train.steps=1",
            "schedule.warmup_steps=0",
            "sampling.max_new_tokens=8",
            "eval.samples=0",
        ] {
            arguments.extend(["--set", set]);
        }
        place.succeed(&arguments);
        let first = place.read(&format!(
            "data/{}.jsonl",
            recipe.lines().next().unwrap().rsplit_once('/').unwrap().1
        ));
        let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        let system = first["prompt"][0]["content"].as_str().unwrap();
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
