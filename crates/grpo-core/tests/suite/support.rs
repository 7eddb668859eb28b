//! Batches of plain numbers, and functions that evaluate them with the public API.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_core::{
    BatchTotals, KlConfig, LossConfig, LossInputs, LossTerms, TokenStatistics, grpo_loss,
};
pub(crate) use grpo_oracle::{LossCase as Batch, Rows};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Creates a batch for a first update in which all tokens are actions.
pub(crate) fn on_policy(logprobs: Rows, advantages: Vec<f64>) -> Batch {
    let like = |value| logprobs.iter().map(|row| vec![value; row.len()]).collect();
    Batch {
        mask: logprobs.iter().map(|row| vec![true; row.len()]).collect(),
        advantages,
        old: None,
        reference: None,
        sampling: None,
        exact_kl: None,
        entropies: like(0.0),
        entropy_coef: 0.0,
        logprobs,
    }
}

/// Creates a sequence of tokens with these values of `log π_θ − log π_old`.
pub(crate) fn of_log_ratios(log_ratios: &[f64], advantage: f64) -> Batch {
    let old = Some(vec![vec![-1.0; log_ratios.len()]]);
    let logprobs = vec![log_ratios.iter().map(|d| d - 1.0).collect()];
    Batch { old, ..on_policy(logprobs, vec![advantage]) }
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) loss: f64,
    /// Gradients with respect to `logprobs`, `exact_kl` and `entropies`. 0 if the loss does not
    /// depend on an input.
    pub(crate) gradient: Rows,
    pub(crate) exact_gradient: Rows,
    pub(crate) entropy_gradient: Rows,
}

/// Operations on a batch.
pub(crate) trait Run {
    /// Returns all positions `(row, token)` that are actions, or all that are not.
    fn places(&self, active: bool) -> Vec<(usize, usize)>;

    /// Evaluates the batch as an optimizer batch in f64.
    fn run(&self, config: &LossConfig) -> Outcome;

    /// Evaluates the batch as part of an optimizer batch in f64.
    fn run_in(&self, config: &LossConfig, totals: &BatchTotals) -> Outcome;

    /// Computes the loss and gradients with the public function.
    fn run_as(&self, dtype: DType, config: &LossConfig, totals: &BatchTotals) -> Outcome;

    fn statistics(&self, config: &LossConfig) -> TokenStatistics;

    fn add_to(&self, sums: &mut TokenStatistics, config: &LossConfig, totals: &BatchTotals);

    /// Computes terms and gradients for the packed action tokens, in f64 or f32.
    fn evaluate(
        &self,
        dtype: DType,
        config: &LossConfig,
        totals: &BatchTotals,
    ) -> (LossTerms, Outcome);

    /// Returns the values for action tokens, row by row.
    fn packed(&self, rows: &Rows) -> Vec<f64>;

    /// Inverse of [`Self::packed`]. All other positions are 0.
    fn unpacked(&self, values: &[f64]) -> Rows;

    /// Returns the row index of each action token.
    fn row_index(&self) -> Vec<usize>;

    /// Returns the rows in `range` as a micro-batch.
    fn part(&self, range: std::ops::Range<usize>) -> Self;
}

impl Run for Batch {
    fn places(&self, active: bool) -> Vec<(usize, usize)> {
        let all = (0..self.rows()).flat_map(|b| (0..self.width()).map(move |t| (b, t)));
        all.filter(|&(b, t)| self.mask[b][t] == active).collect()
    }

    fn run(&self, config: &LossConfig) -> Outcome {
        self.run_as(DType::F64, config, &self.totals(config.high_entropy_share))
    }

    fn run_in(&self, config: &LossConfig, totals: &BatchTotals) -> Outcome {
        self.run_as(DType::F64, config, totals)
    }

    fn run_as(&self, dtype: DType, config: &LossConfig, totals: &BatchTotals) -> Outcome {
        self.evaluate(dtype, config, totals).1
    }

