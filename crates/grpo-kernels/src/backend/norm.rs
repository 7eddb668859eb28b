//! Layer norm and RMS norm. Rows are processed in parallel, and parameter gradients are summed in
//! row order.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use multiversion::multiversion;

use super::{binary, like, map_chunks, sum_in_order, ternary};
use crate::chunks::collect_chunks;
use crate::simd::{self, ROWS};
use crate::tape::Operation;

pub(crate) fn layer_norm(
    x: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f32,
) -> Tensor<2> {
    ternary(LayerNorm { epsilon }, x, [gamma, beta])
}

pub(crate) fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f32) -> Tensor<2> {
    binary(RmsNorm { epsilon }, x, gamma)
}

#[derive(Debug)]
struct LayerNorm {
    epsilon: f32,
}

impl Operation<Flex, 3> for LayerNorm {
    /// `x` and `gamma`.
    type Saved = [FlexTensor; 2];

    fn forward(
        &self,
        [x, gamma, beta]: [FlexTensor; 3],
        _: [bool; 3],
    ) -> (FlexTensor, Self::Saved) {
        let (scale, beta) = (gamma.to_contiguous(), beta.to_contiguous());
        let (scale, beta) = (scale.storage(), beta.storage());
        let y = map_chunks([x.clone()], rows_chunk(scale), |_, [x], y| {
            layer_forward(x, scale, beta, self.epsilon, y);
        });
        (y, [x, gamma])
    }

    fn backward(
        self,
        saved: Self::Saved,
        dy: FlexTensor,
        [_, of_gamma, of_beta]: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let (dx, gradients) = backward(saved, dy, of_gamma || of_beta, |x, gamma, dy, dx, sums| {
            layer_backward(x, gamma, dy, self.epsilon, dx, sums);
        });
        let [dgamma, dbeta] = gradients;
        [Some(dx), dgamma, dbeta]
    }
}

#[derive(Debug)]
struct RmsNorm {
    epsilon: f32,
}

impl Operation<Flex, 2> for RmsNorm {
    /// `x` and `gamma`.
    type Saved = [FlexTensor; 2];

    fn forward(&self, [x, gamma]: [FlexTensor; 2], _: [bool; 2]) -> (FlexTensor, Self::Saved) {
        let scale = gamma.to_contiguous();
        let scale = scale.storage();
        let y = map_chunks([x.clone()], rows_chunk(scale), |_, [x], y| {
            rms_forward(x, scale, self.epsilon, y);
        });
        (y, [x, gamma])
    }

    fn backward(
        self,
        saved: Self::Saved,
        dy: FlexTensor,
        [_, of_gamma]: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let (dx, [dgamma]) = backward(saved, dy, of_gamma, |x, gamma, dy, dx, sums| {
            rms_backward(x, gamma, dy, self.epsilon, dx, sums);
        });
        [Some(dx), dgamma]
    }
}

/// Computes the gradient of `x` and, if `wanted`, the gradients of `K` parameters.
///
/// The arguments of `write` are rows of `x`, `gamma`, the corresponding rows of `dy` and of the
/// output gradient, and the sums to which parameter gradients are added.
fn backward<const K: usize>(
    [x, gamma]: [FlexTensor; 2],
    dy: FlexTensor,
    wanted: bool,
    write: impl Fn(&[f32], &[f32], &[f32], &mut [f32], Option<[&mut [f32]; K]>) + Sync,
) -> (FlexTensor, [Option<FlexTensor>; K]) {
    let [x, gamma, dy] = [x, gamma, dy].map(|tensor| tensor.to_contiguous());
    let [rows, scale, upstream] = [&x, &gamma, &dy].map(FlexTensor::storage::<f32>);
    let (chunk, size) = (rows_chunk(scale), if wanted { scale.len() } else { 0 });
    let ([dx], partial) = collect_chunks(rows.len(), chunk, |index, [dx]| {
        let chunk = index * chunk..index * chunk + dx.len();
        let mut sums = [(); K].map(|()| vec![0.0; size]);
        let sums_wanted = wanted.then(|| sums.each_mut().map(|sum| &mut sum[..]));
        write(&rows[chunk.clone()], scale, &upstream[chunk], dx, sums_wanted);
        sums
    });
    let mut partial = partial.into_iter().map(|sums| sums.map(Some)).collect::<Vec<_>>();
    let gradients = std::array::from_fn(|parameter| {
        let sums = partial.iter_mut().filter_map(|sums| sums[parameter].take());
        wanted.then(|| like(&gamma, sum_in_order(sums, size)))
    });
    (like(&x, dx), gradients)
}

fn rows_chunk(gamma: &[f32]) -> usize {
    (gamma.len() * ROWS).max(1)
}

#[multiversion(targets = "simd")]
fn layer_forward(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32, y: &mut [f32]) {
    let features = gamma.len();
    for (x, y) in x.chunks_exact(features).zip(y.chunks_exact_mut(features)) {
        let (mean, inverse) = mean_and_inverse_deviation(x, epsilon);
        for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
            *y = (x - mean) * inverse * gamma + beta;
        }
    }
}

