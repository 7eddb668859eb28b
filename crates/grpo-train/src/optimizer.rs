//! AdamW.

use burn::module::{Module, ParamGroup};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use grpo_model::linear_weights;
use serde::{Deserialize, Serialize};

use crate::error::{TrainError, in_range};

/// Settings of AdamW (Loshchilov & Hutter 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Highest learning rate of the schedule.
    pub learning_rate: f64,
    /// Decay of the two moments.
    #[serde(default = "default_betas")]
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// Weight decay, decoupled from the gradient.
    #[serde(default = "default_weight_decay")]
    pub weight_decay: f64,
    /// What it is applied to.
    #[serde(default)]
    pub weight_decay_on: Decayed,
    /// Gradients are scaled down to this norm, taken over all of them together.
    #[serde(default = "default_max_grad_norm")]
    pub max_grad_norm: f64,
}

/// The parameters that weight decay is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decayed {
    /// The matrices of linear layers and of adapters; biases, norms, embeddings and positions have none.
    #[default]
    Linear,
    /// Every parameter, as `torch.optim.AdamW(model.parameters())` has it.
    All,
}

fn default_betas() -> [f64; 2] {
    [0.9, 0.95]
}
fn default_epsilon() -> f64 {
    1e-8
}
fn default_weight_decay() -> f64 {
    0.1
}
fn default_max_grad_norm() -> f64 {
    1.0
}

impl OptimizerConfig {
    /// Checks ranges; `section` names the place in the configuration.
    ///
    /// # Errors
    /// The first key that is out of its range.
    pub fn check(&self, section: &str) -> Result<(), TrainError> {
        let key = |name: &str| format!("{section}.{name}");
        in_range(&key("learning_rate"), self.learning_rate, 0.0..=1.0)?;
        in_range(&key("betas[0]"), self.betas[0], 0.0..=0.999_999)?;
        in_range(&key("betas[1]"), self.betas[1], 0.0..=0.999_999)?;
        in_range(&key("epsilon"), self.epsilon, 1e-20..=1.0)?;
        in_range(&key("weight_decay"), self.weight_decay, 0.0..=10.0)?;
        in_range(&key("max_grad_norm"), self.max_grad_norm, 1e-6..=f64::MAX)
    }
}

/// AdamW over a whole model.
#[derive(Clone)]
pub struct Optimizer {
    adamw: ModuleOptimizer,
    max_grad_norm: f64,
}

impl Optimizer {
    /// A fresh optimizer for `model`.
    pub fn new<M: Module>(model: &M, config: &OptimizerConfig) -> Self {
        let adamw = |weight_decay: f64| {
            AdamWConfig::new()
                .with_beta_1(config.betas[0] as f32)
                .with_beta_2(config.betas[1] as f32)
                .with_epsilon(config.epsilon as f32)
                .with_weight_decay(weight_decay as f32)
        };
        let adamw = match config.weight_decay_on {
            Decayed::All => adamw(config.weight_decay).init(),
            Decayed::Linear => {
                let decayed = ParamGroup::from_ids(linear_weights(model));
                adamw(0.0).init().with_group(decayed, adamw(config.weight_decay).build(), None)
            }
        };
        Self { adamw, max_grad_norm: config.max_grad_norm }
    }

    /// One step along `gradients`, clipped by their global norm; also gives that norm before clipping.
    ///
    /// # Errors
    /// A norm that is not finite: the weights are left as they were.
    pub fn step<M: Module>(
        &mut self,
        model: M,
        gradients: GradientsParams,
        learning_rate: f64,
    ) -> Result<(M, f64), TrainError> {
        let (gradients, norm) =
            grpo_core::clip_by_global_norm(&model, gradients, self.max_grad_norm);
        if !norm.is_finite() {
            return Err(TrainError::Diverged { what: "gradient norm", value: norm });
        }
        Ok((self.adamw.step(learning_rate, model, gradients), norm))
    }
}
