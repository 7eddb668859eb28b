//! What a configuration may hold, and the sentences about what it may not.

use grpo_core::{
    AdvantageConfig, KlConfig, KlEstimator, LossConfig, Preset, Reduction, RewardScale,
};

fn grpo() -> LossConfig {
    Preset::Grpo.config()
}

#[track_caller]
fn refused(config: LossConfig, message: &str) {
    assert_eq!(config.checked().unwrap_err().to_string(), message);
}

#[test]
fn bounds_and_weight_have_ranges() {
    let low = |epsilon_low| LossConfig { epsilon_low, ..grpo() };
    let rule = "is out of range; it must be finite and at least 0";
    refused(low(-0.1), &format!("epsilon_low = -0.1 {rule}, and at most 1"));
    refused(low(1.5), &format!("epsilon_low = 1.5 {rule}, and at most 1"));
    refused(low(f64::NAN), &format!("epsilon_low = NaN {rule}, and at most 1"));
    refused(LossConfig { epsilon_high: -0.1, ..grpo() }, &format!("epsilon_high = -0.1 {rule}"));
    let endless = LossConfig { epsilon_high: f64::INFINITY, ..grpo() };
    refused(endless, &format!("epsilon_high = inf {rule}"));
    let coef = |coef| LossConfig { kl: KlConfig { coef, ..grpo().kl }, ..grpo() };
    refused(coef(-1.0), &format!("kl_coef = -1 {rule}"));
    refused(coef(f64::INFINITY), &format!("kl_coef = inf {rule}"));

    for allowed in [low(0.0), low(1.0), LossConfig { epsilon_high: 5.0, ..grpo() }] {
        assert_eq!(allowed.checked(), Ok(allowed));
    }
}

#[test]
fn an_uncorrected_k1_is_refused_where_it_has_weight() {
    let k1 = |coef, bias_correction| {
        let kl = KlConfig { coef, estimator: KlEstimator::K1, bias_correction };
        LossConfig { kl, ..grpo() }
    };
    refused(
        k1(0.1, false),
        "kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero: \
         it adds noise and holds nothing back; use k3, or switch the correction on",
    );
    assert_eq!(k1(0.1, true).checked(), Ok(k1(0.1, true)));
    // Without weight it is a metric.
    assert_eq!(k1(0.0, false).checked(), Ok(k1(0.0, false)));
}

#[test]
fn names_stand_for_the_choices_of_their_papers() {
    #[track_caller]
    fn check(name: &str, epsilon_high: f64, reduction: Reduction, scale: RewardScale) {
        let preset: Preset = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        let kl = KlConfig { coef: 0.0, estimator: KlEstimator::K3, bias_correction: true };
        let expect = LossConfig { epsilon_low: 0.2, epsilon_high, kl, reduction };
        assert_eq!(preset.config(), expect);
        assert_eq!(preset.config().checked(), Ok(expect));
        assert_eq!(preset.reward_scale(), scale);
    }
    check("grpo", 0.2, Reduction::SequenceMean, RewardScale::Group);
    check("dr_grpo", 0.2, Reduction::Constant, RewardScale::None);
    check("dapo", 0.28, Reduction::TokenMean, RewardScale::Group);
    let default: AdvantageConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(default, AdvantageConfig { scale: RewardScale::Group, epsilon: 1e-4 });
}

#[test]
fn an_unknown_key_is_refused() {
    let error = serde_json::from_str::<AdvantageConfig>(r#"{"scala": "none"}"#).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `scala`"), "{error}");
    let mut written = serde_json::to_value(grpo()).unwrap();
    assert_eq!(serde_json::from_value::<LossConfig>(written.clone()).unwrap(), grpo());
    written["kl"]["beta"] = 0.1.into();
    let error = serde_json::from_value::<LossConfig>(written).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `beta`"), "{error}");
}
