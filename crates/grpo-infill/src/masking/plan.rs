//! Masking plans.

use super::Masking;
use grpo_data::DataError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A list of masking stages that are used equally often, and the corruption applied to selected
/// positions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "PlanKeys", into = "PlanKeys")]
pub struct MaskingPlan {
    stages: Vec<Masking>,
    corruption: Corruption,
}

/// What replaces the characters selected by stages of type `random` and `sticky`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Corruption {
    /// Always MASK.
    #[default]
    None,
    /// MASK in 80 % of cases, a random character in 10 %, and the original character in 10 %
    /// (Devlin et al. 2019, "BERT", section 3.1). Only for pretraining, because rewards and judges
    /// require all targets to be blanks.
    Bert,
}

/// Predefined lists of stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskingPreset {
    /// Nine stages that cover a broad range of masking, for training.
    Complex,
    /// Fourteen stages that range from a few isolated blanks to nine tenths of a passage, for
    /// evaluation.
    Validation,
    /// The stages of `complex` plus line replacement, for judges.
    SpanAndLines,
}

/// Configuration keys. Exactly one of `preset` and `stages` must be given.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanKeys {
    /// A list of stages with a name; excludes `stages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<MaskingPreset>,
    /// Ways to mask, which alternate text by text; excludes `preset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<Vec<Masking>>,
    /// What replaces the positions that `random` and `sticky` select.
    #[serde(default)]
    corruption: Corruption,
}

impl MaskingPlan {
    /// Creates a plan from stages.
    ///
    /// # Errors
    /// Returns an error if `stages` is empty or a value is out of range.
    pub fn new(stages: Vec<Masking>, corruption: Corruption) -> Result<Self, DataError> {
        if stages.is_empty() {
            return Err(DataError::setting("stages", "an empty list", "at least one stage"));
        }
        for (index, stage) in stages.iter().enumerate() {
            stage.check(&format!("stages[{index}]"))?;
        }
        Ok(Self { stages, corruption })
    }

    /// Creates a plan from a preset.
    pub fn preset(preset: MaskingPreset, corruption: Corruption) -> Self {
        Self { stages: preset.stages(), corruption }
    }

    /// Adapts the plan for training a judge. Selected characters always become MASK, so that the
    /// infiller can fill them. Sticky ratios are drawn for each passage, so that all degrees of
    /// corruption occur.
    #[must_use]
    pub fn for_judge(mut self) -> Self {
        self.corruption = Corruption::None;
        for stage in &mut self.stages {
            if let Masking::Sticky { redrawn, .. } = stage {
                *redrawn = true;
            }
        }
        self
    }

    /// Returns the stages. There is at least one.
    pub fn stages(&self) -> &[Masking] {
        &self.stages
    }

    /// Returns the corruption.
    pub fn corruption(&self) -> Corruption {
        self.corruption
    }

    /// Checks that every target is MASK and that all other characters are unchanged. Sampling and
    /// rewards rely on this.
    ///
    /// # Errors
    /// Returns an error that explains which part of the plan violates this.
    pub fn check_pure(&self) -> Result<(), DataError> {
        let not = |reason: &str, remedy| {
            Err(DataError::Invalid(format!(
                "completions are only valid at blanks, but {reason}, so other positions would be wrong or would count; {remedy}"
            )))
        };
        if self.corruption != Corruption::None {
            return not("`corruption` is \"bert\"", "use `corruption` = \"none\"");
        }
        for (index, stage) in self.stages.iter().enumerate() {
            match stage {
                Masking::Random { .. } | Masking::Sticky { .. } | Masking::Span { .. } => {}
                Masking::Line { .. } | Masking::Replacement { .. } => {
                    let reason = format!("`stages[{index}]` is `{}`", stage.name());
                    return not(&reason, "use the stages `random`, `sticky` and `span`");
                }
            }
        }
        Ok(())
    }
}

impl MaskingPreset {
    fn stages(self) -> Vec<Masking> {
        let sticky = |ratio, p1, p2| Masking::Sticky { ratio, p1, p2, redrawn: false };
        let random = |max_ratio| Masking::Random { min_ratio: 0.0, max_ratio };
        match self {
            Self::Complex => vec![
                sticky(0.4, 0.15, 0.3),
                sticky(0.6, 0.1, 0.5),
                random(0.5),
                Masking::Span { spans: 20 },
                sticky(0.6, 0.3, 0.1),
                sticky(0.6, 0.1, 0.5),
                random(0.2),
                sticky(0.55, 0.1, 0.6),
                sticky(0.9, 0.1, 0.9),
            ],
            Self::Validation => vec![
                sticky(0.4, 0.15, 0.3),
                sticky(0.6, 0.1, 0.5),
                random(0.5),
                sticky(0.6, 0.3, 0.1),
                sticky(0.6, 0.1, 0.5),
                random(0.2),
                sticky(0.2, 0.3, 0.0),
                sticky(0.4, 0.3, 0.0),
                sticky(0.4, 0.15, 0.3),
                sticky(0.55, 0.1, 0.6),
                sticky(0.7, 0.2, 0.4),
                sticky(0.8, 0.2, 0.4),
                sticky(0.8, 0.1, 0.9),
                sticky(0.9, 0.1, 0.9),
            ],
            Self::SpanAndLines => {
                let mut stages = Self::Complex.stages();
                stages.push(Masking::Line { min_ratio: 0.1, max_ratio: 0.45 });
                stages
            }
        }
    }
}

impl TryFrom<PlanKeys> for MaskingPlan {
    type Error = DataError;

    fn try_from(keys: PlanKeys) -> Result<Self, DataError> {
        match (keys.preset, keys.stages) {
            (Some(preset), None) => Ok(Self::preset(preset, keys.corruption)),
            (None, Some(stages)) => Self::new(stages, keys.corruption),
            (preset, _) => {
                let found = if preset.is_some() { "set together with `stages`" } else { "missing" };
                Err(DataError::setting("preset", found, "either `preset` or `stages`"))
            }
        }
    }
}

impl From<MaskingPlan> for PlanKeys {
    fn from(plan: MaskingPlan) -> Self {
        Self { preset: None, stages: Some(plan.stages), corruption: plan.corruption }
    }
}
