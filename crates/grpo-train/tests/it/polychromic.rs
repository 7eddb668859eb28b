//! Tests supervised training with a diversity term, and evaluations that sample completions.

use grpo_data::{Codec, Example, Examples, SpecialIds};
use grpo_eval::{DiversityMeasure, distinct, self_bleu, token_entropy};
use grpo_model::{Adapted, Adapter, LanguageModel, LoraConfig, Policy, Transformer};
use grpo_train::{
    DiversityConfig, GuardConfig, LimitAction, LossLimits, NextTokenObjective, PretrainConfig,
    PretrainMeasures, SampledEvalConfig, ScoreFunctionConfig, StopCause, SupervisedEnding,
};
use serde_json::json;

use crate::recorder::{self, Recorder};
use crate::support::{distance, model, optimizer, parameters};

const VOCABULARY: usize = 12;

/// Creates examples with replies to four prompts. One of the prompts occurs twice in the validation
/// split.
fn examples() -> Examples {
    let of = |prompt: u32, reply: &[u32]| Example::new([&[1, prompt], reply, &[0]].concat(), 2);
    Examples::new(
        vec![
            of(2, &[5, 6]),
            of(2, &[6, 5]),
            of(3, &[7, 8, 9]),
            of(3, &[9, 8]),
            of(4, &[10]),
            of(4, &[11, 10]),
        ],
        vec![of(5, &[6, 7]), of(6, &[8]), of(5, &[9]), of(7, &[5, 5])],
    )
}

fn codec() -> Codec {
    Codec::of_ids(SpecialIds { bos: None, eos: vec![0], learned_end: Some(0), pad: None })
}

fn config() -> PretrainConfig {
    PretrainConfig {
        condition_dropout: None,
        epochs: 2,
        batch_size: 3,
        micro_batch_tokens: None,
        activation_checkpointing: false,
        precision: Default::default(),
        warmup_epochs: 0.0,
        learning_rate_floor: 1.0,
        learning_rate_decay: grpo_train::Decay::Cosine {},
        dropout: 0.1,
        eval_every: 0,
        patience: 0,
        min_gain: 0.0,
        optimizer: optimizer(),
        limits: None,
        eval: None,
        diversity: None,
    }
}

fn score_function(weight: f64) -> DiversityConfig {
    DiversityConfig::ScoreFunction(ScoreFunctionConfig {
        safe_mode: false,
        weight,
        measure: DiversityMeasure::Distinct,
        embedder: None,
        generations: 4,
        max_examples: 2,
        every: 1,
        temperature: 0.9,
        top_p: 0.9,
        max_new_tokens: 6,
    })
}

fn run(config: &PretrainConfig) -> (Recorder<PretrainMeasures>, Vec<f32>, SupervisedEnding) {
    let (model, examples) = (model(VOCABULARY, 2.0), examples());
    let (recorder, trained, ending) =
        recorder::run(NextTokenObjective::trainer(model, &codec(), &examples, config, 1));
    (recorder, parameters(&trained), ending)
}

/// Section D, item 9. In the original implementation, λ changed the reported loss but not the
/// gradient.
#[test]
fn the_weight_changes_the_training_and_0_does_not() {
    let plain = run(&config()).1;
    let of = |diversity| run(&PretrainConfig { diversity: Some(diversity), ..config() });
    for weight_to_term in [score_function, |weight| DiversityConfig::Entropy { weight }] {
        let (recorder, unmoved, _) = of(weight_to_term(0.0));
        assert_eq!(unmoved, plain);
        let scores: Vec<f64> =
            recorder.steps.iter().map(|step| step.parts["diversity_score"]).collect();
        assert!(scores.iter().any(|&score| score > 0.1), "{scores:?}");
        let (recorder, moved, _) = of(weight_to_term(0.3));
        assert_ne!(moved, plain);
        for step in &recorder.steps {
            assert_eq!(step.parts["diversity_weight"], 0.3);
            let combined = step.step_train_loss - 0.3 * step.parts["diversity_score"];
            assert_eq!(step.parts["combined_loss"], combined);
        }
    }
}

#[test]
fn equal_seeds_give_equal_trainings_however_they_are_cut() {
    // With ε = 1 in AdamW, a step is a smooth function of the gradient.
    let mut plain =
        PretrainConfig { dropout: 0.0, diversity: Some(score_function(0.5)), ..config() };
    plain.optimizer.epsilon = 1.0;
    plain.optimizer.learning_rate = 0.1;
    let (_, whole, _) = run(&plain);
    assert_eq!(whole, run(&plain).1);
    let moved = distance(&whole, &parameters(&model(VOCABULARY, 2.0)));
    for (micro_batch_tokens, activation_checkpointing) in [(Some(3), false), (Some(8), true)] {
        let cut = PretrainConfig { micro_batch_tokens, activation_checkpointing, ..plain.clone() };
        let off = distance(&whole, &run(&cut).1);
        assert!(off < 1e-4 * moved, "{off} of {moved}");
    }
}

