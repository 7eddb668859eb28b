//! Which reward a configuration asks for.

mod replies;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::heuristic::HeuristicWeights;
use crate::infill::Judge;
use crate::{
    AnswerReward, CompositePart, EmbedderConfig, EmbedderConfigError, EngagementDescription,
    EngagementError, EngagementModel, InfillReward, LearnedReward, LogpWindow, MoleculeReward,
    PatternReward, Reward,
};

/// The section `[reward]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RewardConfig {
    /// A weighted mean of molecular properties; 0 for what is no molecule. See [`MoleculeReward`].
    Molecule {
        /// Weight of QED.
        #[serde(default)]
        qed: f64,
        /// Weight of ease of synthesis, (10 − SA)/9.
        #[serde(default)]
        sa: f64,
        /// Weight of the closeness of logP to `logp_centre`.
        #[serde(default)]
        logp: f64,
        /// The wanted logP.
        #[serde(default = "default_logp_centre")]
        logp_centre: f64,
        /// Distance from the centre at which the logP part is 0.
        #[serde(default = "default_logp_half_width")]
        logp_half_width: f64,
    },
    /// 1 where the completion gives the answer that the prompt's record has, 0 elsewhere. See [`AnswerReward`].
    Answer {
        /// Key of the right answer in the record.
        #[serde(default = "default_answer_field")]
        field: String,
        /// Where in the completion the answer stands: the last match counts, of it the first group, or all of it
        /// where there is no group. Without it, the whole completion is the answer.
        #[serde(default)]
        extract: Option<String>,
    },
    /// 1 where the completion has a match of a pattern, 0 elsewhere. See [`PatternReward`].
    Pattern {
        /// A regular expression.
        pattern: String,
    },
    /// What a frozen judge says of a text whose blanks were filled, and how many of them have their true character. See
    /// [`InfillReward`].
    Infill {
        /// Model folder of the judge.
        judge: PathBuf,
        /// Model folder of a judge that has no weight, to see whether both still agree.
        #[serde(default)]
        second_judge: Option<PathBuf>,
        /// Whether a judge that did not pass the gate of its training may be the reward.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_failed_judge: bool,
        /// Weight of 1 − judge.
        #[serde(default = "default_judge_weight")]
        judge_weight: f64,
        /// Weight of the part of the blanks that have their true character.
        #[serde(default)]
        recovery_weight: f64,
    },
    /// What an engagement model says of a reply to the tweet that the prompt's record has. See [`LearnedReward`].
    Learned {
        /// Folder of the model, as `grpo train-engagement` writes it.
        model: PathBuf,
        /// What makes its vectors; where it is left out, the embedder that the model names. It must be the same one, in
        /// whatever folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        embedder: Option<EmbedderConfig>,
        /// Whether a model that did not pass the gate of its training may be the reward.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        accept_failed_gate: bool,
    },
    /// Six measures of a reply to the tweet that the prompt's record has. See [`crate::HeuristicReward`].
    Heuristic {
        /// Weight of the nearness of the vectors of tweet and reply.
        #[serde(default = "default_relevance")]
        relevance: f64,
        /// Weight of a good length.
        #[serde(default = "default_length")]
        length: f64,
        /// Weight of the nearness of polarities.
        #[serde(default = "default_sentiment")]
        sentiment: f64,
        /// Weight of the part of the words that differ.
        #[serde(default = "default_diversity")]
        diversity: f64,
        /// Weight of as many marks as usual.
        #[serde(default = "default_punctuation")]
        punctuation: f64,
        /// Weight of saying something.
        #[serde(default = "default_engagement")]
        engagement: f64,
        /// What makes the vectors; needed unless `relevance` is 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        embedder: Option<EmbedderConfig>,
        /// Words that say nothing in a short reply, instead of [`crate::DEFAULT_GENERIC_WORDS`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generic_words: Option<Vec<String>>,
    },
    /// A learned and a heuristic reward, `Σ weight · reward`. See [`crate::CompositeReward`].
    Hybrid {
        /// Weight of the learned reward.
        #[serde(default = "default_learned_weight")]
        learned_weight: f64,
        /// Weight of the heuristic reward.
        #[serde(default = "default_heuristic_weight")]
        heuristic_weight: f64,
        /// A reward of type `learned`.
        learned: Box<RewardConfig>,
        /// A reward of type `heuristic`.
        heuristic: Box<RewardConfig>,
    },
    /// A sum of rewards with weights. See [`crate::CompositeReward`].
    Composite {
        /// What is added up.
        parts: Vec<CompositePart>,
        /// Whether weights that do not sum to 1 are divided by their sum, instead of being an error.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        normalize: bool,
    },
}