/// Computes `dx = inverse · (g − mean(g) − n · mean(g ∘ n))` with `n = (x − mean)·inverse` and
/// `g = dy ∘ γ`. If parameter gradients are requested, also computes `dγ += dy ∘ n` and `dβ += dy`.
#[multiversion(targets = "simd")]
fn layer_backward(
    x: &[f32],
    gamma: &[f32],
    dy: &[f32],
    epsilon: f32,
    dx: &mut [f32],
    mut parameters: Option<[&mut [f32]; 2]>,
) {
    let features = gamma.len();
    let rows = x.chunks_exact(features).zip(dy.chunks_exact(features));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(features)) {
        let (mean, inverse) = mean_and_inverse_deviation(x, epsilon);
        let scale = 1.0 / features as f32;
        let mean_g = simd::sum([dy, gamma], |[dy, gamma]| dy * gamma) * scale;
        let mean_gn = simd::sum([dy, gamma, x], |[dy, gamma, x]| dy * gamma * (x - mean));
        let mean_gn = mean_gn * inverse * scale;
        for (((dx, &x), &dy), &gamma) in dx.iter_mut().zip(x).zip(dy).zip(gamma) {
            let normal = (x - mean) * inverse;
            *dx = inverse * (dy * gamma - mean_g - normal * mean_gn);
        }
        if let Some([dgamma, dbeta]) = &mut parameters {
            let sums = dgamma.iter_mut().zip(dbeta.iter_mut());
            for ((dgamma, dbeta), (&x, &dy)) in sums.zip(x.iter().zip(dy)) {
                *dgamma += dy * ((x - mean) * inverse);
                *dbeta += dy;
            }
        }
    }
}

#[inline(always)]
fn mean_and_inverse_deviation(x: &[f32], epsilon: f32) -> (f32, f32) {
    let scale = 1.0 / x.len() as f32;
    let mean = simd::sum([x], |[x]| x) * scale;
    // Uses two passes, because E[x²] − E[x]² suffers from cancellation if the mean is large.
    let variance = simd::sum([x], |[x]| (x - mean) * (x - mean)) * scale;
    (mean, 1.0 / (variance + epsilon).sqrt())
}

#[multiversion(targets = "simd")]
fn rms_forward(x: &[f32], gamma: &[f32], epsilon: f32, y: &mut [f32]) {
    let features = gamma.len();
    for (x, y) in x.chunks_exact(features).zip(y.chunks_exact_mut(features)) {
        let inverse = inverse_root_mean_square(x, epsilon);
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = x * inverse * gamma;
        }
    }
}

/// Computes `dx = inverse · (g − n · mean(g ∘ n))` with `n = x·inverse` and `g = dy ∘ γ`. If the
/// parameter gradient is requested, also computes `dγ += dy ∘ n`.
#[multiversion(targets = "simd")]
fn rms_backward(
    x: &[f32],
    gamma: &[f32],
    dy: &[f32],
    epsilon: f32,
    dx: &mut [f32],
    mut parameters: Option<[&mut [f32]; 1]>,
) {
    let features = gamma.len();
    let rows = x.chunks_exact(features).zip(dy.chunks_exact(features));
    for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(features)) {
        let inverse = inverse_root_mean_square(x, epsilon);
        let mean_gn =
            simd::sum([dy, gamma, x], |[dy, gamma, x]| dy * gamma * x) * inverse / features as f32;
        for (((dx, &x), &dy), &gamma) in dx.iter_mut().zip(x).zip(dy).zip(gamma) {
            *dx = inverse * (dy * gamma - x * inverse * mean_gn);
        }
        if let Some([dgamma]) = &mut parameters {
            for ((dgamma, &x), &dy) in dgamma.iter_mut().zip(x).zip(dy) {
                *dgamma += dy * (x * inverse);
            }
        }
    }
}

#[inline(always)]
fn inverse_root_mean_square(x: &[f32], epsilon: f32) -> f32 {
    let mean_square = simd::sum([x], |[x]| x * x) / x.len() as f32;
    1.0 / (mean_square + epsilon).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn tensor<const D: usize>(shape: [usize; D]) -> FlexTensor {
        let n: usize = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| (i * 7919 % 100) as f32 * 0.03 - 1.4).collect();
        FlexTensor::from_data(TensorData::new(values, shape))
    }

    /// Skipping the gradients of frozen weights doesn't affect the gradient of `x`.
    #[test]
    fn gradients_of_parameters_are_computed_where_they_are_wanted() {
        let saved = || [tensor([300, 7]), tensor([7])];
        let rms =
            |wanted| RmsNorm { epsilon: 1e-5 }.backward(saved(), tensor([300, 7]), [true, wanted]);
        let layer = |wanted| {
            LayerNorm { epsilon: 1e-5 }.backward(saved(), tensor([300, 7]), [true, wanted, false])
        };
        assert!(rms(true)[1].is_some() && rms(false)[1].is_none());
        assert!(layer(true)[1..].iter().all(Option::is_some));
        assert!(layer(false)[1..].iter().all(Option::is_none));
        let same = |[a, b]: [&Option<FlexTensor>; 2]| {
            let [a, b] = [a, b].map(|dx| dx.as_ref().expect("always").storage::<f32>());
            assert_eq!(a, b);
        };
        same([&rms(true)[0], &rms(false)[0]]);
        same([&layer(true)[0], &layer(false)[0]]);
    }
}
