//! Which tweets and replies are collected.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::looks::{has_url, is_english};
use super::{PairRecord, Reason, Unknown, check_range};
use crate::DataError;

/// Which pairs are collected. Ranges hold both of their ends. What a record does not say is not held against it, and is
/// counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionFilter {
    /// Likes of the tweet.
    pub tweet_likes: [u64; 2],
    /// How often the tweet was passed on.
    pub tweet_retweets: [u64; 2],
    /// Likes of the reply.
    pub reply_likes: [u64; 2],
    /// How often the reply was passed on, at most.
    pub max_reply_retweets: u64,
    /// Followers of who replied.
    pub author_followers: [u64; 2],
    /// Replies of one author, the first of the file; authors that are `unknown` are not one.
    pub max_replies_of_author: u64,
    /// Seconds from the tweet to the reply.
    pub seconds_after_tweet: [f64; 2],
    /// Characters of the reply.
    pub characters: [usize; 2],
    /// Whether both texts have to be English, as the record's `lang` says or else the look of the text.
    pub english: bool,
    /// Whether pairs go that are a tweet passed on or quoted: one that begins with `RT @`, or whose record has
    /// `is_retweet` or `is_quote`.
    pub no_retweets: bool,
    /// Whether replies go that come with media: the record's `has_media`, or a list `media`.
    pub no_media: bool,
    /// Whether replies go that have an address.
    pub no_urls: bool,
}

impl Default for CollectionFilter {
    fn default() -> Self {
        Self {
            tweet_likes: [100, 2000],
            tweet_retweets: [10, 500],
            reply_likes: [5, 500],
            max_reply_retweets: 50,
            author_followers: [200, 20_000],
            max_replies_of_author: 10,
            seconds_after_tweet: [300.0, 604_800.0],
            characters: [30, 280],
            english: true,
            no_retweets: true,
            no_media: true,
            no_urls: true,
        }
    }
}

impl CollectionFilter {
    pub(super) fn check(&self) -> Result<(), DataError> {
        check_range("filter.tweet_likes", self.tweet_likes)?;
        check_range("filter.tweet_retweets", self.tweet_retweets)?;
        check_range("filter.reply_likes", self.reply_likes)?;
        check_range("filter.author_followers", self.author_followers)?;
        check_range("filter.seconds_after_tweet", self.seconds_after_tweet)?;
        check_range("filter.characters", self.characters)
    }

    /// What speaks against collecting a pair. `of_author` has the pairs of each author that were collected.
    pub(super) fn faults(
        &self,
        pair: &PairRecord,
        of_author: &mut BTreeMap<String, u64>,
        unknown: Unknown<'_>,
    ) -> Vec<Reason> {
        let mut faults = Vec::new();
        let most = [0, self.max_reply_retweets];
        let counts = [
            ("tweet_likes", Some(pair.tweet_likes), self.tweet_likes),
            ("tweet_retweets", pair.tweet_retweets, self.tweet_retweets),
            ("reply_likes", Some(pair.reply_likes), self.reply_likes),
            ("reply_retweets", pair.reply_retweets, most),
            ("author_followers", pair.reply_author_followers, self.author_followers),
        ];
        for (rule, found, [least, most]) in counts {
            match found {
                None => unknown(rule),
                Some(found) if !(least..=most).contains(&found) => {
                    faults.push(Reason::new(rule, format_args!("{found}; {least} to {most}")));
                }
                Some(_) => {}
            }
        }
        let [least, most] = self.seconds_after_tweet;
        match pair.reply_time_diff_seconds {
            None => unknown("seconds_after_tweet"),
            Some(found) if !(least..=most).contains(&found) => {
                let found = format_args!("{found}; {least} to {most}");
                faults.push(Reason::new("seconds_after_tweet", found));
            }
            Some(_) => {}
        }
        faults.extend(length(&pair.reply, self.characters));
        faults.extend(self.of_texts(pair));
        if pair.reply_author == "unknown" {
            unknown("replies_of_author");
        } else if faults.is_empty() {
            let of_author = of_author.entry(pair.reply_author.clone()).or_insert(0);
            *of_author += 1;
            if *of_author > self.max_replies_of_author {
                let most = self.max_replies_of_author;
                let found = format_args!("{} has {most} already", pair.reply_author);
                faults.push(Reason::new("replies_of_author", found));
            }
        }
        faults
    }

    fn of_texts(&self, pair: &PairRecord) -> Vec<Reason> {
        let mut faults = Vec::new();
        let is_true = |key: &str| pair.fields.get(key) == Some(&Value::Bool(true));
        if self.english && !(is_english(pair, &pair.tweet) && is_english(pair, &pair.reply)) {
            faults.push(Reason::new("english", "another language, or no words"));
        }
        let passed_on = pair.tweet.trim_start().starts_with("RT @");
        if self.no_retweets && (passed_on || is_true("is_retweet") || is_true("is_quote")) {
            faults.push(Reason::new("retweet", "a tweet passed on or quoted"));
        }
        let media = pair.fields.get("media").and_then(Value::as_array);
        if self.no_media && (is_true("has_media") || media.is_some_and(|media| !media.is_empty())) {
            faults.push(Reason::new("media", "a reply with media"));
        }
        if self.no_urls && has_url(&pair.reply) {
            faults.push(Reason::new("url", "an address in the reply"));
        }
        faults
    }
}

/// A fault where a text is shorter or longer than it may be.
pub(super) fn length(reply: &str, [least, most]: [usize; 2]) -> Option<Reason> {
    let found = reply.chars().count();
    let fits = (least..=most).contains(&found);
    (!fits).then(|| Reason::new("length", format_args!("{found} characters; {least} to {most}")))
}
