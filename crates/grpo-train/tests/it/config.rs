//! Tests the error message for each key that is out of range.

use grpo_core::{Baseline, KlEstimator, MismatchCorrection, MismatchMode, Preset, RatioLevel};
use grpo_train::{AboveTolerance, Decay, GrpoConfig, PretrainConfig, ScoreFunctionConfig};

use crate::support::{config, optimizer};

#[track_caller]
pub(crate) fn check(change: impl Fn(&mut GrpoConfig), expected: &str) {
    let mut config = config();
    config.check().unwrap();
    change(&mut config);
    assert_eq!(config.check().unwrap_err().to_string(), expected);
}

#[test]
fn counts_out_of_range() {
    check(|c| c.train.steps = 0, "train.steps = 0 is out of range; expected 1 to 1000000000");
    check(
        |c| c.train.prompts_per_step = 0,
        "train.prompts_per_step = 0 is out of range; expected 1 to 1000000",
    );
    check(
        |c| c.train.group_size = 1,
        "train.group_size = 1 is out of range; expected 2 to 1000000",
    );
    check(
        |c| c.train.prompts_per_step = 200_000,
        "train.prompts_per_step × train.group_size = 1600000 is out of range; expected 2 to 1000000",
    );
    check(
        |c| c.train.updates_per_rollout = 0,
        "train.updates_per_rollout = 0 is out of range; expected 1 to 1000",
    );
    check(
        |c| c.train.micro_batch_tokens = 0,
        "train.micro_batch_tokens = 0 is out of range; expected 1 to 1000000000",
    );
    check(
        |c| c.sampling.max_new_tokens = 0,
        "sampling.max_new_tokens = 0 is out of range; expected 1 to 1000000",
    );
    check(
        |c| c.sampling.batch_size = 0,
        "sampling.batch_size = 0 is out of range; expected 1 to 1000000",
    );
    check(
        |c| c.sampling.stop = vec!["\n".to_owned(), String::new()],
        "sampling: stop string is empty, which would end every completion after its first token; remove it",
    );
    check(
        |c| c.schedule.warmup_steps = u32::MAX,
        "schedule.warmup_steps = 4294967295 is out of range; expected 0 to 1000000000",
    );
}

#[test]
fn numbers_out_of_range() {
    check(
        |c| c.train.reward_time_limit = 0.0,
        "train.reward_time_limit = 0 is out of range; expected 0.001 to 1000000",
    );
    check(
        |c| c.train.max_failed_rewards = 1.5,
        "train.max_failed_rewards = 1.5 is out of range; expected 0 to 1",
    );
    check(
        |c| c.sampling.temperature = f32::INFINITY,
        "sampling: temperature = inf is out of range; expected 0.001 to 1000 (1 is the model's own distribution)",
    );
    check(
        |c| c.sampling.top_p = Some(0.0),
        "sampling: top_p = 0 is out of range; expected a number above 0 and at most 1 (1 keeps all tokens)",
    );
    check(
        |c| c.sampling.min_p = Some(f32::NAN),
        "sampling: min_p = NaN is out of range; expected 0 or more and less than 1 (0 keeps all tokens)",
    );
    check(
        |c| c.sampling.repetition_penalty = Some(0.0),
        "sampling: repetition_penalty = 0 is out of range; expected 0.01 to 100 (1 has no effect)",
    );
    check(
        |c| c.advantage.epsilon = -1e-4,
        "advantage: epsilon = -0.0001 is out of range; it must be 0 or more and finite",
    );
    check(|c| c.schedule.floor = f64::NAN, "schedule.floor = NaN is out of range; expected 0 to 1");
    check(
        |c| c.optimizer.learning_rate = 1.1,
        "optimizer.learning_rate = 1.1 is out of range; expected 0 to 1",
    );
    check(
        |c| c.optimizer.betas[0] = 1.0,
        "optimizer.betas[0] = 1 is out of range; expected 0 to 0.999999",
    );
    check(
        |c| c.optimizer.betas[1] = -0.5,
        "optimizer.betas[1] = -0.5 is out of range; expected 0 to 0.999999",
    );
    check(
        |c| c.optimizer.epsilon = 0.0,
        "optimizer.epsilon = 0 is out of range; expected 0.00000000000000000001 to 1",
    );
    check(
        |c| c.optimizer.weight_decay = 11.0,
        "optimizer.weight_decay = 11 is out of range; expected 0 to 10",
    );
    check(
        |c| c.optimizer.max_grad_norm = 0.0,
        "optimizer.max_grad_norm = 0 is out of range; expected 0.000001 or more",
    );
}

