//! The success criteria of a run.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use grpo_data::ConfigFault;
use grpo_data::statistics::CLEAR;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Success criteria of a run, i.e. the `[success]` section of its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SuccessCriteria {
    /// Standard errors by which the mean reward must rise. If negative, it may fall by that many
    /// and need not rise.
    pub reward_rise: f64,
    /// Upper limit of `kl` in every step, in nats per token.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_kl: f64,
    /// Upper limit of `kl_sequence` in every step, in nats per completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_kl_sequence: Option<f64>,
    /// Minimum fraction of valid completions at the end.
    #[schemars(range(min = 0, max = 1))]
    pub min_validity: f64,
    /// Maximum fall of that fraction.
    #[schemars(range(min = 0, max = 1))]
    pub max_validity_drop: f64,
    /// A step has a signal if some completion has a reward and `frac_reward_zero_std` is at most
    /// this; more than half of the steps must have one.
    #[schemars(range(min = 0, max = 1))]
    pub max_zero_std: f64,
    /// Maximum fraction that each diversity measure of the before/after table may lose, such as
    /// scaffolds per molecule.
    #[schemars(range(min = 0, max = 1))]
    pub max_diversity_drop: f64,
    /// What reward components must do. For example `components = { sa = "falls", qed =
    /// "does_not_fall" }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, RequiredChange>,
}

/// How a reward component has to change. A change of less than three standard errors does not
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequiredChange {
    /// The component must rise.
    Rises,
    /// The component must fall.
    Falls,
    /// The component must not rise.
    DoesNotRise,
    /// The component must not fall.
    DoesNotFall,
}

impl RequiredChange {
    /// Returns the requirement of a run that is too short to improve: that nothing gets worse.
    #[must_use]
    pub fn relaxed(self) -> Self {
        match self {
            Self::Rises | Self::DoesNotFall => Self::DoesNotFall,
            Self::Falls | Self::DoesNotRise => Self::DoesNotRise,
        }
    }

    /// Returns the requirement in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Rises => "rises",
            Self::Falls => "falls",
            Self::DoesNotRise => "does not rise",
            Self::DoesNotFall => "does not fall",
        }
    }

    /// Returns whether a change is what is required. It is given in standard errors.
    pub(super) fn is_met(self, errors: f64) -> bool {
        match self {
            Self::Rises => errors >= CLEAR,
            Self::Falls => errors <= -CLEAR,
            Self::DoesNotRise => errors < CLEAR,
            Self::DoesNotFall => errors > -CLEAR,
        }
    }
}

impl Default for SuccessCriteria {
    fn default() -> Self {
        Self {
            reward_rise: CLEAR,
            max_kl: 0.1,
            max_kl_sequence: None,
            min_validity: 0.8,
            max_validity_drop: 0.05,
            max_zero_std: 0.5,
            max_diversity_drop: 0.5,
            components: BTreeMap::new(),
        }
    }
}

impl SuccessCriteria {
    /// Rejects values that would make a criterion always pass or always fail.
    ///
    /// # Errors
    /// Returns an error with the key, its value and the expected range.
    pub fn check(&self) -> Result<(), ConfigFault> {
        let of_sequence = self.max_kl_sequence.unwrap_or(1.0);
        let any = f64::NEG_INFINITY..=f64::INFINITY;
        let (above, share) = (f64::MIN_POSITIVE..=f64::INFINITY, 0.0..=1.0);
        let keys = [
            ("reward_rise", self.reward_rise, &any, "a finite number"),
            ("max_kl", self.max_kl, &above, "a number above 0"),
            ("max_kl_sequence", of_sequence, &above, "a number above 0"),
            ("min_validity", self.min_validity, &share, "0 to 1"),
            ("max_validity_drop", self.max_validity_drop, &share, "0 to 1"),
            ("max_zero_std", self.max_zero_std, &share, "0 to 1"),
            ("max_diversity_drop", self.max_diversity_drop, &share, "0 to 1"),
        ];
        let is_good =
            |value: f64, range: &RangeInclusive<f64>| value.is_finite() && range.contains(&value);
        match keys.into_iter().find(|(_, value, range, _)| !is_good(*value, range)) {
            Some((key, value, _, expected)) => {
                Err(ConfigFault::out_of_range(format!("success.{key}"), value, expected))
            }
            None => Ok(()),
        }
    }

    /// Rejects a criterion for a component that the reward does not have.
    ///
    /// # Errors
    /// Returns an error that lists the components of the reward.
    pub fn check_components<S: AsRef<str>>(&self, known: &[S]) -> Result<(), ConfigFault> {
        let is_known = |name: &&String| known.iter().any(|part| part.as_ref() == name.as_str());
        let Some(unknown) = self.components.keys().find(|name| !is_known(name)) else {
            return Ok(());
        };
        let known = match known {
            [] => "it has no components".to_owned(),
            known => {
                let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
                format!("expected one of {}", known.join(", "))
            }
        };
        Err(ConfigFault::from_sentence(
            format!("success.components.{unknown}"),
            format!(
                "success.components.{unknown}: the reward of this run has no such component; {known}"
            ),
        ))
    }
}
