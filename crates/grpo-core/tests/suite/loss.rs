//! The loss, its gradient and its statistics: against the f64 loops, and properties.

use grpo_core::{BatchTotals, KlConfig, KlEstimator, LossConfig, Reduction, token_weights};
use proptest::prelude::*;

use crate::oracle;
use crate::support::{Batch, batches, cases, close, largest, penalised, presets};

/// What f32 may lose of the loss and of each derivative: the rounding of `exp` and of the products after it, in
/// proportion to the largest term of one token and to its weight.
fn rounding(batch: &Batch, config: &LossConfig, totals: &BatchTotals) -> [f64; 2] {
    let weights = batch.weights(config, totals);
    let size = largest(&batch.advantages) + config.kl.coef;
    let tolerance = 8.0 * f64::from(f32::EPSILON) * size;
    let heaviest = weights.iter().copied().fold(0.0, f32::max);
    [tolerance * f64::from(weights.iter().sum::<f32>()), tolerance * f64::from(heaviest)]
}

fn all() -> impl Iterator<Item = LossConfig> {
    presets().into_iter().chain(penalised())
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn loss_and_gradient_equal_the_loops(batch in batches()) {
        for config in all() {
            for batch in [batch.clone(), Batch { old: None, ..batch.clone() }] {
                prop_assume!(!oracle::near_a_bound(&batch, &config));
                let totals = batch.totals();
                let got = batch.run(&config, &totals);
                let old = batch.old.as_ref().unwrap_or(&batch.logprobs);
                let expected = oracle::loss(&batch, old, &config, &totals);
                let [of_loss, of_gradient] = rounding(&batch, &config, &totals);
                close(got.loss, expected, of_loss, "loss");
                let gradient = oracle::gradient(&batch, &config, &totals);
                let both = got.gradient.iter().flatten().zip(gradient.iter().flatten());
                for (got, expected) in both {
                    close(*got, *expected, of_gradient, "gradient");
                }
            }
        }
    }

    /// Whatever stands in the padding: also what overflows `exp`.
    #[test]
    fn padding_changes_nothing(
        batch in batches(),
        columns in 1..4_usize,
        junk in prop::array::uniform3(-400.0..400.0_f64),
    ) {
        let padded = batch.padded(columns, junk);
        for config in all() {
            let totals = batch.totals();
            let (narrow, wide) = (batch.run(&config, &totals), padded.run(&config, &totals));
            let [tolerance, _] = rounding(&batch, &config, &totals);
            close(wide.loss, narrow.loss, tolerance, "loss");
            for (wide, narrow) in wide.gradient.iter().zip(&narrow.gradient) {
                prop_assert_eq!(&wide[..batch.width()], &narrow[..]);
                prop_assert!(wide[batch.width()..].iter().all(|&g| g == 0.0), "{:?}", wide);
            }
            prop_assert_eq!(wide.statistics, narrow.statistics);
        }
    }

    #[test]
    fn micro_batches_add_up_to_the_batch(batch in batches(), cut in 0.0..1.0_f64) {
        let cut = (cut * batch.rows() as f64) as usize;
        prop_assume!(cut > 0);
        for config in all() {
            let totals = batch.totals();
            let whole = batch.run(&config, &totals);
            let parts = [batch.part(0..cut), batch.part(cut..batch.rows())];
            let [first, second] = parts.clone().map(|part| part.run(&config, &totals));
            prop_assert_eq!(&[first.gradient, second.gradient].concat(), &whole.gradient);
            let [tolerance, _] = rounding(&batch, &config, &totals);
            close(first.loss + second.loss, whole.loss, tolerance, "loss");
        }
    }

    #[test]
    fn statistics_of_micro_batches_add_up(batch in batches(), cut in 0.0..1.0_f64) {
        let cut = (cut * batch.rows() as f64) as usize;
        let config = penalised()[0];
        let whole = batch.statistics(&config);
        let mut sum = batch.part(0..cut).statistics(&config);
        batch.part(cut..batch.rows()).add_to(&mut sum, &config);
        prop_assert_eq!(sum.tokens, whole.tokens);
        prop_assert_eq!(sum.clip_ratios(), whole.clip_ratios());
        prop_assert_eq!(sum.ratio_range(), whole.ratio_range());
        // The same additions in the same order.
        prop_assert_eq!(sum.kl(), whole.kl());
        prop_assert_eq!(sum.entropy(), whole.entropy());
    }

    #[test]
    fn places_without_an_action_have_exactly_no_gradient(
        mut batch in batches(),
        holes in prop::collection::vec(any::<bool>(), 30),
    ) {
        let mut holes = holes.into_iter();
        batch.mask.iter_mut().flatten().for_each(|active| *active &= holes.next().unwrap());
        for config in all() {
            let totals = batch.totals();
            let got = batch.run(&config, &totals);
            prop_assert!(got.loss.is_finite());
            for (b, t) in batch.places(false) {
                prop_assert_eq!(got.gradient[b][t], 0.0);
            }
        }
    }

    #[test]
    fn a_clipped_token_has_exactly_no_gradient_and_any_other_has_one(batch in batches()) {
        for config in presets() {
            prop_assume!(!oracle::near_a_bound(&batch, &config));
            let totals = batch.totals();
            let weights = batch.weights(&config, &totals);
            let got = batch.run(&config, &totals);
            let old = batch.old.as_ref().unwrap();
            let [mut low, mut high] = [0.0; 2];
            for (b, t) in batch.places(true) {
                let ratio = (batch.logprobs[b][t] - old[b][t]).exp();
                let advantage = batch.advantages[b];
                let below = ratio < 1.0 - config.epsilon_low && advantage < 0.0;
                let above = ratio > 1.0 + config.epsilon_high && advantage > 0.0;
                low += f64::from(u8::from(below));
                high += f64::from(u8::from(above));
                if below || above {
                    prop_assert_eq!(got.gradient[b][t], 0.0);
                } else {
                    let weight = f64::from(weights[b * batch.width() + t]);
                    let expected = -weight * ratio * advantage;
                    let tolerance = 4.0 * f64::from(f32::EPSILON) * expected.abs();
                    close(got.gradient[b][t], expected, tolerance, "gradient");
                }
            }
            let tokens = totals.tokens as f64;
            let [low_mean, _, high_mean, _, region_mean] = got.statistics.clip_ratios();
            prop_assert_eq!([low_mean, high_mean], [low / tokens, high / tokens]);
            prop_assert_eq!(region_mean, (low + high) / tokens);
        }
    }

    #[test]
    fn means_over_tokens_and_over_sequences_agree_where_lengths_are_equal(batch in batches()) {
        let mask = vec![vec![true; batch.width()]; batch.rows()];
        let batch = Batch { mask, ..batch };
        let totals = batch.totals();
        let [grpo, dr_grpo, dapo] = presets();
        let dapo = LossConfig { epsilon_high: grpo.epsilon_high, ..dapo };
        let expected = batch.run(&grpo, &totals);
        // As wide as the longest completion that could be, Dr. GRPO is one more of them.
        for config in [dapo, dr_grpo] {
            let got = batch.run(&config, &totals);
            prop_assert_eq!((got.loss, &got.gradient), (expected.loss, &expected.gradient));
        }
    }

    #[test]
    fn the_first_update_has_ratio_one(batch in batches()) {
        let first = Batch { old: None, ..batch.clone() };
        let given = Batch { old: Some(batch.logprobs.clone()), ..batch };
        for config in all() {
            let totals = first.totals();
            let (first, given) = (first.run(&config, &totals), given.run(&config, &totals));
            prop_assert_eq!((first.loss, &first.gradient), (given.loss, &given.gradient));
            prop_assert_eq!(&first.statistics, &given.statistics);
            prop_assert_eq!(first.statistics.ratio_range(), [1.0, 1.0]);
            prop_assert_eq!(first.statistics.clip_ratios(), [0.0; 5]);
        }
    }

    /// One token at a time, from far away to where `exp(e) − e − 1` cancels.
    #[test]
    fn k3_is_never_negative(size in -60.0..2.0_f64, power in -60.0..2.0_f64, up in any::<bool>()) {
        let logprob = -size.exp2();
        let e = power.exp2() * if up { 1.0 } else { -1.0 };
        let kl = KlConfig { coef: 1.0, estimator: KlEstimator::K3, bias_correction: false };
        let config = LossConfig { kl, ..presets()[0] };
        let batch = one_token(logprob, logprob + e);
        let got = batch.statistics(&config).kl().unwrap();
        prop_assert!(got >= 0.0, "{got}");
        // Without an advantage the loss is the penalty; f32 can be off by the rounding of exp(e).
        let loss = batch.run(&config, &batch.totals()).loss;
        prop_assert!(loss >= -2.0 * f64::from(f32::EPSILON) * e.exp().max(1.0), "{loss}");
    }
}

