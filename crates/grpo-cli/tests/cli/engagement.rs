//! `grpo train-engagement` and the reward that uses its models.

use std::fs;

use serde_json::{Value, json};
use snapbox::data::Inline;
use snapbox::str;

use crate::support::Place;
use crate::texts::objects;
use crate::training_texts;

const ENGAGEMENT: &str = r#"run = "engagement"
seed = 3
hidden = [16, 8]

[data]
file = "pairs.jsonl"
train = 0.6
validation = 0.2
test = 0.2

[embedder]
type = "hashed_ngrams"
width = 48

[training]
epochs = 8
batch_size = 16

[training.optimizer]
learning_rate = 5e-3
"#;

/// Four replies for each of 60 tweets. `likes` depends on the kind of reply (0 to 3) and a
/// pseudorandom number.
fn pairs(likes: impl Fn(usize, u64) -> u64) -> String {
    let kinds = [
        "buy my course now",
        "ok",
        "interesting, i never thought of that",
        "what a wonderful idea, tell us more",
    ];
    let line = |index: usize| {
        let (tweet, kind) = (index / 4, index % 4);
        let chance = ((index as u64 * 2_654_435_761) >> 7) % 40;
        let pair = json!({
            "tweet_id": format!("t{tweet}"),
            "tweet": format!("today i read about subject {tweet}"),
            "reply": format!("{} {}", kinds[kind], tweet % 7),
            "reply_likes": likes(kind, chance),
            "tweet_likes": 1000,
        });
        pair.to_string() + "\n"
    };
    (0..240).map(line).collect()
}

pub(crate) fn place() -> Place {
    let place = Place::new();
    place.write("engagement.toml", ENGAGEMENT);
    place.write("pairs.jsonl", pairs(|kind, chance| [2, 10, 60, 300][kind] + chance / 4));
    place.write("noise.jsonl", pairs(|_, chance| chance));
    place
}

fn description(place: &Place, run: &str) -> Value {
    serde_json::from_str(&place.read(&format!("{run}/model/engagement.json"))).unwrap()
}

#[test]
fn a_model_of_replies_is_trained_measured_and_kept() {
    let place = place();
    let ended = place.succeed(&["--threads", "1", "train-engagement", "engagement.toml"]);
    for said in [
        "pairs.jsonl: 240 pairs",
        "engagement   engagement/model\n",
        "passed       Pearson with the targets = ",
    ] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    let json = description(&place, "engagement");
    let (report, test) = (&json["report"], &json["report"]["test"]);
    assert_eq!((&report["passed"], &report["gate"]["min_pearson"]), (&json!(true), &json!(0.5)));
    assert!(test["pearson"].as_f64().unwrap() > 0.5, "{json}");
    assert_eq!((&test["replies"], &test["tweets"]), (&json!(48), &json!(12)));
    assert_eq!(json["embedder_identity"], "hashed_ngrams:48");
    let metrics = objects(&place.read("engagement/metrics.jsonl"));
    let looks: Vec<_> = metrics.iter().filter(|line| line.contains_key("eval_loss")).collect();
    assert_eq!((looks.len(), metrics.len()), (8, 8 * 9 + 8));
    // The kept model is the one with the lowest validation loss.
    let best = looks.iter().rfind(|look| look["best"] == true).unwrap();
    assert_eq!(best["train_step"], report["train_step"]);
    let lowest = looks.iter().map(|look| look["eval_loss"].as_f64().unwrap());
    assert_eq!(best["eval_loss"].as_f64(), lowest.reduce(f64::min));
    let info: Value = serde_json::from_str(&place.read("engagement/run.json")).unwrap();
    assert_eq!(info["data"][0]["role"], "pairs");
    assert!(place.read("engagement/config.toml").contains("dropout = 0.2"));

    // Repeating the run with a different number of threads gives identical files. A different seed
    // does not.
    place.succeed(&["--threads", "3", "train-engagement", "engagement.toml", "--run", "again"]);
    place.succeed(&["train-engagement", "engagement.toml", "--run", "other", "--set", "seed=4"]);
    let weights =
        |run: &str| fs::read(place.path(&format!("{run}/model/head.safetensors"))).unwrap();
    assert_eq!(weights("engagement"), weights("again"));
    assert_eq!(description(&place, "again"), json);
    assert_ne!(weights("engagement"), weights("other"));
    // Pairwise preferences can be learned as well.
    let pairwise = ["--set", "objective.type=pairwise", "--run", "pairwise"];
    let ended = place.succeed(&[&["train-engagement", "engagement.toml"], &pairwise[..]].concat());
    assert!(ended.stdout.contains("passed       pair accuracy = "), "{}", ended.stdout);
}

