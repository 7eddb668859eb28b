//! Rewards for replies in `grpo train`.

use std::path::Path;

use serde_json::Value;
use snapbox::str;

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

const HEURISTIC: &str = "[reward]\ntype = \"heuristic\"\nembedder = { type = \"hashed_ngrams\" }\n";

/// Two pairs as they are in a data set, and the same replies as `grpo sample --tweets` writes them.
const PAIRS: &str = r#"{"tweet_id": "1", "tweet": "I love green tea", "reply": "Green tea is the best! Which one?"}
{"tweet_id": "2", "tweet": "It rains again", "reply": "ok"}
"#;
const SAMPLES: &str = r#"{"prompt": [{"role": "user", "content": "Reply: I love green tea"}], "prompt_key": "I love green tea", "completion": "Green tea is the best! Which one?"}
{"prompt": [{"role": "user", "content": "Reply: It rains again"}], "prompt_key": "It rains again", "completion": "ok"}
"#;

/// Returns the columns of a CSV table without quoted cells.
fn columns(table: &str) -> Vec<(String, Vec<String>)> {
    let mut rows = table.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = rows.next().unwrap();
    let rows: Vec<Vec<String>> = rows.collect();
    let cells = |index: usize| rows.iter().map(|row| row[index].clone()).collect();
    names.into_iter().enumerate().map(|(index, name)| (name, cells(index))).collect()
}

#[test]
fn pairs_are_scored_by_component() {
    let place = Place::new();
    place.write("reward.toml", HEURISTIC);
    place.write("pairs.jsonl", PAIRS);
    place.write("samples.jsonl", SAMPLES);
    let of_pairs = place.succeed(&["score", "reward.toml", "pairs.jsonl"]).stdout;
    let columns = columns(&of_pairs);
    let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "completion",
            "score",
            "relevance",
            "length",
            "sentiment",
            "diversity",
            "punctuation",
            "engagement",
            "reason",
            "prompt"
        ]
    );
    assert_eq!(columns[9].1, ["I love green tea", "It rains again"]);
    let number = |column: usize, row: usize| columns[column].1[row].parse::<f64>().unwrap();
    // The default weights (docs/algorithm.md).
    let weights = [0.30, 0.15, 0.15, 0.10, 0.10, 0.20];
    for row in 0..2 {
        let sum: f64 =
            (2..8).zip(weights).map(|(column, weight)| weight * number(column, row)).sum();
        assert!((number(1, row) - sum).abs() < 1e-5, "{of_pairs}");
    }
    assert!(number(2, 0) > number(2, 1) && number(1, 0) > number(1, 1), "{of_pairs}");
    // Samples have the tweet as the key of the prompt.
    let of_samples = place.succeed(&["score", "reward.toml", "samples.jsonl"]).stdout;
    assert_eq!(of_samples, of_pairs);
    // A single pair, and one whose record lacks the tweet.
    let single = [
        "score",
        "reward.toml",
        "--field",
        "tweet=I love green tea",
        "--completion",
        "Green tea is the best! Which one?",
        "--completion",
        "-",
    ];
    let shown = place.succeed(&single).stdout;
    let score = columns[1].1[0].parse::<f64>().unwrap();
    assert!(shown.contains(&format!("{score:.4}")) && shown.contains("relevance"), "{shown}");
    let lone = place.run(&["score", "reward.toml", "--completion", "yes"]);
    assert_eq!(lone.code, Some(1), "{}", lone.stdout);
    assert!(lone.stderr.contains("no completion has a score; first reason: "), "{}", lone.stderr);
    // Neither the prompt of the template nor that of a recorded completion is the tweet.
    let templated = SAMPLES.replace("prompt_key", "other");
    place.write("templated.jsonl", templated);
    let ended = place.run(&["score", "reward.toml", "templated.jsonl"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("missing field 'tweet'"), "{}", ended.stderr);
    place.refuse(
        &[
            "score",
            "reward.toml",
            "--completion",
            "yes",
            "--field",
            "tweet=a",
            "--field",
            "tweet=b",
        ],
        str!["--field tweet is given twice; remove one"],
    );
    place.refuse(
        &["score", "reward.toml", "--completion", "yes", "--field", "tweet"],
        str!["--field tweet is not a pair; write KEY=VALUE, e.g. tweet='I love tea'"],
    );
}

