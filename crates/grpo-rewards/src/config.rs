//! Configuration of text rewards.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::{AnswerForm, ConfigFault, regex_reason};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AnswerReward, PatternReward, Reward, RewardSpec};

/// Settings of the reward `answer`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerConfig {
    /// Key of the record with the right answer; dots separate the keys of nested objects
    /// (`reward_model.ground_truth`).
    #[serde(default = "default_answer_field")]
    #[schemars(extend("x-basic" = true))]
    field: String,
    /// How a completion marks its answer: `"####"` (what follows on the line, GSM8K), `"boxed"` (in
    /// `\boxed{}`, MATH), or a regular expression, whose first group counts if there is one. The last
    /// answer counts. Default: whole completion.
    #[serde(default)]
    #[schemars(extend("x-basic" = true))]
    extract: Option<String>,
}

fn default_answer_field() -> String {
    "answer".to_owned()
}

impl AnswerConfig {
    fn reward(&self) -> Result<AnswerReward, ConfigFault> {
        let extract = self.extract.as_deref().map(|text| {
            AnswerForm::parse(text).map_err(|reason| not_a_pattern("extract", text, &reason))
        });
        let extract = extract.transpose()?;
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

/// Settings of the reward `pattern`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PatternConfig {
    /// Regular expression of the [regex](https://docs.rs/regex/latest/regex/#syntax) crate.
    #[schemars(extend("x-basic" = true))]
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
    Regex::new(text).map_err(|error| not_a_pattern(key, text, &regex_reason(&error)))
}

fn not_a_pattern(key: &str, text: &str, reason: &str) -> ConfigFault {
    ConfigFault::from_sentence(
        "",
        format!("reward.{key} = '{text}' is not a valid regular expression: {reason}"),
    )
}
