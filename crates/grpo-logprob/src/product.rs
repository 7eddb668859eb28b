//! Matrix products that the backends compute differently.

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

/// A backend's product of two matrices.
pub(crate) trait Product: Backend {
    /// Returns `a · b`.
    fn product(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_matmul(a, b)
    }
}
