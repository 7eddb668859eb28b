//! The description of an engagement model, stored in `engagement.json`.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

use std::collections::BTreeMap;
use std::path::Path;

use grpo_data::{DataError, Ranges, regular_file};
use grpo_eval::{EmbedError, Embedder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use grpo_rewards::EmbedderConfig;

/// Name of the description file.
pub(super) const DESCRIPTION: &str = "engagement.json";

/// Describes an engagement model. Contains everything except the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementDescription {
    /// The embedder for tweets and replies.
    pub embedder: EmbedderConfig,
    /// Identity of the embedder ([`Embedder::identity`]). Embedders with different identities
    /// produce different vectors.
    pub embedder_identity: String,
    /// Length of an embedding vector.
    pub width: usize,
    /// Sizes of the two hidden layers.
    pub hidden: [usize; 2],
    /// The training objective.
    pub objective: EngagementObjective,
    /// Evaluation results. `None` until training has finished.
    #[serde(default)]
    pub report: Option<EngagementReport>,
}

/// The training objective of an engagement model.
///
/// The *score* of a reply is `min(reply_likes / max(tweet_likes, 1), 1)`. Most scores are close to
/// 0 and a few are large. A squared error on raw scores would be dominated by these few replies, so
/// the scores are transformed first.
///
/// Variants without settings are structs as well, so that unknown keys are refused.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EngagementObjective {
    /// Squared error on `ln(1 + scale · score) / ln(1 + scale)`.
    Log {
        /// Controls the transition of the transform. It is approximately linear for scores below
        /// 1/scale and logarithmic above.
        #[serde(default = "default_scale")]
        scale: f64,
    },
    /// Squared error on the fraction of training replies with a lower score. Ties count half.
    Rank {},
    /// Predicts which of two replies to a tweet has more `reply_likes + 2 · reply_retweets`
    /// (Bradley & Terry 1952).
    Pairwise {
        /// Logit margin if the preference is stronger by a factor of e.
        #[serde(default = "default_margin")]
        margin: f64,
    },
}

impl Default for EngagementObjective {
    fn default() -> Self {
        Self::Rank {}
    }
}

fn default_scale() -> f64 {
    100.0
}
fn default_margin() -> f64 {
    0.1
}

/// Evaluation metrics on held-out replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementMeasures {
    /// Mean value of the objective's loss.
    pub eval_loss: f64,
    /// Pearson correlation between outputs and targets. The pairwise objective uses ranks as
    /// targets. The correlation is 0 if all outputs are equal.
    pub pearson: f64,
    /// Pearson correlation between outputs and scores.
    pub pearson_score: f64,
    /// Spearman correlation between outputs and scores.
    pub spearman: f64,
    /// Fraction of reply pairs in which the better reply has the higher output. Each pair consists
    /// of two replies to a tweet that are adjacent when sorted by preference. `None` if there are
    /// no pairs.
    #[serde(default)]
    pub pair_accuracy: Option<f64>,
    /// Number of replies.
    pub replies: usize,
    /// Number of tweets.
    pub tweets: usize,
    /// Number of reply pairs.
    pub pairs: usize,
}

/// Minimum metrics for use as a reward. If no bound is set, a default that depends on the objective
/// is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields, default)]
pub struct EngagementGate {
    /// Lower limit of the correlation of outputs and targets. Default: 0.5 for `rank` and `log`. If
    /// the section has any key, only the given keys apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 1))]
    pub min_pearson: Option<f64>,
    /// Lower limit of the correlation of outputs and scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 1))]
    pub min_pearson_score: Option<f64>,
    /// Lower limit of the rank correlation of outputs and scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 1))]
    pub min_spearman: Option<f64>,
    /// Lower limit of the fraction of pairs in the right order. Default: 2/3 for `pairwise`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub min_pair_accuracy: Option<f64>,
}

/// The evaluation on test tweets, which were used neither for training nor for model selection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngagementReport {
    /// Whether the model passed the gate.
    pub passed: bool,
    /// The bounds that were applied.
    pub gate: EngagementGate,
    /// Metrics on the test tweets.
    pub test: EngagementMeasures,
    /// The optimizer step at which the selected weights were saved.
    pub train_step: u64,
}

impl EngagementDescription {
    /// Loads the description in `folder`.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or does not contain a valid description.
    pub fn load(folder: &Path) -> Result<Self, DataError> {
        if !folder.is_dir() {
            return Err(DataError::Invalid(format!(
                "folder {} does not exist; expected an engagement model with engagement.json and head.safetensors, as written by `grpo train-engagement`",
                folder.display()
            )));
        }
        let path = folder.join(DESCRIPTION);
        let fault = |message: String| fault(&path, message);
        let text = regular_file::read_to_string(&path).map_err(|error| {
            fault(format!(
                "cannot read the file: {error}; `grpo train-engagement` writes it next to the weights"
            ))
        })?;
        let description: Self = serde_json::from_str(&text).map_err(|error| {
            fault(format!(
                "not a valid description of an engagement model: {}",
                grpo_data::json_reason(&error)
            ))
        })?;
        match Self::check_sizes(description.width, description.hidden) {
            Ok(()) => Ok(description),
            Err(reason) => Err(fault(reason)),
        }
    }

