//! Pairs of a tweet and a reply.

use std::path::PathBuf;

use grpo_data::described;
use serde_json::{Map, Number, Value};

/// Default author if the author is unknown.
const UNKNOWN: &str = "unknown";

/// A tweet and one reply to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairRecord {
    /// Id of the tweet, shared by all its replies.
    pub tweet_id: String,
    /// Text of the tweet.
    pub tweet: String,
    /// Text of the reply.
    pub reply: String,
    /// Number of likes that the reply received. See [`PairRecord::reply_likes`].
    pub reply_likes: Option<u64>,
    /// Author of the reply. See [`PairRecord::reply_author`].
    pub reply_author: Option<String>,
    /// Author of the tweet.
    pub tweet_author: Option<String>,
    /// Number of likes that the tweet received. See [`PairRecord::tweet_likes`].
    pub tweet_likes: Option<u64>,
    /// Number of times that the tweet was retweeted.
    pub tweet_retweets: Option<u64>,
    /// Time at which the tweet was posted, formatted as in the record.
    pub tweet_created_at: Option<String>,
    /// Id of the reply.
    pub reply_id: Option<String>,
    /// Number of followers that the reply's author has.
    pub reply_author_followers: Option<u64>,
    /// Number of times that the reply was retweeted.
    pub reply_retweets: Option<u64>,
    /// Time at which the reply was posted, formatted as in the record.
    pub reply_created_at: Option<String>,
    /// Time between the tweet and the reply, in seconds.
    pub reply_time_diff_seconds: Option<f64>,
    /// The file that contains the record.
    pub file: PathBuf,
    /// The line or, in a Parquet file, the row, starting at 1.
    pub line: u64,
    /// All remaining keys.
    pub fields: Map<String, Value>,
}

impl PairRecord {
    /// Returns the engagement score, i.e. the reply's likes divided by the tweet's likes.
    pub fn engagement(&self) -> f64 {
        self.reply_likes() as f64 / self.tweet_likes().max(1) as f64
    }

    /// Returns the reply's number of likes. Defaults to 0.
    pub fn reply_likes(&self) -> u64 {
        self.reply_likes.unwrap_or(0)
    }

    /// Returns the tweet's number of likes. Defaults to 1.
    pub fn tweet_likes(&self) -> u64 {
        self.tweet_likes.unwrap_or(1)
    }

    /// Returns the reply's author. Defaults to `unknown`.
    pub fn reply_author(&self) -> &str {
        self.reply_author.as_deref().unwrap_or(UNKNOWN)
    }

    /// Returns the author of the reply, or `None` if it is missing or `unknown`.
    pub(crate) fn known_author(&self) -> Option<&str> {
        self.reply_author.as_deref().filter(|author| *author != UNKNOWN)
    }

    /// Creates a record from the keys of a line or row.
    pub(crate) fn from_keys(
        file: PathBuf,
        line: u64,
        keys: Map<String, Value>,
    ) -> Result<Self, String> {
        let is_missing = |key: &&str| keys.get(*key).is_none_or(Value::is_null);
        let missing: Vec<String> = ["tweet_id", "tweet", "reply"]
            .into_iter()
            .filter(is_missing)
            .map(|key| format!("`{key}`"))
            .collect();
        if let Some((last, others)) = missing.split_last() {
            let others = others.join(", ");
            let or = if others.is_empty() { "" } else { " or " };
            return Err(format!("missing {others}{or}{last}"));
        }
        let mut keys = Keys(keys);
        let record = Self {
            tweet_id: keys.needed("tweet_id", Keys::word)?,
            tweet: keys.needed("tweet", Keys::text)?,
            reply: keys.needed("reply", Keys::text)?,
            reply_likes: keys.count("reply_likes")?,
            reply_author: keys.word("reply_author")?,
            tweet_author: keys.word("tweet_author")?,
            tweet_likes: keys.count("tweet_likes")?,
            tweet_retweets: keys.count("tweet_retweets")?,
            tweet_created_at: keys.word("tweet_created_at")?,
            reply_id: keys.word("reply_id")?,
            reply_author_followers: keys.count("reply_author_followers")?,
            reply_retweets: keys.count("reply_retweets")?,
            reply_created_at: keys.word("reply_created_at")?,
            reply_time_diff_seconds: keys.seconds("reply_time_diff_seconds")?,
            file,
            line,
            fields: keys.0,
        };
        for (key, text) in
            [("tweet_id", &record.tweet_id), ("tweet", &record.tweet), ("reply", &record.reply)]
        {
            if text.trim().is_empty() {
                return Err(format!("`{key}` is empty"));
            }
        }
        Ok(record)
    }

