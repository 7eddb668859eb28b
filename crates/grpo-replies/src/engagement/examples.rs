//! Training data for engagement models.

use std::collections::BTreeSet;

use crate::EngagementObjective;
use crate::PairRecord;
use grpo_data::RecordSplit;

use super::preferences::{Preference, neighbours};
use super::target::{EngagementReply, Targets};
use grpo_data::ConfigFault;

/// The replies in each split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngagementData {
    /// Training replies.
    pub train: Vec<EngagementReply>,
    /// Validation replies, which are used to select the weights.
    pub validation: Vec<EngagementReply>,
    /// Test replies, which are used to evaluate the weights.
    pub test: Vec<EngagementReply>,
}

/// Minimum number of held-out replies. With 30 replies and random outputs, only one correlation in
/// 400 exceeds 0.5.
const FEWEST_HELD_OUT: usize = 30;

impl EngagementData {
    /// Creates a data set from `pairs` and their features, split according to `split`.
    ///
    /// # Panics
    /// Panics if `pairs` and `features` have different lengths.
    pub fn new(pairs: &[PairRecord], features: Vec<Vec<f32>>, split: &RecordSplit) -> Self {
        assert_eq!(pairs.len(), features.len(), "expected one feature vector per pair");
        let reply = |&place: &usize| EngagementReply::new(&pairs[place], features[place].clone());
        let side = |places: &[usize]| places.iter().map(reply).collect();
        Self {
            train: side(&split.train),
            validation: side(&split.validation),
            test: side(&split.test),
        }
    }

    /// Checks that the data permits a meaningful evaluation.
    ///
    /// # Errors
    /// Returns an error if a tweet is in more than one split, if a split has too few replies, or if
    /// `objective` cannot compare any two replies in a split.
    pub fn check(&self, objective: &EngagementObjective) -> Result<(), ConfigFault> {
        let sides = [("train", &self.train, 2), ("validation", &self.validation, FEWEST_HELD_OUT)];
        let sides = sides.into_iter().chain([("test", &self.test, FEWEST_HELD_OUT)]);
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (side, replies, needed) in sides {
            if replies.len() < needed {
                let found = replies.len();
                let message = format!(
                    "the {side} split has {found} replies, but an engagement model requires {needed}"
                );
                return Err(ConfigFault::new("", message, "use a larger file, or change [data]"));
            }
            let own: BTreeSet<&str> = replies.iter().map(|reply| reply.tweet.as_str()).collect();
            if let Some(tweet) = own.intersection(&seen).next() {
                let message =
                    format!("tweet {tweet} is in two splits, which would inflate held-out metrics");
                return Err(ConfigFault::new(
                    "",
                    message,
                    "keep all replies to a tweet in one split",
                ));
            }
            seen.extend(own);
            let is_compared = matches!(objective, EngagementObjective::Pairwise { .. });
            if is_compared && neighbours(replies, 0.0).is_empty() {
                let message = format!(
                    "no tweet in the {side} split has two replies with different engagement, which objective.type = \"pairwise\" requires"
                );
                return Err(ConfigFault::new("objective.type", message, "use \"rank\" or \"log\""));
            }
        }
        Ok(())
    }
}

/// The replies in a split and their targets.
pub(super) struct Side<'a> {
    pub(super) replies: &'a [EngagementReply],
    /// The target of each reply.
    pub(super) targets: Vec<f64>,
    pub(super) pairs: Vec<Preference>,
}

impl<'a> Side<'a> {
    pub(super) fn new(
        replies: &'a [EngagementReply],
        targets: &Targets,
        objective: &EngagementObjective,
    ) -> Self {
        let margin = match *objective {
            EngagementObjective::Pairwise { margin } => margin,
            EngagementObjective::Log { .. } | EngagementObjective::Rank {} => 0.0,
        };
        let pairs = neighbours(replies, margin);
        Self { replies, targets: replies.iter().map(|it| targets.of(it.score)).collect(), pairs }
    }

    pub(super) fn tweets(&self) -> usize {
        self.replies.iter().map(|reply| &reply.tweet).collect::<BTreeSet<_>>().len()
    }
}
