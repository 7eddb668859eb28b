//! Weight-decomposed adapters (Liu et al. 2024, "DoRA", arXiv 2402.09353).
//!
//! An adapted weight is `m · (W + s · A · B) / ‖W + s · A · B‖`, where the norm is that of each column
//! of `[in, out]`. As in section 4.3 of the paper and in PEFT, the norm is a constant for gradients.

use burn::tensor::{Tensor, TensorData};
use grpo_kernels::{is_cpu, on_host};
use rayon::prelude::*;

use crate::lora::{LoraPair, off_tape};
use crate::precision::{dense, on_tape_of};

impl LoraPair {
    /// Returns the factor `m / ‖W + s · A · B‖` of each output, `[out]`. Returns `None` without DoRA.
    pub(crate) fn gain(&self, weight: Tensor<2>) -> Option<Tensor<1>> {
        let magnitude = self.magnitude.as_ref()?.val();
        if let Some(gain) = &self.known_gain {
            return Some(gain.clone());
        }
        let norms = on_tape_of(&magnitude, self.norms(weight));
        Some(magnitude / norms)
    }

    /// Returns the norm of each column of the weight with the update, `[out]`, without autodiff.
    pub(crate) fn norms(&self, weight: Tensor<2>) -> Tensor<1> {
        column_norms(off_tape(dense(weight)) + self.product())
    }
}

/// Returns what the output `y` of a layer becomes with DoRA. `product` is `x · W` without the bias, and
/// `added` the output of [`LoraPair::forward`].
pub(crate) fn scaled_output(
    y: Tensor<2>,
    product: Tensor<2>,
    added: Tensor<2>,
    gain: Tensor<1>,
) -> Tensor<2> {
    let gain = on_tape_of(&y, gain).unsqueeze::<2>();
    y + product * (gain.clone() - 1.0) + added * gain
}

/// Columns whose norms a thread computes at a time.
const CHUNK: usize = 64;

/// Returns the Euclidean norm of each column, which is never 0, because it divides. On the CPU, sums are
/// in f64.
fn column_norms(matrix: Tensor<2>) -> Tensor<1> {
    let device = matrix.device();
    if !is_cpu(&device) {
        let norms = (matrix.clone() * matrix).sum_dim(0).sqrt();
        return norms.clamp_min(f32::MIN_POSITIVE).squeeze_dim(0);
    }
    let [_, columns] = matrix.dims();
    let norms: Vec<f32> = on_host(matrix, |numbers| {
        let of_chunk = |first: usize| {
            let last = columns.min(first + CHUNK);
            let mut sums = vec![0.0_f64; last - first];
            for row in numbers.chunks_exact(columns) {
                for (sum, number) in sums.iter_mut().zip(&row[first..last]) {
                    *sum += f64::from(*number) * f64::from(*number);
                }
            }
            sums.into_iter()
                .map(|sum| (sum.sqrt() as f32).max(f32::MIN_POSITIVE))
                .collect::<Vec<_>>()
        };
        let firsts: Vec<usize> = (0..columns).step_by(CHUNK).collect();
        firsts.into_par_iter().flat_map_iter(of_chunk).collect()
    });
    Tensor::from_data(TensorData::new(norms, [columns]), &device)
}
