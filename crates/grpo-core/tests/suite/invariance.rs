//! Tests that the loss does not depend on the split into micro-batches or the order of rows.

use grpo_core::{LossConfig, Preset, Reduction};
use proptest::prelude::*;

use crate::strategies::{REDUCTIONS, batches, configs};
use crate::support::{Batch, Run, all_close, cases, close, largest, on_policy};

/// Bounds the effect of a different order of summation.
fn rounding(values: &[Vec<f64>]) -> f64 {
    1e-13 * largest(values.iter().flatten()).max(1.0)
}

proptest! {
    #![proptest_config(cases(400))]

    /// Any split gives the same result, except for the reduction over micro-batches.
    #[test]
    fn micro_batches_add_up_to_the_batch(
        batch in batches(),
        config in configs(),
        cut in 0.0..1.0_f64,
    ) {
        let cut = (cut * batch.rows() as f64) as usize;
        prop_assume!(cut > 0 && config.reduction != Reduction::MicroBatchTokenMean);
        let totals = batch.totals(config.high_entropy_share);
        let whole = batch.run(&config);
        let parts = [batch.part(0..cut), batch.part(cut..batch.rows())];
        let [first, second] = parts.clone().map(|part| part.run_in(&config, &totals));
        close(first.loss + second.loss, whole.loss, 1e-12 * whole.loss.abs().max(1.0), "loss");
        prop_assert_eq!([first.gradient, second.gradient].concat(), whole.gradient);
        let exact = [first.exact_gradient, second.exact_gradient].concat();
        prop_assert_eq!(exact, whole.exact_gradient);
        let entropy = [first.entropy_gradient, second.entropy_gradient].concat();
        prop_assert_eq!(entropy, whole.entropy_gradient);
    }

    #[test]
    fn statistics_of_micro_batches_add_up(
        batch in batches(),
        config in configs(),
        cut in 0.0..1.0_f64,
    ) {
        let cut = (cut * batch.rows() as f64) as usize;
        let totals = batch.totals(config.high_entropy_share);
        let whole = batch.statistics(&config);
        let mut sum = grpo_core::TokenStatistics::default();
        for part in [batch.part(0..cut), batch.part(cut..batch.rows())] {
            part.add_to(&mut sum, &config, &totals);
        }
        let of = |rows| {
            let mut part = grpo_core::TokenStatistics::default();
            batch.part(rows).add_to(&mut part, &config, &totals);
            part
        };
        let mut merged = of(0..cut);
        merged.merge(&of(cut..batch.rows()));
        // The sums are added in the same order, except for means that are merged row by row.
        let merged = merged.metrics();
        prop_assert_eq!(merged.len(), whole.metrics().len());
        for ((name, merged), (same, whole)) in merged.into_iter().zip(whole.metrics()) {
            prop_assert_eq!(name, same);
            close(merged, whole, 1e-13 * whole.abs().max(1.0), name);
        }
        let (sum, whole) = (sum.metrics(), whole.metrics());
        prop_assert_eq!(sum.len(), whole.len());
        for ((name, sum), (same, whole)) in sum.into_iter().zip(whole) {
            prop_assert_eq!(name, same);
            close(sum, whole, 1e-13 * whole.abs().max(1.0), name);
        }
    }

    #[test]
    fn the_order_of_sequences_does_not_matter(batch in batches(), config in configs()) {
        let (first, rest) = (batch.part(0..1), batch.part(1..batch.rows()));
        prop_assume!(rest.rows() > 0);
        let joined = |a: &[Vec<f64>], b: &[Vec<f64>]| [a, b].concat();
        let both = |a: &Option<Vec<Vec<f64>>>, b: &Option<Vec<Vec<f64>>>| {
            Some(joined(a.as_ref()?, b.as_ref()?))
        };
        let moved = Batch {
            logprobs: joined(&rest.logprobs, &first.logprobs),
            mask: [rest.mask, first.mask].concat(),
            advantages: [rest.advantages, first.advantages].concat(),
            old: both(&rest.old, &first.old),
            reference: both(&rest.reference, &first.reference),
            sampling: both(&rest.sampling, &first.sampling),
            exact_kl: both(&rest.exact_kl, &first.exact_kl),
            entropies: joined(&rest.entropies, &first.entropies),
            entropy_coef: batch.entropy_coef,
        };
        let (batch, moved) = (batch.run(&config), moved.run(&config));
        close(moved.loss, batch.loss, 1e-12 * batch.loss.abs().max(1.0), "loss");
        let mut expected = batch.gradient;
        expected.rotate_left(1);
        prop_assert_eq!(moved.gradient, expected);
    }

    #[test]
    fn reductions_agree_where_lengths_are_equal(batch in batches(), config in configs()) {
        let mask = vec![vec![true; batch.width()]; batch.rows()];
        let batch = Batch { mask, entropy_coef: 0.0, ..batch };
        let [mean, sum, rest @ ..] =
            REDUCTIONS.map(|reduction| batch.run(&LossConfig { reduction, ..config }));
        // Dr. GRPO is equivalent if the width equals the maximum completion length.
        for same in rest {
            close(same.loss, mean.loss, 1e-12 * mean.loss.abs().max(1.0), "loss");
            all_close(&same.gradient, &mean.gradient, rounding(&mean.gradient), "gradient");
        }
        let length = batch.width() as f64;
        close(sum.loss, length * mean.loss, 1e-12 * sum.loss.abs().max(1.0), "sum");
        let longer = mean.gradient.iter().map(|row| row.iter().map(|g| length * g).collect());
        all_close(&sum.gradient, &longer.collect(), rounding(&sum.gradient), "gradient of a sum");
    }

    /// `None` for `π_old` is equivalent to passing `π_θ`.
    #[test]
    fn the_first_update_has_ratio_one(batch in batches(), config in configs()) {
        let first = Batch { old: None, ..batch.clone() };
        let given = Batch { old: Some(batch.logprobs.clone()), ..batch };
        let statistics = first.statistics(&config);
        prop_assert_eq!(&statistics, &given.statistics(&config));
        if statistics.tokens() > 0 {
            prop_assert_eq!(statistics.ratio_range(), Some([1.0, 1.0]));
        }
        for (name, value) in statistics.metrics() {
            prop_assert!(!name.contains("clip") || value == 0.0, "{name} = {value}");
        }
        let (first, given) = (first.run(&config), given.run(&config));
        prop_assert_eq!((first.loss, &first.gradient), (given.loss, &given.gradient));
    }
}

/// A mean over the tokens in a micro-batch depends on how the batch is split.
#[test]
fn a_mean_over_micro_batches_depends_on_the_split() {
    let config = Preset::Bnpo.config();
    let batch = on_policy(vec![vec![-1.0; 3]; 2], vec![1.0, 1.0]);
    let batch = Batch { mask: vec![vec![true; 3], vec![true, false, false]], ..batch };
    let totals = batch.totals(config.high_entropy_share);
    assert_eq!(
        batch.run(&config).gradient,
        [[-0.25; 3], [-0.25, 0.0, 0.0]].map(|row| row.to_vec())
    );
    let [first, second] = [0..1, 1..2].map(|rows| batch.part(rows).run_in(&config, &totals));
    // Each micro-batch is weighted by its fraction of sequences.
    close(first.gradient[0][2], -1.0 / 6.0, 1e-16, "a third of a half");
    assert_eq!(second.gradient, [[-0.5, 0.0, 0.0]]);
}