    /// Returns the record as a JSON object. The keys of [`PairRecord`] come first, followed by the
    /// remaining keys. Missing values are omitted.
    pub fn object(&self) -> Map<String, Value> {
        let known: [(&str, Option<Value>); 14] = [
            ("tweet_id", Some(self.tweet_id.as_str().into())),
            ("tweet", Some(self.tweet.as_str().into())),
            ("reply", Some(self.reply.as_str().into())),
            ("reply_likes", self.reply_likes.map(Value::from)),
            ("reply_author", self.reply_author.as_deref().map(Value::from)),
            ("tweet_author", self.tweet_author.as_deref().map(Value::from)),
            ("tweet_likes", self.tweet_likes.map(Value::from)),
            ("tweet_retweets", self.tweet_retweets.map(Value::from)),
            ("tweet_created_at", self.tweet_created_at.as_deref().map(Value::from)),
            ("reply_id", self.reply_id.as_deref().map(Value::from)),
            ("reply_author_followers", self.reply_author_followers.map(Value::from)),
            ("reply_retweets", self.reply_retweets.map(Value::from)),
            ("reply_created_at", self.reply_created_at.as_deref().map(Value::from)),
            ("reply_time_diff_seconds", self.reply_time_diff_seconds.map(Value::from)),
        ];
        let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        known.chain(self.fields.clone()).collect()
    }
}

/// The unparsed keys of a record. Null values are treated as missing, because every Parquet row has
/// all columns.
struct Keys(Map<String, Value>);

impl Keys {
    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.shift_remove(key).filter(|value| !value.is_null())
    }

    fn needed(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Self, &str) -> Result<Option<String>, String>,
    ) -> Result<String, String> {
        read(self, key)?.ok_or_else(|| format!("missing `{key}`"))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a text", &other)),
        }
    }

    /// Parses an id, a name or a time, which can be a string or an integer.
    fn word(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            // A number with a fraction is an id that lost its last digits in a conversion to
            // floating point.
            Some(Value::Number(number)) if number.is_u64() || number.is_i64() => {
                Ok(Some(number.to_string()))
            }
            Some(other) => Err(wrong(key, "a string or an integer", &other)),
        }
    }

    fn count(&mut self, key: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let count = value.as_number().and_then(whole);
        count.map(Some).ok_or_else(|| wrong(key, "a non-negative integer", &value))
    }

    fn seconds(&mut self, key: &str) -> Result<Option<f64>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| wrong(key, "a number of seconds", &value))
    }
}

/// Parses a count. Programs that store missing values as NaN write 12 as 12.0.
fn whole(number: &Number) -> Option<u64> {
    let as_float = |value: f64| {
        let is_whole = value.fract() == 0.0 && (0.0..9.0e15).contains(&value);
        is_whole.then_some(value as u64)
    };
    number.as_u64().or_else(|| number.as_f64().and_then(as_float))
}

fn wrong(key: &str, expected: &str, found: &Value) -> String {
    // This is how Parquet columns with binary data are represented.
    let is_bytes = found.as_object().is_some_and(|object| {
        object.len() == 1 && object.get("bytes").is_some_and(Value::is_string)
    });
    let found = if is_bytes { "invalid UTF-8".to_owned() } else { described(found) };
    format!("`{key}` is {found}; expected {expected}")
}