fn default_relevance() -> f64 {
    0.30
}
fn default_length() -> f64 {
    0.15
}
fn default_sentiment() -> f64 {
    0.15
}
fn default_diversity() -> f64 {
    0.10
}
fn default_punctuation() -> f64 {
    0.10
}
fn default_engagement() -> f64 {
    0.20
}
fn default_learned_weight() -> f64 {
    0.6
}
fn default_heuristic_weight() -> f64 {
    0.4
}

fn default_judge_weight() -> f64 {
    1.0
}

fn default_answer_field() -> String {
    "answer".to_owned()
}

fn default_logp_centre() -> f64 {
    2.5
}
fn default_logp_half_width() -> f64 {
    2.0
}

impl RewardConfig {
    /// The reward that is asked for; the models that it has are read, and live on `device`.
    ///
    /// # Errors
    /// As [`Self::check`], and a model folder that is missing or wrong.
    pub fn build(&self, device: &Device) -> Result<Arc<dyn Reward>, RewardConfigError> {
        match self {
            Self::Infill { judge_weight, recovery_weight, .. } => {
                self.check()?;
                let mut judges = self.folders().map(|(key, folder)| judge(key, folder, device));
                let first = judges.next().expect("there is a judge")?;
                let second = judges.next().transpose()?;
                let (judge_weight, recovery_weight) = (*judge_weight, *recovery_weight);
                Ok(Arc::new(InfillReward::new(first, second, judge_weight, recovery_weight)))
            }
            Self::Learned { model, embedder, accept_failed_gate } => {
                self.check()?;
                let folder = model;
                let model = EngagementModel::load(folder, embedder.as_ref(), device)?;
                if !accept_failed_gate {
                    model.check_gate(folder)?;
                }
                Ok(Arc::new(LearnedReward::new(Arc::new(model))))
            }
            Self::Heuristic { embedder, generic_words, .. } => replies::heuristic(
                self.heuristic_weights(),
                embedder.as_ref(),
                generic_words.as_deref(),
                device,
            ),
            Self::Hybrid { .. } | Self::Composite { .. } => {
                self.check()?;
                replies::composite(&self.composite_parts()?, device)
            }
            _ => self.of_settings(),
        }
    }

    /// Looks at the settings, and at no file.
    ///
    /// # Errors
    /// Weights that are negative or do not sum to 1; an empty window; no regular expression.
    pub fn check(&self) -> Result<(), RewardConfigError> {
        match self {
            Self::Infill { judge, second_judge: Some(second), .. } if judge == second => {
                Err(RewardConfigError::OneJudgeTwice { judge: judge.clone() })
            }
            &Self::Infill { judge_weight, recovery_weight, .. } => {
                let sum = judge_weight + recovery_weight;
                match is_mean(&[judge_weight, recovery_weight]) {
                    true => Ok(()),
                    false => Err(RewardConfigError::InfillWeights { sum }),
                }
            }
            Self::Learned { embedder, .. } => {
                Ok(embedder.iter().try_for_each(EmbedderConfig::check)?)
            }
            Self::Heuristic { embedder, generic_words, .. } => replies::check_heuristic(
                self.heuristic_weights(),
                embedder.as_ref(),
                generic_words.as_deref(),
            ),
            Self::Hybrid { .. } => replies::check_composite(&self.composite_parts()?, false),
            Self::Composite { parts, normalize } => replies::check_composite(parts, *normalize),
            _ => self.of_settings().map(drop),
        }
    }

    /// The files that the reward is made of, each with the key that names its folder.
    ///
    /// # Errors
    /// A folder that is not there or cannot be read.
    pub fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, RewardConfigError> {
        let mut files = Vec::new();
        if let Self::Learned { model, embedder, .. } = self {
            // Which embedder it is, stands in the model's folder.
            let named = EngagementDescription::load(model)?.embedder;
            let embedder = embedder.as_ref().unwrap_or(&named);
            files.extend(embedder.files()?);
        }
        if let Self::Heuristic { embedder: Some(embedder), .. } = self {
            files.extend(embedder.files()?);
        }
        for part in self.composite_parts()? {
            files.extend(part.reward.files().map_err(|error| error.of_part(&part.name))?);
        }
        for (key, folder) in self.folders() {
            check_folder(key, folder)?;
            let unreadable = |error: std::io::Error| RewardConfigError::Judge {
                key,
                fault: format!("cannot read {}: {error}", folder.display()),
            };
            let mut own = Vec::new();
            for entry in std::fs::read_dir(folder).map_err(unreadable)? {
                let path = entry.map_err(unreadable)?.path();
                if path.is_file() {
                    own.push((key, path));
                }
            }
            own.sort();
            files.extend(own);
        }
        Ok(files)
    }