fn sampled(generations: usize) -> SampledEvalConfig {
    SampledEvalConfig {
        prompts: 50,
        generations,
        rows: 2,
        temperature: 0.7,
        top_p: 0.9,
        max_new_tokens: 5,
        embedder: None,
    }
}

/// The sample table contains prompts from the validation split. The original implementation used
/// training prompts.
#[test]
fn evaluations_continue_validation_prompts() {
    let config = PretrainConfig { eval: Some(sampled(3)), eval_every: 3, ..config() };
    let (recorder, weights, _) = run(&config);
    let steps: Vec<u64> = recorder.validations.iter().map(|e| e.train_step).collect();
    assert_eq!(steps, [3, 4]);
    for evaluation in &recorder.validations {
        let evaluation = &evaluation.measures;
        let prompts: Vec<&str> = evaluation.rows.iter().map(|row| row.prompt.as_str()).collect();
        let truths: Vec<&str> =
            evaluation.rows.iter().map(|row| row.ground_truth.as_str()).collect();
        assert_eq!((prompts, truths), (vec!["1 5", "1 6"], vec!["6 7", "8"]));
        let measures = evaluation.sampled.unwrap();
        assert!(measures.eval_distinct_1 > 0.0 && measures.eval_distinct_1 <= 1.0);
        assert!((0.0..=2.0).contains(&measures.eval_semantic_diversity));
    }
    // Sampling must not affect training.
    assert_eq!(weights, run(&PretrainConfig { eval: None, ..config.clone() }).1);
    // If the table contains the entire group, its metrics can be recomputed.
    let one = SampledEvalConfig { prompts: 1, ..sampled(1) };
    let (recorder, ..) = run(&PretrainConfig { eval: Some(one), ..config });
    let seen = &recorder.validations[0].measures;
    let texts = [seen.rows[0].generated.as_str()];
    let measures = seen.sampled.unwrap();
    assert_eq!(measures.eval_distinct_2, distinct(&texts, 2));
    assert_eq!(measures.eval_distinct_3, distinct(&texts, 3));
    assert_eq!(measures.eval_self_bleu, self_bleu(&texts, 4));
    let ids = texts[0].split_whitespace().map(|id| id.parse().unwrap());
    assert_eq!(measures.eval_output_entropy, token_entropy(ids));
    assert_eq!(measures.eval_reply_length, texts[0].chars().count() as f64);
}

#[test]
fn a_training_without_gain_ends_early() {
    let mut config = PretrainConfig { epochs: 20, eval_every: 1, patience: 3, ..config() };
    // The learning rate is so high that the loss only increases.
    config.optimizer.learning_rate = 0.5;
    let (recorder, _, ending) = run(&config);
    let SupervisedEnding::NoGain { step, best: (best, loss) } = ending else {
        panic!("{ending:?}")
    };
    assert!(step < 40 && recorder.steps.len() as u64 == step);
    let lowest = recorder.validations.iter().rfind(|e| e.best).unwrap();
    assert_eq!((lowest.train_step, lowest.measures.eval_loss), (best, loss));
    assert!(recorder.validations.iter().rev().take(3).all(|evaluation| !evaluation.best));
    // With early stopping disabled, training continues.
    let patient = run(&PretrainConfig { patience: 0, ..config }).0;
    assert_eq!(patient.steps.len(), 40);
}

#[test]
fn prompts_too_long_to_sample_behind_are_refused_at_the_beginning() {
    let context = model(VOCABULARY, 2.0).context_length();
    let refused = |config: &PretrainConfig| {
        let (model, examples) = (model(VOCABULARY, 2.0), examples());
        let refused = NextTokenObjective::trainer(model, &codec(), &examples, config, 1);
        refused.err().unwrap().to_string()
    };
    let mut long = score_function(0.1);
    if let DiversityConfig::ScoreFunction(term) = &mut long {
        term.max_new_tokens = context;
    }
    let expected = format!(
        "a prompt of 2 tokens with max_new_tokens = {context} exceeds the model's context of {context} tokens; set max_new_tokens to at most {}",
        context - 1
    );
    let diversity = PretrainConfig { diversity: Some(long), ..config() };
    assert_eq!(refused(&diversity), format!("pretrain.diversity: {expected}"));
    let eval = SampledEvalConfig { max_new_tokens: context, ..sampled(1) };
    let eval = PretrainConfig { eval: Some(eval), ..config() };
    assert_eq!(refused(&eval), format!("pretrain.eval: {expected}"));
}

