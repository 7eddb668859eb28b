//! Layer normalisation (Ba, Kiros & Hinton 2016).

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `y = (x − mean) / √(variance + ε) · γ + β`, mean and (population) variance of each row.
///
/// # Shapes
/// - x: `[rows, features]`; gamma, beta: `[features]`
/// - output: `[rows, features]`
///
/// # Panics
/// Where `gamma` or `beta` has another length than a row.
pub fn layer_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let [_, features] = x.dims();
    assert_eq!([features], gamma.dims(), "gamma against the features of x");
    assert_eq!([features], beta.dims(), "beta against the features of x");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::layer_norm(x, gamma, beta, epsilon as f32);
    }
    crate::plain::layer_norm(x, gamma, beta, epsilon)
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], gamma: &[f32], beta: &[f32], epsilon: f32, y: &mut [f32]) {
    let features = gamma.len();
    for (x, y) in x.chunks_exact(features).zip(y.chunks_exact_mut(features)) {
        let (mean, inverse) = mean_and_inverse_deviation(x, epsilon);
        for (((y, &x), &gamma), &beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
            *y = (x - mean) * inverse * gamma + beta;
        }
    }
}

/// With `n = (x − mean)·inverse` and `g = dy ∘ γ`:
/// `dx = inverse · (g − mean(g) − n · mean(g ∘ n))`, and where they are wanted `dγ += dy ∘ n`, `dβ += dy`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(
    x: &[f32],
    gamma: &[f32],
    dy: &[f32],
    epsilon: f32,
    dx: &mut [f32],
    mut parameters: Option<(&mut [f32], &mut [f32])>,
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
        if let Some((dgamma, dbeta)) = &mut parameters {
            let sums = dgamma.iter_mut().zip(dbeta.iter_mut());
            for ((dgamma, dbeta), (&x, &dy)) in sums.zip(x.iter().zip(dy)) {
                *dgamma += dy * ((x - mean) * inverse);
                *dbeta += dy;
            }
        }
    }
}

#[cfg(feature = "flex")]
#[inline(always)]
fn mean_and_inverse_deviation(x: &[f32], epsilon: f32) -> (f32, f32) {
    let scale = 1.0 / x.len() as f32;
    let mean = simd::sum([x], |[x]| x) * scale;
    // Two passes: E[x²] − E[x]² cancels where the mean is large.
    let variance = simd::sum([x], |[x]| (x - mean) * (x - mean)) * scale;
    (mean, 1.0 / (variance + epsilon).sqrt())
}
