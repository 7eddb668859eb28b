//! Summary statistics for pairs.

use std::collections::BTreeSet;
use std::fmt;

use grpo_data::counted;
use grpo_data::statistics::Spread;

use crate::PairRecord;

/// Summary of one part of a split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairSummary {
    /// Number of pairs.
    pub examples: usize,
    /// Number of distinct tweets.
    pub tweets: usize,
    /// Number of distinct reply authors.
    pub authors: usize,
    /// Number of likes per reply.
    pub likes: Spread,
    /// Mean tweet length in characters, averaged over pairs.
    pub tweet_characters: f64,
    /// Mean reply length in characters.
    pub reply_characters: f64,
}

impl PairSummary {
    /// Computes a summary of pairs.
    pub fn new<'a>(pairs: impl IntoIterator<Item = &'a PairRecord>) -> Self {
        let pairs: Vec<&PairRecord> = pairs.into_iter().collect();
        let mean = |length: fn(&PairRecord) -> usize| {
            Spread::new(&pairs.iter().map(|pair| length(pair) as f64).collect::<Vec<_>>()).mean
        };
        let likes: Vec<f64> = pairs.iter().map(|pair| pair.reply_likes() as f64).collect();
        Self {
            examples: pairs.len(),
            tweets: pairs.iter().map(|pair| &pair.tweet_id).collect::<BTreeSet<_>>().len(),
            authors: pairs.iter().map(|pair| pair.reply_author()).collect::<BTreeSet<_>>().len(),
            likes: Spread::new(&likes),
            tweet_characters: mean(|pair| pair.tweet.chars().count()),
            reply_characters: mean(|pair| pair.reply.chars().count()),
        }
    }
}

impl fmt::Display for PairSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { examples, tweets, authors, likes, .. } = self;
        let [examples_shown, tweets, authors] =
            [(examples, "example"), (tweets, "tweet"), (authors, "author")]
                .map(|(number, thing)| counted(*number, thing));
        write!(f, "{examples_shown} from {tweets} by {authors}")?;
        if *examples == 0 {
            return Ok(());
        }
        write!(
            f,
            "; likes: mean {:.1}, median {}, range {} to {}; mean characters: tweet {:.0}, reply {:.0}",
            likes.mean,
            likes.median,
            likes.min,
            likes.max,
            self.tweet_characters,
            self.reply_characters
        )
    }
}