    /// Writes the description to `folder`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn write_to(&self, folder: &Path) -> Result<(), DataError> {
        let path = folder.join(DESCRIPTION);
        let json = serde_json::to_string_pretty(self).expect("it is JSON") + "\n";
        std::fs::write(&path, json)
            .map_err(|error| fault(&path, format!("cannot write the file: {error}")))
    }

    /// Maximum size of an embedding vector or hidden layer.
    pub const MOST_NUMBERS: usize = 1 << 16;

    /// Checks whether a model with these layer sizes is supported.
    ///
    /// # Errors
    /// Returns a description of the invalid size.
    pub fn check_sizes(width: usize, hidden: [usize; 2]) -> Result<(), String> {
        let [first, second] = hidden;
        if ![width, first, second].iter().all(|size| (1..=Self::MOST_NUMBERS).contains(size)) {
            return Err(format!(
                "the vector width {width} and the hidden layer widths {first} and {second} must be between 1 and {}",
                Self::MOST_NUMBERS
            ));
        }
        let layers = [feature_count(width) * first, first * second];
        match layers.iter().find(|weights| **weights > MOST_WEIGHTS) {
            None => Ok(()),
            Some(weights) => Err(format!(
                "vector width {width} and hidden layer widths {first} and {second} require a layer of {weights} weights; expected at most {MOST_WEIGHTS}"
            )),
        }
    }
}

fn fault(path: &Path, message: String) -> DataError {
    DataError::Invalid(format!("{}: {message}", path.display()))
}

/// Maximum number of weights per layer, i.e. 1 GiB.
const MOST_WEIGHTS: usize = 1 << 28;

/// Returns the number of features for embedding vectors of length `width`.
pub(super) fn feature_count(width: usize) -> usize {
    2 * width
}

/// Concatenates the embedding vectors of a tweet and a reply.
///
/// Embedders return unit vectors. They are multiplied by the square root of their length, because
/// the initialization of the head assumes features with a magnitude of about 1.
fn features_of(tweet: &[f32], reply: &[f32]) -> Vec<f32> {
    let scale = (tweet.len() as f32).sqrt();
    tweet.iter().chain(reply).map(|number| scale * number).collect()
}

/// Returns the features of each (tweet, reply) pair. Repeated texts are embedded only once.
///
/// # Errors
/// Returns an error if a text cannot be embedded.
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
    /// Applies the default for `objective` if no bound is set: a minimum correlation of ½ or a
    /// minimum pair accuracy of ⅔.
    pub fn or_default(self, objective: &EngagementObjective) -> Self {
        match (self == Self::default(), objective) {
            (false, _) => self,
            (true, EngagementObjective::Log { .. } | EngagementObjective::Rank {}) => {
                Self { min_pearson: Some(0.5), ..self }
            }
            (true, EngagementObjective::Pairwise { .. }) => {
                Self { min_pair_accuracy: Some(2.0 / 3.0), ..self }
            }
        }
    }

    /// Returns whether the metrics satisfy all bounds.
    pub fn passes(&self, measures: &EngagementMeasures) -> bool {
        // A missing metric does not satisfy its bound.
        self.bounds(measures).iter().all(|of| of.found.is_some_and(|found| found > of.bound))
    }

    /// Formats the metrics and their bounds.
    pub fn against(&self, measures: &EngagementMeasures) -> String {
        let parts = self.bounds(measures).into_iter().map(|Bound { metric, bound, found }| {
            let found = found.map_or_else(|| "not known".to_owned(), |found| format!("{found:.3}"));
            format!("{metric} = {found} (above {bound:.3})")
        });
        let parts: Vec<String> = parts.collect();
        format!("{} on {} held-out replies", parts.join(", "), measures.replies)
    }

    fn bounds(&self, measures: &EngagementMeasures) -> Vec<Bound> {
        let all = [
            ("Pearson with the targets", self.min_pearson, Some(measures.pearson)),
            ("Pearson with the scores", self.min_pearson_score, Some(measures.pearson_score)),
            ("Spearman", self.min_spearman, Some(measures.spearman)),
            ("pair accuracy", self.min_pair_accuracy, measures.pair_accuracy),
        ];
        let bound = |(metric, bound, found)| Some(Bound { metric, bound: bound?, found });
        all.into_iter().filter_map(bound).collect()
    }
}

/// A metric with the value that it must exceed.
struct Bound {
    metric: &'static str,
    bound: f64,
    /// Its value, if it is known.
    found: Option<f64>,
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
        let rank = none.or_default(&EngagementObjective::Rank {});
        assert_eq!(rank, gate(Some(0.5), None, None));
        let pairwise = none.or_default(&EngagementObjective::Pairwise { margin: 0.1 });
        assert_eq!(pairwise, gate(None, None, Some(2.0 / 3.0)));
        let own = gate(None, Some(0.3), None);
        assert_eq!(own.or_default(&EngagementObjective::Rank {}), own);

        assert!(rank.passes(&measures()) && pairwise.passes(&measures()));
        assert!(!gate(Some(0.6), None, None).passes(&measures()));
        assert!(!gate(Some(0.5), Some(0.5), None).passes(&measures()));
        assert!(!gate(Some(0.5), None, Some(0.7)).passes(&measures()));
        let without = EngagementMeasures { pair_accuracy: None, ..measures() };
        assert!(!pairwise.passes(&without) && rank.passes(&without));
        // A bound on the other correlation is not replaced by the default.
        let of_scores = EngagementGate { min_pearson_score: Some(0.5), ..none };
        assert_eq!(of_scores.or_default(&EngagementObjective::Rank {}), of_scores);
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