    /// The weights of a heuristic reward.
    fn heuristic_weights(&self) -> HeuristicWeights {
        match *self {
            Self::Heuristic {
                relevance,
                length,
                sentiment,
                diversity,
                punctuation,
                engagement,
                ..
            } => HeuristicWeights {
                relevance,
                length,
                sentiment,
                diversity,
                punctuation,
                engagement,
            },
            _ => unreachable!("it is heuristic"),
        }
    }

    /// The rewards that it is made of; none where it is made of no others.
    fn composite_parts(&self) -> Result<Vec<CompositePart>, RewardConfigError> {
        match self {
            Self::Composite { parts, .. } => Ok(parts.clone()),
            Self::Hybrid { learned_weight, heuristic_weight, learned, heuristic } => {
                replies::hybrid([*learned_weight, *heuristic_weight], learned, heuristic)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Model folders, by their keys.
    fn folders(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let keyed = match self {
            Self::Infill { judge, second_judge, .. } => {
                [("judge", Some(judge)), ("second_judge", second_judge.as_ref())]
            }
            Self::Learned { model, .. } => [("engagement_model", Some(model)), ("", None)],
            _ => [("", None), ("", None)],
        };
        keyed.into_iter().filter_map(|(key, folder)| Some((key, folder?.as_path())))
    }

    /// A reward that has no files.
    fn of_settings(&self) -> Result<Arc<dyn Reward>, RewardConfigError> {
        match self {
            &Self::Molecule { qed, sa, logp, logp_centre, logp_half_width } => {
                let window = LogpWindow { centre: logp_centre, half_width: logp_half_width };
                molecule(MoleculeReward { qed, sa, logp, window })
            }
            Self::Infill { .. }
            | Self::Learned { .. }
            | Self::Heuristic { .. }
            | Self::Hybrid { .. }
            | Self::Composite { .. } => unreachable!("it is made of more than settings"),
            Self::Answer { field, extract } => {
                let extract =
                    extract.as_deref().map(|text| pattern("extract", text)).transpose()?;
                Ok(Arc::new(AnswerReward { field: field.clone(), extract }))
            }
            Self::Pattern { pattern: text } => {
                Ok(Arc::new(PatternReward { pattern: pattern("pattern", text)? }))
            }
        }
    }
}

fn molecule(reward: MoleculeReward) -> Result<Arc<dyn Reward>, RewardConfigError> {
    let weights = [reward.qed, reward.sa, reward.logp];
    if !is_mean(&weights) {
        return Err(RewardConfigError::Weights { sum: weights.iter().sum() });
    }
    let LogpWindow { centre, half_width } = reward.window;
    if !(half_width > 0.0 && half_width.is_finite() && centre.is_finite()) {
        return Err(RewardConfigError::LogpWindow { half_width });
    }
    Ok(Arc::new(reward))
}

/// Whether these are weights of a mean: at least 0 each, and 1 together.
fn is_mean(weights: &[f64]) -> bool {
    let sum: f64 = weights.iter().sum();
    // So written that NaN is refused as well.
    weights.iter().all(|weight| *weight >= 0.0) && (sum - 1.0).abs() <= 1e-6
}

fn judge(key: &'static str, folder: &Path, device: &Device) -> Result<Judge, RewardConfigError> {
    check_folder(key, folder)?;
    Judge::load(folder, device)
        .map_err(|error| RewardConfigError::Judge { key, fault: error.to_string() })
}

fn check_folder(key: &'static str, folder: &Path) -> Result<(), RewardConfigError> {
    match folder.is_dir() {
        true => Ok(()),
        false => Err(RewardConfigError::Judge {
            key,
            fault: format!(
                "there is no folder {}; a judge's holds config.json, characters.json and model.safetensors, as `grpo train-judge` writes them",
                folder.display()
            ),
        }),
    }
}

fn pattern(key: &'static str, text: &str) -> Result<Regex, RewardConfigError> {
    Regex::new(text).map_err(|error| {
        // The last line says why; those before it draw the place.
        let fault = error.to_string();
        let fault = fault.lines().last().unwrap_or_default();
        let fault = fault.trim_start_matches("error: ").to_owned();
        RewardConfigError::Pattern { key, pattern: text.to_owned(), fault }
    })
}

impl From<EngagementError> for RewardConfigError {
    fn from(error: EngagementError) -> Self {
        match error {
            EngagementError::Embedder(error) => Self::Embedder(error),
            error => Self::Engagement { fault: error.to_string() },
        }
    }
}

/// A reward that cannot be what is meant.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardConfigError {
    /// The total would not be in 0..1.
    #[error(
        "reward.qed, reward.sa and reward.logp must each be at least 0 and sum to 1, so that the reward is between 0 and 1; they sum to {sum}"
    )]
    Weights {
        /// Their sum.
        sum: f64,
    },
    /// The total would not be in 0..1.
    #[error(
        "reward.judge_weight and reward.recovery_weight must each be at least 0 and sum to 1, so that the reward is between 0 and 1; they sum to {sum}"
    )]
    InfillWeights {
        /// Their sum.
        sum: f64,
    },
    /// The total would not be in 0..1.
    #[error(
        "reward.relevance, reward.length, reward.sentiment, reward.diversity, reward.punctuation and reward.engagement must each be at least 0 and sum to 1, so that the reward is between 0 and 1; they sum to {sum}"
    )]
    HeuristicWeights {
        /// Their sum.
        sum: f64,
    },
    /// Relevance compares vectors.
    #[error(
        "a heuristic reward with relevance compares vectors of texts: set reward.embedder, for example {{ type = \"sentence_transformers\", folder = \"all-MiniLM-L6-v2\" }} or {{ type = \"hashed_ngrams\" }}, or reward.relevance = 0 with other weights that sum to 1"
    )]
    NoEmbedder,
    /// An entry that no text has.
    #[error("reward.generic_words has '{entry}', which has no letter and no digit; leave it out")]
    GenericWord {
        /// What it was.
        entry: String,
    },
    /// The total would not be in 0..1.
    #[error(
        "reward.learned_weight and reward.heuristic_weight must each be at least 0 and sum to 1; they sum to {sum}"
    )]
    HybridWeights {
        /// Their sum.
        sum: f64,
    },
    /// A hybrid reward is of one learned and one heuristic reward.
    #[error(
        "reward.{key} must have type = \"{key}\"; other rewards are added up by type = \"composite\""
    )]
    HybridPart {
        /// The key, which is the type as well.
        key: &'static str,
    },
    /// A sum of nothing.
    #[error("reward.parts is empty; a composite reward adds up at least one")]
    NoParts,
    /// The weights of parts are no mean's.
    #[error(
        "the weights of reward.parts must each be at least 0 and sum to 1, or reward.normalize must be true and one of them above 0; they sum to {sum}"
    )]
    CompositeWeights {
        /// Their sum.
        sum: f64,
    },
    /// A name that metrics cannot have.
    #[error(
        "reward.parts has the name '{name}'; a name is of small letters, digits and `_`, as metrics are named by it"
    )]
    PartName {
        /// What it was.
        name: String,
    },
    /// A name that is said of something else already.
    #[error(
        "reward.parts has the name '{name}', under which metrics have {whose}; give the part another name"
    )]
    PartNameTaken {
        /// The name.
        name: String,
        /// What has it.
        whose: &'static str,
    },
    /// Two parts of one name.
    #[error("reward.parts has the name '{name}' twice; metrics could not tell them apart")]
    PartTwice {
        /// The name.
        name: String,
    },
    /// A transform that cannot be what is meant.
    #[error("part '{name}' of the reward: {fault}")]
    Transform {
        /// The part.
        name: String,
        /// Why.
        fault: String,
    },
    /// Its prompts are passages.
    #[error("a reward of type infill scores filled blanks, and can be no part of another reward")]
    InfillInComposite,
    /// A part that cannot be what is meant.
    #[error("part '{name}' of the reward: {fault}")]
    Part {
        /// The part.
        name: String,
        /// Why.
        fault: Box<RewardConfigError>,
    },
    /// A judge that cannot be used.
    #[error("reward.{key}: {fault}")]
    Judge {
        /// The key.
        key: &'static str,
        /// Why.
        fault: String,
    },
    /// An engagement model that cannot be used.
    #[error("reward.model: {fault}")]
    Engagement {
        /// Why.
        fault: String,
    },
    /// It would always agree.
    #[error(
        "reward.judge and reward.second_judge are both {}; a second judge shows something only where it is another one", judge.display()
    )]
    OneJudgeTwice {
        /// The folder.
        judge: PathBuf,
    },
    /// No logP would be near the centre.
    #[error(
        "reward.logp_half_width = {half_width} must be a finite number above 0, and reward.logp_centre a finite number"
    )]
    LogpWindow {
        /// What it was.
        half_width: f64,
    },
    /// An embedder that cannot be what is meant.
    #[error(transparent)]
    Embedder(#[from] EmbedderConfigError),
    /// No regular expression.
    #[error("reward.{key} = '{pattern}' is no regular expression: {fault}")]
    Pattern {
        /// The key.
        key: &'static str,
        /// What it was.
        pattern: String,
        /// Why.
        fault: String,
    },
}

impl RewardConfigError {
    /// The same, of a part of a reward.
    fn of_part(self, name: &str) -> Self {
        Self::Part { name: name.to_owned(), fault: Box::new(self) }
    }
}
