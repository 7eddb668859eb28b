//! Tests from the shared acceptance list that require complete training runs.

use burn::tensor::DType;
use grpo_core::{
    AdvantageConfig, EntropyBonus, EntropyController, KlEstimator, LossConfig, MismatchCorrection,
    MismatchMode, Preset, RatioLevel, RewardScale, TokenStatistics, weighted_group_advantages,
};

use crate::bandit::{Bandit, descend};
use crate::strategies::kl;
use crate::support::{Batch, Run, largest};
use crate::toy::{Scene, flat};

/// Trains on a bandit with ten arms, only one of which pays. Tests every preset and three typical
/// combinations of settings.
#[test]
fn d07_a_bandit_finds_the_arm_that_pays() {
    for preset in Preset::ALL {
        let scale = preset.reward_scale();
        let advantages = AdvantageConfig { scale, ..AdvantageConfig::default() };
        Bandit { loss: preset.config(), advantages, updates: 2 }.must_learn();
    }
    let group = AdvantageConfig::default();
    // A: clipping per token with a recorded old policy and a k3 penalty.
    let loss = LossConfig { kl: kl(0.01, KlEstimator::K3, true), ..Preset::Grpo.config() };
    Bandit { loss, advantages: group, updates: 4 }.must_learn();
    // B: sequence-level ratios or clipped weights, with a penalty.
    for preset in [Preset::Gspo, Preset::Cispo] {
        let loss = LossConfig { kl: kl(0.01, KlEstimator::K2, false), ..preset.config() };
        Bandit { loss, advantages: group, updates: 2 }.must_learn();
    }
    // C: a single REINFORCE update, scaled by the batch, with the exact KL.
    let loss = LossConfig { kl: kl(0.01, KlEstimator::Exact, false), ..Preset::Reinforce.config() };
    let batch = AdvantageConfig { scale: RewardScale::Batch, ..group };
    Bandit { loss, advantages: batch, updates: 1 }.must_learn();
}

/// Diversity can be added as another reward function.
#[test]
fn d09_a_reward_for_diversity_moves_the_gradient() {
    let gradient = |bonuses: [f64; 4], lambda: f64| {
        let rewards = [0.2, 0.9, 0.4, 0.4].into_iter().zip(bonuses);
        let rewards = rewards.map(|(reward, bonus)| vec![Some(reward), Some(bonus)]).collect();
        let got =
            weighted_group_advantages(&[rewards], &[1.0, lambda], &AdvantageConfig::default());
        let batch = Batch { advantages: got.unwrap().groups.concat(), ..Scene::new().batch() };
        batch.run(&Preset::Grpo.config()).gradient
    };
    let different = [0.9, 0.1, 0.5, 0.3];
    let (without, with) = (gradient(different, 0.0), gradient(different, 0.3));
    let moved: Vec<f64> =
        without.concat().iter().zip(with.concat()).map(|(without, with)| with - without).collect();
    assert!(largest(&moved) > 0.01);
    assert_eq!(gradient([0.0; 4], 0.3), without, "identical replies have no diversity");
}

/// The entropy bonus coefficient is the only state that this crate keeps between updates.
#[test]
fn d14_an_interrupted_run_gives_the_same_weights() {
    let bonus =
        EntropyBonus::Adaptive { initial: 0.01, target: 2.0, delta: 0.01, min: 0.0, max: 1.0 };
    let config = LossConfig { entropy_bonus: Some(bonus), ..Preset::Grpo.config() };
    let run = |interrupted: bool| {
        let mut scene = Scene::new();
        let mut controller = EntropyController::new(bonus);
        for update in 0..6 {
            scene = scene.with_entropy_coef(controller.coef());
            let toy = scene.toy(DType::F64);
            let gradient = flat(&toy, &scene.gradients(&toy, 0..4, &config));
            controller.observe(scene.batch().statistics(&config).kept_entropy().unwrap());
            descend(&mut scene.parameters, &gradient, 0.1);
            if interrupted && update == 2 {
                let saved = serde_json::to_string(&controller).unwrap();
                controller = serde_json::from_str(&saved).unwrap();
            }
        }
        assert!(controller.coef() > 0.03, "the coefficient has moved");
        scene.parameters
    };
    assert_eq!(run(true), run(false));
}

/// Invalid keys and values are rejected and never replaced by defaults.
#[test]
fn d15_a_configuration_that_is_not_understood_is_an_error() {
    let whole = LossConfig {
        mismatch: Some(MismatchCorrection {
            level: RatioLevel::Token,
            mode: MismatchMode::Mask,
            min: 0.5,
            max: 2.0,
        }),
        entropy_bonus: Some(EntropyBonus::Static { coef: 0.1 }),
        ..Preset::Grpo.config()
    };
    let whole = serde_json::to_value(whole).unwrap();
    assert!(serde_json::from_value::<LossConfig>(whole.clone()).is_ok());
    for table in ["", "/surrogate", "/kl", "/mismatch", "/entropy_bonus"] {
        let mut unknown = whole.clone();
        unknown.pointer_mut(table).unwrap()["bogus"] = 1.into();
        let error = serde_json::from_value::<LossConfig>(unknown).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `bogus`"), "{table}: {error}");
    }
    for preset in Preset::ALL {
        let mut unknown = serde_json::to_value(preset.config()).unwrap();
        unknown["surrogate"]["bogus"] = 1.into();
        let error = serde_json::from_value::<LossConfig>(unknown).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `bogus`"), "{preset}: {error}");
    }
    for value in
        ["/surrogate/type", "/ratio_level", "/reduction", "/kl/estimator", "/mismatch/mode"]
    {
        let mut unknown = whole.clone();
        *unknown.pointer_mut(value).unwrap() = "bogus".into();
        let error = serde_json::from_value::<LossConfig>(unknown).unwrap_err().to_string();
        assert!(error.starts_with("unknown variant `bogus`"), "{value}: {error}");
    }
    for key in ["surrogate", "ratio_level", "kl", "reduction"] {
        let mut short = whole.clone();
        short.as_object_mut().unwrap().remove(key);
        let error = serde_json::from_value::<LossConfig>(short).unwrap_err().to_string();
        assert_eq!(error, format!("missing field `{key}`"));
    }
    assert!(serde_json::from_str::<AdvantageConfig>(r#"{"scala": "none"}"#).is_err());
    assert!(serde_json::from_str::<Preset>("\"ppo\"").is_err());
    // Metrics that were not measured are omitted instead of being 0.
    assert_eq!(TokenStatistics::default().metrics(), []);
}
