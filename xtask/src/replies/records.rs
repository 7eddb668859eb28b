//! Records of written pairs: the text is the writers', the numbers are made up by the rule that this file is.
//!
//! With z a standard normal number, each drawn anew:
//!
//! - a tweet has `400 · e^(0.8 z)` likes, and `0.12 · e^(0.4 z)` times as many retweets;
//! - a reply of quality q has `⌊likes of the tweet · 0.008 · e^(0.65 q + 0.85 z)⌋` likes: the better ones ten times those
//!   of the poor, on the average, with much noise, a heavy tail, and ties and zeros among the poor; and `0.06 · e^(0.6 z)`
//!   times as many retweets;
//! - who replies has `1,800 · e^(1.1 z)` followers, the same in all of their replies, and replies `5,400 · e^(1.4 z)` seconds
//!   after the tweet; one in twenty replies is by the one who replies to everything.
//!
//! Most records pass the usual filters of a collection, some fail them, so that filters have something to do.

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

/// One tweet of so many is held out.
const HELD_OUT: u64 = 7;

impl Record {
    /// Whether it is of the first tweet, or of a seventh one behind it: all replies to a tweet, or none.
    pub(super) fn is_of_seventh_tweet(&self) -> bool {
        let number: u64 = self.tweet_id[1..].parse().expect("a tweet's id is `t` and a number");
        (number - 1).is_multiple_of(HELD_OUT)
    }
}

/// A record for each reply, in an order that says nothing.
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

type Passes<'a> = &'a dyn Fn(&Record) -> bool;

/// What one wants to know of the records before they are used.
pub(super) fn summary(records: &[Record]) -> String {
    let count = |keep: &dyn Fn(&Record) -> bool| records.iter().filter(|r| keep(r)).count();
    let mut by_author = std::collections::BTreeMap::<&str, usize>::new();
    records.iter().for_each(|r| *by_author.entry(&r.reply_author).or_default() += 1);
    let filters: [(&str, Passes); 8] = [
        ("tweet likes 100 to 2,000", &|r| (100..=2_000).contains(&r.tweet_likes)),
        ("tweet retweets 10 to 500", &|r| (10..=500).contains(&r.tweet_retweets)),
        ("reply likes 5 to 500", &|r| (5..=500).contains(&r.reply_likes)),
        ("reply retweets at most 50", &|r| r.reply_retweets <= 50),
        ("200 to 20,000 followers", &|r| (200..=20_000).contains(&r.reply_author_followers)),
        ("300 to 604,800 seconds later", &|r| (300..=604_800).contains(&r.reply_time_diff_seconds)),
        ("30 to 280 characters", &|r| (30..=280).contains(&r.reply.chars().count())),
        ("at most 10 replies by one author", &|r| by_author[r.reply_author.as_str()] <= 10),
    ];
    let mut text = format!("{} records", records.len());
    for (what, passes) in filters {
        text += &format!("\n  {:5} fail: {what}", records.len() - count(passes));
    }
    let all = count(&|r| filters.iter().all(|(_, passes)| passes(r)));
    let zeros = count(&|r| r.reply_likes == 0);
    let correlation = correlation(records);
    text + &format!(
        "\n  {all:5} pass all; {zeros} have no likes; quality and log engagement correlate by {correlation:.3}"
    )
}

/// Pearson's, of quality and `ln((reply likes + 1/2) / tweet likes)`.
fn correlation(records: &[Record]) -> f64 {
    let x = records.iter().map(|r| f64::from(r.quality));
    let y =
        records.iter().map(|r| ((r.reply_likes as f64 + 0.5) / r.tweet_likes.max(1) as f64).ln());
    let n = records.len() as f64;
    let pairs: Vec<(f64, f64)> = x.zip(y).collect();
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (mx, my) = (mean(&|p| p.0), mean(&|p| p.1));
    let xy = mean(&|p| (p.0 - mx) * (p.1 - my));
    xy / (mean(&|p| (p.0 - mx).powi(2)) * mean(&|p| (p.1 - my).powi(2))).sqrt()
}

/// 2026-01-01T00:00:00Z, in seconds since 1970.
const FIRST_OF_2026: u64 = 1_767_225_600;
/// The first so many names write tweets, the next one replies to everything, and the others reply.
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

/// One of 500 names, in an order that mixes the words.
fn name(author: usize) -> String {
    let mixed = (author * 211) % (FIRST.len() * SECOND.len());
    format!("{}_{}", FIRST[mixed % FIRST.len()], SECOND[mixed / FIRST.len()])
}

