use grpo_eval::HashedNgrams;
use proptest::prelude::*;

use super::*;
use crate::rewards::parsed;

const WEIGHTS: [f64; 6] = [0.30, 0.15, 0.15, 0.10, 0.10, 0.20];

const TWEET: &str = "AI in hospitals should help doctors find diseases earlier, not replace the talk with a patient.";

/// Meaningful replies to [`TWEET`].
const GOOD: [&str; 5] = [
    "Which hospitals do this already?",
    "My doctor looked at the screen, and not at me, all the time.",
    "Early help is good, but who pays for it?",
    "A wrong alarm costs patients weeks of fear.",
    "It found my cancer late. I am angry, and I still hope it learns.",
];
/// Replies without any content.
const BAD: [&str; 3] = ["Thanks!!", "YES!!!", "Thx!"];

fn hashed() -> Arc<dyn Embedder> {
    Arc::new(HashedNgrams::new(384))
}

fn reward() -> HeuristicReward {
    HeuristicReward::new(WEIGHTS, Some(hashed()), GenericWords::default())
}

fn sample(tweet: &str, reply: &str) -> RewardInput {
    RewardInput {
        text: reply.to_owned(),
        fields: [("tweet".to_owned(), Value::from(tweet))].into_iter().collect(),
        ..RewardInput::default()
    }
}

fn one(reward: &HeuristicReward, tweet: &str, reply: &str) -> Outcome {
    reward.score(&[sample(tweet, reply)]).remove(0)
}

fn total(reply: &str) -> f64 {
    one(&reward(), TWEET, reply).total().unwrap()
}

/// An embedder whose vectors depend on the first character only. It fails for texts that contain a
/// `#`.
struct ByLetter;

impl Embedder for ByLetter {
    fn width(&self) -> usize {
        2
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| match text.chars().next() {
            _ if text.contains('#') => {
                Err(EmbedError { text: text.to_string(), fault: "it has a #".to_owned() })
            }
            Some('a') => Ok(vec![1.0, 0.0]),
            Some('b') => Ok(vec![0.6, 0.8]),
            _ => Ok(vec![-1.0, 0.0]),
        };
        texts.iter().map(vector).collect()
    }

    fn identity(&self) -> String {
        "by letter".to_owned()
    }
}

fn by_letter() -> HeuristicReward {
    HeuristicReward::new(WEIGHTS, Some(Arc::new(ByLetter)), GenericWords::default())
}

#[test]
fn a_reply_by_hand() {
    // The cosine similarity is 0.6. The reply has 31 characters, including 2 punctuation marks
    // (0.0645), and 6 distinct words. The compound scores of vaderSentiment are 0.4404 and −0.5423.
    // The `?` and the two sentence marks have no effect, because engagement is clipped at 1.
    let outcome = one(&by_letter(), "a good day", "b is bad today. Was it so there?");
    let parts = [
        ("relevance", 0.8),
        ("length", 0.6),
        ("sentiment", 1.0 - (0.4404 + 0.5423) / 2.0),
        ("diversity", 1.0),
        ("punctuation", 1.0),
        ("engagement", 1.0),
    ];
    for (name, expect) in parts {
        let got = outcome.part(name).unwrap();
        assert!((got - expect).abs() < 1e-7, "{name}: {got} and not {expect}");
    }
    let expect = 0.3 * 0.8 + 0.15 * 0.6 + 0.15 * parts[2].1 + 0.1 + 0.1 + 0.2;
    assert!((outcome.total().unwrap() - expect).abs() < 1e-7, "{outcome:?}");
}

/// Regression test: the batch path used the raw cosine, which ranges from −1 to 1.
#[test]
fn relevance_is_between_0_and_1() {
    let relevance = |reply| one(&by_letter(), "a good day", reply).part("relevance").unwrap();
    assert!((relevance("a day") - 1.0).abs() < 1e-7);
    assert_eq!(relevance("c day"), 0.0);
}

