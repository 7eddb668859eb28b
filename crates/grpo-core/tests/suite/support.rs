//! Batches in plain numbers, and the way from them through the public functions and back.

use burn::tensor::{DType, Device, Tensor, TensorData};
use grpo_core::{BatchTotals, HostTokens, LossConfig, LossInputs, TokenStatistics, grpo_loss};
pub(crate) use grpo_selftest::oracle::{LossCase as Batch, Rows};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// All of them actions of a first update.
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

/// One sequence of tokens with these `log π_θ − log π_old`.
pub(crate) fn of_log_ratios(log_ratios: &[f64], advantage: f64) -> Batch {
    let old = Some(vec![vec![-1.0; log_ratios.len()]]);
    let logprobs = vec![log_ratios.iter().map(|d| d - 1.0).collect()];
    Batch { old, ..on_policy(logprobs, vec![advantage]) }
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) loss: f64,
    /// By `logprobs`, by `exact_kl` and by `entropies`; 0 where the loss does not depend on them.
    pub(crate) gradient: Rows,
    pub(crate) exact_gradient: Rows,
    pub(crate) entropy_gradient: Rows,
}

/// What can be done with a batch.
pub(crate) trait Run {
    /// All places `(row, token)` that are actions, or all that are not.
    fn places(&self, active: bool) -> Vec<(usize, usize)>;

    /// As one optimizer batch, in f64.
    fn run(&self, config: &LossConfig) -> Outcome;

    /// As a part of an optimizer batch, in f64.
    fn run_in(&self, config: &LossConfig, totals: &BatchTotals) -> Outcome;

    /// Loss and gradients through the public function.
    fn run_as(&self, dtype: DType, config: &LossConfig, totals: &BatchTotals) -> Outcome;

    fn statistics(&self, config: &LossConfig) -> TokenStatistics;

    fn add_to(&self, sums: &mut TokenStatistics, config: &LossConfig, totals: &BatchTotals);

