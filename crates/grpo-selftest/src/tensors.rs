//! From plain numbers through grpo-core's public tensor functions, and back.

use std::fmt;

use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use grpo_core::{BatchTotals, HostTokens, LossConfig, LossInputs, TokenStatistics, grpo_loss};

use crate::oracle::{Gradient, LossCase, Rows};

/// The floating-point numbers of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// 53 bits.
    F64,
    /// 24 bits, as training has them.
    F32,
}

impl Precision {
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F64 => DType::F64,
            Self::F32 => DType::F32,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
        })
    }
}

/// What grpo-core makes of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// [`grpo_loss`].
    pub loss: f64,
    /// Its gradient from Burn's tape; 0 where the loss does not depend on an input.
    pub gradient: Gradient,
    /// [`TokenStatistics`] of the case alone.
    pub statistics: TokenStatistics,
}

/// The numbers of `case` as `precision` has them.
pub fn rounded(case: &LossCase, precision: Precision) -> LossCase {
    let number = |value: f64| match precision {
        Precision::F64 => value,
        Precision::F32 => f64::from(value as f32),
    };
    let row = |row: &Vec<f64>| row.iter().copied().map(number).collect();
    let rows = |rows: &Rows| rows.iter().map(row).collect();
    LossCase {
        logprobs: rows(&case.logprobs),
        old: case.old.as_ref().map(rows),
        reference: case.reference.as_ref().map(rows),
        sampling: case.sampling.as_ref().map(rows),
        exact_kl: case.exact_kl.as_ref().map(rows),
        entropies: rows(&case.entropies),
        advantages: row(&case.advantages),
        mask: case.mask.clone(),
        entropy_coef: case.entropy_coef,
    }
}

/// Loss, gradient and statistics of a case on `device`, in tensors of `precision`. Padded places hold NaN,
/// which must not be seen in anything.
///
/// # Panics
/// Where `device` has no tensors of that precision, or a quantity that the configuration needs is missing.
pub fn evaluate(
    case: &LossCase,
    config: &LossConfig,
    totals: &BatchTotals,
    device: &Device,
    precision: Precision,
) -> Outcome {
    let device = device.clone().autodiff();
    let shape = [case.rows(), case.width()];
    let tensor = |values: Vec<f64>, shape: [usize; 2]| {
        Tensor::<2>::from_data(TensorData::new(values, shape), (&device, precision.dtype()))
    };
    let padded = |rows: &Rows| tensor(flat(rows, &case.mask), shape);
    let constant = |rows: &Option<Rows>| rows.as_ref().map(padded);

    let logprobs = padded(&case.logprobs).require_grad();
    let entropies = padded(&case.entropies).require_grad();
    let exact_kl = constant(&case.exact_kl).map(Tensor::require_grad);
    let mask = case.mask.iter().flatten().map(|&active| f64::from(u8::from(active)));
    let loss = grpo_loss(
        LossInputs {
            logprobs: logprobs.clone(),
            mask: tensor(mask.collect(), shape),
            advantages: tensor(case.advantages.clone(), [case.rows(), 1]),
            old_logprobs: constant(&case.old),
            ref_logprobs: constant(&case.reference),
            sampling_logprobs: constant(&case.sampling),
            exact_kl: exact_kl.clone(),
            entropies: Some(entropies.clone()),
            entropy_coef: case.entropy_coef,
        },
        config,
        totals,
    );
    let gradients = loss.backward();
    let of = |input: &Tensor<2>| rows_of(input, &gradients, shape);
    Outcome {
        loss: loss.into_data().iter::<f64>().next().expect("a loss is one number"),
        gradient: Gradient {
            logprobs: of(&logprobs),
            entropies: of(&entropies),
            exact_kl: exact_kl.as_ref().map(of),
        },
        statistics: statistics(case, config, totals),
    }
}

/// [`TokenStatistics`] of a case alone.
pub fn statistics(case: &LossCase, config: &LossConfig, totals: &BatchTotals) -> TokenStatistics {
    let padded = |rows: &Rows| flat(rows, &case.mask);
    let mut statistics = TokenStatistics::default();
    statistics.add(
        &HostTokens {
            logprobs: &padded(&case.logprobs),
            old_logprobs: case.old.as_ref().map(padded).as_deref(),
            ref_logprobs: case.reference.as_ref().map(padded).as_deref(),
            sampling_logprobs: case.sampling.as_ref().map(padded).as_deref(),
            exact_kl: case.exact_kl.as_ref().map(padded).as_deref(),
            entropies: &padded(&case.entropies),
            mask: &case.mask,
            advantages: &case.advantages,
        },
        config,
        totals,
    );
    statistics
}

/// Row by row, with NaN in padded places.
fn flat(rows: &Rows, mask: &[Vec<bool>]) -> Vec<f64> {
    let places = rows.iter().flatten().zip(mask.iter().flatten());
    places.map(|(&value, &active)| if active { value } else { f64::NAN }).collect()
}

fn rows_of(input: &Tensor<2>, gradients: &Gradients, [rows, width]: [usize; 2]) -> Rows {
    let Some(gradient) = input.grad(gradients) else { return vec![vec![0.0; width]; rows] };
    let values: Vec<f64> = gradient.into_data().iter().collect();
    values.chunks(width).map(<[f64]>::to_vec).collect()
}
