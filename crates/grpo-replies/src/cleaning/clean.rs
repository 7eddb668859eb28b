//! Text cleaning, deduplication and ranking by quality.

use std::collections::BTreeMap;

use grpo_eval::{Embedder, cosine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::outcome::{CleanedPairs, Reason, RejectedPair, place};
use crate::PairRecord;
use grpo_data::DataError;

/// Settings for text cleaning and deduplication.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CleaningRules {
    /// Clean the texts: runs of 3 or more equal characters, digits excepted, become 2; `#SoftRain`
    /// becomes `Soft Rain`; white space becomes one space. Of replies that are then equal, the one
    /// with the most likes is kept.
    pub texts: bool,
    /// Drop a reply whose cosine with a reply with more likes is above this; 1 keeps all.
    pub max_cosine: f64,
    /// Sort by 0.6 (likes + 2 retweets) + 20 min(followers / 10,000, 1) + 10 timing, highest first;
    /// timing is 1 for 300 to 7,200 seconds, 0.5 before, 0.7 after, 0 if unknown.
    pub sort: bool,
}

impl Default for CleaningRules {
    fn default() -> Self {
        Self { texts: true, max_cosine: 0.9, sort: true }
    }
}

impl CleaningRules {
    pub(super) fn check(&self) -> Result<(), DataError> {
        match self.max_cosine > 0.0 && self.max_cosine <= 1.0 {
            true => Ok(()),
            false => {
                let expected = "a number above 0 and at most 1";
                Err(DataError::setting("cleaning.max_cosine", self.max_cosine, expected))
            }
        }
    }

    pub(super) fn run(
        &self,
        cleaned: &mut CleanedPairs,
        embedder: &dyn Embedder,
    ) -> Result<(), DataError> {
        let originals = std::mem::take(&mut cleaned.pairs);
        let mut pairs = originals.clone();
        if self.texts {
            for pair in &mut pairs {
                pair.reply = clean_reply(&pair.reply);
            }
        }
        // The first of several duplicates is kept, so replies are visited by number of likes and
        // then in file order.
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(pairs[*at].reply_likes()));
        let mut fate: Vec<Option<Reason>> = vec![None; pairs.len()];
        let mut texts = BTreeMap::new();
        for &at in &order {
            let first = *texts.entry(pairs[at].reply.as_str()).or_insert(at);
            if first != at {
                let kept = &pairs[first];
                fate[at] = Some(Reason::new("duplicate", place(&kept.file, kept.line)));
            }
        }
        order.retain(|at| fate[*at].is_none());
        if self.max_cosine < 1.0 {
            for near in self.near(&pairs, &order, embedder)? {
                let kept = &pairs[near.kept];
                let place = place(&kept.file, kept.line);
                let found = format!("{place}, cosine {:.3}", near.cosine);
                fate[near.duplicate] = Some(Reason::new("semantic_duplicate", found));
            }
        }
        for ((pair, original), reason) in pairs.into_iter().zip(originals).zip(fate) {
            match reason {
                None => cleaned.pairs.push(pair),
                Some(reason) => cleaned.rejected.push(RejectedPair {
                    pair: original,
                    step: "cleaning",
                    reasons: vec![reason],
                }),
            }
        }
        if self.sort {
            cleaned.pairs.sort_by(|a, b| quality(b).total_cmp(&quality(a)));
        }
        Ok(())
    }

    /// Returns the near duplicates in `order`.
    fn near(
        &self,
        pairs: &[PairRecord],
        order: &[usize],
        embedder: &dyn Embedder,
    ) -> Result<Vec<NearDuplicate>, DataError> {
        let mut vectors = Vec::with_capacity(order.len());
        for batch in order.chunks(BATCH) {
            let texts: Vec<&str> = batch.iter().map(|at| pairs[*at].reply.as_str()).collect();
            vectors.extend(
                embedder.embed(&texts).map_err(|error| DataError::Invalid(error.to_string()))?,
            );
        }
        let tails: Vec<f32> = vectors.iter().map(|vector| tail(vector)).collect();
        let (mut kept, mut near) = (Vec::<usize>::new(), Vec::new());
        for (place, &at) in order.iter().enumerate() {
            let (vector, tail) = (&vectors[place], tails[place]);
            let mut cosines = kept.iter().filter_map(|&other| {
                let most = product_of_heads(vector, &vectors[other]) + tail * tails[other];
                let is_far = f64::from(most) + ROUNDING < self.max_cosine;
                (!is_far).then(|| (other, cosine(vector, &vectors[other])))
            });
            match cosines.find(|(_, cosine)| *cosine > self.max_cosine) {
                Some((other, cosine)) => {
                    near.push(NearDuplicate { duplicate: at, kept: order[other], cosine });
                }
                None => kept.push(place),
            }
        }
        Ok(near)
    }
}

