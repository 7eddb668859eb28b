//! The AdamW update (Loshchilov & Hutter 2019, algorithm 2) for a single tensor.

pub(crate) mod settings;

use burn::tensor::Tensor;

pub use settings::AdamW;

/// Performs an update and returns the new parameter and its two moments. Tensors are updated in
/// place unless they have other owners.
///
/// With the scaled gradient `g`, the update is `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`
/// and `θ ← (1 − η λ) θ − η · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)`, as in PyTorch.
///
/// # Shapes
/// - All tensors have the same shape, and none of them has autodiff. Initialise the moments to 0.
///
/// # Panics
/// Panics if the shapes differ.
pub fn adamw_step<const D: usize>(
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
    if [&parameter, &gradient, &moments[0], &moments[1]].into_iter().all(crate::backend::is_fusable)
    {
        return crate::backend::adamw_step(
            parameter,
            gradient,
            moments,
            &settings::Factors::new(step),
        );
    }
    #[cfg(feature = "gpu")]
    if [&parameter, &gradient, &moments[0], &moments[1]].into_iter().all(crate::gpu::is_fusable) {
        return crate::gpu::adamw_step(parameter, gradient, moments, &settings::Factors::new(step));
    }
    crate::plain::adamw_step(parameter, gradient, moments, step)
}
