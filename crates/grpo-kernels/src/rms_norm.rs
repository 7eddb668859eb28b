//! Root mean square layer normalisation (Zhang & Sennrich 2019, equation 4).

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `y = x / √(mean(x²) + ε) · γ`, the mean of each row.
///
/// # Shapes
/// - x: `[rows, features]`; gamma: `[features]`
/// - output: `[rows, features]`
///
/// # Panics
/// Where `gamma` has another length than a row.
pub fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f64) -> Tensor<2> {
    let [_, features] = x.dims();
    assert_eq!([features], gamma.dims(), "gamma against the features of x");
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::rms_norm(x, gamma, epsilon as f32);
    }
    crate::plain::rms_norm(x, gamma, epsilon)
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], gamma: &[f32], epsilon: f32, y: &mut [f32]) {
    let features = gamma.len();
    for (x, y) in x.chunks_exact(features).zip(y.chunks_exact_mut(features)) {
        let inverse = inverse_root_mean_square(x, epsilon);
        for ((y, &x), &gamma) in y.iter_mut().zip(x).zip(gamma) {
            *y = x * inverse * gamma;
        }
    }
}

/// With `n = x·inverse` and `g = dy ∘ γ`: `dx = inverse · (g − n · mean(g ∘ n))`, and where it is wanted
/// `dγ += dy ∘ n`.
#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(
    x: &[f32],
    gamma: &[f32],
    dy: &[f32],
    epsilon: f32,
    dx: &mut [f32],
    mut dgamma: Option<&mut [f32]>,
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
        if let Some(dgamma) = &mut dgamma {
            for ((dgamma, &x), &dy) in dgamma.iter_mut().zip(x).zip(dy) {
                *dgamma += dy * (x * inverse);
            }
        }
    }
}

#[cfg(feature = "flex")]
#[inline(always)]
fn inverse_root_mean_square(x: &[f32], epsilon: f32) -> f32 {
    let mean_square = simd::sum([x], |[x]| x * x) / x.len() as f32;
    1.0 / (mean_square + epsilon).sqrt()
}
