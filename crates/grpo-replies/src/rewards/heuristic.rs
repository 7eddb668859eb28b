//! A heuristic reward for replies, composed of six interpretable components.

mod components;
mod config;
mod generic_words;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use grpo_eval::{EmbedError, Embedder, cosine};
use rayon::prelude::*;
use serde_json::{Map, Value};
use vader_parity::SentimentIntensityAnalyzer;

pub(crate) use self::config::HeuristicConfig;
pub use self::generic_words::{DEFAULT_GENERIC_WORDS, GenericWords};
use grpo_rewards::{Outcome, PartName, Reward, RewardInput, Scored, text_field};

/// Scores replies with a weighted sum of six components, each between 0 and 1.
///
/// The reply is the completion, and the tweet is read from the `tweet` field of the prompt.
///
/// | component | value |
/// |---|---|
/// | relevance | (cosine similarity of tweet and reply + 1)/2 |
/// | length | 0.3 below 20 characters, 0.6 below 50, 1 up to 150, 0.8 up to 280, otherwise 0.4 |
/// | sentiment | 1 − \|p(tweet) − p(reply)\|/2, where p is the polarity |
/// | diversity | fraction of distinct words, multiplied by 0.7 if it is below 0.5 |
/// | punctuation | 0.7 below 0.01, 1 from 0.02 to 0.08, otherwise 0.8 up to 0.15, and 0.3 above |
/// | engagement | product of the factors below, at most 1 |
///
/// Polarity is VADER's compound score (Hutto & Gilbert 2014). The punctuation component depends on
/// the fraction of the characters `!?.,`. The factors of the engagement component are:
/// - 0.5 for a generic word in a reply with fewer than 30 characters,
/// - 1.1 for a `?`,
/// - 1.05 for at least two of the characters `.!?`,
/// - 0.6 for a reply of more than 10 characters in capitals.
///
/// The product is clipped at 1, so the two factors above 1 can only compensate for a penalty. All
/// components are 0 for replies of fewer than 3 characters, and 0.3 for replies of more than 500.
/// Leading and trailing whitespace is ignored.
///
/// Some components are nearly constant, so rewards fall into a narrow band around 0.7. The standard
/// deviation within a group is small, and dividing by it amplifies minor differences. Set
/// `advantage.scale = "none"` to disable this normalization.
pub struct HeuristicReward {
    /// Weight of each component. The weights are not negative and sum to 1.
    weights: [f64; 6],
    /// `None` only if the weight of `relevance` is 0.
    embedder: Option<Arc<dyn Embedder>>,
    generic_words: GenericWords,
    sentiment: SentimentIntensityAnalyzer,
}

/// Component names, in the order of the weights and values.
const COMPONENTS: [&str; 6] =
    ["relevance", "length", "sentiment", "diversity", "punctuation", "engagement"];

const TWEET: &str = "tweet";

/// Values computed for a tweet and shared by all of its replies.
struct Tweet {
    vector: Option<Result<Vec<f32>, EmbedError>>,
    polarity: f64,
}

impl fmt::Debug for HeuristicReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeuristicReward").field("weights", &self.weights).finish_non_exhaustive()
    }
}

impl HeuristicReward {
    /// Creates the reward from validated weights. The embedder is only required for relevance.
    pub(crate) fn new(
        weights: [f64; 6],
        embedder: Option<Arc<dyn Embedder>>,
        generic_words: GenericWords,
    ) -> Self {
        Self { weights, embedder, generic_words, sentiment: SentimentIntensityAnalyzer::new() }
    }

    fn polarity(&self, text: &str) -> f64 {
        self.sentiment.polarity_scores(text).compound
    }

