//! Tests invalid settings, settings without an effect, and scaled logits.

use grpo_logprob::{SamplingDistribution, SamplingSettings};
use proptest::prelude::*;

fn settings() -> SamplingSettings {
    SamplingSettings::default()
}

/// Checks that the changed settings are rejected with this setting and message.
#[track_caller]
fn check(change: impl FnOnce(&mut SamplingSettings), setting: &str, message: &str) {
    let mut settings = settings();
    change(&mut settings);
    let error = settings.checked(10).unwrap_err();
    assert_eq!((error.setting(), error.to_string().as_str()), (setting, message));
}

#[test]
fn refuses_invalid_sampling_arguments() {
    check(
        |settings| settings.temperature = 0.0,
        "temperature",
        "temperature = 0 is out of range; use top_k = 1 (--top-k 1) for the most likely token at each step",
    );
    for bad in [9e-4, 1001.0, -1.0, f32::INFINITY, f32::NAN] {
        let message = format!(
            "temperature = {bad} is out of range; expected 0.001 to 1000 (1 is the model's own distribution)"
        );
        check(|settings| settings.temperature = bad, "temperature", &message);
    }
    check(
        |settings| settings.top_k = Some(0),
        "top_k",
        "top_k = 0 is out of range; expected 1 or more (remove it to keep all tokens)",
    );
    for bad in [0.0, -0.1, 1.000_001, f32::INFINITY, f32::NAN] {
        let message = format!(
            "top_p = {bad} is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)"
        );
        check(|settings| settings.top_p = Some(bad), "top_p", &message);
    }
    for bad in [-1e-6, 1.0, 2.0, f32::INFINITY, f32::NAN] {
        let message = format!(
            "min_p = {bad} is out of range; expected 0 or more and less than 1 (0 keeps all tokens)"
        );
        check(|settings| settings.min_p = Some(bad), "min_p", &message);
    }
    for bad in [0.0, 0.009, 100.1, -1.0, f32::INFINITY, f32::NAN] {
        let message = format!(
            "repetition_penalty = {bad} is out of range; expected 0.01 to 100 (1 has no effect)"
        );
        check(|settings| settings.repetition_penalty = Some(bad), "repetition_penalty", &message);
    }
    check(
        |settings| settings.forbidden = vec![3, 10],
        "forbidden",
        "forbidden token id 10 is outside the vocabulary of 10 tokens",
    );
    check(
        |settings| settings.forbidden = (0..10).rev().collect(),
        "forbidden",
        "all tokens are forbidden; at least one must be allowed",
    );
}

#[test]
fn what_changes_nothing_is_off() {
    let own = settings().checked(10).unwrap();
    assert!(!own.is_truncated());
    let same = SamplingSettings {
        top_k: Some(10),
        top_p: Some(1.0),
        min_p: Some(0.0),
        repetition_penalty: Some(1.0),
        ..settings()
    };
    assert_eq!(same.checked(10).unwrap(), own);
    // Neither of these settings truncates the distribution.
    let other = SamplingSettings {
        temperature: 2.0,
        repetition_penalty: Some(1.1),
        forbidden: vec![1],
        ..settings()
    };
    assert!(!other.checked(10).unwrap().is_truncated());
}

#[test]
fn what_was_set_is_there() {
    let set = SamplingSettings {
        temperature: 0.001,
        top_k: Some(9),
        top_p: Some(0.999_999_9),
        min_p: Some(1e-9),
        repetition_penalty: Some(100.0),
        forbidden: vec![7, 2, 7],
    };
    let distribution: SamplingDistribution = set.checked(10).unwrap();
    assert_eq!(distribution.temperature(), 0.001);
    assert_eq!(distribution.top_k(), Some(9));
    assert_eq!(distribution.top_p(), Some(0.999_999_9));
    assert_eq!(distribution.min_p(), Some(1e-9));
    assert_eq!(distribution.repetition_penalty(), Some(100.0));
    assert_eq!(distribution.forbidden(), [2, 7]);
    assert_eq!(distribution.vocabulary(), 10);
    for truncated in [
        SamplingSettings { top_k: Some(9), ..settings() },
        SamplingSettings { top_p: Some(0.9), ..settings() },
        SamplingSettings { min_p: Some(0.1), ..settings() },
    ] {
        assert!(truncated.clone().checked(10).unwrap().is_truncated(), "{truncated:?}");
    }
}

#[test]
fn settings_are_read_strictly() {
    let read = |text: &str| serde_json::from_str::<SamplingSettings>(text);
    assert_eq!(read("{}").unwrap(), settings());
    let set = read(r#"{"top_p": 0.9}"#).unwrap();
    assert_eq!(set, SamplingSettings { top_p: Some(0.9), ..settings() });
    assert_eq!(read(&serde_json::to_string(&set).unwrap()).unwrap(), set);
    let error = read(r#"{"topp": 0.9}"#).unwrap_err().to_string();
    assert!(error.starts_with("unknown field `topp`"), "{error}");
}

proptest! {
    /// A penalty above 1 makes a repeated token less probable, regardless of the sign of its logit.
    #[test]
    fn scaled_logits(
        logit in prop_oneof![-1e3_f32..1e3, Just(0.0), Just(f32::MAX), Just(f32::MIN)],
        temperature in 0.001_f32..1e3,
        penalty in 0.01_f32..100.0,
    ) {
        let distribution = SamplingSettings {
            temperature,
            repetition_penalty: Some(penalty),
            ..settings()
        };
        let distribution = distribution.checked(10).unwrap();
        let (logit64, temperature) = (f64::from(logit), f64::from(temperature));
        let unseen = logit64 / temperature;
        prop_assert_eq!(distribution.scaled(logit, false), unseen);
        let seen = distribution.scaled(logit, true);
        prop_assert!(seen.is_finite());
        let penalty = f64::from(penalty);
        let expected =
            if logit64 > 0.0 { unseen / penalty } else { unseen * penalty };
        prop_assert!((seen - expected).abs() <= 1e-12 * expected.abs());
        let rarer = seen <= unseen;
        prop_assert!(rarer == (penalty > 1.0) || seen == unseen);
    }
}
