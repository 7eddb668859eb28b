//! Exponentials that stay within the range of their numbers.

use burn::tensor::Tensor;

/// The largest exponent of a ratio on the host: `0.9 · ln(largest f64)`.
pub(crate) const LARGEST_EXPONENT: f64 = 638.8;

/// Cut from above where `exp` would leave the range of the tensor's numbers: its derivative would be ∞, and 0
/// times that, as for a ratio that is clipped, is no number. One tenth of the exponents is left for what the
/// result is multiplied by.
pub(crate) fn within_range(exponent: Tensor<2>) -> Tensor<2> {
    let largest = exponent.dtype().finfo().expect("floating-point numbers").max;
    exponent.clamp_max(0.9 * largest.ln())
}