#[test]
fn losses_out_of_range() {
    check(
        |c| c.loss.epsilon_low = Some(1.5),
        "loss: epsilon_low = 1.5 is out of range; it must be 0 to 1",
    );
    check(
        |c| c.loss.epsilon_high = Some(f64::INFINITY),
        "loss: epsilon_high = inf is out of range; it must be 0 or more and finite",
    );
    check(
        |c| c.loss.kl_coef = Some(-0.1),
        "loss: kl_coef = -0.1 is out of range; it must be 0 or more and finite",
    );
    check(
        |c| {
            c.loss.kl_estimator = Some(KlEstimator::K1);
            c.loss.kl_bias_correction = Some(false);
        },
        "loss: kl_estimator = \"k1\" without kl_bias_correction has an expected gradient of zero, so as a loss it only adds noise; use k3, enable the correction, or apply the penalty to the reward",
    );
}

#[test]
fn losses_that_do_not_go_together() {
    check(
        |c| {
            c.loss.preset = Preset::Cispo;
            c.loss.epsilon_high = Some(0.3);
        },
        "loss: epsilon_high is only valid for the clipped surrogate, but the loss (preset = \"cispo\") uses another one; remove it, or choose another preset",
    );
    check(
        |c| {
            let (level, mode) = (RatioLevel::Sequence, MismatchMode::Mask);
            c.loss.preset = Preset::Vespo;
            c.loss.mismatch = Some(MismatchCorrection { level, mode, min: 0.5, max: 2.0 });
        },
        "loss: the vespo surrogate folds the sampler mismatch of each token into its sequence weight, so a sequence-level correction would count it twice; use mismatch.level = \"token\"",
    );
    check(
        |c| c.advantage.baseline = Baseline::Batch,
        "advantage: a batch baseline cannot be scaled by the group's deviation, which is 0 for equal rewards; use scale = \"batch\" or \"none\"",
    );
}

#[test]
fn pretraining_out_of_range() {
    let good = PretrainConfig {
        condition_dropout: None,
        epochs: 2,
        batch_size: 8,
        micro_batch_tokens: None,
        activation_checkpointing: false,
        precision: Default::default(),
        warmup_epochs: 0.1,
        learning_rate_floor: 0.1,
        learning_rate_decay: grpo_train::Decay::Cosine {},
        dropout: 0.0,
        eval_every: 0,
        patience: 0,
        min_gain: 0.0,
        optimizer: optimizer(),
        limits: None,
        eval: None,
        diversity: None,
    };
    good.check().unwrap();
    let refusal = |config: PretrainConfig| config.check().unwrap_err().to_string();
    for (config, expected) in [
        (
            PretrainConfig { epochs: 0, ..good.clone() },
            "pretrain.epochs = 0 is out of range; expected 1 to 1000000",
        ),
        (
            PretrainConfig { batch_size: 0, ..good.clone() },
            "pretrain.batch_size = 0 is out of range; expected 1 to 1000000",
        ),
        (
            PretrainConfig { micro_batch_tokens: Some(0), ..good.clone() },
            "pretrain.micro_batch_tokens = 0 is out of range; expected 1 to 1000000000",
        ),
        (
            PretrainConfig { warmup_epochs: 3.0, ..good.clone() },
            "pretrain.warmup_epochs = 3 is out of range; expected 0 to 2",
        ),
        (
            PretrainConfig { learning_rate_floor: -1.0, ..good.clone() },
            "pretrain.learning_rate_floor = -1 is out of range; expected 0 to 1",
        ),
        (
            PretrainConfig { dropout: 1.0, ..good.clone() },
            "pretrain.dropout = 1 is out of range; expected 0 to 0.9",
        ),
    ] {
        assert_eq!(refusal(config), expected);
    }
    let mut wrong = good;
    wrong.optimizer.learning_rate = -1.0;
    assert_eq!(
        refusal(wrong),
        "pretrain.optimizer.learning_rate = -1 is out of range; expected 0 to 1"
    );
}