    /// What `of` makes of its tokens on the host.
    fn with_host_tokens<T>(&self, of: impl FnOnce(&HostTokens<'_>) -> T) -> T;

    /// The rows of `range` as a micro-batch.
    fn part(&self, range: std::ops::Range<usize>) -> Self;

    /// The same batch with `columns` more that are no actions, and `junk` wherever none is.
    fn padded(&self, columns: usize, junk: &mut impl FnMut() -> f64) -> Self;
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
        let device = Device::flex().autodiff();
        let shape = [self.rows(), self.width()];
        let given = |rows: &Rows| tensor(&rows.concat(), shape, dtype, &device);
        let logprobs = given(&self.logprobs).require_grad();
        let exact_kl = self.exact_kl.as_ref().map(|it| given(it).require_grad());
        let entropies = given(&self.entropies).require_grad();
        let mask: Vec<f64> =
            self.mask.iter().flatten().map(|&active| f64::from(u8::from(active))).collect();
        let inputs = LossInputs {
            logprobs: logprobs.clone(),
            mask: tensor(&mask, shape, dtype, &device),
            advantages: tensor(&self.advantages, [self.rows(), 1], dtype, &device),
            old_logprobs: self.old.as_ref().map(given),
            ref_logprobs: self.reference.as_ref().map(given),
            sampling_logprobs: self.sampling.as_ref().map(given),
            exact_kl: exact_kl.clone(),
            entropies: Some(entropies.clone()),
            entropy_coef: self.entropy_coef,
        };
        let loss = grpo_loss(inputs, config, totals);
        let gradients = loss.backward();
        let by = |leaf: Option<Tensor<2>>| -> Rows {
            let gradient = leaf.and_then(|leaf| leaf.grad(&gradients));
            let flat = gradient.map_or_else(
                || vec![0.0; self.rows() * self.width()],
                |gradient| gradient.into_data().iter().collect::<Vec<f64>>(),
            );
            flat.chunks(self.width()).map(<[f64]>::to_vec).collect()
        };
        Outcome {
            gradient: by(Some(logprobs)),
            exact_gradient: by(exact_kl),
            entropy_gradient: by(Some(entropies)),
            loss: loss.into_data().iter::<f64>().next().expect("one number"),
        }
    }

    fn statistics(&self, config: &LossConfig) -> TokenStatistics {
        let mut statistics = TokenStatistics::default();
        self.add_to(&mut statistics, config, &self.totals(config.high_entropy_share));
        statistics
    }

    fn add_to(&self, sums: &mut TokenStatistics, config: &LossConfig, totals: &BatchTotals) {
        self.with_host_tokens(|tokens| sums.add(tokens, config, totals));
    }

    fn with_host_tokens<T>(&self, of: impl FnOnce(&HostTokens<'_>) -> T) -> T {
        let flat = |rows: &Option<Rows>| rows.as_ref().map(|rows| rows.concat());
        let (old, reference) = (flat(&self.old), flat(&self.reference));
        let (sampling, exact_kl) = (flat(&self.sampling), flat(&self.exact_kl));
        of(&HostTokens {
            logprobs: &self.logprobs.concat(),
            old_logprobs: old.as_deref(),
            ref_logprobs: reference.as_deref(),
            sampling_logprobs: sampling.as_deref(),
            exact_kl: exact_kl.as_deref(),
            entropies: &self.entropies.concat(),
            mask: &self.mask,
            advantages: &self.advantages,
        })
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

    fn padded(&self, columns: usize, junk: &mut impl FnMut() -> f64) -> Self {
        let mut wider = |rows: &Rows| -> Rows {
            let rows = rows.iter().zip(&self.mask);
            rows.map(|(row, mask)| {
                let mut token = |t: usize| if mask[t] { row[t] } else { junk() };
                let own: Vec<f64> = (0..row.len()).map(&mut token).collect();
                own.into_iter().chain((0..columns).map(|_| junk())).collect()
            })
            .collect()
        };
        Self {
            logprobs: wider(&self.logprobs),
            mask: self.mask.iter().map(|row| [&row[..], &vec![false; columns]].concat()).collect(),
            advantages: self.advantages.clone(),
            old: self.old.as_ref().map(&mut wider),
            reference: self.reference.as_ref().map(&mut wider),
            sampling: self.sampling.as_ref().map(&mut wider),
            exact_kl: self.exact_kl.as_ref().map(&mut wider),
            entropies: wider(&self.entropies),
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

/// To the nearest f32.
pub(crate) fn rounded(value: f64) -> f64 {
    f64::from(value as f32)
}

/// The same cases in every run: a failure is a failure of the code, and not of the day.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(20_260_101),
        ..ProptestConfig::default()
    }
}

/// Uniform numbers in [0, 1) (Steele et al. 2014, SplitMix64).
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

/// Largest absolute value; 0 of nothing.
pub(crate) fn largest<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    values.into_iter().fold(0.0, |most, value| most.max(value.abs()))
}

/// Fails where `got` and `expected` differ by more than `tolerance`, or either is NaN and the other is not.
#[track_caller]
pub(crate) fn close(got: f64, expected: f64, tolerance: f64, what: &str) {
    let same = got.is_nan() && expected.is_nan() || (got - expected).abs() <= tolerance;
    assert!(same, "{what}: got {got}, expected {expected}, tolerance {tolerance:e}");
}

/// [`close`] of each number.
#[track_caller]
pub(crate) fn all_close(got: &Rows, expected: &Rows, tolerance: f64, what: &str) {
    let lengths = |rows: &Rows| -> Vec<usize> { rows.iter().map(Vec::len).collect() };
    assert_eq!(lengths(got), lengths(expected), "{what}");
    for (got, expected) in got.iter().flatten().zip(expected.iter().flatten()) {
        close(*got, *expected, tolerance, what);
    }
}
