//! Compares token outcomes with the gradients of the corresponding loss.

use burn::tensor::DType;
use grpo_core::{
    KlConfig, LossConfig, MismatchCorrection, MismatchMode, Preset, RatioLevel, Surrogate,
    TokenOutcome,
};
use proptest::prelude::*;

use crate::strategies::{batches, configs, every_option};
use crate::support::{Batch, Run, cases, of_log_ratios, on_policy};

use TokenOutcome::{Clipped, LowEntropy, Mismatch, Moved, NotScored, OffPolicy, ZeroAdvantage};

fn outcomes(
    batch: &Batch,
    config: &LossConfig,
    is_scored: &[bool],
) -> Vec<Vec<Option<TokenOutcome>>> {
    let totals = batch.totals(config.high_entropy_share);
    let (terms, _) = batch.evaluate(DType::F64, config, &totals);
    let mut rows = vec![vec![None; batch.width()]; batch.rows()];
    let outcomes = terms.outcomes(is_scored);
    for ((b, t), outcome) in batch.places(true).into_iter().zip(outcomes) {
        rows[b][t] = Some(outcome);
    }
    rows
}

/// Removes the penalty and the entropy bonus from a loss, so that only the surrogate is left.
fn surrogate(config: &LossConfig) -> LossConfig {
    let kl = KlConfig { coef: 0.0, ..config.kl };
    LossConfig { kl, entropy_bonus: None, ..*config }
}

