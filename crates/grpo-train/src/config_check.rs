//! Checks of a whole configuration.

use grpo_core::Surrogate;
use grpo_data::{ConfigFault, Ranges};
use grpo_metrics::MetricTable;
use grpo_rollout::StopStrings;

use crate::error::{distribution_fault, in_range};
use crate::guard_config::Guarded;
use crate::{GrpoConfig, RunMetrics, step_metrics};

impl GrpoConfig {
    /// Validates all settings of a run without extensions.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.check_with(RunMetrics::default())
    }

    /// Validates all settings. Guards can watch the metrics of extensions.
    ///
    /// # Errors
    /// Returns an error for the first key that is out of range.
    pub fn check_with(&self, extensions: RunMetrics) -> Result<(), ConfigFault> {
        let train = &self.train;
        train.check_ranges("train")?;
        let completions = f64::from(train.prompts_per_step) * train.group_size as f64;
        in_range("train.prompts_per_step × train.group_size", completions, 2.0..=1e6)?;
        let settings = self.sampling.settings(&[]);
        settings.check().map_err(|fault| distribution_fault("sampling", &fault))?;
        StopStrings::check(&self.sampling.stop).map_err(|fault| {
            ConfigFault::from_sentence("sampling.stop", format!("sampling: {fault}"))
        })?;
        self.sampling.check_ranges("sampling")?;
        self.advantages()?;
        let loss = self.loss.resolve()?;
        self.schedule.check(&loss, self.kl_controller.is_some())?;
        let updates = train.updates_per_rollout;
        if matches!(loss.surrogate, Surrogate::Reinforce {}) && updates > 1 {
            return Err(ConfigFault::new(
                "train.updates_per_rollout",
                format!(
                    "train.updates_per_rollout = {updates}: the reinforce surrogate has no importance ratio, so every update but the first would be off-policy without correction"
                ),
                "set it to 1, or choose a loss with a ratio",
            ));
        }
        let kl_coef = loss.kl.coef;
        if let Some(controller) = &self.kl_controller {
            controller.check(kl_coef).map_err(|fault| {
                let key = match fault.setting() {
                    "kl_coef" => "loss.kl_coef",
                    key => key,
                };
                ConfigFault::from_sentence(key, fault.to_string())
            })?;
            if controller.horizon < completions {
                let horizon = controller.horizon;
                return Err(ConfigFault::new(
                    "kl_controller.horizon",
                    format!(
                        "kl_controller.horizon = {horizon} is less than the {completions} completions per step"
                    ),
                    "use a horizon of several steps to avoid oscillation",
                ));
            }
        }
        self.reference.check()?;
        let metrics = self.metrics_with(extensions)?;
        for (place, guard) in self.guards.iter().flatten().enumerate() {
            guard.check(place, &Guarded::Grpo { kl_coef }, &metrics)?;
        }
        self.eval.check()?;
        self.refuse_uncorrected()?;
        self.optimizer.check("optimizer")
    }

    /// Adds the metrics of steps to those of extensions.
    ///
    /// # Errors
    /// Returns an error if the loss settings contradict each other.
    pub fn metrics_with(&self, extensions: RunMetrics) -> Result<RunMetrics, ConfigFault> {
        let (mut metrics, loss) = (extensions, self.loss.resolve()?);
        metrics
            .add(MetricTable::new(step_metrics()).specs(), |metric| self.measures(&loss, metric));
        Ok(metrics)
    }
}
