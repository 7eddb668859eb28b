//! Evaluates cases with the public tensor functions in grpo-core.

use std::fmt;

use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use grpo_core::{BatchTotals, LossConfig, LossInputs, LossTerms, TokenStatistics, grpo_loss};

use grpo_oracle::{Gradient, LossCase, Rows};

/// Floating-point precision of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Double precision (53 bits).
    F64,
    /// Single precision (24 bits), as used for training.
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

/// Results computed by grpo-core.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Loss computed by [`grpo_loss`].
    pub loss: f64,
    /// Gradient computed by Burn. It is 0 for inputs that the loss does not depend on.
    pub gradient: Gradient,
    /// Loss terms.
    pub terms: LossTerms,
}

impl Outcome {
    /// Returns [`TokenStatistics`] for this case only.
    pub fn statistics(&self) -> TokenStatistics {
        let mut statistics = TokenStatistics::default();
        statistics.add(&self.terms);
        statistics
    }
}

/// Rounds all numbers in `case` to `precision`.
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

/// Computes the loss, gradient and statistics for a case on `device` in the given precision.
///
/// # Panics
/// Panics if `device` does not support the precision or if a required input is missing.
pub fn evaluate(
    case: &LossCase,
    config: &LossConfig,
    totals: &BatchTotals,
    device: &Device,
    precision: Precision,
) -> Outcome {
    let device = device.clone().autodiff();
    let leaf = |rows: &Rows| -> Tensor<1> {
        let values = packed(case, rows);
        let data = TensorData::new(values.clone(), [values.len()]);
        Tensor::from_data(data, (&device, precision.dtype())).require_grad()
    };
    let constant = |rows: &Option<Rows>| rows.as_ref().map(|rows| packed(case, rows));
    let logprobs = leaf(&case.logprobs);
    let entropies = leaf(&case.entropies);
    let exact_kl = case.exact_kl.as_ref().map(leaf);
    let rows: Vec<usize> =
        (0..case.rows()).flat_map(|b| case.active(b).into_iter().map(move |_| b)).collect();
    let [old, reference, sampling] = [&case.old, &case.reference, &case.sampling].map(constant);
    let inputs = LossInputs {
        logprobs: logprobs.clone(),
        rows: &rows,
        advantages: &case.advantages,
        old_logprobs: old.as_deref(),
        ref_logprobs: reference.as_deref(),
        sampling_logprobs: sampling.as_deref(),
        exact_kl: exact_kl.clone(),
        entropies: Some(entropies.clone()),
        entropy_coef: case.entropy_coef,
    };
    let output = grpo_loss(&inputs, config, totals);
    let gradients = output.loss.backward();
    let of = |input: &Tensor<1>| unpacked(case, input, &gradients);
    Outcome {
        loss: host(output.loss)[0],
        gradient: Gradient {
            logprobs: of(&logprobs),
            entropies: of(&entropies),
            exact_kl: exact_kl.as_ref().map(of),
        },
        terms: output.terms,
    }
}

/// Returns the values for action tokens, ordered by sequence.
fn packed(case: &LossCase, rows: &Rows) -> Vec<f64> {
    let row = |b: usize| case.active(b).into_iter().map(move |t| rows[b][t]);
    (0..case.rows()).flat_map(row).collect()
}

/// Returns gradients by row and token, with 0 for padding.
fn unpacked(case: &LossCase, input: &Tensor<1>, gradients: &Gradients) -> Rows {
    let mut rows = vec![vec![0.0; case.width()]; case.rows()];
    let Some(gradient) = input.grad(gradients) else { return rows };
    let mut values = host(gradient).into_iter();
    for (b, row) in rows.iter_mut().enumerate() {
        case.active(b).into_iter().zip(&mut values).for_each(|(t, value)| row[t] = value);
    }
    rows
}

/// Returns the values of a tensor in row-major order.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
