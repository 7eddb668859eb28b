//! Splits pairs into training, validation and test sets that don't share tweets.

use grpo_data::{DataError, RecordSplit, SplitError, SplitFractions, counted, group_by_keys};

use crate::PairRecord;

/// Splits pairs, keeping all replies to a tweet in the same part. The split is stratified by the
/// quartiles of the number of likes, and equal quartile boundaries are merged. The result is
/// deterministic.
///
/// # Errors
/// Returns an error if the fractions are invalid or if there are fewer tweets than parts.
pub fn split_by_tweet(
    pairs: &[PairRecord],
    fractions: &SplitFractions,
    seed: u64,
) -> Result<RecordSplit, DataError> {
    let likes: Vec<f64> = pairs.iter().map(|pair| pair.reply_likes() as f64).collect();
    RecordSplit::new(&tweet_groups(pairs), &likes, fractions, seed).map_err(split_error)
}

/// Converts the error to a message about tweets and replies.
pub(crate) fn split_error(error: SplitError) -> DataError {
    DataError::Invalid(match error {
        SplitError::FewGroups { found, parts } => format!(
            "cannot split {} into {parts} parts, because all replies to a tweet stay together; use at least {parts} tweets",
            counted(found, "distinct tweet")
        ),
        other => other.to_string(),
    })
}

/// Returns the tweet number of each pair. Tweets with different ids but the same text are
/// considered equal.
pub(crate) fn tweet_groups(pairs: &[PairRecord]) -> Vec<usize> {
    group_by_keys(pairs.iter().map(|pair| [pair.tweet_id.as_str(), pair.tweet.trim()]))
}