    fn evaluate(
        &self,
        dtype: DType,
        config: &LossConfig,
        totals: &BatchTotals,
    ) -> (LossTerms, Outcome) {
        let device = Device::flex().autodiff();
        let leaf = |rows: &Rows| vector(&self.packed(rows), dtype, &device).require_grad();
        let given = |rows: &Option<Rows>| -> Option<Vec<f64>> {
            let values = vector(&self.packed(rows.as_ref()?), dtype, &device);
            Some(values.into_data().iter().collect())
        };
        let (logprobs, entropies) = (leaf(&self.logprobs), leaf(&self.entropies));
        let exact_kl = self.exact_kl.as_ref().map(leaf);
        let [old, reference, sampling] = [&self.old, &self.reference, &self.sampling].map(given);
        let inputs = LossInputs {
            logprobs: logprobs.clone(),
            rows: &self.row_index(),
            advantages: &self.advantages,
            old_logprobs: old.as_deref(),
            ref_logprobs: reference.as_deref(),
            sampling_logprobs: sampling.as_deref(),
            exact_kl: exact_kl.clone(),
            entropies: Some(entropies.clone()),
            entropy_coef: self.entropy_coef,
        };
        let output = grpo_loss(&inputs, config, totals);
        let gradients = output.loss.backward();
        let by = |leaf: Option<Tensor<1>>| -> Rows {
            let gradient = leaf.and_then(|leaf| leaf.grad(&gradients));
            let values = gradient.map(|gradient| gradient.into_data().iter().collect());
            self.unpacked(&values.unwrap_or(vec![0.0; self.tokens()]))
        };
        let outcome = Outcome {
            gradient: by(Some(logprobs)),
            exact_gradient: by(exact_kl),
            entropy_gradient: by(Some(entropies)),
            loss: output.loss.into_data().iter::<f64>().next().expect("one number"),
        };
        (output.terms, outcome)
    }

    fn statistics(&self, config: &LossConfig) -> TokenStatistics {
        let mut statistics = TokenStatistics::default();
        self.add_to(&mut statistics, config, &self.totals(config.high_entropy_share));
        statistics
    }

    fn add_to(&self, sums: &mut TokenStatistics, config: &LossConfig, totals: &BatchTotals) {
        // Metrics don't depend on the weight of the penalty, which would require a reference.
        let kl = KlConfig { coef: 0.0, ..config.kl };
        let config = LossConfig { kl, ..*config };
        sums.add(&self.evaluate(DType::F64, &config, totals).0);
    }

    fn packed(&self, rows: &Rows) -> Vec<f64> {
        self.places(true).into_iter().map(|(b, t)| rows[b][t]).collect()
    }

    fn unpacked(&self, values: &[f64]) -> Rows {
        let mut rows = vec![vec![0.0; self.width()]; self.rows()];
        let places = self.places(true);
        assert_eq!(places.len(), values.len(), "one number a token");
        places.into_iter().zip(values).for_each(|((b, t), &value)| rows[b][t] = value);
        rows
    }

    fn row_index(&self) -> Vec<usize> {
        self.places(true).into_iter().map(|(b, _)| b).collect()
    }

    fn part(&self, range: std::ops::Range<usize>) -> Self {
        let of = |rows: &Rows| rows[range.clone()].to_vec();
        Self {
            logprobs: of(&self.logprobs),
            mask: self.mask[range.clone()].to_vec(),
            advantages: self.advantages[range.clone()].to_vec(),
            old: self.old.as_ref().map(of),
            reference: self.reference.as_ref().map(of),
            sampling: self.sampling.as_ref().map(of),
            exact_kl: self.exact_kl.as_ref().map(of),
            entropies: of(&self.entropies),
            entropy_coef: self.entropy_coef,
        }
    }
}

pub(crate) fn tensor(
    values: &[f64],
    shape: [usize; 2],
    dtype: DType,
    device: &Device,
) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), (device, dtype))
}

pub(crate) fn vector(values: &[f64], dtype: DType, device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, dtype))
}

/// Rounds to the nearest f32.
pub(crate) fn rounded(value: f64) -> f64 {
    f64::from(value as f32)
}

/// Disables randomness, so that all runs test the same cases.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_260_101),
        ..ProptestConfig::default()
    }
}

/// Generates uniform random numbers in [0, 1) (Steele et al. 2014, SplitMix64).
pub(crate) struct Uniform(pub(crate) u64);

impl Uniform {
    pub(crate) fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the largest absolute value, or 0 if there are no values.
pub(crate) fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// Fails if `got` and `expected` differ by more than `tolerance` or if exactly one of them is NaN.
#[track_caller]
pub(crate) fn close(got: f64, expected: f64, tolerance: f64, what: &str) {
    let same = got.is_nan() && expected.is_nan() || (got - expected).abs() <= tolerance;
    assert!(same, "{what}: got {got}, expected {expected}, tolerance {tolerance:e}");
}

/// Applies [`close`] to each pair of numbers.
#[track_caller]
pub(crate) fn all_close(got: &Rows, expected: &Rows, tolerance: f64, what: &str) {
    let lengths = |rows: &Rows| -> Vec<usize> { rows.iter().map(Vec::len).collect() };
    assert_eq!(lengths(got), lengths(expected), "{what}");
    for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
        close(*got, *expected, tolerance, what);
    }
}
