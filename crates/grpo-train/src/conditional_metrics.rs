//! Metrics that only exist with certain settings.

use grpo_core::{LossConfig, Surrogate};
use grpo_data::ConfigFault;

use crate::guard_config::{GuardConfig, missing_metric};

/// The setting without which a metric does not exist. `*` at the end matches the rest of a name.
const REQUIRED: &[(&str, &str)] = &[
    ("reward_kl", "loss.kl_placement = \"reward\" and a positive loss.kl_coef"),
    ("entropy_coef", "loss.entropy_bonus"),
    ("clip_ratio/*", "a loss with the surrogate `clipped`"),
    ("cispo_clip_ratio", "a loss with the surrogate `cispo`"),
    ("vespo/phi_seq_mean", "a loss with the surrogate `vespo`"),
    ("off_policy/dropped_ratio", "loss.off_policy_threshold"),
    ("sampling/corrected", CORRECTION),
    ("sampling/importance_sampling_ratio/*", CORRECTION),
];

const CORRECTION: &str = "loss.mismatch, or sampler_check.above = \"correct\"";

/// Returns the place of `name` in [`REQUIRED`].
fn place(name: &str) -> Option<usize> {
    REQUIRED.iter().position(|(required, _)| match required.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *required,
    })
}

/// Returns whether the configuration decides if the metric exists.
pub(crate) fn is_conditional(name: &str) -> bool {
    place(name).is_some()
}

/// Rejects guards that watch a metric which does not exist with this configuration. `corrects` is
/// whether the sampler check corrects mismatches.
pub(crate) fn refuse_missing(
    guards: &[GuardConfig],
    loss: &LossConfig,
    corrects: bool,
) -> Result<(), ConfigFault> {
    for (guard, watch) in guards.iter().map(|guard| &guard.watch).enumerate() {
        let Some((name, setting)) = place(watch).map(|place| REQUIRED[place]) else { continue };
        let exists = match name {
            "reward_kl" => loss.kl.in_reward(),
            "entropy_coef" => loss.entropy_bonus.is_some(),
            "clip_ratio/*" => matches!(loss.surrogate, Surrogate::Clipped { .. }),
            "cispo_clip_ratio" => matches!(loss.surrogate, Surrogate::Cispo { .. }),
            "vespo/phi_seq_mean" => matches!(loss.surrogate, Surrogate::Vespo { .. }),
            "off_policy/dropped_ratio" => loss.off_policy_threshold.is_some(),
            "sampling/corrected" => corrects,
            _ => loss.mismatch.is_some() || corrects,
        };
        if !exists {
            return Err(missing_metric(guard, watch, setting));
        }
    }
    Ok(())
}
