//! `grpo import-trl`. The conversion of keys is tested in `grpo-app`.

use crate::support::Place;

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
