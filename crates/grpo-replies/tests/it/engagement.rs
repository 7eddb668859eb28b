//! Tests for training engagement models.

use burn::tensor::Device;
use grpo_data::{CounterRng, Purpose, RecordSplit, SplitFractions};
use grpo_eval::HashedNgrams;
use grpo_model::Perceptron;
use grpo_replies::{
    EngagementConfig, EngagementData, EngagementGate, EngagementHeadObjective, EngagementMeasures,
    EngagementObjective, EngagementTraining, PairRecord, engagement_features, measure_engagement,
    split_by_tweet,
};
use grpo_train::OptimizerConfig;

use crate::recorder::{self, Recorder};
use crate::support::{optimizer, parameters};

const WIDTH: usize = 48;

/// Types of replies, and the relative number of likes that each type receives.
const KINDS: [(&str, f64); 4] = [
    ("what a wonderful idea, tell us more about it", 0.2),
    ("interesting, i never thought of that", 0.05),
    ("ok", 0.01),
    ("buy my course now", 0.001),
];

/// Generates 480 replies to 120 tweets. A `signal` of 1 means that likes depend on the type of
/// reply, and 0 means that they are random.
fn pairs(signal: f64) -> Vec<PairRecord> {
    let topics = ["bread", "trains", "gardens", "tax", "music", "rain", "cats", "chess"];
    let rng = CounterRng::new(1, Purpose::EVALUATION);
    let pair = |index: u32| {
        let (tweet, place) = (index / 4, index % 4);
        let kind = rng.below([index, 0, 0, 1], 4) as usize;
        let topic = topics[tweet as usize % topics.len()];
        let chance = 1.5 * rng.normal([index, 0, 0, 2]);
        let likes =
            2000.0 * (signal * KINDS[kind].1.ln() + 0.3 * chance - 3.0 * (1.0 - signal)).exp();
        PairRecord {
            tweet_id: format!("t{tweet}"),
            tweet: format!("today i read about {topic} number {tweet}"),
            reply: format!("{} ({topic} {place})", KINDS[kind].0),
            reply_likes: Some(likes as u64),
            reply_retweets: Some(likes as u64 / 10),
            tweet_likes: Some(2000),
            ..PairRecord::default()
        }
    };
    (0..480).map(pair).collect()
}

fn data(pairs: &[PairRecord]) -> EngagementData {
    let fractions = SplitFractions { train: 0.6, validation: 0.2, test: 0.2 };
    let split = split_by_tweet(pairs, &fractions, 1).unwrap();
    EngagementData::new(pairs, features(pairs), &split)
}

fn features(pairs: &[PairRecord]) -> Vec<Vec<f32>> {
    let texts: Vec<(&str, &str)> =
        pairs.iter().map(|pair| (pair.tweet.as_str(), pair.reply.as_str())).collect();
    engagement_features(&HashedNgrams::new(WIDTH), &texts).unwrap()
}

fn config(objective: EngagementObjective) -> EngagementConfig {
    EngagementConfig {
        objective,
        training: EngagementTraining {
            epochs: 6,
            batch_size: 32,
            dropout: 0.2,
            patience: 0,
            min_gain: 0.0,
            optimizer: OptimizerConfig { learning_rate: 3e-3, ..optimizer() },
        },
        gate: EngagementGate::default().or_default(&objective),
    }
}

fn head() -> Perceptron {
    Perceptron::random(2 * WIDTH, [32, 16], 1, &Device::flex().autodiff())
}

fn run(
    data: &EngagementData,
    config: &EngagementConfig,
    seed: u64,
) -> (Recorder<EngagementMeasures>, Perceptron) {
    let trainer = EngagementHeadObjective::trainer(head(), data, config, seed);
    let (recorder, trained, _) = recorder::run(trainer);
    (recorder, trained)
}

const OBJECTIVES: [EngagementObjective; 3] = [
    EngagementObjective::Rank {},
    EngagementObjective::Log { scale: 100.0 },
    EngagementObjective::Pairwise { margin: 0.1 },
];

#[test]
fn what_replies_have_in_common_is_learned_and_passes() {
    let data = data(&pairs(1.0));
    for objective in OBJECTIVES {
        let config = config(objective);
        let before = measure_engagement(&head(), &data, &config).unwrap();
        let (recorder, trained) = run(&data, &config, 1);
        let after = measure_engagement(&trained, &data, &config).unwrap();
        assert!(!config.gate.passes(&before), "{objective:?}: {before:?}");
        assert!(config.gate.passes(&after), "{objective:?}: {after:?}");
        assert!(after.spearman > 0.6 && after.eval_loss < before.eval_loss, "{after:?}");
        assert_eq!((after.replies, after.tweets), (data.test.len(), data.test.len() / 4));
        assert!(after.pairs > after.tweets);
        assert_eq!(recorder.validations.len(), 6);
        // The weights with the lowest loss are selected.
        let losses: Vec<f64> =
            recorder.validations.iter().map(|it| it.measures.eval_loss).collect();
        for (look, validated) in recorder.validations.iter().enumerate() {
            let lowest = losses[..look].iter().all(|loss| losses[look] < *loss);
            assert_eq!(validated.best, lowest, "{losses:?}");
        }
        assert_eq!(recorder.steps.last().unwrap().parts["epoch"], 6.0);
        assert!(
            recorder.steps.iter().all(|step| step.learning_rate == 3e-3 && step.grad_norm > 0.0)
        );
    }
}

