//! Row normalisation.

use burn::tensor::Tensor;

use crate::{add, plain};

/// Layer normalisation (Ba, Kiros & Hinton 2016).
///
/// `y = (x − mean) / √(variance + ε) · γ + β`, using the mean and population variance of each row.
///
/// # Shapes
/// - x: `[rows, features]`; gamma, beta: `[features]`
/// - output: `[rows, features]`
///
/// # Panics
/// Panics if the length of `gamma` or `beta` differs from the number of features.
pub fn layer_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<2> {
    check(&x, &gamma, &beta);
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::layer_norm(x, gamma, beta, epsilon as f32);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::layer_norm(x, gamma, beta, epsilon as f32);
    }
    plain::layer_norm(x, gamma, beta, epsilon)
}

/// Root mean square normalisation (Zhang & Sennrich 2019, equation 4).
///
/// `y = x / √(mean(x²) + ε) · γ`, using the mean of each row.
///
/// # Shapes
/// - x: `[rows, features]`; gamma: `[features]`
/// - output: `[rows, features]`
///
/// # Panics
/// Panics if the length of `gamma` differs from the number of features.
pub fn rms_norm(x: Tensor<2>, gamma: Tensor<1>, epsilon: f64) -> Tensor<2> {
    check(&x, &gamma, &gamma);
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::rms_norm(x, gamma, epsilon as f32);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::rms_norm(x, gamma, epsilon as f32);
    }
    plain::rms_norm(x, gamma, epsilon)
}

/// Returns `x + y` and its [`layer_norm`], with one launch on a GPU if nothing has autodiff.
///
/// # Shapes
/// - x, y: `[rows, features]`; gamma, beta: `[features]`
/// - both results: `[rows, features]`
///
/// # Panics
/// Panics if the shapes do not match.
pub fn add_layer_norm(
    x: Tensor<2>,
    y: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> [Tensor<2>; 2] {
    assert_eq!(x.dims(), y.dims(), "the shapes of the terms differ");
    #[cfg(feature = "gpu")]
    if are_untracked([&x, &y], [&gamma, &beta]) && crate::gpu::is_fusable(&x) {
        check(&x, &gamma, &beta);
        return crate::gpu::add_layer_norm([x, y], gamma, beta, epsilon as f32);
    }
    let sum = add(x, y);
    [sum.clone(), layer_norm(sum, gamma, beta, epsilon)]
}

/// Returns `x + y` and its [`rms_norm`]. See [`add_layer_norm`].
///
/// # Panics
/// Panics if the shapes do not match.
pub fn add_rms_norm(x: Tensor<2>, y: Tensor<2>, gamma: Tensor<1>, epsilon: f64) -> [Tensor<2>; 2] {
    assert_eq!(x.dims(), y.dims(), "the shapes of the terms differ");
    #[cfg(feature = "gpu")]
    if are_untracked([&x, &y], [&gamma, &gamma]) && crate::gpu::is_fusable(&x) {
        check(&x, &gamma, &gamma);
        return crate::gpu::add_rms_norm([x, y], gamma, epsilon as f32);
    }
    let sum = add(x, y);
    [sum.clone(), rms_norm(sum, gamma, epsilon)]
}

fn check(x: &Tensor<2>, gamma: &Tensor<1>, beta: &Tensor<1>) {
    let [_, features] = x.dims();
    assert_eq!([features], gamma.dims(), "gamma must have one value per feature of x");
    assert_eq!([features], beta.dims(), "beta must have one value per feature of x");
}

#[cfg(feature = "gpu")]
fn are_untracked(terms: [&Tensor<2>; 2], parameters: [&Tensor<1>; 2]) -> bool {
    !terms.iter().any(|of| of.is_autodiff()) && !parameters.iter().any(|of| of.is_autodiff())
}
