use std::path::Path;

use burn::tensor::Device;
use grpo_eval::{Embedder, HashedNgrams};
use grpo_model::Perceptron;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::description::DESCRIPTION;
use super::*;
use crate::rewards::parsed;
use grpo_rewards::{Outcome, Reward, RewardConfig, RewardInput};

const WIDTH: usize = 32;

fn report(passed: bool) -> EngagementReport {
    EngagementReport {
        passed,
        gate: EngagementGate::default().or_default(&EngagementObjective::Rank {}),
        test: EngagementMeasures {
            eval_loss: 0.06,
            pearson: if passed { 0.6 } else { 0.2 },
            pearson_score: 0.3,
            spearman: 0.5,
            pair_accuracy: None,
            replies: 40,
            tweets: 40,
            pairs: 0,
        },
        train_step: 10,
    }
}

fn description(report: Option<EngagementReport>) -> EngagementDescription {
    EngagementDescription {
        embedder: EmbedderConfig::HashedNgrams { width: WIDTH },
        embedder_identity: HashedNgrams::new(WIDTH).identity(),
        width: WIDTH,
        hidden: [8, 4],
        objective: EngagementObjective::Rank {},
        report,
    }
}

fn head() -> Perceptron {
    Perceptron::random(2 * WIDTH, [8, 4], 1, &Device::flex())
}

fn folder(report: Option<EngagementReport>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    EngagementModel::write(folder.path(), &description(report), &head()).unwrap();
    folder
}

fn config(folder: &Path) -> RewardConfig {
    parsed(json!({"type": "learned", "model": folder})).unwrap()
}

fn built(folder: &Path) -> Arc<dyn Reward> {
    config(folder).build(&Device::flex()).unwrap()
}

fn refusal(config: &RewardConfig, folder: &Path) -> String {
    let error = config.build(&Device::flex()).err().expect("it is refused");
    error.to_string().replace(&folder.display().to_string(), "FOLDER")
}

fn sample(tweet: &str, reply: &str) -> RewardInput {
    let Value::Object(fields) = json!({ "tweet": tweet }) else { unreachable!() };
    RewardInput { text: reply.to_owned(), fields, ..RewardInput::default() }
}

#[test]
fn a_reply_is_scored_by_the_head() {
    let folder = folder(Some(report(true)));
    let reward = built(folder.path());
    let samples = [
        sample("my garden in may", "what a lovely garden!"),
        sample("my garden in may", "no"),
        sample("trains are late again", "what a lovely garden!"),
        sample("", "..."),
    ];
    let together = reward.score(&samples);
    let embedder = HashedNgrams::new(WIDTH);
    for (sample, outcome) in samples.iter().zip(&together) {
        let tweet = sample.fields["tweet"].as_str().unwrap();
        let vectors = embedder.embed(&[tweet, &sample.text]).unwrap().concat();
        let scale = (WIDTH as f32).sqrt();
        let features: Vec<f32> = vectors.iter().map(|number| scale * number).collect();
        let expected = head().predict(&features);
        assert_eq!(outcome.total(), Some(expected));
        assert_eq!(outcome.part("learned"), Some(expected));
        assert!((0.0..=1.0).contains(&expected));
        // Scoring a single sample gives the same result, bit for bit.
        assert_eq!(&reward.score(std::slice::from_ref(sample))[0], outcome);
    }
    assert_ne!(together[0].total(), together[1].total());
    assert_ne!(together[0].total(), together[2].total());
    assert_eq!(reward.parts(), ["learned"]);
}

#[test]
fn an_empty_reply_is_worth_nothing_and_one_without_a_tweet_fails() {
    let folder = folder(Some(report(true)));
    let reward = built(folder.path());
    let mut other = sample("a tweet", "a reply");
    other.fields.insert("tweet".to_owned(), 3.into());
    let good = sample("a tweet", "a reply");
    let samples = [
        sample("a tweet", ""),
        good.clone(),
        RewardInput::from("a reply"),
        sample("a tweet", " \n"),
        other,
    ];
    let outcomes = reward.score(&samples);
    assert_eq!((outcomes[0].total(), outcomes[3].total()), (Some(0.0), Some(0.0)));
    assert_eq!(outcomes[0].part("learned"), Some(0.0));
    assert_eq!(outcomes[1], reward.score(&[good])[0]);
    assert!(outcomes[1].total().unwrap() > 0.0);
    let missing = "the prompt's record is missing field 'tweet'";
    assert_eq!(outcomes[2].failure(), Some(missing));
    let no_text = "field 'tweet' of the prompt's record is not a string";
    assert_eq!(outcomes[4].failure(), Some(no_text));
    assert_eq!(reward.check(&samples[2].fields).unwrap_err(), missing);
    assert_eq!(reward.check(&samples[4].fields).unwrap_err(), no_text);
    reward.check(&samples[0].fields).unwrap();
    // Long texts are supported.
    let long = "a very long tweet ".repeat(600);
    assert!(reward.score(&[sample(&long, &long)])[0].total().is_some());
}

