//! Configuration of text rewards.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{ConfigFault, regex_reason};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::composite::CompositeConfig;
use crate::external::{CommandConfig, External, PythonConfig};
use crate::{AnswerReward, PatternReward, Reward, RewardKind, RewardRegistry, RewardSpec};

impl Default for RewardRegistry {
    /// Returns the task-independent reward types: `answer`, `pattern`, `composite`, and the types
    /// for programs `command` and `python`.
    fn default() -> Self {
        Self::empty().with([
            RewardKind::from_settings::<AnswerConfig>("answer"),
            RewardKind::from_settings::<PatternConfig>("pattern"),
            RewardKind::composed::<CompositeConfig>("composite"),
            RewardKind::composed::<External<CommandConfig>>("command"),
            RewardKind::composed::<External<PythonConfig>>("python"),
        ])
    }
}

/// Configuration of an [`AnswerReward`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerConfig {
    /// The key in the record that contains the correct answer.
    #[serde(default = "default_answer_field")]
    field: String,
    /// See [`AnswerReward::extract`]. If it is not set, the entire completion is the answer.
    #[serde(default)]
    extract: Option<String>,
}

fn default_answer_field() -> String {
    "answer".to_owned()
}

impl AnswerConfig {
    fn reward(&self) -> Result<AnswerReward, ConfigFault> {
        let extract = self.extract.as_deref().map(|text| pattern("extract", text)).transpose()?;
        Ok(AnswerReward { field: self.field.clone(), extract })
    }
}

impl RewardSpec for AnswerConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        self.reward().map(drop)
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(self.reward()?))
    }
}

/// Configuration of a [`PatternReward`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PatternConfig {
    /// The regular expression.
    pattern: String,
}

impl RewardSpec for PatternConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        pattern("pattern", &self.pattern).map(drop)
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(PatternReward { pattern: pattern("pattern", &self.pattern)? }))
    }
}

fn pattern(key: &str, text: &str) -> Result<Regex, ConfigFault> {
    Regex::new(text).map_err(|error| {
        let fault = regex_reason(&error);
        ConfigFault::from_sentence(
            "",
            format!("reward.{key} = '{text}' is not a valid regular expression: {fault}"),
        )
    })
}