/// Seconds since 1970 as a date and time of UTC; the year of day numbers after Hinnant, "chrono-compatible low-level date
/// algorithms".
fn timestamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::super::written::WrittenReply;
    use super::*;

    /// 300 tweets with a reply of each quality.
    fn some() -> Vec<Written> {
        let tweet = |place: usize| Written {
            topic: "t".into(),
            tone: "n".into(),
            tweet: format!("Tweet {place}."),
            replies: (0..5)
                .map(|quality| {
                    let reply = format!("A reply of quality {quality} that is long enough.");
                    WrittenReply { quality, reply }
                })
                .collect(),
        };
        (0..300).map(tweet).collect()
    }

    #[test]
    fn they_are_a_function_of_the_seed() {
        assert_eq!(records(&some(), 1), records(&some(), 1));
        let likes = |seed| {
            let mut made = records(&some(), seed);
            made.sort_by(|a, b| a.reply_id.cmp(&b.reply_id));
            (made[0].tweet_likes, made[0].reply_time_diff_seconds)
        };
        assert_ne!(likes(1).0, likes(2).0);
        assert_ne!(likes(1).1, likes(2).1);
    }

    #[test]
    fn every_reply_has_a_record_of_its_own() {
        let made = records(&some(), 42);
        assert_eq!(made.len(), 1_500);
        assert_eq!(made.iter().map(|r| &r.reply_id).collect::<BTreeSet<_>>().len(), 1_500);
        assert_eq!(made.iter().map(|r| &r.tweet_id).collect::<BTreeSet<_>>().len(), 300);
        assert!(made.windows(2).any(|two| two[0].tweet_id > two[1].tweet_id), "not shuffled");
        assert!(made.iter().all(|r| r.tweet_author != r.reply_author));
    }

    #[test]
    fn whole_tweets_are_held_out() {
        let (apart, others): (Vec<Record>, Vec<Record>) =
            records(&some(), 1).into_iter().partition(Record::is_of_seventh_tweet);
        let tweets = |records: &[Record]| {
            records.iter().map(|record| record.tweet_id.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(tweets(&apart).len(), 43, "of 300");
        assert!(tweets(&apart).is_disjoint(&tweets(&others)));
    }

    #[test]
    fn tweets_and_authors_have_their_numbers_once() {
        let mut tweets = BTreeMap::new();
        let mut authors = BTreeMap::new();
        for r in records(&some(), 42) {
            let numbers = (r.tweet_likes, r.tweet_retweets, r.tweet_created_at, r.tweet_author);
            assert_eq!(tweets.entry(r.tweet_id).or_insert_with(|| numbers.clone()), &numbers);
            let followers = authors.entry(r.reply_author).or_insert(r.reply_author_followers);
            assert_eq!(*followers, r.reply_author_followers);
        }
    }

    #[test]
    fn engagement_follows_quality_with_noise() {
        let made = records(&some(), 42);
        let correlation = correlation(&made);
        assert!((0.6..=0.75).contains(&correlation), "{correlation}");
        let mean = |quality| {
            let of = made.iter().filter(|r| r.quality == quality);
            of.map(|r| r.reply_likes as f64).sum::<f64>() / 300.0
        };
        assert!((1..5).all(|q| mean(q) > 1.3 * mean(q - 1)), "{:?}", [0, 1, 2, 3, 4].map(mean));
        let zeros = |q| made.iter().filter(|r| r.quality == q && r.reply_likes == 0).count();
        assert!(zeros(0) > 30 && zeros(4) < 3, "{} {}", zeros(0), zeros(4));
    }

    #[test]
    fn most_pass_the_filters_and_some_do_not() {
        let made = records(&some(), 42);
        let summary = summary(&made);
        let last = summary.lines().last().unwrap();
        let pass: usize = last.split_whitespace().next().unwrap().parse().unwrap();
        assert!((750..1_400).contains(&pass), "{summary}");
        for line in summary.lines().skip(1).filter(|line| line.contains("fail")) {
            let fail: usize = line.split_whitespace().next().unwrap().parse().unwrap();
            // The texts of this test all have the right length.
            assert!(
                fail > 0 || line.contains("characters") || line.contains("retweets at most"),
                "{line}"
            );
        }
    }

    /// Pearson's of (0, ln 0.05), (1, ln 0.15), (2, ln 0.45): on a line. And of a bent one, by hand:
    /// y = 0, ln 3, 0 at x = 0, 1, 2 has no slope.
    #[test]
    fn correlation_of_hand_made_records() {
        let mut made = records(&some(), 42);
        made.truncate(3);
        for (r, (quality, likes)) in made.iter_mut().zip([(0, 0), (1, 1), (2, 4)]) {
            (r.quality, r.reply_likes, r.tweet_likes) = (quality, likes, 10);
        }
        assert!((correlation(&made) - 1.0).abs() < 1e-12);
        made[2].reply_likes = 0;
        assert!(correlation(&made).abs() < 1e-12);
    }

    #[test]
    fn names_are_different() {
        let names: BTreeSet<_> = (0..=WRITERS + REPLIERS).map(name).collect();
        assert_eq!(names.len(), WRITERS + REPLIERS + 1);
    }

    #[test]
    fn timestamps_are_dates() {
        assert_eq!(timestamp(FIRST_OF_2026), "2026-01-01T00:00:00Z");
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        // 2024-02-29 is day 19,782.
        assert_eq!(timestamp(19_782 * 86_400 + 86_399), "2024-02-29T23:59:59Z");
        assert_eq!(timestamp(19_783 * 86_400), "2024-03-01T00:00:00Z");
    }
}
