use burn::tensor::Device;
use serde_json::json;

use super::*;
use crate::{RewardConfig, parsed};

fn config(settings: serde_json::Value) -> RewardConfig {
    parsed(settings).unwrap()
}

fn build(settings: serde_json::Value) -> Arc<dyn Reward> {
    config(settings).build(&Device::flex()).unwrap()
}

fn pattern(name: &str, weight: f64, pattern: &str) -> serde_json::Value {
    json!({"name": name, "weight": weight, "reward": {"type": "pattern", "pattern": pattern}})
}

fn fault(settings: serde_json::Value) -> String {
    config(settings).spec().check().unwrap_err().to_string()
}

/// A reward that returns fixed outcomes.
struct Fixed(Vec<Outcome>);

impl Reward for Fixed {
    fn score(&self, _samples: &[RewardInput]) -> Vec<Outcome> {
        self.0.clone()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["own".into(), "rare".into()]
    }
}

fn of_parts(parts: Vec<(&str, f64, Transform, Vec<Outcome>)>) -> CompositeReward {
    let part = |(name, weight, transform, outcomes): (&str, f64, Transform, Vec<Outcome>)| Part {
        name: name.to_owned(),
        weight,
        transform,
        reward: Arc::new(Fixed(outcomes)),
    };
    CompositeReward::new(parts.into_iter().map(part).collect())
}

fn scored(total: f64) -> Outcome {
    Outcome::Scored(Scored::new(vec![(1.0, total)], vec![("own".into(), total / 2.0)]))
}

#[test]
fn parts_are_transformed_weighted_and_shown() {
    let affine = Transform::Affine { scale: 0.1, shift: 0.5 };
    let reward = of_parts(vec![
        ("a", 0.75, Transform::Identity {}, vec![scored(0.4)]),
        ("b", 0.25, affine, vec![scored(-2.0)]),
    ]);
    let outcome = reward.score(&["x".into()]).remove(0);
    let Outcome::Scored(got) = &outcome else { panic!("{outcome:?}") };
    assert!((got.total - (0.75 * 0.4 + 0.25 * 0.3)).abs() < 1e-12, "{got:?}");
    assert_eq!(got.terms.iter().map(|(weight, _)| *weight).collect::<Vec<_>>(), [0.75, 0.25]);
    for (name, value) in [("a", 0.4), ("a.own", 0.2), ("b", 0.3), ("b.raw", -2.0), ("b.own", -1.0)]
    {
        assert!((outcome.part(name).unwrap() - value).abs() < 1e-12, "{name}: {got:?}");
    }
    // These are all possible components, including the ones that this outcome does not contain.
    assert_eq!(reward.parts(), ["a", "a.own", "a.rare", "b", "b.raw", "b.own", "b.rare"]);
    assert_eq!(reward.term_names(), ["a", "b"]);
}

/// Regression test: a component that failed was counted as 0.
#[test]
fn a_part_that_fails_fails_the_completion_and_no_other() {
    let failed = || Outcome::failed("no network".to_owned());
    let reward = of_parts(vec![
        (
            "a",
            0.5,
            Transform::Identity {},
            vec![scored(1.0), scored(1.0), Outcome::abstained(), scored(1.0)],
        ),
        ("b", 0.5, Transform::Log1p {}, vec![scored(0.0), failed(), scored(1.0), scored(-1.5)]),
    ]);
    let outcomes = reward.score(&["w".into(), "x".into(), "y".into(), "z".into()]);
    assert_eq!(outcomes[0].total(), Some(0.5));
    assert_eq!(outcomes[1].failure(), Some("part 'b': no network"));
    assert_eq!(outcomes[2], Outcome::abstained());
    assert!(outcomes[3].failure().unwrap().starts_with("part 'b': its score -1.5"));
}

#[test]
fn a_failure_counts_more_than_an_abstention() {
    let failed = Outcome::failed("no network".to_owned());
    let reward = of_parts(vec![
        ("a", 0.5, Transform::Identity {}, vec![Outcome::abstained()]),
        ("b", 0.5, Transform::Identity {}, vec![failed]),
    ]);
    assert_eq!(reward.score(&["x".into()])[0].failure(), Some("part 'b': no network"));
}

