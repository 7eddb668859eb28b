//! AdamW settings and the factors derived from them.

/// Settings for a single AdamW update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay rates β₁ and β₂ of the moments.
    pub betas: [f64; 2],
    /// Constant ε added to the square root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay λ.
    pub weight_decay: f64,
    /// Step number, starting at 1.
    pub step: u32,
    /// Factor applied to the gradient, used for clipping.
    pub gradient_scale: f64,
}

/// Factors in the elementwise update, computed in f64 and rounded once.
#[derive(Debug)]
pub(crate) struct Factors {
    pub(crate) gradient: f32,
    /// β and 1 − β for each moment.
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
