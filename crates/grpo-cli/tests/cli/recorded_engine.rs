//! An engine and an episode that are registered from outside of the program.

use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::{Codec, Completion, ConfigFault, Prompt};
use grpo_rollout::{Episode, EpisodeConfig, EpisodeKind, Next, RolloutError};
use grpo_task::task::Task;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// Runs the program with the additional engine and episode in this process.
fn run(arguments: &[&str]) -> Result<(), String> {
    let arguments = ["grpo"].iter().chain(arguments);
    let ended = grpo_program::run(&[&example::RecordedTask, &Repeats], arguments);
    ended.map_err(|error| format!("{error:#}"))
}

/// A task that brings an episode.
struct Repeats;

impl Task for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn episodes(&self) -> Vec<EpisodeKind> {
        vec![EpisodeKind::from_settings::<OnceMore>("once_more")]
    }
}

/// Shows the same ids after the first turn.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OnceMore {
    ids: Vec<u32>,
    /// More ids, one per line.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

impl EpisodeConfig for OnceMore {
    fn settings(&self) -> toml::Table {
        toml::Table::try_from(self).unwrap()
    }

    fn check(&self) -> Result<(), ConfigFault> {
        match self.ids.len() {
            0 => Err(ConfigFault::new("ids", "episode.ids is empty", "add an id")),
            _ => Ok(()),
        }
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        self.file.iter().map(|file| ("episode", file.clone())).collect()
    }

    fn build(&self, _: &Codec) -> Result<Arc<dyn Episode>, RolloutError> {
        let mut episode = self.clone();
        let text = self.file.iter().map(|file| std::fs::read_to_string(file).unwrap());
        let text = text.collect::<String>();
        episode.ids.extend(text.lines().map(|id| id.parse::<u32>().unwrap()));
        Ok(Arc::new(episode))
    }
}

impl Episode for OnceMore {
    fn max_turns(&self) -> usize {
        2
    }

    fn max_observation(&self) -> usize {
        self.ids.len()
    }

    fn next(&self, _: &Prompt, _: &Completion, _: usize) -> Result<Next, RolloutError> {
        Ok(Next::Observe(self.ids.clone()))
    }
}

/// They share a process, so they are one test.
#[test]
fn engines_and_episodes_from_outside_of_the_program() {
    two_steps_with_completions_of_a_file();
    two_steps_of_two_turns();
}

fn two_steps_of_two_turns() {
    let place = Place::new();
    place.model_of_texts("m", "qwen3");
    place.write("prompts.jsonl", "{\"prompt\": \"two and\"}\n{\"prompt\": \"three and\"}\n");
    let path = |name: &str| place.path(name).display().to_string();
    let text = TRAIN.replace("engine = \"recorded\"\nfile = \"COMPLETIONS\"", "engine = \"local\"");
    let text = text.replace("PROMPTS", &path("prompts.jsonl"));
    place.write("more.txt", "72\n73\n");
    let more = path("more.txt");
    let episode = format!("[episode]\ntype = \"once_more\"\nids = [70, 71]\nfile = \"{more}\"\n");
    let text = format!("run = \"{}\"\nmodel = \"{}\"\n{text}{episode}", path("run"), path("m"));
    place.write("train.toml", &text);
    run(&["train", &path("train.toml")]).unwrap();
    let records = place.completions("run");
    assert_eq!(records.len(), 16);
    for record in &records {
        // Two turns of up to 6 tokens.
        assert!((2..=12).contains(&record.actions), "{}", record.actions);
        assert_eq!(record.sampling_logprobs.len(), record.actions as usize);
    }
    let config: toml::Table = place.read("run/config.toml").parse().unwrap();
    assert_eq!(config["episode"]["type"].as_str(), Some("once_more"));
    run(&["audit", &path("run")]).unwrap();
    run(&["replay", &path("run"), "--step", "2", "--prompt", "1", "--sample", "3"]).unwrap();
    for (from, to, expected) in [
        ("once_more", "twice", "episode.type: unknown episode \"twice\"; use one of \"once_more\""),
        ("ids = [70, 71]", "ids = []", "episode.ids is empty; add an id"),
        ("ids = [70, 71]", "", "episode: missing key `ids`"),
        ("[episode]", "[episodes]", "unknown key 'episodes'; did you mean 'episode'?"),
    ] {
        place.write("other.toml", text.replace(from, to));
        let error = run(&["train", &path("other.toml"), "--run", &path("other")]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    // The file of the episode is an input of the run.
    assert!(place.read("run/run.json").contains("more.txt"));
    place.write("more.txt", "73\n");
    run(&["audit", &path("run")]).unwrap_err();
}

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
    let hot = ["train", &path("train.toml"), "--run", &path("hot"), "--set"];
    let error = run(&[&hot[..], &["sampling.temperature=0.5"]].concat()).unwrap_err();
    assert!(error.contains("sampling settings do not apply to a file"), "{error}");
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
