//! The reward for filled blanks. It combines a judge's score for the entire text with the fraction
//! of blanks filled correctly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{BLANK, Characters, SequenceScorer};
use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_model::{ModelError, Transformer};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use grpo_rewards::{
    Outcome, PartName, Restriction, Reward, RewardInput, RewardSpec, Scored, check_folder,
    check_mean_weights, folder_files,
};

use crate::sections::passed;

/// Settings of the reward `infill`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InfillConfig {
    /// Model folder of family `sequence_scorer`, as written by `grpo train-judge`.
    #[schemars(extend("x-basic" = true))]
    judge: PathBuf,
    /// Another judge without a weight; shows whether the first one is still right.
    #[serde(default)]
    second_judge: Option<PathBuf>,
    /// Accept a judge that did not pass [its gate](#grpo-train-judge).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    accept_failed_judge: bool,
    /// Weight of 1 − judge.
    #[serde(default = "default_judge_weight")]
    #[schemars(range(min = 0, max = 1))]
    judge_weight: f64,
    /// Weight of `recovery`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    recovery_weight: f64,
}

const JUDGE_FOLDER: &str = "a judge folder contains config.json, characters.json and model.safetensors, as written by `grpo train-judge`";

fn default_judge_weight() -> f64 {
    1.0
}

impl RewardSpec for InfillConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        if self.second_judge.as_ref() == Some(&self.judge) {
            return ConfigFault::refuse(format!(
                "reward.judge and reward.second_judge are both {}; a second judge is useful only if it is a different one",
                self.judge.display()
            ));
        }
        check_mean_weights(&[
            ("judge_weight", self.judge_weight),
            ("recovery_weight", self.recovery_weight),
        ])
    }

    fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let load = |key, folder: &Path| {
            check_folder(key, folder, JUDGE_FOLDER)?;
            let judge = Judge::load(folder, device);
            judge.map_err(|error| ConfigFault::from_sentence("", format!("reward.{key}: {error}")))
        };
        let judge = load("judge", &self.judge)?;
        let second_judge =
            self.second_judge.as_ref().map(|folder| load("second_judge", folder)).transpose()?;
        let weights = (self.judge_weight, self.recovery_weight);
        Ok(Arc::new(InfillReward::new(judge, second_judge, weights.0, weights.1)))
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        check_folder("judge", &self.judge, JUDGE_FOLDER)?;
        let mut files = folder_files("judge", &self.judge)?;
        if let Some(folder) = &self.second_judge {
            check_folder("second_judge", folder, JUDGE_FOLDER)?;
            files.extend(folder_files("second_judge", folder)?);
        }
        Ok(files)
    }

    fn admit(&self) -> Result<Vec<String>, ConfigFault> {
        if !self.accept_failed_judge {
            passed(&self.judge).map_err(|fault| {
                ConfigFault::from_sentence(
                    "reward.judge",
                    format!("reward.judge (reward.accept_failed_judge = true accepts it anyway): {fault:#}"),
                )
            })?;
        }
        let fault = self.second_judge.as_deref().and_then(|judge| passed(judge).err());
        // The second judge doesn't affect the reward, so a warning is enough.
        let warning = |fault| format!("second judge {fault:#}; its agreement means little");
        Ok(fault.map(warning).into_iter().collect())
    }

    fn restriction(&self) -> Option<Restriction> {
        Some(Restriction {
            section: "passages",
            without_section: "reward.type = \"infill\" requires texts with filled blanks; add the [passages] and [masking] sections",
            in_composite: "a reward of type infill scores filled blanks and cannot be part of another reward",
        })
    }
}