/// The original implementation reports 0.70 to 0.86 for good replies and 0.56 to 0.58 for bad ones.
/// With all-MiniLM-L6-v2 instead of n-grams, the rewards here are 0.746 to 0.848 and 0.562 to
/// 0.579.
#[test]
fn good_and_bad_replies_are_in_their_bands() {
    for (replies, band) in [(&GOOD[..], 0.70..=0.86), (&BAD[..], 0.56..=0.58)] {
        for reply in replies {
            // The published values have two decimals.
            let rounded = (total(reply) * 100.0).round() / 100.0;
            assert!(band.contains(&rounded), "{reply}: {}", total(reply));
        }
    }
}

#[test]
fn a_batch_of_three_is_between_0_and_1() {
    let batch = [GOOD[0], BAD[0], ""].map(|reply| sample(TWEET, reply));
    for outcome in reward().score(&batch) {
        assert!((0.0..=1.0).contains(&outcome.total().unwrap()), "{outcome:?}");
    }
}

#[test]
fn too_short_and_too_long_have_one_value_in_all_components() {
    let long = "word ".repeat(101);
    for (reply, expect) in [("", 0.0), ("  ok ", 0.0), ("🎉🎉", 0.0), (long.as_str(), 0.3)] {
        let outcome = one(&reward(), TWEET, reply);
        assert!((outcome.total().unwrap() - expect).abs() < 1e-12, "{reply}: {outcome:?}");
        for name in COMPONENTS {
            assert_eq!(outcome.part(name), Some(expect), "{reply}: {name}");
        }
    }
    assert!(total("yes") > 0.3);
}

/// Regression test: "no" matched "know", which halved the engagement component of short replies.
#[test]
fn a_generic_word_inside_another_takes_nothing() {
    let engagement = |reply| one(&reward(), TWEET, reply).part("engagement").unwrap();
    assert_eq!(engagement("You know the nurses"), 1.0);
    assert_eq!(engagement("No, ask the nurses"), 0.5);
}

#[test]
fn a_tweet_that_is_missing_fails_its_own_completion_only() {
    let mut samples = [sample(TWEET, GOOD[0]), GOOD[1].into(), sample(TWEET, GOOD[2])];
    samples[2].fields.insert("tweet".to_owned(), Value::from(7));
    let outcomes = reward().score(&samples);
    assert!(outcomes[0].total().is_some());
    assert_eq!(outcomes[1].failure(), Some("the prompt's record is missing field 'tweet'"));
    assert_eq!(outcomes[2].failure(), Some("field 'tweet' of the prompt's record is not a string"));
    assert!(reward().check(&samples[0].fields).is_ok());
    assert!(reward().check(&samples[1].fields).is_err());
}

#[test]
fn a_text_without_a_vector_fails_those_that_need_it_only() {
    let samples = [
        sample("a tweet", "b: a reply"),
        sample("a tweet", "b: a # reply"),
        sample("a # tweet", "b: a reply"),
        // Very short replies are scored without an embedding.
        sample("a # tweet", "b"),
    ];
    let outcomes = by_letter().score(&samples);
    let failed: Vec<bool> = outcomes.iter().map(|outcome| outcome.failure().is_some()).collect();
    assert_eq!(failed, [false, true, true, false]);
    assert!(outcomes[1].failure().unwrap().contains("it has a #"), "{outcomes:?}");
}

#[test]
fn parts_and_terms_are_those_that_outcomes_have() {
    let [_, _, others @ ..] = &WEIGHTS;
    let without: [f64; 6] = [&[0.0, 0.45][..], others].concat().try_into().unwrap();
    for reward in [
        reward(),
        HeuristicReward::new(without, Some(hashed()), GenericWords::default()),
        HeuristicReward::new(without, None, GenericWords::default()),
    ] {
        for reply in [GOOD[0], "", &"word ".repeat(101)] {
            let Outcome::Scored(scored) = one(&reward, TWEET, reply) else { panic!("scored") };
            let names: Vec<PartName> = scored.parts.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(reward.parts(), names);
            assert_eq!(reward.term_names().len(), scored.terms.len());
        }
    }
}

