//! Rotary position embeddings (Su et al. 2021, "RoFormer"), in the half-split form used by Llama.

use std::f64::consts::TAU;

use burn::tensor::{Device, Tensor, TensorData};
use grpo_kernels::{RotaryTables, rotary};

use crate::description::{RotaryConfig, RotaryScaling};

/// Rotation tables for the token positions of a forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Rotary(RotaryTables);

impl Rotary {
    /// Computes the tables for the given token positions.
    pub(crate) fn new(
        config: &RotaryConfig,
        head_width: usize,
        positions: &[usize],
        device: &Device,
    ) -> Self {
        let frequencies = config.frequencies(head_width);
        let scale = config.attention_factor();
        let shape = [positions.len(), frequencies.len()];
        // Without autodiff, because the tables are not learned.
        let device = device.clone().inner();
        let table = |of: fn(f64) -> f64| -> Tensor<2> {
            let values: Vec<f32> = positions
                .iter()
                .flat_map(|&position| {
                    // Frequencies and angles are rounded to f32, as in the transformers library
                    // with which the checkpoints were trained.
                    frequencies.iter().map(move |&frequency| position as f32 * frequency)
                })
                .map(|angle| (of(f64::from(angle)) * scale) as f32)
                .collect();
            Tensor::from_data(TensorData::new(values, shape), &device)
        };
        Self(RotaryTables { cos: table(libm::cos), sin: table(libm::sin) })
    }

    pub(crate) fn tables(&self) -> &RotaryTables {
        &self.0
    }

    /// Rotates each pair `(x_i, x_{i + width/2})` of each head by its angle.
    ///
    /// # Shapes
    /// - x and result: `[tokens, heads · head width]`
    pub(crate) fn turn(&self, x: Tensor<2>) -> Tensor<2> {
        rotary(x, &self.0)
    }
}

impl RotaryConfig {
    /// Returns the angular frequency in radians per position for each pair of a head. The result
    /// has `head_width / 2` elements.
    pub(crate) fn frequencies(&self, head_width: usize) -> Vec<f32> {
        let plain =
            |pair: usize| (self.base as f32).powf((2 * pair) as f32 / head_width as f32).recip();
        let pairs = 0..head_width / 2;
        match self.scaling {
            RotaryScaling::Default => pairs.map(plain).collect(),
            RotaryScaling::Linear { factor } => {
                pairs.map(|pair| plain(pair) / factor as f32).collect()
            }
            RotaryScaling::Llama3 {
                factor,
                low_frequency_factor: low,
                high_frequency_factor: high,
                original_context,
            } => pairs
                .map(|pair| {
                    let kept = f64::from(plain(pair));
                    let turns = original_context as f64 * kept / TAU; // over the original context
                    let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (kept * share + kept / factor * (1.0 - share)) as f32
                })
                .collect(),
            RotaryScaling::Yarn {
                factor,
                beta_fast,
                beta_slow,
                original_context,
                truncate,
                ..
            } => {
                // Index of the pair that completes this many turns over the original context.
                let pair_of = |turns: f64| {
                    head_width as f64 * (original_context as f64 / (turns * TAU)).ln()
                        / (2.0 * self.base.ln())
                };
                let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(head_width as f64 - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                pairs
                    .map(|pair| {
                        let kept = f64::from(plain(pair));
                        let divided = ((pair as f64 - low) / width).clamp(0.0, 1.0);
                        (kept * (1.0 - divided) + kept / factor * divided) as f32
                    })
                    .collect()
            }
        }
    }

    fn attention_factor(&self) -> f64 {
        match self.scaling {
            RotaryScaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }
}
