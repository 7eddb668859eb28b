//! What tweets and replies can get wrong.

use std::fmt::Display;
use std::path::PathBuf;

use grpo_data::{DataError, SplitError};
use grpo_eval::EmbedError;

/// A fault in files of tweets and replies, or in a setting for them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepliesError {
    /// A file that cannot be read, or a text that a tokenizer refuses.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file, or a folder of them, without a tweet and its reply.
    #[error(
        "`{path}` has no pair of a tweet and a reply: {skipped} lines were left out{}; write one object a line with `tweet_id`, `tweet` and `reply`",
        .first.as_ref().map(|first| format!(", the first of them {first}")).unwrap_or_default()
    )]
    NoPairs {
        /// The path as it was given.
        path: PathBuf,
        /// Lines that are not pairs.
        skipped: usize,
        /// The first of them, and why.
        first: Option<String>,
    },
    /// A folder without files of pairs.
    #[error("the folder `{path}` has no file that ends in .jsonl, .jsonl.gz or .parquet")]
    NoPairFiles {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Fewer tweets than parts to put them in.
    #[error(
        "{found} tweets with different texts cannot be split into {parts} parts, as all replies to a tweet stay together; give at least {parts} tweets"
    )]
    FewTweets {
        /// Tweets.
        found: usize,
        /// Parts that are not to be empty.
        parts: usize,
    },
    /// Fractions that do not make up the whole.
    #[error(transparent)]
    Split(SplitError),
    /// A text that cannot be compared with others.
    #[error(transparent)]
    NoVector(EmbedError),
    /// Pairs of a file, and none of them short enough and of text alone.
    #[error("no pair of `{path}` can be used: {report}")]
    NoUsablePairs {
        /// The path as it was given.
        path: PathBuf,
        /// How many were too long.
        too_long: usize,
        /// What was read and left out.
        report: String,
    },
    /// A setting outside its range.
    #[error("`{key}` is {found}; expected {expected}")]
    Setting {
        /// The key.
        key: String,
        /// Its value, in words.
        found: String,
        /// What it can be.
        expected: &'static str,
    },
}

impl RepliesError {
    pub(crate) fn setting(key: &str, found: impl Display, expected: &'static str) -> Self {
        Self::Setting { key: key.to_owned(), found: found.to_string(), expected }
    }
}

impl From<SplitError> for RepliesError {
    fn from(error: SplitError) -> Self {
        match error {
            SplitError::FewGroups { found, parts } => Self::FewTweets { found, parts },
            other => Self::Split(other),
        }
    }
}