/// Interrupts runs at various steps, with dropout in the model and the adapter, diversity terms,
/// sampling, early stopping and limits.
#[test]
fn an_interrupted_training_ends_as_one_that_was_not() {
    let (examples, codec) = (examples(), codec());
    let limits = LossLimits {
        max_gap: Some(0.0),
        min_valid_loss: None,
        max_valid_loss: Some(0.1),
        action: LimitAction::Warn,
    };
    let plain = PretrainConfig {
        epochs: 4,
        eval_every: 3,
        patience: 9,
        min_gain: 0.5,
        limits: Some(limits),
        ..config()
    };
    let mut every_second = score_function(0.3);
    if let DiversityConfig::ScoreFunction(term) = &mut every_second {
        term.every = 2;
    }
    let whole = model(VOCABULARY, 2.0);
    let lora = LoraConfig { rank: 2, alpha: 8.0, dropout: 0.4, ..LoraConfig::default() };
    let adapter = Adapter::random(&lora, &whole, 1, &whole.device()).unwrap();
    let policies = [Policy::Whole(whole.clone()), Policy::Adapted(Adapted::new(&whole, adapter))];
    for (policy, diversity) in policies.into_iter().zip([Some(every_second), None]) {
        let config = PretrainConfig { diversity, eval: Some(sampled(2)), ..plain.clone() };
        let trainer = || {
            let policy = policy.clone();
            NextTokenObjective::trainer(policy, &codec, &examples, &config, 1).unwrap()
        };
        recorder::check_resumed(trainer, &[1, 2, 6], Policy::clone, parameters);
    }
    // A run that ended due to early stopping does not continue when it is resumed.
    let stopping = PretrainConfig { patience: 1, min_gain: 5.0, eval_every: 1, ..plain };
    let trainer =
        || NextTokenObjective::trainer(whole.clone(), &codec, &examples, &stopping, 1).unwrap();
    let (recorder, _, ending) = recorder::run(Ok(trainer()));
    assert!(matches!(ending, SupervisedEnding::NoGain { step: 2, .. }), "{ending:?}");
    assert_eq!((recorder.steps.len(), recorder.warnings.len()), (2, 1), "{:?}", recorder.warnings);
    recorder::check_resumed(trainer, &[1], Transformer::clone, parameters);
}

/// Guards can watch metrics of both steps and validations.
#[test]
fn guards_warn_and_stop_a_supervised_run() {
    let (examples, codec, config) = (examples(), codec(), config());
    let guarded = |guards: serde_json::Value| {
        let model = model(VOCABULARY, 2.0);
        let guards: Vec<GuardConfig> = serde_json::from_value(guards).unwrap();
        NextTokenObjective::trainer(model, &codec, &examples, &config, 1)
            .and_then(|trainer| trainer.with_guards(&guards))
    };
    let warn = json!({"watch": "eval_loss", "above": 0.0, "action": "warn"});
    let stop = json!({"watch": "step_train_loss", "above": 0.0, "steps": 3, "action": "stop"});
    let (recorder, _, ending) = recorder::run(guarded(json!([warn, stop])));
    let SupervisedEnding::Stopped { cause: StopCause::Guard, message } = ending else {
        panic!("{ending:?}")
    };
    assert!(message.starts_with("step 3: step_train_loss was "), "{message}");
    assert_eq!(recorder.steps.len(), 3);
    let trainer = || guarded(json!([warn, stop])).unwrap();
    recorder::check_resumed(trainer, &[1, 2], Transformer::clone, parameters);

    let refused = |guard: serde_json::Value| guarded(json!([guard])).err().unwrap().to_string();
    assert_eq!(
        refused(json!({"watch": "eval_los", "above": 1.0, "action": "warn"})),
        "guards[0]: watch = \"eval_los\" is not a metric that a guard can watch; did you mean 'eval_loss'?"
    );
    assert_eq!(
        refused(json!({"watch": "not_finite", "action": "stop"})),
        "guards[0]: watch = \"not_finite\" is only valid for `grpo train`: a supervised run always stops at a non-finite loss; remove the guard"
    );
    assert_eq!(
        refused(json!({"watch": "eval_loss", "above": 1.0, "action": "roll_back"})),
        "guards[0]: action = \"roll_back\" is only valid for `grpo train`; use \"warn\" or \"stop\" for a supervised run"
    );
}
