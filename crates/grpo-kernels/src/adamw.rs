//! A step of AdamW (Loshchilov & Hutter 2019, algorithm 2) for one tensor.

pub(crate) mod settings;

use burn::tensor::Tensor;

pub use settings::AdamW;

/// Returns the parameter and its two moments after a step. Tensors without another owner are
/// changed in place.
///
/// With `g` the scaled gradient, `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²` and
/// `θ ← (1 − η λ) θ − η · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)`, as in PyTorch.
///
/// # Shapes
/// - all equal; without autodiff. Moments are 0 before the first step.
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
    crate::plain::adamw_step(parameter, gradient, moments, step)
}
