//! AdamW (Loshchilov & Hutter 2019, algorithm 2), a step of one tensor.

use burn::tensor::Tensor;
#[cfg(feature = "flex")]
use multiversion::multiversion;

/// A step of AdamW, the same for every element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// What the step is multiplied by, and the decay too.
    pub learning_rate: f64,
    /// Decay of the two moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay, decoupled from the gradient.
    pub weight_decay: f64,
    /// Steps that the moments have seen with this one: the first is 1.
    pub step: u32,
    /// What the gradient is multiplied by first: the factor of clipping.
    pub gradient_scale: f64,
}

/// The parameter and its two moments after a step, in place where nobody else holds them.
///
/// With `g` the scaled gradient, `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²` and
/// `θ ← (1 − η λ) θ − η · m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε)`, as in PyTorch.
///
/// # Shapes
/// - all: any, the same; off the tape. Moments are 0 before the first step.
///
/// # Panics
/// Where shapes differ.
pub fn adamw_step<const D: usize>(
    parameter: Tensor<D>,
    gradient: Tensor<D>,
    moments: [Tensor<D>; 2],
    step: &AdamW,
) -> (Tensor<D>, [Tensor<D>; 2]) {
    assert_eq!(parameter.dims(), gradient.dims(), "the parameter against its gradient");
    for moment in &moments {
        assert_eq!(parameter.dims(), moment.dims(), "the parameter against its moments");
    }
    #[cfg(feature = "flex")]
    if [&parameter, &gradient, &moments[0], &moments[1]].into_iter().all(crate::backend::is_fusable)
    {
        return crate::backend::adamw_step(parameter, gradient, moments, &Factors::new(step));
    }
    crate::plain::adamw_step(parameter, gradient, moments, step)
}

/// What the elements are multiplied by, rounded once.
pub(crate) struct Factors {
    pub(crate) gradient: f32,
    /// β and 1 − β of each moment.
    pub(crate) first: [f32; 2],
    pub(crate) second: [f32; 2],
    /// `1 − η λ`.
    pub(crate) decay: f32,
    /// `η / (1 − β₁ᵗ)`.
    pub(crate) rate: f32,
    /// `1 / √(1 − β₂ᵗ)`.
    pub(crate) inverse_root: f32,
    pub(crate) epsilon: f32,
}

impl Factors {
    pub(crate) fn new(step: &AdamW) -> Self {
        let corrections = step.betas.map(|beta| 1.0 - beta.powf(f64::from(step.step)));
        Self {
            gradient: step.gradient_scale as f32,
            first: [step.betas[0] as f32, (1.0 - step.betas[0]) as f32],
            second: [step.betas[1] as f32, (1.0 - step.betas[1]) as f32],
            decay: (1.0 - step.learning_rate * step.weight_decay) as f32,
            rate: (step.learning_rate / corrections[0]) as f32,
            inverse_root: corrections[1].powf(-0.5) as f32,
            epsilon: step.epsilon as f32,
        }
    }
}

#[cfg(feature = "flex")]
#[multiversion(targets = "simd")]
pub(crate) fn step(
    parameter: &mut [f32],
    gradient: &[f32],
    first: &mut [f32],
    second: &mut [f32],
    by: &Factors,
) {
    let moments = first.iter_mut().zip(second);
    for ((parameter, &gradient), (m, v)) in parameter.iter_mut().zip(gradient).zip(moments) {
        let gradient = gradient * by.gradient;
        *m = by.first[0] * *m + by.first[1] * gradient;
        *v = by.second[0] * *v + by.second[1] * (gradient * gradient);
        let root = v.sqrt() * by.inverse_root + by.epsilon;
        *parameter = by.decay * *parameter - by.rate * (*m / root);
    }
}