    /// Embeds all texts if there is an embedder. Errors are returned separately for each text.
    fn vectors<'a>(
        &self,
        texts: Vec<&'a str>,
    ) -> Option<BTreeMap<&'a str, Result<Vec<f32>, EmbedError>>> {
        let embedder = self.embedder.as_ref()?;
        let vectors = match embedder.embed(&texts) {
            Ok(vectors) => vectors.into_iter().map(Ok).collect(),
            // Retry each text separately, because one bad text fails the entire batch.
            Err(_) => {
                let alone = |text: &&str| Ok(embedder.embed(&[text])?.remove(0));
                texts.iter().map(alone).collect::<Vec<_>>()
            }
        };
        Some(texts.into_iter().zip(vectors).collect())
    }

    /// Returns the components, or an error message if they cannot be computed.
    fn components(
        &self,
        reply: &str,
        tweet: &Tweet,
        vector: Option<&Result<Vec<f32>, EmbedError>>,
    ) -> Result<[Option<f64>; 6], EmbedError> {
        let relevance = match (&tweet.vector, vector) {
            (Some(tweet), Some(reply)) => {
                let (tweet, reply) = (tweet.as_ref(), reply.as_ref());
                let cosine =
                    cosine(tweet.map_err(EmbedError::clone)?, reply.map_err(EmbedError::clone)?);
                Some(((cosine + 1.0) / 2.0).clamp(0.0, 1.0))
            }
            _ => None,
        };
        Ok([
            relevance,
            Some(components::length(reply)),
            Some(components::sentiment(tweet.polarity, self.polarity(reply))),
            Some(components::lexical_diversity(reply)),
            Some(components::punctuation(reply)),
            Some(components::engagement(reply, &self.generic_words)),
        ])
    }

    /// Returns the same value for every component.
    fn constant(&self, value: f64) -> [Option<f64>; 6] {
        let mut components = [Some(value); 6];
        if self.embedder.is_none() {
            components[0] = None;
        }
        components
    }

    fn scored(&self, components: [Option<f64>; 6]) -> Outcome {
        let weighted = self.weights.into_iter().zip(components);
        let terms = weighted.filter(|(weight, _)| *weight > 0.0);
        let terms = terms.filter_map(|(weight, value)| Some((weight, value?))).collect();
        let named = COMPONENTS.into_iter().zip(components);
        let parts = named.filter_map(|(name, value)| Some((name.into(), value?))).collect();
        Outcome::Scored(Scored::new(terms, parts))
    }
}

impl Reward for HeuristicReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let tweet = |sample: &RewardInput| text_field(&sample.fields, TWEET).map(str::to_owned);
        let pairs: Vec<(Result<String, String>, &str)> =
            samples.iter().map(|sample| (tweet(sample), sample.text.trim())).collect();
        let measured = pairs.iter().filter(|(_, reply)| components::settled(reply).is_none());
        let mut texts: Vec<&str> = measured
            .filter_map(|(tweet, reply)| Some([tweet.as_ref().ok()?.as_str(), reply]))
            .flatten()
            .collect();
        texts.sort_unstable();
        texts.dedup();
        let vectors = self.vectors(texts);
        let vector = |text: &str| vectors.as_ref().map(|vectors| &vectors[text]);
        let distinct: BTreeMap<&str, ()> = pairs
            .iter()
            .filter_map(|(tweet, _)| Some((tweet.as_ref().ok()?.as_str(), ())))
            .collect();
        let distinct: Vec<&str> = distinct.into_keys().collect();
        let tweets: BTreeMap<&str, Tweet> = distinct
            .into_par_iter()
            .map(|tweet| {
                let vector = vectors.as_ref().and_then(|vectors| vectors.get(tweet)).cloned();
                (tweet, Tweet { vector, polarity: self.polarity(tweet) })
            })
            .collect();
        pairs
            .par_iter()
            .map(|(tweet, reply)| {
                let tweet = match tweet {
                    Ok(tweet) => &tweets[tweet.as_str()],
                    Err(reason) => return Outcome::failed(reason.clone()),
                };
                if let Some(value) = components::settled(reply) {
                    return self.scored(self.constant(value));
                }
                match self.components(reply, tweet, vector(reply)) {
                    Ok(components) => self.scored(components),
                    Err(error) => Outcome::failed(error.to_string()),
                }
            })
            .collect()
    }

    fn parts(&self) -> Vec<PartName> {
        let from = usize::from(self.embedder.is_none());
        COMPONENTS[from..].iter().map(|name| PartName::from(*name)).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        let weighted = self.weights.into_iter().zip(COMPONENTS);
        weighted.filter(|(weight, _)| *weight > 0.0).map(|(_, name)| name.into()).collect()
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        text_field(fields, TWEET).map(drop)
    }
}

#[cfg(test)]
mod tests;
