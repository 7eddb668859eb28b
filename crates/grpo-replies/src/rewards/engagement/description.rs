//! What an engagement model was trained for and on, and how good it was found: `engagement.json` beside its weights.

use std::collections::BTreeMap;
use std::path::Path;

use grpo_data::{DataError, regular_file};
use grpo_eval::{EmbedError, Embedder};
use serde::{Deserialize, Serialize};

use grpo_rewards::EmbedderConfig;

/// What is said of the model, in its folder.
pub(super) const DESCRIPTION: &str = "engagement.json";

/// Everything but the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementDescription {
    /// What made the vectors of tweets and replies.
    pub embedder: EmbedderConfig,
    /// What those vectors depend on ([`Embedder::identity`]): an embedder with another one makes other vectors.
    pub embedder_identity: String,
    /// Numbers of a vector.
    pub width: usize,
    /// Sizes of the head's hidden layers.
    pub hidden: [usize; 2],
    /// What its output was trained to be.
    pub objective: EngagementObjective,
    /// How good it is; not there before the training has come to its end.
    #[serde(default)]
    pub report: Option<EngagementReport>,
}

/// What the head's output is trained to be. The *score* of a reply is `min(reply_likes / max(tweet_likes, 1), 1)`; most are
/// near 0 and few are large, so that the error of the score itself would be that of a few replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EngagementObjective {
    /// `ln(1 + scale · score) / ln(1 + scale)`, by squared error.
    Log {
        /// Scores above 1/scale are told apart by their quotients, those below by their differences.
        #[serde(default = "default_scale")]
        scale: f64,
    },
    /// The part of the training replies with a lower score, those with the same one counted half, by squared error.
    #[default]
    Rank,
    /// The better of two replies to one tweet, as `reply_likes + 2 · reply_retweets` says it (Bradley & Terry 1952).
    Pairwise {
        /// How much further apart two logits should be for a preference that is e times as strong.
        #[serde(default = "default_margin")]
        margin: f64,
    },
}

fn default_scale() -> f64 {
    100.0
}
fn default_margin() -> f64 {
    0.1
}

/// What a model says of held-out replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementMeasures {
    /// Mean of what is minimised in training.
    pub eval_loss: f64,
    /// Pearson's correlation of outputs and targets (ranks, where preferences are trained); 0 where outputs are constant.
    pub pearson: f64,
    /// The same of outputs and scores, as they are.
    pub pearson_score: f64,
    /// Spearman's of outputs and scores.
    pub spearman: f64,
    /// Part of the pairs of neighbours among a tweet's replies, sorted by preference, whose better reply has the higher
    /// output; without such pairs there is none.
    #[serde(default)]
    pub pair_accuracy: Option<f64>,
    /// On how many replies.
    pub replies: usize,
    /// To how many tweets.
    pub tweets: usize,
    /// Pairs of them.
    pub pairs: usize,
}

/// What a model needs to be a reward, all that is given; with nothing given, what is usual for its objective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngagementGate {
    /// `pearson` is above this: that with the targets, which are what the objective makes of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_pearson: Option<f64>,
    /// `pearson_score` is above this: that with the scores themselves, whatever the objective is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_pearson_score: Option<f64>,
    /// `spearman` is above this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_spearman: Option<f64>,
    /// `pair_accuracy` is above this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_pair_accuracy: Option<f64>,
}

/// How good a model is on tweets that had no part in its weights, nor in which of them were kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementReport {
    /// Whether it may be a reward.
    pub passed: bool,
    /// What it was held against.
    pub gate: EngagementGate,
    /// What was found.
    pub test: EngagementMeasures,
    /// Optimizer steps behind the weights that were kept.
    pub train_step: u64,
}

impl EngagementDescription {
    /// Reads the description in `folder`.
    ///
    /// # Errors
    /// No such folder, or a file in it that is no description.
    pub fn load(folder: &Path) -> Result<Self, DataError> {
        if !folder.is_dir() {
            return Err(DataError::Invalid(format!(
                "there is no folder {}; an engagement model's holds engagement.json and head.safetensors, as `grpo train-engagement` writes them",
                folder.display()
            )));
        }
        let path = folder.join(DESCRIPTION);
        let fault = |message: String| fault(&path, message);
        let text = regular_file::read_to_string(&path).map_err(|error| {
            fault(format!(
                "it cannot be read: {error}; `grpo train-engagement` writes it beside the weights"
            ))
        })?;
        let description: Self = serde_json::from_str(&text).map_err(|error| {
            fault(format!("it describes no engagement model: {}", grpo_data::json_reason(&error)))
        })?;
        match Self::check_sizes(description.width, description.hidden) {
            Ok(()) => Ok(description),
            Err(reason) => Err(fault(reason)),
        }
    }

