//! Rewards for replies in `grpo train`.

use std::path::Path;

use serde_json::Value;

use crate::support::Place;
use crate::texts::objects;
use crate::training_texts;

const PROMPTS: &str = r#"{"prompt": "two and two are", "tweet": "two and two are four!"}
{"prompt": "the lazy", "tweet": "the lazy dog is sad"}
"#;

/// Creates a place for training with the given reward.
fn place(reward: &str) -> Place {
    let place = training_texts::place("qwen3");
    place.write("prompts.jsonl", PROMPTS);
    let pattern = "type = \"pattern\"\npattern = \"[aeiou]\"";
    assert!(training_texts::TRAIN.contains(pattern));
    place.write("train.toml", training_texts::TRAIN.replace(pattern, reward));
    place
}

/// Returns the path of a tiny encoder.
fn encoder() -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../grpo-selftest/fixtures/models");
    fixtures.join("sentence-old").display().to_string()
}

#[test]
fn a_policy_learns_by_a_composite_reward_of_replies() {
    let folder = encoder();
    let place = place(&format!(
        r#"type = "composite"

[[reward.parts]]
name = "reply"
weight = 0.75
reward = {{ type = "heuristic", embedder = {{ type = "sentence_transformers", folder = '{folder}' }} }}

[[reward.parts]]
name = "vowel"
weight = 0.25
transform = {{ type = "negate" }}
reward = {{ type = "pattern", pattern = "[aeiou]" }}
"#
    ));
    let ended = place.succeed(&["train", "train.toml", "--plain"]);
    for said in ["mean reply", "mean reply.relevance", "mean vowel", "mean vowel.raw"] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    let metrics = objects(&place.read("run/metrics.jsonl"));
    let number = |name: &str| metrics[0][name].as_f64().unwrap_or(f64::NAN);
    for name in ["relevance", "length", "sentiment", "diversity", "punctuation", "engagement"] {
        let mean = number(&format!("rewards/reply.{name}/mean"));
        assert!((0.0..=1.0).contains(&mean), "{name}: {mean}");
    }
    assert_eq!(number("rewards/vowel/mean"), -number("rewards/vowel.raw/mean"));
    let record = &place.completions("run")[0];
    let (reply, vowel) = (record.parts["reply"], record.parts["vowel"]);
    assert!((record.reward.unwrap() - (0.75 * reply + 0.25 * vowel)).abs() < 1e-12, "{record:?}");
    let info: Value = serde_json::from_str(&place.read("run/run.json")).unwrap();
    let files = info["data"].as_array().unwrap().iter();
    // All files of the encoder except its expected outputs.
    assert_eq!(files.filter(|file| file["role"] == "embedder").count(), 8);
}

#[test]
fn what_is_no_reward_of_replies() {
    let place = place("type = \"heuristic\"\nembedder = { type = \"hashed_ngrams\" }");
    let refused = |more: &[&str], expected: &str| {
        let before = place.files();
        let ended = place.run(&[&["train", "train.toml"], more].concat());
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{more:?}: {}", ended.stderr);
        assert_eq!(place.files(), before, "{more:?} left something behind");
    };
    let check = |set: &str, expected: &str| {
        refused(&["--set", set], &format!("error: --set {set}: {expected}"));
    };
    check(
        "reward.relevance=0.5",
        "reward.relevance, reward.length, reward.sentiment, reward.diversity, reward.punctuation and reward.engagement must be at least 0 and sum to 1, but they sum to 1.2",
    );
    check("reward.uniqueness_weight=0.1", "unknown key 'reward.uniqueness_weight'");
    check(
        "reward.type=heuristics",
        "reward.type: unknown reward type `heuristics`; expected one of ",
    );
    check("reward.embedder.width=0", "embedder.width = 0 is out of range; expected 1 to 1048576");
    check("reward.embedder.type=minilm", "reward.embedder.type: unknown value `minilm`");
    let set = "reward.embedder={ type = \"sentence_transformers\", folder = \"absent\" }";
    refused(
        &["--set", set],
        "embedder.folder: cannot use absent as a sentence encoder: the folder does not exist; a sentence-transformers folder contains modules.json, config.json, tokenizer.json,",
    );
    place.write("prompts.jsonl", "{\"prompt\": \"two and two are\", \"tweet\": 4}\n");
    refused(&[], "field 'tweet' of the prompt's record is not a string");
}

/// Tweets with 10,000 characters, without words or in any script can be scored.
#[test]
fn any_tweet_that_is_text_has_replies_with_a_reward() {
    let place = place("type = \"heuristic\"\nembedder = { type = \"hashed_ngrams\" }");
    let folder = encoder();
    let tweets =
        ["so good, so bad! ".repeat(600), String::new(), "🎉 日本 ünï\u{0}\u{301} ".repeat(9)];
    let prompts: String = tweets
        .iter()
        .map(|tweet| serde_json::json!({"prompt": "the lazy", "tweet": tweet}).to_string() + "\n")
        .collect();
    place.write("prompts.jsonl", prompts);
    let set =
        format!("reward.embedder={{ type = \"sentence_transformers\", folder = '{folder}' }}");
    for (run, more) in [("a", &[][..]), ("b", &["--set", set.as_str()][..])] {
        place.succeed(&[&["train", "train.toml", "--plain", "--run", run], more].concat());
        let metrics = objects(&place.read(&format!("{run}/metrics.jsonl")));
        assert!(metrics.iter().all(|line| line["rewards/failed"] == 0), "{metrics:?}");
    }
}
