//! The squared norm of a tensor.

use burn::tensor::Tensor;

/// The squared norm of several tensors together.
///
/// On a GPU, nothing is copied to the host before the total is asked for, which would wait for the
/// GPU each time.
#[derive(Debug, Default)]
pub struct SquaredNorm {
    sum: f64,
    /// Tensors on a GPU whose squares have to be added. They are kept until then.
    #[cfg(feature = "gpu")]
    on_gpu: Vec<Tensor<1>>,
}

impl SquaredNorm {
    /// Adds `Σ x²`. The tensor has no autodiff.
    pub fn add<const D: usize>(&mut self, x: Tensor<D>) {
        #[cfg(feature = "gpu")]
        if crate::gpu::is_fusable(&x) {
            let elements = x.dims().iter().product::<usize>();
            self.on_gpu.push(x.reshape([elements]));
            return;
        }
        self.sum += squared_norm(x);
    }

    /// Returns the sum over all tensors. See [`squared_norm`].
    pub fn total(self) -> f64 {
        #[cfg(feature = "gpu")]
        if !self.on_gpu.is_empty() {
            let sums = crate::gpu::sums_of_squares(self.on_gpu);
            return self.sum + sums.into_data().iter::<f64>().sum::<f64>();
        }
        self.sum
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
        let mut norm = SquaredNorm::default();
        norm.add(x);
        return norm.total();
    }
    crate::plain::squared_norm(x)
}
