//! Training of a judge.

use std::sync::Arc;

use grpo_data::{Half, Passages};
use grpo_model::{Frozen, SequenceScorer};
use grpo_train::{
    CorrelationScaling, FillSettings, JudgeConfig, JudgeData, JudgeGate, JudgeMeasures,
    JudgeScaling, JudgeValidationConfig, TransferConfig, VarianceScaling, train_judge,
};

use crate::passages::{Told, infiller, judge, passages, random, steps, stream};
use crate::support::parameters;

/// The infiller knows nothing, so that what it fills in is random.
fn data(passages: &Arc<Passages>) -> JudgeData {
    JudgeData {
        passages: passages.clone(),
        train: stream(passages, Half::Train, &random(0.9).for_judge(), 1),
        infiller: Frozen::snapshot(&infiller(passages, false)),
    }
}

fn config(of_steps: u64) -> JudgeConfig {
    JudgeConfig {
        steps: steps(of_steps),
        natural_share: 0.3,
        fill: FillSettings::default(),
        scaling: JudgeScaling::default(),
        transfer: TransferConfig::default(),
        validation: JudgeValidationConfig { natural: 30, spread: 60 },
    }
}

fn run(config: &JudgeConfig, seed: u64) -> (Told<JudgeMeasures>, SequenceScorer) {
    let passages = passages(12);
    let mut told = Told::default();
    let trained =
        train_judge(judge(&passages, 1), &data(&passages), config, seed, &mut told).unwrap();
    (told, trained)
}

#[test]
fn random_characters_are_told_from_a_text() {
    let passages = passages(12);
    let (told, judge) = run(&config(250), 1);
    let last = told.last();
    assert!(last.spearman > 0.85 && last.pearson > 0.8, "{last:?}");
    assert!(last.zero_p90 < 0.1, "{last:?}");
    assert!(JudgeGate::default().passes(last));
    let natural = passages.characters().encode("bcdefghabcde").unwrap();
    let scrambled = passages.characters().encode("dhbgacfebdga").unwrap();
    let (low, high) = (judge.score(&natural), judge.score(&scrambled));
    assert!(low < 0.1 && high > 0.7, "{low} {high}");
}

#[test]
fn a_gate_looks_at_both_figures() {
    let good = JudgeMeasures {
        eval_loss: 0.01,
        zero_mean: 0.02,
        zero_p90: 0.1,
        pearson: 0.9,
        spearman: 0.8,
    };
    let gate = JudgeGate::default();
    assert!(gate.passes(&good));
    assert!(!gate.passes(&JudgeMeasures { zero_p90: 0.101, ..good }));
    assert!(!gate.passes(&JudgeMeasures { spearman: 0.799, ..good }));
    assert!(!gate.passes(&JudgeMeasures { spearman: f64::NAN, ..good }));
}

fn everything(of_steps: u64) -> JudgeConfig {
    let scaling = JudgeScaling {
        variance: Some(VarianceScaling::default()),
        correlation: Some(CorrelationScaling::default()),
    };
    let mut config = JudgeConfig { scaling, ..config(of_steps) };
    config.steps.dropout = 0.1;
    config
}

#[test]
fn equal_seeds_give_equal_judges() {
    let run = |seed, threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (told, trained) = pool.install(|| run(&everything(5), seed));
        (told.losses(), parameters(trained.model()))
    };
    let first = run(1, 1);
    assert_eq!(first, run(1, 2));
    assert_ne!(first, run(2, 1));
}

/// Factors are of the whole batch, however it is cut.
#[test]
fn micro_batches_decide_nothing_but_memory() {
    let whole = JudgeConfig { steps: steps(1), ..everything(1) };
    let mut cut = whole.clone();
    cut.steps.micro_batch_tokens = Some(30);
    let (told_whole, _) = run(&whole, 1);
    let (told_cut, _) = run(&cut, 1);
    let (a, b) = (&told_whole.steps[0], &told_cut.steps[0]);
    assert!(a.parts["loss_factor"] > 1.5, "{a:?}");
    assert!(
        (a.step_train_loss - b.step_train_loss).abs() < 1e-4 * a.step_train_loss,
        "{a:?} {b:?}"
    );
    assert!((a.grad_norm - b.grad_norm).abs() < 1e-4 * a.grad_norm, "{a:?} {b:?}");
}

/// A factor multiplies the gradients as it does the loss.
#[test]
fn factors_reach_the_gradients() {
    let plain = config(1);
    let scaling = JudgeScaling { variance: Some(VarianceScaling::default()), correlation: None };
    let (told_plain, _) = run(&plain, 1);
    let (told_scaled, _) = run(&JudgeConfig { scaling, ..config(1) }, 1);
    let (plain, scaled) = (&told_plain.steps[0], &told_scaled.steps[0]);
    let factor = scaled.parts["loss_factor"];
    // Outputs of a new judge hardly vary.
    assert!(factor > 4.9 && factor <= 5.0, "{factor}");
    for (plain, scaled) in
        [(plain.step_train_loss, scaled.step_train_loss), (plain.grad_norm, scaled.grad_norm)]
    {
        assert!((scaled - factor * plain).abs() < 1e-4 * scaled, "{plain} {scaled}");
    }
}