/// If the embedder fails for some texts, the remaining texts still have a score.
#[test]
fn a_text_without_a_vector_fails_alone() {
    struct Picky(HashedNgrams);
    impl Embedder for Picky {
        fn width(&self) -> usize {
            self.0.width()
        }
        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            match texts.iter().find(|text| text.contains("bad")) {
                Some(text) => {
                    Err(EmbedError { text: (*text).to_owned(), fault: "it is".to_owned() })
                }
                None => self.0.embed(texts),
            }
        }
        fn identity(&self) -> String {
            self.0.identity()
        }
    }
    let picky = Arc::new(Picky(HashedNgrams::new(WIDTH)));
    let model = Arc::new(EngagementModel::new(description(None), head(), picky));
    let reward = LearnedReward::new(model);
    let samples =
        [sample("a tweet", "good"), sample("a tweet", "bad"), sample("a tweet", "good too")];
    let outcomes: Vec<Outcome> = reward.score(&samples);
    assert_eq!(outcomes[1].failure(), Some("cannot embed \"bad\": it is"));
    assert!(outcomes[0].total().is_some() && outcomes[2].total().is_some());
}

#[test]
fn models_that_cannot_be_a_reward_are_refused() {
    let good = folder(Some(report(true)));
    let nowhere = config(Path::new("nowhere"));
    let expected = "reward.model: folder nowhere does not exist; expected an engagement model with engagement.json and head.safetensors, as written by `grpo train-engagement`";
    assert_eq!(refusal(&nowhere, good.path()), expected);
    assert_eq!(nowhere.spec().files().unwrap_err().to_string(), expected);
    nowhere.spec().check().unwrap();

    // Models that did not pass the gate.
    for (made, found) in [
        (
            Some(report(false)),
            "Pearson with the targets = 0.200 (above 0.500) on 40 held-out replies",
        ),
        (None, "its training did not finish"),
    ] {
        let folder = folder(made);
        assert_eq!(
            refusal(&config(folder.path()), folder.path()),
            format!(
                "reward.model: FOLDER: the engagement model did not pass its gate: {found}; train it on more replies, or set accept_failed_gate = true to use it anyway"
            )
        );
        let accepted =
            json!({"type": "learned", "model": folder.path(), "accept_failed_gate": true});
        parsed(accepted).unwrap().build(&Device::flex()).unwrap();
    }

    // A different embedder.
    let other = |width: usize| {
        let embedder = json!({"type": "hashed_ngrams", "width": width});
        parsed(json!({"type": "learned", "model": good.path(), "embedder": embedder})).unwrap()
    };
    assert_eq!(
        refusal(&other(64), good.path()),
        "reward.model: FOLDER: the model was trained on vectors from hashed_ngrams:32, but this embedder produces vectors from hashed_ngrams:64; use the embedder that it was trained with, or train it again"
    );
    assert!(refusal(&other(0), good.path()).contains("embedder.width = 0"));
    other(WIDTH).build(&Device::flex()).unwrap();
    let mut lying = description(Some(report(true)));
    lying.embedder_identity = "sentence_transformers:abc".to_owned();
    EngagementModel::write(good.path(), &lying, &head()).unwrap();
    assert!(
        refusal(&config(good.path()), good.path())
            .contains("vectors from sentence_transformers:abc")
    );
}

#[test]
fn damaged_folders_are_refused_with_a_sentence() {
    let check = |damage: &dyn Fn(&Path), expected: &str| {
        let folder = folder(Some(report(true)));
        damage(folder.path());
        let found = refusal(&config(folder.path()), folder.path());
        assert!(found.starts_with(expected), "{found}");
    };
    let edit = |key: &'static str, value: Value| {
        move |folder: &Path| {
            let path = folder.join(DESCRIPTION);
            let mut json: Value =
                serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            json[key] = value.clone();
            std::fs::write(path, json.to_string()).unwrap();
        }
    };
    check(
        &|folder| std::fs::remove_file(folder.join(DESCRIPTION)).unwrap(),
        "reward.model: FOLDER/engagement.json: cannot read the file: ",
    );
    check(
        &|folder| std::fs::write(folder.join(DESCRIPTION), [0xff, b'{']).unwrap(),
        "reward.model: FOLDER/engagement.json: cannot read the file: ",
    );
    check(
        &|folder| std::fs::write(folder.join(DESCRIPTION), "{}").unwrap(),
        "reward.model: FOLDER/engagement.json: not a valid description of an engagement model: missing key",
    );
    check(
        &edit("another", json!(1)),
        "reward.model: FOLDER/engagement.json: not a valid description of an engagement model: unknown key",
    );
    check(
        &edit("hidden", json!([0, 4])),
        "reward.model: FOLDER/engagement.json: the vector width 32 and the hidden layer widths 0 and 4 must be between 1 and 65536",
    );
    check(
        &edit("hidden", json!([8, 5])),
        "reward.model: FOLDER/head.safetensors: tensor 'layers.1.weight' has shape [8, 4], but its configuration requires [8, 5]",
    );
    check(
        &|folder| std::fs::write(folder.join(WEIGHTS), "no").unwrap(),
        "reward.model: FOLDER/head.safetensors is not a complete safetensors file",
    );
}

#[test]
fn its_files_are_those_of_the_model() {
    let folder = folder(Some(report(true)));
    let files = config(folder.path()).spec().files().unwrap();
    let expected =
        [DESCRIPTION, WEIGHTS].map(|name| ("engagement_model", folder.path().join(name)));
    assert_eq!(files, expected);
    assert!(parsed(json!({"type": "learned"})).is_err());
}
