//! Pairs in a line: how many, by whom, how well liked, how long.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::PairRecord;
use super::quartiles::{percentile, sorted};

/// Mean, spread and range of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// The standard deviation of a population: divided by their count.
    pub std: f64,
    /// The one in the middle, or the mean of the two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// All 0 without values.
    pub fn of(values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let sorted = sorted(values);
        Self {
            mean,
            std: variance.sqrt(),
            median: percentile(&sorted, 50.0),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }
}

/// What one part of a split has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairSummary {
    /// Pairs.
    pub examples: usize,
    /// Different tweets.
    pub tweets: usize,
    /// Different authors of replies.
    pub authors: usize,
    /// Likes of the replies.
    pub likes: Spread,
    /// Characters of the tweets, on average over pairs.
    pub tweet_characters: f64,
    /// Characters of the replies, on average.
    pub reply_characters: f64,
}

impl PairSummary {
    /// Of these pairs.
    pub fn of<'a>(pairs: impl IntoIterator<Item = &'a PairRecord>) -> Self {
        let pairs: Vec<&PairRecord> = pairs.into_iter().collect();
        let mean = |length: fn(&PairRecord) -> usize| {
            Spread::of(pairs.iter().map(|pair| length(pair) as f64).collect()).mean
        };
        Self {
            examples: pairs.len(),
            tweets: pairs.iter().map(|pair| &pair.tweet_id).collect::<BTreeSet<_>>().len(),
            authors: pairs.iter().map(|pair| pair.reply_author()).collect::<BTreeSet<_>>().len(),
            likes: Spread::of(pairs.iter().map(|pair| pair.reply_likes() as f64).collect()),
            tweet_characters: mean(|pair| pair.tweet.chars().count()),
            reply_characters: mean(|pair| pair.reply.chars().count()),
        }
    }
}

impl fmt::Display for PairSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { examples, tweets, authors, likes, .. } = self;
        write!(f, "{examples} examples of {tweets} tweets by {authors} authors")?;
        if *examples == 0 {
            return Ok(());
        }
        write!(
            f,
            "; likes: mean {:.1}, median {}, {} to {}; mean characters: tweet {:.0}, reply {:.0}",
            likes.mean,
            likes.median,
            likes.min,
            likes.max,
            self.tweet_characters,
            self.reply_characters
        )
    }
}