/// Checks that a token has a gradient if and only if it moved. Otherwise, the gradient must be
/// exactly 0.
fn check(batch: &Batch, config: &LossConfig) -> Result<(), TestCaseError> {
    let batch = Batch { entropy_coef: 0.0, ..batch.clone() };
    let config = surrogate(config);
    let gradients = batch.run(&config).gradient;
    let outcomes = outcomes(&batch, &config, &vec![true; batch.rows()]);
    for (b, t) in batch.places(true) {
        let (outcome, gradient) = (outcomes[b][t].unwrap(), gradients[b][t]);
        prop_assert_eq!(
            outcome == Moved,
            gradient != 0.0,
            "{:?} {} at {} {}",
            outcome,
            gradient,
            b,
            t
        );
    }
    for (b, t) in batch.places(false) {
        prop_assert_eq!(outcomes[b][t], None);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn nothing_but_what_moved_has_a_gradient(batch in batches(), config in configs()) {
        check(&batch, &config)?;
    }

    /// Also covers sequences whose advantage is 0.
    #[test]
    fn nor_without_an_advantage(mut batch in batches(), config in configs()) {
        batch.advantages.iter_mut().step_by(2).for_each(|advantage| *advantage = 0.0);
        check(&batch, &config)?;
    }
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn with_every_option(batch in batches()) {
        for config in every_option() {
            check(&batch, &config)?;
        }
    }
}

#[track_caller]
fn of_one(batch: &Batch, config: &LossConfig, expected: &[TokenOutcome]) {
    let found: Vec<TokenOutcome> =
        outcomes(batch, config, &[true])[0].iter().flatten().copied().collect();
    assert_eq!(found, expected);
}

/// Creates a batch with the ratios ½, 1, 2 and 4.
fn ratios(advantage: f64) -> Batch {
    of_log_ratios(&[0.5_f64.ln(), 0.0, 2_f64.ln(), 4_f64.ln()], advantage)
}

#[test]
fn clipping_by_hand() {
    let clip = |epsilon_low, epsilon_high, delta| LossConfig {
        surrogate: Surrogate::Clipped { epsilon_low, epsilon_high, delta },
        ..Preset::Grpo.config()
    };
    of_one(&ratios(1.0), &clip(0.2, 0.2, None), &[Moved, Moved, Clipped, Clipped]);
    of_one(&ratios(-1.0), &clip(0.2, 0.2, None), &[Clipped, Moved, Moved, Moved]);
    of_one(&ratios(-1.0), &clip(0.2, 0.2, Some(3.0)), &[Clipped, Moved, Moved, Clipped]);
    of_one(&ratios(1.0), &clip(0.2, 1.5, None), &[Moved, Moved, Moved, Clipped]);
    // A δ below 1 + ε_high overrides it.
    of_one(&ratios(1.0), &clip(0.2, 5.0, Some(1.5)), &[Moved, Moved, Clipped, Clipped]);
    // With CISPO, clipped tokens keep their gradient.
    of_one(&ratios(1.0), &Preset::Cispo.config(), &[Moved; 4]);
    // The sequence-level ratio is √2.
    let sequence = LossConfig { ratio_level: RatioLevel::Sequence, ..clip(0.2, 0.2, None) };
    of_one(&ratios(1.0), &sequence, &[Clipped; 4]);
    of_one(&ratios(-1.0), &sequence, &[Moved; 4]);
}

#[test]
fn masks_by_hand_and_in_their_order() {
    let grpo = Preset::Grpo.config();
    let batch = |advantage| Batch {
        // log π_old − log π_sampler is −2, 0 and 0.
        sampling: Some(vec![vec![1.0, -1.0, -1.0]]),
        entropies: vec![vec![1.0, 3.0, 2.0]],
        ..on_policy(vec![vec![-1.0; 3]], vec![advantage])
    };
    of_one(&batch(0.0), &grpo, &[ZeroAdvantage; 3]);
    let high = LossConfig { high_entropy_share: Some(0.5), ..grpo };
    of_one(&batch(1.0), &high, &[LowEntropy, Moved, Moved]);
    let correction =
        |level| Some(MismatchCorrection { level, mode: MismatchMode::Mask, min: 0.5, max: 2.0 });
    let masked = LossConfig { mismatch: correction(RatioLevel::Token), ..grpo };
    of_one(&batch(1.0), &masked, &[Mismatch, Moved, Moved]);
    of_one(
        &batch(1.0),
        &LossConfig { high_entropy_share: Some(0.5), ..masked },
        &[LowEntropy, Moved, Moved],
    );
    let whole = LossConfig { mismatch: correction(RatioLevel::Sequence), ..grpo };
    of_one(&batch(1.0), &whole, &[Mismatch; 3]);
    // With a correction, the mean distance between sampler and policy is ⅔.
    let off = LossConfig { off_policy_threshold: Some(0.5), ..masked };
    of_one(&batch(-1.0), &off, &[OffPolicy; 3]);
    of_one(&batch(1.0), &off, &[Mismatch, Moved, Moved]);
    // The ratio is shared, so the remaining tokens pass a gradient to all others.
    let gspo = LossConfig { high_entropy_share: Some(0.5), ..Preset::Gspo.config() };
    of_one(&batch(1.0), &gspo, &[Moved; 3]);
}

#[test]
fn what_was_not_scored_is_said_first() {
    let batch = on_policy(vec![vec![-1.0; 2]; 2], vec![0.0, 0.0]);
    let found = outcomes(&batch, &Preset::Grpo.config(), &[false, true]);
    assert_eq!(found, [[Some(NotScored); 2], [Some(ZeroAdvantage); 2]]);
}

#[test]
fn words_are_read_back() {
    for outcome in TokenOutcome::ALL {
        assert_eq!(outcome.to_string().parse(), Ok(outcome));
    }
    for (outcomes, words) in [
        (vec![Moved], "moved"),
        (vec![Clipped, Clipped], "clipped"),
        (vec![Moved, Clipped, Clipped], "moved+clipped+clipped"),
    ] {
        assert_eq!(TokenOutcome::join(outcomes.clone()), words);
        let found = TokenOutcome::split(words).unwrap();
        assert!(found == outcomes || found == outcomes[..1]);
    }
    let unknown = "`Moved` is not a token outcome".to_owned();
    assert_eq!(TokenOutcome::split("clipped+Moved"), Err(unknown));
}