#[test]
fn a_hybrid_is_the_weighted_sum_of_its_rewards() {
    let place = crate::engagement::place();
    place.succeed(&["train-engagement", "engagement.toml"]);
    place.write("scored.jsonl", PAIRS);
    let scores = |reward: &str| -> Vec<f64> {
        place.write("reward.toml", format!("reward = {{ {reward} }}\n"));
        let table = place.succeed(&["score", "reward.toml", "scored.jsonl"]).stdout;
        let (_, cells) = columns(&table).into_iter().find(|(name, _)| name == "score").unwrap();
        cells.iter().map(|cell| cell.parse().unwrap()).collect()
    };
    let learned = "type = \"learned\", model = \"engagement/model\"";
    let heuristic = "type = \"heuristic\", embedder = { type = \"hashed_ngrams\" }";
    let hybrid =
        format!("type = \"hybrid\", learned = {{ {learned} }}, heuristic = {{ {heuristic} }}");
    let (of_learned, of_heuristic) = (scores(learned), scores(heuristic));
    for (weights, [of_first, of_second]) in
        [("", [0.6, 0.4]), (", learned_weight = 0.9, heuristic_weight = 0.1", [0.9, 0.1])]
    {
        for (i, total) in scores(&format!("{hybrid}{weights}")).into_iter().enumerate() {
            let expected = of_first * of_learned[i] + of_second * of_heuristic[i];
            // The table has six decimals.
            assert!((total - expected).abs() < 1.1e-6, "{total}, expected {expected}{weights}");
        }
    }
    // The engagement that the model predicts is a metric of an evaluation.
    let evaluate = ["eval", "scored.jsonl", "--reward", "reward.toml", "--json"];
    let result: Value = serde_json::from_str(&place.succeed(&evaluate).stdout).unwrap();
    let found = result["metrics"]["rewards/learned/mean"].as_f64().unwrap();
    let expected = of_learned.iter().sum::<f64>() / of_learned.len() as f64;
    assert!((found - expected).abs() < 1e-6, "{result}, expected {expected}");
}

/// The reward of a configuration is measured like any other metric, e.g. the engagement that a model
/// predicts.
#[test]
fn components_of_a_reward_are_metrics() {
    let place = Place::new();
    place.write("reward.toml", HEURISTIC);
    place.write("samples.jsonl", SAMPLES);
    let table = columns(&place.succeed(&["score", "reward.toml", "samples.jsonl"]).stdout);
    let evaluate = ["eval", "samples.jsonl", "--reward", "reward.toml", "--json"];
    let result: Value = serde_json::from_str(&place.succeed(&evaluate).stdout).unwrap();
    let metric = |name: &str| result["metrics"][name].as_f64().unwrap_or(f64::NAN);
    let mean = |column: usize| -> f64 {
        let values = table[column].1.iter().map(|value| value.parse::<f64>().unwrap());
        values.sum::<f64>() / 2.0
    };
    assert!((metric("score/mean") - mean(1)).abs() < 1e-6, "{result}");
    assert!((metric("rewards/relevance/mean") - mean(2)).abs() < 1e-6, "{result}");
    assert!(result["intervals"]["rewards/engagement/mean"].is_array(), "{result}");
    assert_eq!(result["settings"], serde_json::json!(["--reward=reward.toml"]));
    let of_file = |row: usize| table[1].1[row].parse::<f64>().unwrap();
    assert!((metric("score/max") - of_file(0).max(of_file(1))).abs() < 1e-6, "{result}");
    let three = [SAMPLES, &SAMPLES.lines().next().unwrap().replace("best", "worst")].concat();
    place.write("three.jsonl", three);
    let evaluate = ["eval", "three.jsonl", "--reward", "reward.toml", "--json"];
    let of_three: Value = serde_json::from_str(&place.succeed(&evaluate).stdout).unwrap();
    let [least, median, greatest] =
        ["score/min", "score/median", "score/max"].map(|name| of_three["metrics"][name].as_f64());
    assert!(least < median && median < greatest, "{of_three}");
    let gate = ["eval", "samples.jsonl", "--reward", "reward.toml", "--gate", "score/mean > 0.99"];
    assert_eq!(place.run(&gate).code, Some(1));
    place.write("molecules.smi", "SMILES name\nCCO ethanol\nC(\n");
    place.write("qed.toml", "[reward]\ntype = \"molecule\"\nqed = 1.0\n");
    let evaluate = ["eval", "molecules.smi", "--reward", "qed.toml", "--json"];
    let result: Value = serde_json::from_str(&place.succeed(&evaluate).stdout).unwrap();
    assert_eq!(result["metrics"]["rewards/valid/mean"], 0.5, "{result}");
}
