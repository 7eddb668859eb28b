//! Training, validation and test pairs without shared tweets.

use grpo_data::{DataError, RecordSplit, SplitError, SplitFractions, group_by_keys};

use crate::PairRecord;

/// Splits pairs so that all replies to a tweet are in one part, with even shares of every quartile
/// of likes (equal edges merged). The result depends only on the arguments.
///
/// # Errors
/// Returns an error if the fractions are invalid or there are fewer tweets than parts.
pub fn split_by_tweet(
    pairs: &[PairRecord],
    fractions: &SplitFractions,
    seed: u64,
) -> Result<RecordSplit, DataError> {
    let likes: Vec<f64> = pairs.iter().map(|pair| pair.reply_likes() as f64).collect();
    RecordSplit::new(&tweet_groups(pairs), &likes, fractions, seed).map_err(split_error)
}

/// Words the error in terms of tweets and replies.
pub(crate) fn split_error(error: SplitError) -> DataError {
    DataError::Invalid(match error {
        SplitError::FewGroups { found, parts } => format!(
            "cannot split {found} distinct tweets into {parts} parts, because all replies to a tweet stay together; use at least {parts} tweets"
        ),
        other => other.to_string(),
    })
}

/// Numbers the tweet of each pair. Two ids with the same text are one tweet.
pub(crate) fn tweet_groups(pairs: &[PairRecord]) -> Vec<usize> {
    group_by_keys(pairs.iter().map(|pair| [pair.tweet_id.as_str(), pair.tweet.trim()]))
}
