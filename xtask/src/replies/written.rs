//! Human-written pairs. Each line contains a tweet and its replies, which are rated by quality.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A tweet and its replies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) topic: String,
    pub(super) tone: String,
    pub(super) tweet: String,
    pub(super) replies: Vec<WrittenReply>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenReply {
    /// Quality from 0 (worthless) to 4.
    pub(super) quality: u32,
    pub(super) reply: String,
}

/// Reads the tweets of all `files`, in order.
///
/// # Errors
/// Returns an error if a line cannot be parsed, if a quality is above 4, if a tweet occurs twice,
/// or if the replies to a tweet are missing or not distinct.
pub(super) fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Written>> {
    let mut all: Vec<Written> = Vec::new();
    for file in files.iter().map(AsRef::as_ref) {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        for (line, text) in (1..).zip(text.lines()) {
            let place = || format!("{}:{line}", file.display());
            let written: Written = serde_json::from_str(text).with_context(place)?;
            let replies = &written.replies;
            let is_new =
                |i: usize| replies[..i].iter().all(|other| other.reply != replies[i].reply);
            ensure!(
                !replies.is_empty()
                    && (0..replies.len()).all(is_new)
                    && all.iter().all(|other| other.tweet != written.tweet)
                    && replies.iter().all(|reply| reply.quality <= 4),
                "{}: expected a new tweet with different replies of quality 0 to 4",
                place()
            );
            all.push(written);
        }
    }
    Ok(all)
}
