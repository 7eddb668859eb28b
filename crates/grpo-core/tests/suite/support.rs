//! Batches in plain numbers, and the way from them through the public functions and back.

use burn::tensor::{Device, Tensor, TensorData};
use grpo_core::{
    BatchTotals, HostTokens, KlConfig, KlEstimator, LossConfig, LossInputs, Preset,
    TokenStatistics, grpo_loss, token_weights,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Rows of one width; the values are those of f32, so that f64 loops see the same numbers as tensors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) logprobs: Vec<Vec<f64>>,
    pub(crate) old: Option<Vec<Vec<f64>>>,
    pub(crate) reference: Option<Vec<Vec<f64>>>,
    pub(crate) entropies: Vec<Vec<f64>>,
    pub(crate) advantages: Vec<f64>,
    pub(crate) mask: Vec<Vec<bool>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) loss: f64,
    pub(crate) gradient: Vec<Vec<f64>>,
    pub(crate) statistics: TokenStatistics,
}

impl Batch {
    pub(crate) fn rows(&self) -> usize {
        self.mask.len()
    }

    pub(crate) fn width(&self) -> usize {
        self.mask[0].len()
    }

    /// Of this batch as a whole, where no completion could be longer than it is wide.
    pub(crate) fn totals(&self) -> BatchTotals {
        BatchTotals {
            sequences: self.rows(),
            tokens: self.mask.iter().flatten().filter(|&&active| active).count(),
            max_completion_length: self.width(),
        }
    }

    /// All places `(row, token)` that are actions, or all that are not.
    pub(crate) fn places(&self, active: bool) -> Vec<(usize, usize)> {
        let all = (0..self.rows()).flat_map(|b| (0..self.width()).map(move |t| (b, t)));
        all.filter(|&(b, t)| self.mask[b][t] == active).collect()
    }

    pub(crate) fn weights(&self, config: &LossConfig, totals: &BatchTotals) -> Vec<f32> {
        token_weights(&self.mask, config.reduction, totals)
    }

    /// Loss, gradient and statistics through the public functions.
    pub(crate) fn run(&self, config: &LossConfig, totals: &BatchTotals) -> Outcome {
        let device = Device::flex().autodiff();
        let shape = [self.rows(), self.width()];
        let tensor = |values: Vec<f32>, shape| {
            Tensor::<2>::from_data(TensorData::new(values, shape), &device)
        };
        let logprobs = tensor(flat(&self.logprobs), shape).require_grad();
        let advantages = self.advantages.iter().map(|&a| a as f32).collect();
        let loss = grpo_loss(
            LossInputs {
                logprobs: logprobs.clone(),
                old_logprobs: self.old.as_ref().map(|old| tensor(flat(old), shape)),
                ref_logprobs: self.reference.as_ref().map(|it| tensor(flat(it), shape)),
                advantages: tensor(advantages, [self.rows(), 1]),
                weights: tensor(self.weights(config, totals), shape),
            },
            config,
        );
        let gradients = loss.backward();
        let gradient =
            logprobs.grad(&gradients).expect("the loss depends on the log-probabilities");
        let gradient: Vec<f64> = gradient.into_data().iter().collect();
        Outcome {
            loss: loss.into_data().iter::<f64>().next().expect("one number"),
            gradient: gradient.chunks(self.width()).map(<[f64]>::to_vec).collect(),
            statistics: self.statistics(config),
        }
    }

    pub(crate) fn statistics(&self, config: &LossConfig) -> TokenStatistics {
        let mut statistics = TokenStatistics::default();
        self.add_to(&mut statistics, config);
        statistics
    }

    pub(crate) fn add_to(&self, statistics: &mut TokenStatistics, config: &LossConfig) {
        statistics.add(
            &HostTokens {
                logprobs: &flat(&self.logprobs),
                old_logprobs: self.old.as_deref().map(flat).as_deref(),
                ref_logprobs: self.reference.as_deref().map(flat).as_deref(),
                entropies: &flat(&self.entropies),
                mask: &self.mask,
                advantages: &self.advantages,
            },
            config,
        );
    }

    /// The rows of `range` as a micro-batch.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self {
            logprobs: self.logprobs[range.clone()].to_vec(),
            old: self.old.as_ref().map(|it| it[range.clone()].to_vec()),
            reference: self.reference.as_ref().map(|it| it[range.clone()].to_vec()),
            entropies: self.entropies[range.clone()].to_vec(),
            advantages: self.advantages[range.clone()].to_vec(),
            mask: self.mask[range].to_vec(),
        }
    }

    /// The same batch with `columns` more that are no actions, filled with `junk`.
    pub(crate) fn padded(&self, columns: usize, junk: [f64; 3]) -> Self {
        let wider = |rows: &[Vec<f64>], junk| {
            rows.iter().map(|row| [&row[..], &vec![junk; columns]].concat()).collect()
        };
        Self {
            logprobs: wider(&self.logprobs, junk[0]),
            old: self.old.as_ref().map(|it| wider(it, junk[1])),
            reference: self.reference.as_ref().map(|it| wider(it, junk[2])),
            entropies: wider(&self.entropies, junk[0]),
            advantages: self.advantages.clone(),
            mask: self.mask.iter().map(|row| [&row[..], &vec![false; columns]].concat()).collect(),
        }
    }
}

fn flat(rows: &[Vec<f64>]) -> Vec<f32> {
    rows.iter().flatten().map(|&value| value as f32).collect()
}

/// Every preset × estimator × correction that is allowed, with weight on the penalty.
pub(crate) fn penalised() -> Vec<LossConfig> {
    let mut all = Vec::new();
    for preset in [Preset::Grpo, Preset::DrGrpo, Preset::Dapo] {
        for estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3] {
            for bias_correction in [false, true] {
                let kl = KlConfig { coef: 0.3, estimator, bias_correction };
                all.extend(LossConfig { kl, ..preset.config() }.checked());
            }
        }
    }
    assert_eq!(all.len(), 15, "all but uncorrected k1");
    all
}

/// The presets as they are, without a penalty.
pub(crate) fn presets() -> [LossConfig; 3] {
    [Preset::Grpo, Preset::DrGrpo, Preset::Dapo].map(Preset::config)
}

/// Batches of 1 to 5 rows of up to 6 tokens, ragged, with ratios on both sides of both bounds.
pub(crate) fn batches() -> impl Strategy<Value = Batch> {
    let f32s = |range: std::ops::Range<f32>| range.prop_map(f64::from);
    (1..=5_usize, 1..=6_usize).prop_flat_map(move |(rows, width)| {
        let token = [f32s(-4.0..-0.05), f32s(-0.5..0.5), f32s(-1.0..1.0), f32s(0.0..3.0)];
        let row = (prop::collection::vec(token, width), f32s(-2.0..2.0), 1..=width);
        prop::collection::vec(row, rows).prop_map(move |rows| {
            let each = |value: fn(&[f64; 4]) -> f64| -> Vec<Vec<f64>> {
                let rows = rows.iter();
                rows.map(|(row, ..)| row.iter().map(|t| rounded(value(t))).collect()).collect()
            };
            Batch {
                logprobs: each(|t| t[0]),
                old: Some(each(|t| t[0] - t[1])),
                reference: Some(each(|t| t[0] + t[2])),
                entropies: each(|t| t[3]),
                advantages: rows.iter().map(|row| row.1).collect(),
                mask: rows.iter().map(|row| (0..width).map(|t| t < row.2).collect()).collect(),
            }
        })
    })
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
