//! The squared norm of a tensor.

use burn::tensor::Tensor;

/// The squared norm of several tensors together.
///
/// On a GPU, nothing is copied to the host before the total is asked for, which would wait for the
/// GPU each time.
#[derive(Debug, Default)]
pub struct SquaredNorm {
    sum: f64,
    /// Sums of squares on a GPU that have to be added.
    on_gpu: Vec<Tensor<1>>,
}

impl SquaredNorm {
    /// Adds `Σ x²`. The tensor has no autodiff.
    pub fn add<const D: usize>(&mut self, x: Tensor<D>) {
        #[cfg(feature = "gpu")]
        if crate::gpu::is_fusable(&x) {
            self.on_gpu.push(crate::gpu::sums_of_squares(x));
            return;
        }
        self.sum += squared_norm(x);
    }

    /// Returns the sum over all tensors. See [`squared_norm`].
    pub fn total(self) -> f64 {
        let Self { sum, on_gpu } = self;
        match on_gpu.is_empty() {
            true => sum,
            false => sum + Tensor::cat(on_gpu, 0).into_data().iter::<f64>().sum::<f64>(),
        }
    }
}

/// Returns `Σ x²`. The sum is computed in f64, because an f32 sum over millions of elements would
/// lose small terms.
///
/// # Shapes
/// - x: any shape, without autodiff
pub fn squared_norm<const D: usize>(x: Tensor<D>) -> f64 {
    #[cfg(feature = "flex")]
    if crate::backend::is_fusable(&x) {
        return crate::backend::squared_norm(x);
    }
    #[cfg(feature = "gpu")]
    if crate::gpu::is_fusable(&x) {
        return crate::gpu::sums_of_squares(x).into_data().iter::<f64>().sum();
    }
    crate::plain::squared_norm(x)
}
