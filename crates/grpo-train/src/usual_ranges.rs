//! Typical ranges of settings for GRPO fine-tuning.

use grpo_core::Surrogate;
use grpo_data::{ConfigFault, short_number};

use crate::GrpoConfig;

impl GrpoConfig {
    /// Returns the settings that are outside their usual range, along with that range. Such
    /// settings are valid. The learning rate is not among them, because its usual range depends on the
    /// size of the model.
    ///
    /// # Errors
    /// Returns an error if the loss settings contradict each other.
    pub fn unusual_settings(&self) -> Result<Vec<String>, ConfigFault> {
        let loss = self.loss.resolve()?;
        let [low, high] = match loss.surrogate {
            Surrogate::Clipped { epsilon_low, epsilon_high, .. } => [epsilon_low, epsilon_high],
            _ => [0.2; 2],
        };
        let kl_coef = if loss.kl.coef == 0.0 { 0.01 } else { loss.kl.coef };
        let settings = [
            ("train.group_size", self.train.group_size as f64, 4.0, 16.0),
            ("loss.epsilon_low", low, 0.1, 0.3),
            ("loss.epsilon_high", high, 0.1, 0.3),
            ("loss.kl_coef", kl_coef, 0.001, 0.1),
            (
                "reference.every_epochs",
                f64::from(self.reference.every_epochs.unwrap_or(1)),
                1.0,
                5.0,
            ),
        ];
        let unusual = settings.iter().filter(|(_, value, low, high)| value < low || value > high);
        Ok(unusual
            .map(|(key, value, low, high)| {
                format!("{key} = {} (usual: {low} to {high})", short_number(*value))
            })
            .collect())
    }
}