/// The reward `w_judge · (1 − judge) + w_recovery · recovery` for a text with filled blanks.
///
/// `judge` is the judge's score for the entire text, from 0 (natural) to 1 (corrupted). `recovery`
/// is the fraction of blanks filled correctly.
///
/// The judge was trained on the output of an infiller that had not yet been optimised for this
/// reward, so it may become inaccurate. Several metrics help to detect this. Besides `recovery`,
/// these are `second_judge`, the score of a judge that isn't optimised against, and `fill_entropy`,
/// the entropy in nats of the characters filled into a text. The entropy drops if the infiller
/// keeps repeating a character.
///
/// A prompt's record contains the original as `text`. Its `blanked` field is the same text with
/// [`BLANK`] at each position to fill. Texts are judged separately, so a reward doesn't depend on
/// other texts.
#[derive(Debug)]
pub struct InfillReward {
    judge: Judge,
    second_judge: Option<Judge>,
    judge_weight: f64,
    recovery_weight: f64,
}

/// A sequence scorer with its character vocabulary.
#[derive(Debug)]
pub struct Judge {
    scorer: SequenceScorer,
    characters: Characters,
}

/// The text of a prompt's record.
struct Blanked {
    original: Vec<char>,
    /// Positions to fill. There is at least one.
    blanks: Vec<usize>,
}

/// Keys in a prompt's record.
const TEXT: &str = "text";
const BLANKED: &str = "blanked";

impl Judge {
    /// Loads a model directory written by `grpo train-judge`.
    ///
    /// # Errors
    /// Returns an error if the directory does not contain a model of the `sequence_scorer` family.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, ModelError> {
        let (spec, scorer) = SequenceScorer::load(folder, device)?;
        let characters =
            spec.codec.own::<Characters>().expect("a sequence scorer reads characters");
        Ok(Self { characters: characters.clone(), scorer })
    }

    /// Returns the model.
    pub(crate) fn model(&self) -> &Transformer {
        self.scorer.model()
    }

    /// Returns the characters that the judge knows.
    pub fn characters(&self) -> &Characters {
        &self.characters
    }

    /// Returns the maximum text length in characters.
    pub fn longest_text(&self) -> usize {
        self.scorer.longest_text()
    }

    /// Scores a single text, from 0 (natural) to 1 (corrupted).
    ///
    /// # Errors
    /// Returns an error if the text contains an unknown character or is too long, or if the weights
    /// are damaged.
    pub fn score(&self, text: &str) -> Result<f64, String> {
        let ids = self.read(text)?;
        match self.scorer.score(&ids) {
            score if score.is_finite() => Ok(score.clamp(0.0, 1.0)),
            score => Err(format!("the judge returned {score}; expected a number between 0 and 1")),
        }
    }

    /// Encodes a text. Returns an error if it is too long or contains an unknown character.
    fn read(&self, text: &str) -> Result<Vec<u32>, String> {
        let unknown = |error| format!("the judge cannot read the text: {error}");
        let ids = self.characters.encode(text).map_err(unknown)?;
        match self.longest_text() {
            longest if ids.len() > longest => Err(format!(
                "the text has {} characters, but the judge's context is {longest}; use shorter passages, or a judge with a larger block_size",
                ids.len()
            )),
            _ => Ok(ids),
        }
    }
}

impl InfillReward {
    /// Creates a reward. The weights must have been checked.
    pub(crate) fn new(
        judge: Judge,
        second_judge: Option<Judge>,
        judge_weight: f64,
        recovery_weight: f64,
    ) -> Self {
        Self { judge, second_judge, judge_weight, recovery_weight }
    }

    fn score_one(&self, sample: &RewardInput) -> Result<Scored, String> {
        let blanked = Blanked::of(&sample.fields)?;
        let filled: Vec<char> = sample.text.chars().collect();
        blanked.check_filled(&filled)?;
        let judge = self.judge.score(&sample.text)?;
        let second =
            self.second_judge.as_ref().map(|judge| judge.score(&sample.text)).transpose()?;
        let recovery = blanked.recovery(&filled);
        let terms = [(self.judge_weight, 1.0 - judge), (self.recovery_weight, recovery)];
        let parts = [
            Some(("judge", judge)),
            Some(("recovery", recovery)),
            Some(("fill_entropy", blanked.fill_entropy(&filled))),
            second.map(|second| ("second_judge", second)),
        ];
        Ok(Scored::new(
            terms.into_iter().filter(|(weight, _)| *weight > 0.0).collect(),
            parts.into_iter().flatten().map(|(name, value)| (name.into(), value)).collect(),
        ))
    }
}

