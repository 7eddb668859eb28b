//! Reference policy updates.

use grpo_data::{ConfigFault, Ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[reference]` section, which configures the reference policy for the KL penalty.
///
/// The reference stays constant if neither `every_steps` nor `every_epochs` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct ReferenceSettings {
    /// Initial reference: the initial policy (including `adapter`), or the model without its
    /// adapter (needs `adapter` or `[lora]`).
    pub from: ReferenceFrom,
    /// Update period in steps. Default: never.
    #[schemars(range(min = 1, max = 1e9))]
    pub every_steps: Option<u32>,
    /// Update period in epochs, i.e. passes over the prompts of `data.file` or the conditions of
    /// `conditions.file` or `conditions.molecules`. Default: never.
    #[schemars(range(min = 1, max = 1e9))]
    pub every_epochs: Option<u32>,
    /// Share of the policy in the new reference, per parameter: 1 copies the policy, less is
    /// [TR-DPO's mix](algorithm.md#10-the-update). Needs a period.
    #[schemars(range(min = 1e-6, max = 1))]
    pub mix: Option<f64>,
}

/// Initial reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceFrom {
    /// Same as the initial policy.
    #[default]
    Start,
    /// Base model without the adapter.
    Base,
}

impl ReferenceSettings {
    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges("reference")?;
        if self.every_steps.is_some() && self.every_epochs.is_some() {
            return Err(ConfigFault::new(
                "reference.every_epochs",
                "reference.every_steps and reference.every_epochs cannot be combined",
                "remove one of them",
            ));
        }
        if self.mix.is_some() && !self.follows() {
            return Err(ConfigFault::new(
                "reference.mix",
                "reference.mix has no effect on a fixed reference",
                "add reference.every_steps or reference.every_epochs, or remove it",
            ));
        }
        Ok(())
    }

    /// Returns whether the reference is updated during training.
    pub fn follows(&self) -> bool {
        self.every_steps.is_some() || self.every_epochs.is_some()
    }

    /// Fills in the default for α.
    #[must_use]
    pub fn resolved(self) -> Self {
        let mix = self.follows().then_some(self.mix.unwrap_or(1.0));
        Self { mix, ..self }
    }

    /// Returns α if the reference should be updated after `done` steps with `prompts_per_step`
    /// prompts each. `epoch` is the number of prompts per epoch.
    pub fn due(&self, done: u32, prompts_per_step: u32, epoch: Option<usize>) -> Option<f64> {
        let by_steps = self.every_steps.is_some_and(|every| done.is_multiple_of(every));
        let passes = |steps: u32| {
            let prompts = u64::from(steps) * u64::from(prompts_per_step);
            let every = u64::from(self.every_epochs?);
            Some(prompts / (epoch? as u64 * every))
        };
        let by_epochs = passes(done) > passes(done - 1);
        (by_steps || by_epochs).then_some(self.mix.unwrap_or(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which of the first 12 steps are followed by a reference update.
    #[track_caller]
    fn check(settings: ReferenceSettings, prompts: u32, epoch: Option<usize>, expected: &[u32]) {
        let due = (1..=12).filter(|&done| settings.due(done, prompts, epoch) == Some(1.0));
        assert_eq!(due.collect::<Vec<u32>>(), expected);
    }

    #[test]
    fn steps_and_epochs() {
        let never = ReferenceSettings::default();
        check(never, 4, Some(8), &[]);
        check(ReferenceSettings { every_steps: Some(5), ..never }, 4, None, &[5, 10]);
        let epochs = |every| ReferenceSettings { every_epochs: Some(every), ..never };
        check(epochs(1), 4, Some(8), &[2, 4, 6, 8, 10, 12]);
        check(epochs(2), 4, Some(8), &[4, 8, 12]);
        // The first epoch of 10 prompts ends during step 3, the second at the end of step 5, and
        // the third during step 8.
        check(epochs(1), 4, Some(10), &[3, 5, 8, 10]);
        // If a step completes multiple epochs, the reference is only updated once.
        check(epochs(1), 9, Some(4), &(1..=12).collect::<Vec<u32>>());
        check(epochs(1), 4, None, &[]);
    }

    #[test]
    fn settings_without_effect_are_refused() {
        let never = ReferenceSettings::default();
        let fault = |settings: ReferenceSettings| settings.check().unwrap_err().to_string();
        assert_eq!(
            fault(ReferenceSettings { mix: Some(0.5), ..never }),
            "reference.mix has no effect on a fixed reference; add reference.every_steps or reference.every_epochs, or remove it"
        );
        let both = ReferenceSettings { every_steps: Some(1), every_epochs: Some(1), ..never };
        assert_eq!(
            fault(both),
            "reference.every_steps and reference.every_epochs cannot be combined; remove one of them"
        );
        assert_eq!(
            fault(ReferenceSettings { every_steps: Some(0), ..never }),
            "reference.every_steps = 0 is out of range; expected 1 to 1000000000"
        );
        let zero = ReferenceSettings { every_steps: Some(2), mix: Some(0.0), ..never };
        assert_eq!(fault(zero), "reference.mix = 0 is out of range; expected 0.000001 to 1");
    }

    #[test]
    fn alpha_is_written_out_where_it_counts() {
        let never = ReferenceSettings::default();
        assert_eq!(never.resolved(), never);
        let every = ReferenceSettings { every_steps: Some(3), ..never };
        assert_eq!(every.resolved().mix, Some(1.0));
        assert_eq!(ReferenceSettings { mix: Some(0.5), ..every }.resolved().mix, Some(0.5));
    }
}