#[test]
fn a_model_of_noise_is_no_reward_unless_it_is_asked_for() {
    let place = training_texts::place("qwen3");
    place.write("engagement.toml", ENGAGEMENT);
    place.write("noise.jsonl", pairs(|_, chance| chance));
    let ended =
        place.run(&["train-engagement", "engagement.toml", "--set", "data.file=noise.jsonl"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let said = "\nerror: the engagement model failed its gate and must not be used as a reward: Pearson with the targets = ";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(description(&place, "engagement")["report"]["passed"], false);

    let prompts = "{\"prompt\": \"two and two are\", \"tweet\": \"two and two\"}\n{\"prompt\": \"the lazy\", \"tweet\": \"the lazy dog\"}\n";
    place.write("prompts.jsonl", prompts);
    let learned = training_texts::TRAIN.replace(
        "type = \"pattern\"\npattern = \"[aeiou]\"",
        "type = \"learned\"\nmodel = \"engagement/model\"",
    );
    place.write("train.toml", learned);
    let ended = place.run(&["train", "train.toml", "--plain"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
    let said = "error: reward.model: engagement/model: the engagement model did not pass its gate: Pearson with the targets = ";
    assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
    assert!(!place.path("run").exists());
    let accepted = ["--set", "reward.accept_failed_gate=true"];
    let ended = place.succeed(&[&["train", "train.toml", "--plain"], &accepted[..]].concat());
    assert!(ended.stdout.contains("mean learned"), "{}", ended.stdout);
    let info: Value = serde_json::from_str(&place.read("run/run.json")).unwrap();
    let roles: Vec<&str> = info["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|file| file["role"].as_str())
        .filter(|role| *role == "engagement_model")
        .collect();
    assert_eq!(roles.len(), 3);
    let metrics = objects(&place.read("run/metrics.jsonl"));
    assert!(metrics[0].contains_key("rewards/learned/mean"), "{:?}", metrics[0]);

    // A prompt without a tweet is reported before sampling starts.
    place.write("prompts.jsonl", "{\"prompt\": \"two and two are\"}\n");
    let again = [&["train", "train.toml", "--plain", "--run", "second"], &accepted[..]].concat();
    let ended = place.run(&again);
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("the prompt's record is missing field 'tweet'"),
        "{}",
        ended.stderr
    );
    // The model folder was modified.
    let json = place.read("engagement/model/engagement.json");
    place.write("engagement/model/engagement.json", format!("{json} "));
    place.refuse(
        &again,
        format!(
            "`engagement/model/engagement.json` is damaged: it has {} bytes, but the manifest has {}; use another checkpoint",
            json.len() + 1,
            json.len()
        ),
    );
}

#[test]
fn what_no_model_can_be_trained_of() {
    let place = place();
    let check = |set: &str, expected: Inline| {
        place.refuse(&["train-engagement", "engagement.toml", "--set", set], expected);
    };
    check(
        "training.epoch=3",
        str!["--set training.epoch=3: unknown key 'training.epoch'; did you mean 'epochs'?"],
    );
    check(
        "training.dropout=1.5",
        str![
            "--set training.dropout=1.5: training.dropout = 1.5 is out of range; expected 0 to 0.9"
        ],
    );
    check(
        "hidden=[0, 4]",
        str![
            "--set hidden=[0, 4]: the vector width 48 and the hidden layer widths 0 and 4 must be between 1 and 65536"
        ],
    );
    // Models that the reward could not load are not trained.
    check(
        "embedder.width=70000",
        str![
            "--set embedder.width=70000: the vector width 70000 and the hidden layer widths 16 and 8 must be between 1 and 65536"
        ],
    );
    check(
        "hidden=[65536, 65536]",
        str![
            "--set hidden=[65536, 65536]: vector width 48 and hidden layer widths 65536 and 65536 require a layer of 4294967296 weights; expected at most 268435456"
        ],
    );
    check(
        "embedder.width=0",
        str!["--set embedder.width=0: embedder.width = 0 is out of range; expected 1 to 1048576"],
    );
    check(
        "objective.type=stars",
        str![
            "--set objective.type=stars: objective.type: unknown value `stars`, expected one of `log`, `rank`, `pairwise`"
        ],
    );
    check(
        "gate.min_pair_accuracy=-0.5",
        str![
            "--set gate.min_pair_accuracy=-0.5: gate.min_pair_accuracy = -0.5 is out of range; expected 0 to 1"
        ],
    );
    for (set, ends) in [
        ("data.file=absent.jsonl", "absent.jsonl"),
        ("data.train=0.5", "data: `train + validation + test` is 0."),
        ("embedder={ type = \"sentence_transformers\", folder = \"absent\" }", "absent"),
    ] {
        let ended = place.run(&["train-engagement", "engagement.toml", "--set", set]);
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(1), 1), "{}", ended.stderr);
        assert!(ended.stderr.contains(ends), "{set}: {}", ended.stderr);
    }
    let few: Vec<String> =
        place.read("pairs.jsonl").lines().take(80).map(|line| format!("{line}\n")).collect();
    place.write("pairs.jsonl", few.concat());
    let ended = place.run(&["train-engagement", "engagement.toml"]);
    assert!(
        ended.stderr.ends_with("the validation split has 16 replies, but an engagement model requires 30; use a larger file, or change [data]\n"),
        "{}",
        ended.stderr
    );
    assert!(!place.path("engagement").exists());
}