fn one_token(logprob: f64, reference: f64) -> Batch {
    Batch {
        logprobs: vec![vec![logprob]],
        old: None,
        reference: Some(vec![vec![reference]]),
        entropies: vec![vec![0.0]],
        advantages: vec![0.0],
        mask: vec![vec![true]],
    }
}

#[test]
fn weights_by_hand() {
    let mask = [vec![true, true, true, true], vec![false, true, false, false], vec![false; 4]];
    let totals = BatchTotals { sequences: 8, tokens: 20, max_completion_length: 16 };
    #[track_caller]
    fn check(mask: &[Vec<bool>], reduction: Reduction, totals: &BatchTotals, rows: [f64; 2]) {
        let [a, b] = rows.map(|weight| weight as f32);
        let expected = [a, a, a, a, 0.0, b, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(token_weights(mask, reduction, totals), expected);
    }
    check(&mask, Reduction::SequenceMean, &totals, [1.0 / 32.0, 1.0 / 8.0]);
    check(&mask, Reduction::TokenMean, &totals, [1.0 / 20.0, 1.0 / 20.0]);
    check(&mask, Reduction::Constant, &totals, [1.0 / 128.0, 1.0 / 128.0]);
}

#[test]
fn statistics_by_hand() {
    let ln = f64::ln;
    let batch = Batch {
        logprobs: vec![vec![ln(0.5), ln(0.5), ln(0.5)]; 2],
        old: Some(vec![vec![ln(0.25), ln(0.5), 9.0], vec![ln(1.0), ln(0.25), ln(0.5)]]),
        reference: Some(vec![vec![ln(0.25), ln(0.5), 9.0], vec![ln(0.5), ln(0.5), ln(1.0)]]),
        entropies: vec![vec![1.0, 2.0, 100.0], vec![3.0, 4.0, 5.0]],
        advantages: vec![1.0, -1.0],
        mask: vec![vec![true, true, false], vec![true, true, true]],
    };
    // Ratios 2, 1 | ½, 2, 1: one above where A > 0, one below where A < 0; e = ln ½, 0 | 0, 0, ln 2.
    #[track_caller]
    fn check(batch: &Batch, estimator: KlEstimator, bias_correction: bool, kl: f64) {
        let kl_config = KlConfig { coef: 0.0, estimator, bias_correction };
        let config = LossConfig { kl: kl_config, ..presets()[0] };
        let got = batch.statistics(&config);
        assert_eq!(got.tokens, 5);
        close(got.kl().unwrap(), kl, 1e-7, "kl");
        assert_eq!(got.entropy(), 3.0);
        assert_eq!(got.clip_ratios(), [1.0 / 5.0, 0.0, 1.0 / 5.0, 0.5, 2.0 / 5.0]);
        let [lowest, highest] = got.ratio_range();
        close(lowest, 0.5, 1e-7, "smallest ratio");
        close(highest, 2.0, 1e-7, "largest ratio");
    }
    let ln2 = ln(2.0);
    check(&batch, KlEstimator::K1, false, 0.0);
    check(&batch, KlEstimator::K1, true, (2.0 * ln2 - ln2) / 5.0);
    check(&batch, KlEstimator::K2, false, ln2 * ln2 / 5.0);
    check(&batch, KlEstimator::K2, true, 1.5 * ln2 * ln2 / 5.0);
    check(&batch, KlEstimator::K3, false, (0.5 - 1.0 + ln2 + 2.0 - 1.0 - ln2) / 5.0);
    check(&batch, KlEstimator::K3, true, (2.0 * (0.5 - 1.0 + ln2) + 2.0 - 1.0 - ln2) / 5.0);

    let alone = Batch { reference: None, ..batch };
    assert_eq!(alone.statistics(&presets()[0]).kl(), None);
}

#[test]
#[should_panic(expected = "a KL penalty has a reference")]
fn a_penalty_without_a_reference_is_a_broken_invariant() {
    let batch = Batch { reference: None, ..one_token(-1.0, -1.0) };
    batch.run(&penalised()[0], &batch.totals());
}
