//! A coefficient of the KL penalty that follows the KL.

use serde::{Deserialize, Serialize};

use crate::error::{ConfigError, above_zero};

/// Settings of an [`AdaptiveKl`]: the section `[kl_controller]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlController {
    /// Wanted KL to the reference, in nats a token: what metric `kl` is to become.
    pub target: f64,
    /// Completions after which a KL that is 20 % or more away from the target has changed the coefficient by a
    /// factor of about `exp(±0.2)`.
    pub horizon: f64,
    /// Smallest coefficient.
    #[serde(default = "default_min")]
    pub min: f64,
    /// Largest coefficient.
    #[serde(default = "default_max")]
    pub max: f64,
}

/// Above 0: a coefficient of 0 would stay what it is.
fn default_min() -> f64 {
    1e-5
}
/// Far above any coefficient that leaves the reward a say.
fn default_max() -> f64 {
    10.0
}

impl KlController {
    /// Checks ranges; `coef` is what the run begins with.
    ///
    /// # Errors
    /// A number out of its range.
    pub fn check(&self, coef: f64) -> Result<(), ConfigError> {
        above_zero("kl_controller.target", self.target)?;
        above_zero("kl_controller.horizon", self.horizon)?;
        above_zero("kl_controller.min", self.min)?;
        above_zero("kl_controller.max", self.max)?;
        if self.min > self.max {
            let (name, expected) = ("kl_controller.min", "at most kl_controller.max");
            return Err(ConfigError::out_of_range(name, self.min, expected));
        }
        if !(self.min..=self.max).contains(&coef) {
            return Err(ConfigError::out_of_range(
                "kl_coef",
                coef,
                "between kl_controller.min and kl_controller.max, as it is where the controller begins",
            ));
        }
        Ok(())
    }
}

/// The coefficient of the KL penalty from step to step: all its state, to be saved with a run.
///
/// `e = clip((KL − target) / target, ±0.2)`, `β ← β · (1 + e · completions / horizon)` (Ziegler et al. 2019,
/// "Fine-Tuning Language Models from Human Preferences", §2.2; their K_β is the quotient), then within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptiveKl {
    controller: KlController,
    coef: f64,
}

/// Largest error that counts.
const CLIP: f64 = 0.2;

impl AdaptiveKl {
    /// Before the first step, with the coefficient of that step.
    pub fn new(controller: KlController, coef: f64) -> Self {
        Self { controller, coef }
    }

    /// The coefficient of the next step.
    pub fn coef(&self) -> f64 {
        self.coef
    }

    /// Goes on from another coefficient, within the bounds.
    pub fn set_coef(&mut self, coef: f64) {
        self.coef = coef.clamp(self.controller.min, self.controller.max);
    }

    /// Takes note of a step's mean KL, in nats a token, over so many completions. A KL that is not a number changes
    /// nothing.
    pub fn observe(&mut self, kl: f64, completions: usize) {
        let KlController { target, horizon, .. } = self.controller;
        if kl.is_nan() {
            return;
        }
        let error = ((kl - target) / target).clamp(-CLIP, CLIP);
        self.set_coef(self.coef * (1.0 + error * completions as f64 / horizon));
    }
}
