//! The heuristic reward of replies, with six interpretable components.

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

/// `Σ weight · component` of a reply (the completion) to a tweet (the field `tweet` of its prompt's record), with six
/// components, each 0 to 1:
///
/// | component | of the reply |
/// |---|---|
/// | relevance | (cosine of the vectors of tweet and reply + 1)/2 |
/// | length | characters: below 20 0.3; below 50 0.6; to 150 1; to 280 0.8; above 0.4 |
/// | sentiment | 1 − \|polarity of the tweet − polarity of the reply\|/2, with VADER's compound (Hutto & Gilbert 2014) |
/// | diversity | different words over words, between white space; · 0.7 where below 0.5 |
/// | punctuation | `!?.,` for each character: below 0.01 0.7; 0.02 to 0.08 1; else to 0.15 0.8; above 0.3 |
/// | engagement | 1; · 0.5 for a generic word in fewer than 30 characters; · 1.1 for a `?`; · 1.05 for two of `.!?`; · 0.6 where more than 10 characters are all capitals; at most 1 |
///
/// As engagement is at most 1, its two factors above 1 make good for a penalty and do nothing else. A reply of fewer than 3
/// characters has 0 in all components, one of more than 500 has 0.3. A reply is read without white space at its ends.
///
/// Constant components keep rewards in a narrow band around 0.7: a group's standard deviation is small, and dividing by it
/// makes much of little; `advantage.scale = "none"` does not divide.
pub struct HeuristicReward {
    /// At least 0 each, with sum 1.
    weights: [f64; 6],
    /// `None` only if relevance has no weight.
    embedder: Option<Arc<dyn Embedder>>,
    generic_words: GenericWords,
    sentiment: SentimentIntensityAnalyzer,
}

/// Names of the components in the order of weights and values.
const COMPONENTS: [&str; 6] =
    ["relevance", "length", "sentiment", "diversity", "punctuation", "engagement"];

const TWEET: &str = "tweet";

/// Data of a tweet, shared by all its replies.
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
    /// Creates the reward from checked weights. Without relevance, no embedder is needed.
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

    /// Embeds all texts, if there is an embedder; each has its own error.
    fn vectors<'a>(
        &self,
        texts: Vec<&'a str>,
    ) -> Option<BTreeMap<&'a str, Result<Vec<f32>, EmbedError>>> {
        let embedder = self.embedder.as_ref()?;
        let vectors = match embedder.embed(&texts) {
            Ok(vectors) => vectors.into_iter().map(Ok).collect(),
            // A text that cannot be embedded must not prevent the vectors of others.
            Err(_) => {
                let alone = |text: &&str| Ok(embedder.embed(&[text])?.remove(0));
                texts.iter().map(alone).collect::<Vec<_>>()
            }
        };
        Some(texts.into_iter().zip(vectors).collect())
    }

    /// Returns the components, or why there are none.
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

    /// Returns the same value for all components.
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
                    Err(reason) => return Outcome::Failed { reason: reason.clone() },
                };
                if let Some(value) = components::settled(reply) {
                    return self.scored(self.constant(value));
                }
                match self.components(reply, tweet, vector(reply)) {
                    Ok(components) => self.scored(components),
                    Err(error) => Outcome::Failed { reason: error.to_string() },
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
