//! Rounding of the factors of matrix products to 16 bits.

use burn::tensor::Tensor;

use crate::four_bits::dense;
use crate::half::Half;
use crate::has_tensor_cores;

impl Half {
    /// Returns a weight in a format that [`half_linear`](crate::half_linear) multiplies: in 16 bits if
    /// it already is and the device has tensor cores for it, otherwise in `f32`.
    pub fn factor(self, weight: Tensor<2>) -> Tensor<2> {
        let is_read =
            weight.dtype() == self.dtype() && has_tensor_cores(&weight.device(), self.dtype());
        if is_read { weight } else { dense(weight) }
    }

    /// Rounds to nearest, ties to even, without autodiff. The result is in `f32`, or in this format on
    /// a GPU with tensor cores for it.
    pub(crate) fn round(self, x: Tensor<2>) -> Tensor<2> {
        #[cfg(feature = "flex")]
        if crate::backend::is_fusable(&x) && self == Self::F16 {
            return crate::backend::rounded_to_f16(x);
        }
        #[cfg(feature = "gpu")]
        if crate::gpu::is_readable(&x) {
            return crate::gpu::rounded(x, self);
        }
        crate::plain::rounded(x, self)
    }
}