/// A pair that resembles one that is kept, by their indices.
struct NearDuplicate {
    duplicate: usize,
    kept: usize,
    /// Their cosine similarity.
    cosine: f64,
}

/// Number of texts per embedder call.
const BATCH: usize = 256;

/// Number of leading vector components used for a fast check.
///
/// Each reply is compared with every kept reply, and most of these pairs are far apart. By the
/// Cauchy-Schwarz inequality, the dot product of two vectors is at most the dot product of their
/// heads plus the product of the norms of their tails. In most cases, this bound is already below
/// the threshold.
const HEAD: usize = 96;
/// Upper bound for the single-precision rounding error of this check for unit vectors.
const ROUNDING: f64 = 1e-4;

/// Returns the norm of the components after the head.
fn tail(vector: &[f32]) -> f32 {
    let squares = vector.iter().skip(HEAD).map(|number| number * number);
    squares.sum::<f32>().sqrt()
}

/// Returns the dot product of the heads. The lanes let the compiler vectorize the loop.
fn product_of_heads(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let (a, b) = (&a[..a.len().min(HEAD)], &b[..b.len().min(HEAD)]);
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Cleans the text of a reply.
///
/// Three or more equal characters in a row are shortened to two, except for digits. Camel-case
/// hashtags are split into words, e.g. `#SoftRain` becomes `Soft Rain`. Whitespace is normalized.
pub fn clean_reply(reply: &str) -> String {
    let mut run: Vec<char> = Vec::with_capacity(reply.len());
    for character in reply.chars() {
        let is_third = run.ends_with(&[character, character]) && !character.is_numeric();
        if !is_third {
            run.push(character);
        }
    }
    let text: String = run.into_iter().collect();
    text.split_whitespace().map(words_of_hashtags).collect::<Vec<_>>().join(" ")
}

/// Splits the camel-case hashtags in a word.
fn words_of_hashtags(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('#') {
        text.push_str(&rest[..at]);
        let begins = !text.chars().next_back().is_some_and(char::is_alphanumeric);
        let name: String =
            rest[at + 1..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let words = camel_words(&name);
        if begins && words.len() > 1 {
            text.push_str(&words.join(" "));
        } else {
            text.push('#');
            text.push_str(&name);
        }
        rest = &rest[at + 1 + name.len()..];
    }
    text + rest
}

/// Splits `AISafetyNow` into `AI`, `Safety`, `Now`.
fn camel_words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let next_is_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || next_is_small && before.is_uppercase()
            });
        match words.last_mut().filter(|_| !begins) {
            Some(word) => word.push(*letter),
            None => words.push(letter.to_string()),
        }
    }
    words
}

/// Returns the quality of a pair: 0.6 (likes + 2 retweets) + 20 min(followers / 10,000, 1) + 10
/// timing.
///
/// Timing is 1 for replies posted 300 to 7,200 seconds after the tweet, 0.5 for earlier replies and
/// 0.7 for later ones. Missing values count as 0.
pub fn quality(pair: &PairRecord) -> f64 {
    let likes = pair.reply_likes() as f64 + 2.0 * pair.reply_retweets.unwrap_or(0) as f64;
    let followers = pair.reply_author_followers.unwrap_or(0) as f64;
    let timing = match pair.reply_time_diff_seconds {
        None => 0.0,
        Some(seconds) if seconds < 300.0 => 0.5,
        Some(seconds) if seconds <= 7200.0 => 1.0,
        Some(_) => 0.7,
    };
    0.6 * likes + 20.0 * (followers / 10_000.0).min(1.0) + 10.0 * timing
}