#[test]
fn unusual_settings_are_listed() {
    let mut config = config();
    config.train.group_size = 8;
    config.optimizer.learning_rate = 1e-5;
    config.loss.kl_coef = Some(0.0);
    assert_eq!(config.unusual_settings().unwrap(), Vec::<String>::new());
    config.train.group_size = 1000;
    config.optimizer.learning_rate = 0.5;
    config.loss.kl_coef = Some(5.0);
    config.loss.epsilon_high = Some(4.0);
    assert_eq!(
        config.unusual_settings().unwrap(),
        [
            "train.group_size = 1000 (usual: 4 to 16)",
            "loss.epsilon_high = 4 (usual: 0.1 to 0.3)",
            "loss.kl_coef = 5 (usual: 0.001 to 0.1)",
        ]
    );
}

#[test]
fn decays_out_of_range() {
    let with = |decay| {
        let mut config = config();
        config.schedule.decay = decay;
        config.check().map_err(|fault| fault.to_string())
    };
    with(Decay::CosineWithMinLr {}).unwrap();
    with(Decay::WarmupStableDecay { stable: 1.0 }).unwrap();
    assert!(with(Decay::WarmupStableDecay { stable: 1.5 }).is_err());
    assert_eq!(
        with(Decay::ReduceOnPlateau { patience: 3, factor: 0.5 }).unwrap_err(),
        "schedule.decay = \"reduce_on_plateau\" is only valid for supervised training, which has a validation loss; use another decay"
    );
}

