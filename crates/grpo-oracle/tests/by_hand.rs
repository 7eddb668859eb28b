//! Compares the reference implementation with values calculated by hand.

use grpo_core::{AdvantageConfig, BatchTotals, KlEstimator, Preset, RewardScale};
use grpo_oracle::{self as oracle, LossCase};

/// Creates two sequences: one with the ratios 2 and ½, and one with a ratio of 1 and a padded
/// position.
fn case() -> LossCase {
    let ln2 = 2.0_f64.ln();
    LossCase {
        logprobs: vec![vec![-1.0, -2.0], vec![-3.0, f64::NAN]],
        old: Some(vec![vec![-1.0 - ln2, -2.0 + ln2], vec![-3.0, f64::NAN]]),
        reference: None,
        sampling: None,
        exact_kl: None,
        entropies: vec![vec![1.0, 0.5], vec![0.1, f64::NAN]],
        advantages: vec![1.0, -1.0],
        mask: vec![vec![true, true], vec![true, false]],
        entropy_coef: 0.0,
    }
}

#[track_caller]
fn close(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-9, "got {got}, expected {expected}");
}

#[test]
fn losses() {
    let case = case();
    let totals = case.totals(None);
    assert_eq!((totals.sequences, totals.tokens, totals.max_completion_length), (2, 3, 2));
    let of = |preset: Preset| oracle::loss(&case, &preset.config(), &totals);
    // Token losses: −min(2, 1.2), −min(½, 0.8) and +1.
    close(of(Preset::Grpo), ((-1.2 - 0.5) / 2.0 + 1.0) / 2.0);
    close(of(Preset::DrGrpo), (-1.2 - 0.5 + 1.0) / 4.0);
    close(of(Preset::Dapo), (-1.28 - 0.5 + 1.0) / 3.0);
    // −A log π: 1, 2, −3.
    close(of(Preset::Reinforce), ((1.0 + 2.0) / 2.0 - 3.0) / 2.0);
    close(of(Preset::Cispo), (2.0 * 1.0 + 0.5 * 2.0 - 3.0) / 3.0);
    // The ratio of each sequence is 1.
    close(of(Preset::Gspo), (-1.0 + 1.0) / 2.0);
    close(of(Preset::Luspo), (-2.0 + 1.0) / 2.0);
    // W = 1 for each sequence, so φ = 1.
    close(of(Preset::Vespo), (1.0 + 2.0 - 3.0) / 3.0);
    let gate = |c: f64, tau: f64| 4.0 / tau / (1.0 + (-tau * (c - 1.0)).exp());
    let row = (-gate(2.0, 1.0) - gate(0.5, 1.0)) / 2.0;
    close(of(Preset::Sapo), (row + gate(1.0, 1.05)) / 2.0);
    // The entropy bonus is a mean over three tokens.
    let bonus = LossCase { entropy_coef: 0.3, ..case.clone() };
    let with = oracle::loss(&bonus, &Preset::Reinforce.config(), &totals);
    close(with, of(Preset::Reinforce) - 0.3 * 1.6 / 3.0);
}

#[test]
fn gradients() {
    let case = case();
    let totals = case.totals(None);
    let of = |preset: Preset| oracle::gradient(&case, &preset.config(), &totals).logprobs;
    // The first token is clipped. For the others, the derivative of −c A is −c A.
    let [first, second] = [of(Preset::Grpo)[0].clone(), of(Preset::Grpo)[1].clone()];
    close(first[0], 0.0);
    close(first[1], -0.5 / 4.0);
    close(second[0], 1.0 / 2.0);
    assert_eq!(second[1], 0.0);
    // CISPO ratios are constants.
    close(of(Preset::Cispo)[0][0], -2.0 / 3.0);
    // π_old is also a constant if it equals the policy.
    let first = LossCase { old: None, ..case.clone() };
    let first = oracle::gradient(&first, &Preset::Grpo.config(), &totals).logprobs;
    close(first[0][0], -1.0 / 4.0);
}

#[test]
fn advantages() {
    let rewards = |group: &[f64]| group.iter().map(|&r| vec![Some(r)]).collect::<Vec<_>>();
    let groups = [rewards(&[0.0, 1.0, 2.0]), rewards(&[0.95; 4])];
    let group = AdvantageConfig { epsilon: 0.0, ..AdvantageConfig::default() };
    assert_eq!(oracle::advantages(&groups, &[1.0], &group), [vec![-1.0, 0.0, 1.0], vec![0.0; 4]]);
    let none = AdvantageConfig { scale: RewardScale::None, ..group };
    assert_eq!(oracle::advantages(&groups, &[2.0], &none)[0], [-2.0, 0.0, 2.0]);
}

#[test]
fn the_rest() {
    // The quantile is 0.4 of the way from rank 1 to rank 2. The threshold is the next larger value.
    let kept = oracle::high_entropy(&[0.3, 0.1, 0.4, 0.2], 0.5);
    assert_eq!((kept.threshold, kept.tokens), (0.3, 2));
    close(oracle::sequence_kl(KlEstimator::K1, &[-1.0, -2.0], &[-1.5, -1.0], None), -0.5);
    close(oracle::sequence_kl(KlEstimator::K2, &[-1.0, -2.0], &[-1.5, -1.0], None), 0.625);
    let k3 = (-0.5_f64).exp() + 0.5 - 1.0 + 1.0_f64.exp() - 1.0 - 1.0;
    close(oracle::sequence_kl(KlEstimator::K3, &[-1.0, -2.0], &[-1.5, -1.0], None), k3);
    let totals = BatchTotals { high_entropy: Some(kept), ..case().totals(None) };
    let metrics = oracle::metrics(&case(), &Preset::Grpo.config(), &totals);
    close(metrics["clip_ratio/high_mean"], 1.0 / 3.0);
    close(metrics["clip_ratio/high_max"], 0.5);
    close(metrics["entropy"], 1.6 / 3.0);
    close(metrics["ratio/min"], 0.5);
}