    /// Writes the description into `folder`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_to(&self, folder: &Path) -> Result<(), DataError> {
        let path = folder.join(DESCRIPTION);
        let json = serde_json::to_string_pretty(self).expect("it is JSON") + "\n";
        std::fs::write(&path, json)
            .map_err(|error| fault(&path, format!("it cannot be written: {error}")))
    }

    /// Numbers of a vector, or of a hidden layer, at most.
    pub const MOST_NUMBERS: usize = 1 << 16;

    /// Looks whether there can be a model of vectors of `width` numbers with these hidden layers.
    ///
    /// # Errors
    /// In words, what is wrong.
    pub fn check_sizes(width: usize, hidden: [usize; 2]) -> Result<(), String> {
        let [first, second] = hidden;
        if ![width, first, second].iter().all(|size| (1..=Self::MOST_NUMBERS).contains(size)) {
            return Err(format!(
                "the vectors have {width} numbers and the hidden layers {first} and {second}; expected each to be between 1 and {}",
                Self::MOST_NUMBERS
            ));
        }
        let layers = [feature_count(width) * first, first * second];
        match layers.iter().find(|weights| **weights > MOST_WEIGHTS) {
            None => Ok(()),
            Some(weights) => Err(format!(
                "vectors of {width} numbers and hidden layers of {first} and {second} make a layer of {weights} weights; expected at most {MOST_WEIGHTS}"
            )),
        }
    }
}

fn fault(path: &Path, message: String) -> DataError {
    DataError::Invalid(format!("{}: {message}", path.display()))
}

/// Weights of a layer at most: 1 GiB.
const MOST_WEIGHTS: usize = 1 << 28;

/// How many features there are of vectors of `width` numbers.
pub(super) fn feature_count(width: usize) -> usize {
    2 * width
}

/// What the head reads of the vectors of a tweet and a reply: both, one behind the other. Embedders make vectors of length 1;
/// they are multiplied by the root of their width, so that features are about 1 in size, which is what the head's first values
/// are made for.
fn features_of(tweet: &[f32], reply: &[f32]) -> Vec<f32> {
    let scale = (tweet.len() as f32).sqrt();
    tweet.iter().chain(reply).map(|number| scale * number).collect()
}

/// What the head reads of each (tweet, reply). A text that comes often, as the tweet of a group does, is embedded once.
///
/// # Errors
/// A text that no vector can be made of.
pub fn engagement_features(
    embedder: &dyn Embedder,
    pairs: &[(&str, &str)],
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let mut places = BTreeMap::new();
    let mut texts = Vec::new();
    for text in pairs.iter().flat_map(|&(tweet, reply)| [tweet, reply]) {
        places.entry(text).or_insert_with(|| {
            texts.push(text);
            texts.len() - 1
        });
    }
    let vectors = embedder.embed(&texts)?;
    let of = |text: &str| vectors[places[text]].as_slice();
    Ok(pairs.iter().map(|&(tweet, reply)| features_of(of(tweet), of(reply))).collect())
}

impl EngagementGate {
    /// With what is usual for `objective` where nothing is given: a correlation above ½, or two of three pairs in the right
    /// order.
    pub fn or_default(self, objective: &EngagementObjective) -> Self {
        match (self == Self::default(), objective) {
            (false, _) => self,
            (true, EngagementObjective::Log { .. } | EngagementObjective::Rank) => {
                Self { min_pearson: Some(0.5), ..self }
            }
            (true, EngagementObjective::Pairwise { .. }) => {
                Self { min_pair_accuracy: Some(2.0 / 3.0), ..self }
            }
        }
    }

    /// Whether a model of these measures may be a reward.
    pub fn passes(&self, measures: &EngagementMeasures) -> bool {
        // So written that a figure that is not there passes nothing.
        self.wanted(measures).iter().all(|(_, wanted, found)| found.is_some_and(|it| it > *wanted))
    }

