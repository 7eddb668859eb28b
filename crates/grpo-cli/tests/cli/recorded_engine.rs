//! An engine that is registered from outside of the program.

use crate::support::Place;
use crate::texts::objects;

#[expect(dead_code, reason = "it is a program, too")]
#[path = "../../examples/recorded_engine.rs"]
mod example;

const TRAIN: &str = r#"seed = 1

[rollout]
engine = "recorded"
file = "COMPLETIONS"

[data]
file = "PROMPTS"

[train]
steps = 2
prompts_per_step = 2
group_size = 4

[sampling]
max_new_tokens = 6

[reward]
type = "pattern"
pattern = "o"

[optimizer]
learning_rate = 1e-2

[eval]
samples = 0

[save]
completions_every = 1
"#;

/// Runs the program with the additional engine in this process.
fn run(arguments: &[&str]) -> Result<(), String> {
    let arguments = ["grpo"].iter().chain(arguments);
    let ended = grpo_app::run(&[&example::RecordedTask], arguments);
    ended.map_err(|error| format!("{error:#}"))
}

#[test]
fn two_steps_with_completions_of_a_file() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    place.write("prompts.jsonl", "{\"prompt\": \"two and\"}\n{\"prompt\": \"three and\"}\n");
    place.write(
        "completions.jsonl",
        concat!(
            "{\"prompt\": \"two and\", \"completions\": [\"one\", \"two\", \"six\"]}\n",
            "{\"prompt\": \"three and\", \"completions\": [\"ten\", \"four\"]}\n",
        ),
    );
    let path = |name: &str| place.path(name).display().to_string();
    let files = TRAIN.replace("COMPLETIONS", &path("completions.jsonl"));
    let files = files.replace("PROMPTS", &path("prompts.jsonl"));
    let text = format!("run = \"{}\"\nmodel = \"{}\"\n{files}", path("run"), path("m"));
    place.write("train.toml", &text);
    run(&["train", &path("train.toml")]).unwrap();
    let mut records = place.completions("run");
    records.sort_by_key(|record| (record.step, record.prompt, record.sample));
    let texts: Vec<&str> = records.iter().map(|record| record.text.as_str()).collect();
    assert_eq!(texts.len(), 16);
    // Step 1 begins with the first completion of each prompt, step 2 with the one after the fourth.
    for (record, text) in records.iter().zip(&texts) {
        let prompt = record.prompt_text.as_deref().unwrap();
        let all: &[&str] = match prompt.contains("two") {
            true => &["one", "two", "six"],
            false => &["ten", "four"],
        };
        let next = (record.step - 1) * 4 + u64::from(record.sample);
        assert_eq!(*text, all[next as usize % all.len()], "{prompt}");
        assert_eq!(record.reward, Some(f64::from(u8::from(text.contains('o')))));
    }
    let metrics = objects(&place.read("run/metrics.jsonl"));
    assert_eq!(metrics.len(), 2);
    assert!(metrics.iter().all(|line| line["grad_norm"].as_f64().unwrap() > 0.0), "{metrics:?}");
    let config: toml::Table = place.read("run/config.toml").parse().unwrap();
    let rollout = config["rollout"].as_table().unwrap();
    assert_eq!(rollout["engine"].as_str(), Some("recorded"));
    assert_eq!(rollout["file"].as_str(), Some(&*path("completions.jsonl")));
    assert!(place.read("run/run.json").contains("completions.jsonl"));
    run(&["audit", &path("run")]).unwrap();
    run(&["replay", &path("run"), "--step", "2", "--prompt", "1", "--sample", "3"]).unwrap();
    // The program without the engine says which ones it has.
    let ended = place.run(&["train", "train.toml", "--run", "other"]);
    assert!(
        ended
            .stderr
            .contains("rollout.engine: unknown engine \"recorded\"; use \"local\" or \"vllm\""),
        "{}",
        ended.stderr
    );
    place.write("other.toml", text.replace("\"recorded\"", "\"recordings\""));
    let error = run(&["train", &path("other.toml")]).unwrap_err();
    assert!(error.contains("use \"local\", \"vllm\" or \"recorded\""), "{error}");
}