/// With random likes, no model passes its gate.
#[test]
fn noise_passes_no_gate() {
    let data = data(&pairs(0.0));
    for objective in OBJECTIVES {
        let config = config(objective);
        let (_, trained) = run(&data, &config, 1);
        let found = measure_engagement(&trained, &data, &config).unwrap();
        assert!(!config.gate.passes(&found), "{objective:?}: {found:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_with_any_number_of_threads() {
    let data = data(&pairs(1.0));
    for objective in OBJECTIVES {
        let config = config(objective);
        let result = |threads, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (recorder, trained) = run(&data, &config, seed);
                (
                    recorder.losses(),
                    parameters(&trained),
                    measure_engagement(&trained, &data, &config).unwrap(),
                )
            })
        };
        let one = result(1, 1);
        for threads in [1, 3] {
            assert_eq!(one, result(threads, 1), "{objective:?}, {threads} threads");
        }
        assert_ne!(one.1, result(1, 2).1);
    }
}

/// The batch is large enough for matrix products to be distributed over several threads.
#[test]
fn threads_change_nothing_of_the_usual_sizes() {
    let (pairs, width) = (pairs(1.0), 384);
    let texts: Vec<(&str, &str)> =
        pairs.iter().map(|pair| (pair.tweet.as_str(), pair.reply.as_str())).collect();
    let features = engagement_features(&HashedNgrams::new(width), &texts).unwrap();
    let split = split_by_tweet(&pairs, &SplitFractions::default(), 1).unwrap();
    let data = EngagementData::new(&pairs, features, &split);
    let mut config = config(EngagementObjective::Rank {});
    config.training.epochs = 1;
    config.training.batch_size = 192;
    let result = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let device = Device::flex().autodiff();
            let head = Perceptron::random(2 * width, Perceptron::HIDDEN, 1, &device);
            let trainer = EngagementHeadObjective::trainer(head, &data, &config, 1);
            parameters(&recorder::run(trainer).1)
        })
    };
    assert_eq!(result(1), result(3));
}

#[test]
fn no_tweet_is_on_two_sides() {
    let pairs = pairs(1.0);
    let mut data = data(&pairs);
    let tweets = |replies: &[grpo_replies::EngagementReply]| -> std::collections::BTreeSet<String> {
        replies.iter().map(|reply| reply.tweet.clone()).collect()
    };
    let [train, validation, test] =
        [&data.train, &data.validation, &data.test].map(|replies| tweets(replies));
    assert!(train.is_disjoint(&validation) && train.is_disjoint(&test));
    assert!(validation.is_disjoint(&test));
    assert_eq!(train.len() + validation.len() + test.len(), 120);

    let refused = |data: &EngagementData| {
        let config = config(EngagementObjective::Rank {});
        EngagementHeadObjective::trainer(head(), data, &config, 1).err().unwrap()
    };
    data.test[0].tweet = data.train[0].tweet.clone();
    let fault = refused(&data).to_string();
    assert!(fault.contains(&format!("tweet {} is in two splits", data.train[0].tweet)), "{fault}");
    // A split by reply, which the original implementation used, has every tweet in all parts.
    let part = |start: usize| (start..480).step_by(4).collect();
    let split = RecordSplit { train: part(0), validation: part(1), test: part(2) };
    let by_reply = EngagementData::new(&pairs, features(&pairs), &split);
    assert!(refused(&by_reply).to_string().contains("is in two splits"));
}

#[test]
fn too_little_to_learn_from_is_refused() {
    let refused = |data: &EngagementData, config: &EngagementConfig| {
        EngagementHeadObjective::trainer(head(), data, config, 1).err().unwrap().to_string()
    };
    let whole = data(&pairs(1.0));
    let rank = config(EngagementObjective::Rank {});
    let mut few = whole.clone();
    few.test.truncate(29);
    assert_eq!(
        refused(&few, &rank),
        "the test split has 29 replies, but an engagement model requires 30; use a larger file, or change [data]"
    );
    // The test split also needs replies that can be compared.
    let mut unmeasured = whole.clone();
    unmeasured.test.iter_mut().for_each(|reply| reply.preference = 1.0);
    let pairwise = EngagementObjective::Pairwise { margin: 0.1 };
    let refused_by = unmeasured.check(&pairwise).unwrap_err();
    assert!(
        refused_by.to_string().starts_with("no tweet in the test split has two replies"),
        "{refused_by}"
    );
    unmeasured.check(&EngagementObjective::Rank {}).unwrap();
    let mut equal = whole.clone();
    equal.train.iter_mut().for_each(|reply| reply.preference = 1.0);
    assert_eq!(
        refused(&equal, &config(EngagementObjective::Pairwise { margin: 0.1 })),
        "no tweet in the train split has two replies with different engagement, which objective.type = \"pairwise\" requires; use \"rank\" or \"log\""
    );
    let mut wild = rank.clone();
    wild.training.optimizer.learning_rate = 2.0;
    assert!(refused(&whole, &wild).starts_with("training.optimizer.learning_rate = 2"));
    let mut wild = rank.clone();
    wild.gate.min_pearson = Some(1.5);
    assert!(refused(&whole, &wild).starts_with("gate.min_pearson = 1.5"));
    let wild = config(EngagementObjective::Log { scale: 0.0 });
    assert!(refused(&whole, &wild).starts_with("objective.scale = 0"));
}

#[test]
fn an_interrupted_training_ends_as_one_that_was_not() {
    let data = data(&pairs(1.0));
    for objective in OBJECTIVES {
        let mut config = config(objective);
        config.training.epochs = 2;
        let trainer = || EngagementHeadObjective::trainer(head(), &data, &config, 1).unwrap();
        recorder::check_resumed(trainer, &[3, 9], Perceptron::clone, parameters);
    }
}