    /// What was found beside what is needed, in words.
    pub fn against(&self, measures: &EngagementMeasures) -> String {
        let parts = self.wanted(measures).into_iter().map(|(name, wanted, found)| {
            let found = found.map_or_else(|| "not known".to_owned(), |found| format!("{found:.3}"));
            format!("{name} = {found} (above {wanted:.3})")
        });
        let parts: Vec<String> = parts.collect();
        format!("{} on {} held-out replies", parts.join(", "), measures.replies)
    }

    fn wanted(&self, measures: &EngagementMeasures) -> Vec<(&'static str, f64, Option<f64>)> {
        let all = [
            ("Pearson with the targets", self.min_pearson, Some(measures.pearson)),
            ("Pearson with the scores", self.min_pearson_score, Some(measures.pearson_score)),
            ("Spearman", self.min_spearman, Some(measures.spearman)),
            ("pair accuracy", self.min_pair_accuracy, measures.pair_accuracy),
        ];
        all.into_iter().filter_map(|(name, wanted, found)| Some((name, wanted?, found))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_eval::HashedNgrams;

    fn measures() -> EngagementMeasures {
        EngagementMeasures {
            eval_loss: 0.05,
            pearson: 0.6,
            pearson_score: 0.3,
            spearman: 0.4,
            pair_accuracy: Some(0.7),
            replies: 50,
            tweets: 20,
            pairs: 30,
        }
    }

    #[test]
    fn features_are_both_vectors() {
        let (tweet, reply) = ([0.6, -0.8, 0.0, 0.0], [0.0, 0.5, -0.5, 0.5]);
        let both = features_of(&tweet, &reply);
        assert_eq!(both, [1.2, -1.6, 0.0, 0.0, 0.0, 1.0, -1.0, 1.0]);
        assert_eq!(both.len(), feature_count(4));
    }

    #[test]
    fn features_of_many_are_those_of_each() {
        let embedder = HashedNgrams::new(16);
        let pairs = [("a red bird", "nice"), ("a red bird", "a bird"), ("nice", "a red bird")];
        let together = engagement_features(&embedder, &pairs).unwrap();
        for (pair, together) in pairs.iter().zip(&together) {
            assert_eq!(&engagement_features(&embedder, &[*pair]).unwrap()[0], together);
            let [tweet, reply] = [pair.0, pair.1].map(|text| embedder.embed(&[text]).unwrap());
            assert_eq!(&features_of(&tweet[0], &reply[0]), together);
        }
        assert_ne!(together[0], together[1]);
        assert_ne!(together[0], together[2]);
    }

    #[test]
    fn a_gate_asks_for_all_that_is_given_and_for_what_is_usual_else() {
        let gate = |pearson, spearman, pair_accuracy| EngagementGate {
            min_pearson: pearson,
            min_pearson_score: None,
            min_spearman: spearman,
            min_pair_accuracy: pair_accuracy,
        };
        let none = gate(None, None, None);
        let rank = none.or_default(&EngagementObjective::Rank);
        assert_eq!(rank, gate(Some(0.5), None, None));
        let pairwise = none.or_default(&EngagementObjective::Pairwise { margin: 0.1 });
        assert_eq!(pairwise, gate(None, None, Some(2.0 / 3.0)));
        let own = gate(None, Some(0.3), None);
        assert_eq!(own.or_default(&EngagementObjective::Rank), own);

        assert!(rank.passes(&measures()) && pairwise.passes(&measures()));
        assert!(!gate(Some(0.6), None, None).passes(&measures()));
        assert!(!gate(Some(0.5), Some(0.5), None).passes(&measures()));
        assert!(!gate(Some(0.5), None, Some(0.7)).passes(&measures()));
        let without = EngagementMeasures { pair_accuracy: None, ..measures() };
        assert!(!pairwise.passes(&without) && rank.passes(&without));
        // The other correlation is another figure.
        let of_scores = EngagementGate { min_pearson_score: Some(0.5), ..none };
        assert_eq!(of_scores.or_default(&EngagementObjective::Rank), of_scores);
        assert!(!of_scores.passes(&measures()));
        assert_eq!(
            of_scores.against(&measures()),
            "Pearson with the scores = 0.300 (above 0.500) on 50 held-out replies"
        );
        let nan = EngagementMeasures { pearson: f64::NAN, ..measures() };
        assert!(!rank.passes(&nan));
        assert_eq!(
            gate(Some(0.5), None, Some(0.75)).against(&without),
            "Pearson with the targets = 0.600 (above 0.500), pair accuracy = not known (above 0.750) on 50 held-out replies"
        );
    }
}
