//! Filters for collected tweets and replies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::keys;
use super::looks::{has_url, is_english};
use super::outcome::{Reason, Unknown, check_range};
use crate::PairRecord;
use grpo_data::DataError;

/// Filters for pairs. All ranges are inclusive. Pairs without the required value are accepted and
/// counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionFilter {
    /// Range of the tweet's likes; a pair outside of it is dropped, as for all ranges here.
    pub tweet_likes: [u64; 2],
    /// Range of the tweet's retweets.
    pub tweet_retweets: [u64; 2],
    /// Range of the reply's likes.
    pub reply_likes: [u64; 2],
    /// Most retweets of a reply.
    pub max_reply_retweets: u64,
    /// Range of the followers of the reply's author.
    pub author_followers: [u64; 2],
    /// Most replies of an author; the first ones that break no other rule are kept.
    pub max_replies_of_author: u64,
    /// Range of the time from the tweet to the reply, in seconds.
    pub seconds_after_tweet: [f64; 2],
    /// Range of the reply's length in characters.
    pub characters: [usize; 2],
    /// Drop a pair if `lang` is not `en`; without `lang`, if fewer than 9 of 10 letters are
    /// unaccented Latin or, in a text of five or more words, fewer than 1 of 8 words is a common
    /// English word; shorter texts must not contain a common word of another language (a
    /// heuristic).
    pub english: bool,
    /// Drop a tweet that starts with `RT @` or has `is_retweet` or `is_quote`.
    pub no_retweets: bool,
    /// Drop a reply with `has_media` or a list `media`.
    pub no_media: bool,
    /// Drop a reply with a URL.
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

    /// Returns the reasons to drop a pair. `of_author` contains the number of collected pairs per
    /// author.
    pub(super) fn faults(
        &self,
        pair: &PairRecord,
        of_author: &mut BTreeMap<String, u64>,
        unknown: Unknown<'_>,
    ) -> Vec<Reason> {
        let mut faults = Vec::new();
        let most = [0, self.max_reply_retweets];
        let counts = [
            ("tweet_likes", pair.tweet_likes, self.tweet_likes),
            ("tweet_retweets", pair.tweet_retweets, self.tweet_retweets),
            ("reply_likes", pair.reply_likes, self.reply_likes),
            ("reply_retweets", pair.reply_retweets, most),
            ("author_followers", pair.reply_author_followers, self.author_followers),
        ];
        for (rule, found, [least, most]) in counts {
            match found {
                None => unknown(rule),
                Some(found) if !(least..=most).contains(&found) => {
                    faults.push(Reason::new(
                        rule,
                        format_args!("{found}; expected {least} to {most}"),
                    ));
                }
                Some(_) => {}
            }
        }
        let [least, most] = self.seconds_after_tweet;
        match pair.reply_time_diff_seconds {
            None => unknown("seconds_after_tweet"),
            Some(found) if !(least..=most).contains(&found) => {
                let found = format_args!("{found}; expected {least} to {most}");
                faults.push(Reason::new("seconds_after_tweet", found));
            }
            Some(_) => {}
        }
        faults.extend(length(&pair.reply, self.characters));
        faults.extend(self.of_texts(pair));
        match pair.known_author() {
            None => unknown("replies_of_author"),
            Some(author) if faults.is_empty() => {
                let of_author = of_author.entry(author.to_owned()).or_insert(0);
                *of_author += 1;
                if *of_author > self.max_replies_of_author {
                    let most = self.max_replies_of_author;
                    let found = format_args!("{author} already has {most}");
                    faults.push(Reason::new("replies_of_author", found));
                }
            }
            Some(_) => {}
        }
        faults
    }

    fn of_texts(&self, pair: &PairRecord) -> Vec<Reason> {
        let mut faults = Vec::new();
        // A value of the wrong type is a reason to drop the pair, because its meaning is unknown.
        fn read(found: Result<bool, Reason>, faults: &mut Vec<Reason>) -> bool {
            found.unwrap_or_else(|fault| {
                faults.push(fault);
                false
            })
        }
        if self.english {
            match keys::lang(pair) {
                Err(fault) => faults.push(fault),
                Ok(lang) if is_english(lang, &pair.tweet) && is_english(lang, &pair.reply) => {}
                Ok(_) => faults.push(Reason::new("english", "another language or no words")),
            }
        }
        if self.no_retweets {
            let passed_on = pair.tweet.trim_start().starts_with("RT @");
            let is_retweet = read(keys::flag(pair, "is_retweet"), &mut faults);
            let is_quote = read(keys::flag(pair, "is_quote"), &mut faults);
            if passed_on || is_retweet || is_quote {
                faults.push(Reason::new("retweet", "a retweet or quote tweet"));
            }
        }
        if self.no_media {
            let has_media = read(keys::flag(pair, "has_media"), &mut faults);
            if read(keys::is_listed(pair, "media"), &mut faults) || has_media {
                faults.push(Reason::new("media", "the reply has media"));
            }
        }
        if self.no_urls && has_url(&pair.reply) {
            faults.push(Reason::new("url", "the reply contains a URL"));
        }
        faults
    }
}

/// Returns a reason to drop the reply if its length is out of range.
pub(super) fn length(reply: &str, [least, most]: [usize; 2]) -> Option<Reason> {
    let found = reply.chars().count();
    let fits = (least..=most).contains(&found);
    (!fits).then(|| {
        Reason::new("length", format_args!("{found} characters; expected {least} to {most}"))
    })
}
