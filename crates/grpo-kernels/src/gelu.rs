//! GELU with the exact normal distribution function (Hendrycks & Gimpel 2016), as PyTorch's default.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

#[cfg(feature = "flex")]
use crate::simd;

/// `y = x · Φ(x)`, `dy/dx = Φ(x) + x · φ(x)`.
///
/// # Shapes
/// - input and output: any, the same
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::gelu(x);
    }
    crate::plain::gelu(x)
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn forward(x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x * cdf_and_gauss(x).0;
    }
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn backward(x: &[f32], dy: &[f32], dx: &mut [f32]) {
    const INV_SQRT_2PI: f32 = 0.398_942_3;
    for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
        let (cdf, gauss) = cdf_and_gauss(x);
        *dx = dy * (cdf + x * gauss * INV_SQRT_2PI);
    }
}

/// `(Φ(x), e^{−x²/2})`: both halves of the derivative from one exponential.
///
/// Φ by Abramowitz & Stegun 7.1.26, whose absolute error is below 1.5e-7: the resolution of `f32` at 1.
#[cfg(feature = "flex")]
#[inline(always)]
#[expect(
    clippy::excessive_precision,
    reason = "the published constants, to be compared digit by digit"
)]
fn cdf_and_gauss(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let gauss = simd::exp(-z * z);
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper_tail = 0.5 * poly * gauss;
    (if x < 0.0 { upper_tail } else { 1.0 - upper_tail }, gauss)
}
