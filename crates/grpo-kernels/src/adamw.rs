//! The AdamW update (Loshchilov & Hutter 2019, algorithm 2).

pub(crate) mod settings;

use burn::tensor::Tensor;

pub use settings::AdamW;

/// Updates of several parameters, which share launches on a GPU.
///
/// On a GPU, the returned tensors have their new values after [`Self::finish`], or after this value is
/// dropped. They must not be read or copied before.
#[derive(Debug, Default)]
pub struct AdamWUpdates {
    #[cfg(feature = "gpu")]
    on_gpu: crate::gpu::AdamWQueue,
}

impl AdamWUpdates {
    /// Updates a parameter and returns it with its two moments. Tensors are updated in place unless
    /// they have other owners.
    ///
    /// With the scaled gradient `g`, the update is `m ← β₁ m + (1 − β₁) g`,
    /// `v ← β₂ v + (1 − β₂) g²` and `θ ← (1 − η λ) θ − η · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)`,
    /// as in PyTorch.
    ///
    /// # Shapes
    /// - All tensors have the same shape, and none of them has autodiff. Initialise the moments to 0.
    ///
    /// # Panics
    /// Panics if the shapes differ.
    pub fn add<const D: usize>(
        &mut self,
        parameter: Tensor<D>,
        gradient: Tensor<D>,
        moments: [Tensor<D>; 2],
        step: &AdamW,
    ) -> (Tensor<D>, [Tensor<D>; 2]) {
        assert_eq!(parameter.dims(), gradient.dims(), "parameter and gradient shapes differ");
        for moment in &moments {
            assert_eq!(parameter.dims(), moment.dims(), "parameter and moment shapes differ");
        }
        #[cfg(feature = "flex")]
        if [&parameter, &gradient, &moments[0], &moments[1]].map(crate::backend::is_fusable)
            == [true; 4]
        {
            let by = settings::Factors::new(step);
            return crate::backend::adamw_step(parameter, gradient, moments, &by);
        }
        #[cfg(feature = "gpu")]
        if [&parameter, &gradient, &moments[0], &moments[1]].map(crate::gpu::is_fusable)
            == [true; 4]
        {
            let by = settings::Factors::new(step);
            return self.on_gpu.add(parameter, gradient, moments, by);
        }
        crate::plain::adamw_step(parameter, gradient, moments, step)
    }

    /// Completes the updates.
    pub fn finish(self) {
        // The queue of a GPU launches what is left when it is dropped.
    }
}

/// Updates a single parameter. See [`AdamWUpdates`].
///
/// # Panics
/// Panics if the shapes differ.
pub fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: [Tensor<D>; 2],
    step: &AdamW,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    let mut updates = AdamWUpdates::default();
    let updated = updates.add(parameter, gradient, moments, step);
    updates.finish();
    updated
}
