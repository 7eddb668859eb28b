//! Rejects rounding that would stop every run.

use grpo_model::WeightPrecision;

use super::{ConfigFault, GrpoConfig};
use crate::AboveTolerance;

/// How to correct differences between sampling and training.
const CORRECTION: &str = "set loss.mismatch, or sampler_check.above = \"correct\"";

impl GrpoConfig {
    /// Rejects rounded sampling weights with `above = "stop"`. A tolerance strict enough to detect bugs
    /// would always be exceeded.
    pub(crate) fn refuse_uncorrected(&self) -> Result<(), ConfigFault> {
        let weights = self.sampling.weights;
        if weights == WeightPrecision::F32 {
            return Ok(());
        }
        if !self.train.precision.is_f32() {
            return Err(ConfigFault::new(
                "sampling.weights",
                format!(
                    "sampling.weights cannot be combined with train.precision = \"{}\", which already rounds the weights for sampling",
                    self.train.precision
                ),
                "remove sampling.weights",
            ));
        }
        if !self.stops_uncorrected() {
            return Ok(());
        }
        Err(ConfigFault::new(
            "sampling.weights",
            format!(
                "sampling: weights = \"{weights}\" samples from a different policy than the trained one, which stops a run with sampler_check.above = \"stop\""
            ),
            CORRECTION,
        ))
    }

    /// Rejects products in 16 bits without a correction on devices where sampling and training add in
    /// different orders, for the same reason.
    pub(super) fn refuse_uncorrected_products(
        &self,
        adds_in_one_order: bool,
    ) -> Result<(), ConfigFault> {
        let precision = self.train.precision;
        if precision.is_f32() || adds_in_one_order || !self.stops_uncorrected() {
            return Ok(());
        }
        Err(ConfigFault::new(
            "train.precision",
            format!(
                "train.precision = \"{precision}\" rounds differently in sampling and in training on a GPU, which stops a run with sampler_check.above = \"stop\""
            ),
            CORRECTION,
        ))
    }

    /// Returns whether a difference between sampling and training stops the run instead of being
    /// corrected.
    fn stops_uncorrected(&self) -> bool {
        self.sampler_check.resolved(self.loss.mismatch).above == Some(AboveTolerance::Stop)
    }
}

#[cfg(test)]
mod tests {
    use grpo_model::ProductPrecision;

    use super::*;

    #[test]
    fn products_in_16_bits_need_a_correction_on_a_gpu() {
        let settings = "[train]\nsteps = 1\nprompts_per_step = 1\ngroup_size = 2\n[sampling]\nmax_new_tokens = 8\n[optimizer]\nlearning_rate = 1e-4\n";
        let mut config: GrpoConfig = toml::from_str(settings).unwrap();
        config.refuse_uncorrected_products(false).unwrap();
        config.train.precision = ProductPrecision::F16;
        // On a CPU.
        config.refuse_uncorrected_products(true).unwrap();
        assert_eq!(
            config.refuse_uncorrected_products(false).unwrap_err().to_string(),
            "train.precision = \"f16\" rounds differently in sampling and in training on a GPU, which stops a run with sampler_check.above = \"stop\"; set loss.mismatch, or sampler_check.above = \"correct\""
        );
        config.sampler_check.above = Some(AboveTolerance::Correct);
        config.refuse_uncorrected_products(false).unwrap();
    }
}
