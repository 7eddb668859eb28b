//! The settings of a step of AdamW, and the factors that it makes of them.

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