#[test]
fn safe_mode_limits_the_cost_of_the_diversity_term() {
    let of = |keys: &str| -> ScoreFunctionConfig {
        let text = format!(r#"{{"weight": 0.3, "measure": "bleu", "embedder": null, {keys}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let numbers = |config: ScoreFunctionConfig| {
        let limited = config.limited();
        (limited.generations, limited.max_new_tokens, limited.every)
    };
    let large = r#""generations": 6, "max_new_tokens": 100, "every": 1"#;
    assert_eq!(numbers(of(large)), (6, 100, 1));
    assert_eq!(numbers(of(&format!(r#"{large}, "safe_mode": true"#))), (3, 80, 10));
    let small = r#""generations": 2, "max_new_tokens": 40, "every": 20, "safe_mode": true"#;
    assert_eq!(numbers(of(small)), (2, 40, 20));
}

#[test]
fn diversity_terms_out_of_range() {
    let of = |keys: &str| {
        let text = format!(
            r#"{{"epochs": 1, "batch_size": 1, "optimizer": {{"learning_rate": 1e-3}}, {keys}}}"#
        );
        serde_json::from_str::<PretrainConfig>(&text).map_err(|error| error.to_string())
    };
    let check = |keys: &str| of(keys)?.check().map_err(|error| error.to_string());
    let term = |keys: &str| {
        check(&format!(r#""diversity": {{"term": "score_function", "weight": 0.3, {keys}}}"#))
    };
    assert_eq!(term(r#""embedder": {"type": "hashed_ngrams"}"#), Ok(()));
    assert_eq!(term(r#""measure": "bleu""#), Ok(()));
    assert_eq!(check(r#""diversity": {"term": "entropy", "weight": 0.3}"#), Ok(()));
    let refused = |keys: &str, expected: &str| {
        let found = term(&format!(r#""measure": "bleu", {keys}"#)).unwrap_err();
        assert!(found.starts_with(expected), "{found}");
    };
    let out = |key: &str, expected: &str| {
        refused(
            &format!(r#""{key}": 0"#),
            &format!("pretrain.diversity.{key} = 0 is out of range; expected {expected}"),
        );
    };
    out("max_examples", "1 to 1000000");
    out("every", "1 to 1000000000");
    out("max_new_tokens", "1 to 1000000");
    out("temperature", "0.001 to 1000");
    out("top_p", "0.000001 to 1");
    refused(
        r#""generations": 1"#,
        "pretrain.diversity.generations = 1 is out of range; expected 2 to ",
    );
    refused(
        r#""embedder": {"type": "hashed_ngrams"}"#,
        "pretrain.diversity.embedder is only valid for the measure \"semantic\"",
    );
    refused(r#""lambda": 1"#, "unknown field `lambda`");
    let found = term(r#""every": 2"#).unwrap_err();
    assert!(
        found.starts_with("pretrain.diversity.measure = \"semantic\" requires an embedder"),
        "{found}"
    );
    let found = check(r#""diversity": {"term": "entropy", "weight": 1, "every": 2}"#).unwrap_err();
    assert!(found.starts_with("unknown field `every`"), "{found}");
    let found = check(r#""diversity": {"term": "entropy", "weight": -1}"#).unwrap_err();
    assert!(found.starts_with("pretrain.diversity.weight = -1 is out of range"), "{found}");
    let found =
        check(r#""eval": {"embedder": {"type": "hashed_ngrams", "width": 0}}"#).unwrap_err();
    assert!(found.starts_with("pretrain.eval.embedder.width = 0"), "{found}");
    let found = check(r#""eval": {"generations": 0}"#).unwrap_err();
    assert!(found.starts_with("pretrain.eval.generations = 0 is out of range"), "{found}");
}

/// Whether these metrics exist follows from the configuration alone.
#[test]
fn guards_on_metrics_of_other_settings() {
    let guarded = |watch: &str| {
        let guard = serde_json::json!({"watch": watch, "above": 1.0, "action": "warn"});
        Some(vec![serde_json::from_value(guard).unwrap()])
    };
    let correction = "loss.mismatch, or sampler_check.above = \"correct\"";
    for (watch, setting) in [
        ("reward_kl", "loss.kl_placement = \"reward\" and a positive loss.kl_coef"),
        ("entropy_coef", "loss.entropy_bonus"),
        ("entropy_coef", "loss.entropy_bonus"),
        ("cispo_clip_ratio", "a loss with the surrogate `cispo`"),
        ("vespo/phi_seq_mean", "a loss with the surrogate `vespo`"),
        ("off_policy/dropped_ratio", "loss.off_policy_threshold"),
        ("sampling/corrected", "sampler_check.above = \"correct\""),
        ("eval_reward", "eval.every"),
        ("eval_self_bleu", "eval.every and an eval.group_size above 1"),
        ("sampling/importance_sampling_ratio/min", correction),
    ] {
        let expected = format!(
            "guards[0]: watch = \"{watch}\": this run has no such metric; it requires {setting}"
        );
        check(|c| c.guards = guarded(watch), &expected);
    }
    check(
        |c| {
            c.loss.preset = Preset::Cispo;
            c.guards = guarded("clip_ratio/low_mean");
        },
        "guards[0]: watch = \"clip_ratio/low_mean\": this run has no such metric; it requires a loss with the surrogate `clipped`",
    );
    type Change = fn(&mut GrpoConfig);
    let accepted: [(&str, Change); 4] = [
        ("clip_ratio/low_mean", |_| {}),
        ("cispo_clip_ratio", |c| c.loss.preset = Preset::Cispo),
        ("off_policy/dropped_ratio", |c| c.loss.off_policy_threshold = Some(1.0)),
        ("sampling/importance_sampling_ratio/min", |c| {
            c.sampler_check.above = Some(AboveTolerance::Correct);
        }),
    ];
    for (watch, change) in accepted {
        let mut config = config();
        change(&mut config);
        config.guards = guarded(watch);
        config.check().unwrap();
    }
}