impl Reward for InfillReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let outcome = |sample| match self.score_one(sample) {
            Ok(scored) => Outcome::Scored(scored),
            Err(reason) => Outcome::failed(reason),
        };
        samples.par_iter().map(outcome).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        let second = self.second_judge.is_some().then_some("second_judge");
        ["judge", "recovery", "fill_entropy"]
            .into_iter()
            .chain(second)
            .map(PartName::from)
            .collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        let all = [(self.judge_weight, "judge"), (self.recovery_weight, "recovery")];
        all.into_iter().filter(|(weight, _)| *weight > 0.0).map(|(_, name)| name.into()).collect()
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        let original: String = Blanked::of(fields)?.original.iter().collect();
        let mut judges = std::iter::once(&self.judge).chain(&self.second_judge);
        judges.try_for_each(|judge| judge.read(&original).map(drop))
    }
}

impl Blanked {
    fn of(fields: &Map<String, Value>) -> Result<Self, String> {
        let field = |key: &str| match fields.get(key) {
            Some(Value::String(text)) => Ok(text.chars().collect::<Vec<char>>()),
            Some(_) => Err(format!("field '{key}' of the prompt's record is not a string")),
            None => Err(format!("the prompt's record is missing field '{key}'")),
        };
        let (original, blanked) = (field(TEXT)?, field(BLANKED)?);
        if original.len() != blanked.len() {
            return Err(format!(
                "the field '{BLANKED}' has {} characters, but the field '{TEXT}' has {}; expected equal lengths",
                blanked.len(),
                original.len()
            ));
        }
        let is_blank = |place: &usize| blanked[*place] == BLANK;
        let (blanks, kept): (Vec<usize>, Vec<usize>) = (0..blanked.len()).partition(is_blank);
        if blanks.is_empty() {
            return Err(format!("the field '{BLANKED}' has no blank ({BLANK})"));
        }
        if let Some(place) = kept.into_iter().find(|&place| blanked[place] != original[place]) {
            return Err(format!(
                "the fields '{TEXT}' and '{BLANKED}' differ at character {}, which is not a blank",
                place + 1
            ));
        }
        Ok(Self { original, blanks })
    }

    /// Checks that a filled text equals the original everywhere except at the blanks.
    fn check_filled(&self, filled: &[char]) -> Result<(), String> {
        if filled.len() != self.original.len() {
            return Err(format!(
                "the filled text has {} characters, but the original has {}",
                filled.len(),
                self.original.len()
            ));
        }
        if let Some(place) = filled.iter().position(|&character| character == BLANK) {
            return Err(format!("character {} of the filled text is still a blank", place + 1));
        }
        let mut blanks = self.blanks.iter().copied().peekable();
        for (place, (filled, original)) in filled.iter().zip(&self.original).enumerate() {
            if blanks.next_if_eq(&place).is_none() && filled != original {
                return Err(format!(
                    "character {} of the filled text was changed from '{original}' to '{filled}', but it is not a blank",
                    place + 1
                ));
            }
        }
        Ok(())
    }

    /// Returns the fraction of blanks filled correctly.
    fn recovery(&self, filled: &[char]) -> f64 {
        let right = self.blanks.iter().filter(|&&place| filled[place] == self.original[place]);
        right.count() as f64 / self.blanks.len() as f64
    }

    /// Returns `−Σ p ln p`, where p is the fraction of blanks filled with each character.
    fn fill_entropy(&self, filled: &[char]) -> f64 {
        let mut counts = BTreeMap::new();
        for &place in &self.blanks {
            *counts.entry(filled[place]).or_insert(0_usize) += 1;
        }
        let shares = counts.values().map(|&count| count as f64 / self.blanks.len() as f64);
        // Avoid −0 if there is only one distinct character.
        shares.map(|share| -share * share.ln()).sum::<f64>().max(0.0)
    }
}

#[cfg(test)]
mod tests;