#[test]
fn a_part_that_miscounts_fails_all() {
    let reward = of_parts(vec![
        ("a", 0.5, Transform::Identity {}, vec![scored(1.0), scored(1.0)]),
        ("b", 0.5, Transform::Identity {}, vec![scored(1.0)]),
    ]);
    for outcome in reward.score(&["x".into(), "y".into()]) {
        assert_eq!(
            outcome.failure(),
            Some("part 'b': the reward returned 1 outcomes for 2 completions")
        );
    }
}

#[test]
fn a_composite_may_be_a_part() {
    let inner =
        json!({"type": "composite", "parts": [pattern("x", 0.5, "x"), pattern("y", 0.5, "y")]});
    let reward = build(json!({"type": "composite", "parts": [
        {"name": "outer", "weight": 1.0, "transform": {"type": "negate"}, "reward": inner},
    ]}));
    let outcome = reward.score(&["x".into()]).remove(0);
    assert_eq!(outcome.total(), Some(-0.5));
    assert_eq!(reward.parts(), ["outer", "outer.raw", "outer.x", "outer.y"]);
    assert_eq!((outcome.part("outer.x"), outcome.part("outer.y")), (Some(1.0), Some(0.0)));
}

#[test]
fn weights_sum_to_one_or_are_made_to() {
    let parts = json!([pattern("a", 3.0, "a"), pattern("b", 1.0, "b")]);
    let settings = json!({"type": "composite", "parts": parts});
    assert!(fault(settings.clone()).contains("they sum to 4; change them"));
    assert!(config(settings).build(&Device::flex()).is_err());
    let reward = build(json!({"type": "composite", "parts": parts, "normalize": true}));
    assert_eq!(reward.score(&["a".into()])[0].total(), Some(0.75));
    for ([a, b], expected) in [
        ([0.0, 0.0], "must be at least 0 and sum to 1, but they sum to 0; "),
        ([-1.0, 3.0], "reward part 'a': weight = -1 is out of range; expected 0 or more"),
    ] {
        let parts = json!([pattern("a", a, "a"), pattern("b", b, "b")]);
        let settings = json!({"type": "composite", "parts": parts, "normalize": true});
        let found = fault(settings);
        assert!(found.contains(expected), "{found}");
    }
    assert!(fault(json!({"type": "composite", "parts": []})).contains("is empty"));
}

#[test]
fn reports_invalid_parts() {
    let composite = |parts: serde_json::Value| fault(json!({"type": "composite", "parts": parts}));
    assert!(composite(json!([pattern("a.b", 1.0, "a")])).contains("invalid part name 'a.b'"));
    assert!(composite(json!([pattern("", 1.0, "a")])).contains("invalid part name ''"));
    assert!(
        composite(json!([pattern("a", 0.5, "a"), pattern("a", 0.5, "b")]))
            .contains("two parts named 'a'")
    );
    // Otherwise, two values could be recorded under the same name: `a.raw` for the score before a
    // transform, or the diversity bonus.
    for (name, whose) in [
        ("raw", "the value of a part before its transform"),
        ("diversity_bonus", "[diversity_bonus]"),
    ] {
        let taken = composite(json!([pattern(name, 1.0, "a")]));
        assert!(
            taken.contains(&format!("part name '{name}' in reward.parts is reserved")),
            "{taken}"
        );
        assert!(taken.contains(whose), "{taken}");
    }
    let wrong = composite(json!([pattern("a", 1.0, "(")]));
    assert!(wrong.starts_with("reward part 'a': reward.pattern = '('"), "{wrong}");
    let mut clamped = pattern("a", 1.0, "a");
    clamped["transform"] = json!({"type": "clamp", "low": 1.0, "high": 0.0});
    assert!(composite(json!([clamped])).starts_with("reward part 'a': transform clamp"));
    let unknown = json!({"type": "composite", "parts": [{"name": "a", "weight": 1.0, "reward": {"type": "?"}}]});
    let unknown = parsed(unknown).unwrap_err();
    assert_eq!(unknown.key, "parts[0].reward.type");
    assert!(unknown.to_string().starts_with("unknown reward type `?`; expected one of answer, "));
}

#[test]
fn what_a_part_lacks_is_said_before_anything_is_drawn() {
    let reward = build(json!({"type": "composite", "parts": [
        pattern("a", 0.5, "a"),
        {"name": "b", "weight": 0.5, "reward": {"type": "answer"}},
    ]}));
    assert_eq!(
        reward.check(&Map::new()),
        Err("part 'b': the prompt's record is missing field 'answer'".to_owned())
    );
}