#[track_caller]
fn check(settings: serde_json::Value, expect: Option<&str>) {
    let got = parsed(settings).and_then(|config| config.spec().check());
    match (got, expect) {
        (Ok(()), None) => {}
        (Err(fault), Some(expect)) => assert!(fault.to_string().contains(expect), "{fault}"),
        (got, expect) => panic!("{got:?} and not {expect:?}"),
    }
}

/// Regression test: configured weights were ignored, and unknown keys were not detected.
#[test]
fn settings_are_checked() {
    let hashed = serde_json::json!({"type": "hashed_ngrams"});
    let with = |key: &str, value: serde_json::Value| {
        let mut settings = serde_json::json!({"type": "heuristic", "embedder": hashed});
        settings[key] = value;
        settings
    };
    check(serde_json::json!({"type": "heuristic", "embedder": hashed}), None);
    check(with("relevance", 0.2.into()), Some("sum to 1, but they sum to 0.9"));
    check(with("safety_weight", 0.2.into()), Some("unknown key `safety_weight`"));
    check(
        with("generic_words", vec!["fine", "?"].into()),
        Some("reward.generic_words contains '?'"),
    );
    check(
        with("embedder", serde_json::json!({"type": "hashed_ngrams", "width": 0})),
        Some("embedder.width = 0"),
    );
    check(with("embedder", serde_json::json!({"type": "minilm"})), Some("unknown value `minilm`"));
    check(serde_json::json!({"type": "heuristic"}), Some("set reward.embedder"));
    let mut negative = with("relevance", 0.5.into());
    negative["length"] = (-0.05).into();
    check(negative, Some("reward.length = -0.05 is out of range"));
    check(serde_json::json!({"type": "heuristics"}), Some("unknown reward type `heuristics`"));
    check(serde_json::json!({"type": "heuristic", "relevance": 0.0, "engagement": 0.5}), None);
}

#[test]
fn weights_and_words_of_a_configuration_are_used() {
    let settings = serde_json::json!({
        "type": "heuristic", "relevance": 0.0, "length": 0.0, "sentiment": 0.0, "diversity": 0.0,
        "punctuation": 0.0, "engagement": 1.0, "generic_words": ["train"],
    });
    let reward = parsed(settings).unwrap().build(&burn::tensor::Device::flex()).unwrap();
    let total = |reply| reward.score(&[sample(TWEET, reply)])[0].total();
    assert_eq!(total("Thanks for the garden"), Some(1.0));
    assert_eq!(total("The train, I guess"), Some(0.5));
}

proptest! {
    /// Regression test: the reward of a reply depended on whether it was scored in a batch.
    #[test]
    fn a_batch_is_its_replies_one_by_one(
        pairs in prop::collection::vec(("[a-z ]{0,20}", prop_oneof!["[a-zA-Z .,!?🎉]{0,60}", "[a-z ]{480,520}"]), 1..8),
    ) {
        let reward = reward();
        let samples: Vec<RewardInput> = pairs.iter().map(|(tweet, reply)| sample(tweet, reply)).collect();
        let outcomes = reward.score(&samples);
        for (outcome, alone) in outcomes.iter().zip(&samples) {
            prop_assert_eq!(outcome, &reward.score(std::slice::from_ref(alone))[0]);
            let Outcome::Scored(scored) = outcome else { panic!("{outcome:?}") };
            let sum: f64 = WEIGHTS.iter().zip(&scored.parts).map(|(weight, (_, value))| weight * value).sum();
            prop_assert!((scored.total - sum).abs() < 1e-12);
            prop_assert!((0.0..=1.0 + 1e-12).contains(&scored.total), "{:?}", scored);
        }
    }
}

/// The expected values were computed with Python's vaderSentiment by `tests/peers/vader`.
#[test]
fn polarities_are_vaders() {
    let reward = reward();
    let table = include_str!("../../../../../tests/peers/vader/compound.jsonl");
    for line in table.lines() {
        let (text, compound): (String, f64) = serde_json::from_str(line).unwrap();
        assert_eq!(reward.polarity(&text), compound, "{text:?}");
    }
    assert_eq!(table.lines().count(), 537);
}
