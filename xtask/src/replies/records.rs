//! Records of human-written pairs. The text is real, whereas the numbers are made up according to
//! the rules below.
//!
//! Each z denotes an independent standard normal number.
//!
//! - A tweet has `400 · e^(0.8 z)` likes. The number of retweets is `0.12 · e^(0.4 z)` times that.
//! - A reply of quality q has `⌊likes of the tweet · 0.008 · e^(0.65 q + 0.85 z)⌋` likes. On
//!   average, good replies have ten times as many likes as poor ones, but there is a lot of noise,
//!   a heavy tail, and many ties and zeros among poor replies. The number of retweets is
//!   `0.06 · e^(0.6 z)` times the number of likes.
//! - The author of a reply has `1,800 · e^(1.1 z)` followers, the same number in all of their
//!   replies. The reply appears `5,400 · e^(1.4 z)` seconds after the tweet. One in twenty replies
//!   comes from a single account that replies to everything.
//!
//! Most records pass the filters commonly used when collecting data. Some fail them, so that
//! filters have an effect.

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use super::random::Random;
use super::written::Written;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) tweet_id: String,
    pub(super) tweet: String,
    pub(super) tweet_author: String,
    pub(super) tweet_likes: u64,
    pub(super) tweet_retweets: u64,
    pub(super) tweet_created_at: String,
    pub(super) reply_id: String,
    pub(super) reply: String,
    pub(super) reply_author: String,
    pub(super) reply_author_followers: u64,
    pub(super) reply_likes: u64,
    pub(super) reply_retweets: u64,
    pub(super) reply_created_at: String,
    pub(super) reply_time_diff_seconds: u64,
    pub(super) topic: String,
    pub(super) tone: String,
    pub(super) quality: u32,
}

/// One in this many tweets is held out.
const HELD_OUT: u64 = 7;

impl Record {
    /// Returns whether the record belongs to a held-out tweet, i.e. every seventh one.
    pub(super) fn is_of_seventh_tweet(&self) -> bool {
        let number: u64 = self.tweet_id[1..].parse().expect("a tweet's id is `t` and a number");
        (number - 1).is_multiple_of(HELD_OUT)
    }
}

/// Creates a record for each reply, in random order.
pub(super) fn records(written: &[Written], seed: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for (place, tweet) in written.iter().enumerate() {
        let mut random = Random::new(seed, [1, place as u64]);
        let likes = random.log_normal(400.0, 0.8).round();
        let retweets = (likes * random.log_normal(0.12, 0.4)).round();
        let created = FIRST_OF_2026 + random.below(240 * 86_400) as u64;
        let author = random.below(WRITERS);
        for reply in &tweet.replies {
            let number = records.len();
            let mut random = Random::new(seed, [2, number as u64]);
            let part = random.log_normal(0.008, 0.85) * (0.65 * f64::from(reply.quality)).exp();
            let reply_likes = (likes * part).floor();
            let reply_retweets = (reply_likes * random.log_normal(0.06, 0.6)).floor();
            let after = random.log_normal(5_400.0, 1.4).round().max(1.0) as u64;
            let reply_author = match random.below(20) {
                0 => WRITERS,
                _ => WRITERS + 1 + random.below(REPLIERS),
            };
            let followers = Random::new(seed, [3, reply_author as u64]).log_normal(1_800.0, 1.1);
            records.push(Record {
                tweet_id: format!("t{:04}", place + 1),
                tweet: tweet.tweet.clone(),
                tweet_author: name(author),
                tweet_likes: likes as u64,
                tweet_retweets: retweets as u64,
                tweet_created_at: timestamp(created),
                reply_id: format!("r{:05}", number + 1),
                reply: reply.reply.clone(),
                reply_author: name(reply_author),
                reply_author_followers: followers.round() as u64,
                reply_likes: reply_likes as u64,
                reply_retweets: reply_retweets as u64,
                reply_created_at: timestamp(created + after),
                reply_time_diff_seconds: after,
                topic: tweet.topic.clone(),
                tone: tweet.tone.clone(),
                quality: reply.quality,
            });
        }
    }
    Random::new(seed, [4, 0]).shuffle(&mut records);
    records
}

/// 2026-01-01T00:00:00Z as a Unix timestamp in seconds.
const FIRST_OF_2026: u64 = 1_767_225_600;
/// The first names belong to authors of tweets, the next one to the account that replies to
/// everything, and the rest to authors of replies.
const WRITERS: usize = 120;
const REPLIERS: usize = 360;

const FIRST: [&str; 20] = [
    "quiet", "sunny", "little", "brave", "slow", "happy", "rainy", "mellow", "curious", "lucky",
    "gentle", "sleepy", "clever", "wild", "humble", "tiny", "silver", "merry", "plain", "early",
];
const SECOND: [&str; 25] = [
    "otter", "maple", "kettle", "river", "lantern", "pebble", "sparrow", "button", "meadow",
    "teapot", "badger", "willow", "pancake", "comet", "acorn", "harbor", "pickle", "feather",
    "walnut", "candle", "turnip", "heron", "bicycle", "cricket", "marble",
];

/// Returns one of 500 names. Consecutive indices have different words.
fn name(author: usize) -> String {
    let mixed = (author * 211) % (FIRST.len() * SECOND.len());
    format!("{}_{}", FIRST[mixed % FIRST.len()], SECOND[mixed / FIRST.len()])
}

/// Formats a Unix timestamp as UTC date and time.
fn timestamp(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.expect("the timestamp is in range").to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_different() {
        let names: BTreeSet<_> = (0..=WRITERS + REPLIERS).map(name).collect();
        assert_eq!(names.len(), WRITERS + REPLIERS + 1);
    }
}
