//! Pairs that a person wrote: a tweet a line, with its replies and how good each is.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// A tweet with its replies.
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
    /// 0 (nobody wants it) to 4.
    pub(super) quality: u32,
    pub(super) reply: String,
}

/// The tweets of all `files`, in order.
///
/// # Errors
/// Where a line doesn't parse, a text is not plain, a tweet is there twice or has no reply or the same reply twice.
pub(super) fn read(files: &[impl AsRef<Path>]) -> Result<Vec<Written>> {
    let mut all = Vec::new();
    let mut seen = BTreeMap::new();
    for file in files {
        let file = file.as_ref();
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        for (line, text) in text.lines().enumerate() {
            let place = format!("{}:{}", file.display(), line + 1);
            let written = checked(text).with_context(|| place.clone())?;
            if let Some(first) = seen.insert(written.tweet.clone(), place.clone()) {
                bail!("{place}: the tweet is that of {first}");
            }
            all.push(written);
        }
    }
    ensure!(!all.is_empty(), "there is no tweet in the files of --source");
    Ok(all)
}

fn checked(line: &str) -> Result<Written> {
    let written: Written = serde_json::from_str(line)?;
    plain(&written.tweet)?;
    ensure!(!written.topic.is_empty() && !written.tone.is_empty(), "topic or tone is empty");
    ensure!(!written.replies.is_empty(), "the tweet has no reply");
    for (place, reply) in written.replies.iter().enumerate() {
        plain(&reply.reply)?;
        ensure!(reply.quality <= 4, "quality {}: it is 0, 1, 2, 3 or 4", reply.quality);
        let twice = written.replies[..place].iter().any(|other| other.reply == reply.reply);
        ensure!(!twice, "the reply \"{}\" is there twice", reply.reply);
    }
    Ok(written)
}

/// One line, as long as a tweet may be.
fn plain(text: &str) -> Result<()> {
    ensure!(!text.contains(char::is_control), "{text:?} has a control character");
    ensure!(!text.is_empty(), "a text is empty");
    ensure!(text.trim() == text && !text.contains("  "), "\"{text}\" has blanks too many");
    let count = text.chars().count();
    ensure!(count <= 280, "\"{text}\" has {count} characters, at most 280");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &str, expect: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.jsonl");
        std::fs::write(&file, lines).unwrap();
        let found = match read(&[file]) {
            Ok(tweets) => format!("{} tweets", tweets.len()),
            Err(error) => {
                format!("{error:#}").replace(&format!("{}/", folder.path().display()), "")
            }
        };
        assert_eq!(found, expect);
    }

    fn line(tweet: &str, replies: &[(u32, &str)]) -> String {
        let replies: Vec<_> = replies
            .iter()
            .map(|(quality, reply)| serde_json::json!({"quality": quality, "reply": reply}))
            .collect();
        let line =
            serde_json::json!({"topic": "t", "tone": "n", "tweet": tweet, "replies": replies});
        format!("{line}\n")
    }

    #[test]
    fn good_lines_are_read_and_others_named() {
        let good = line("A tweet.", &[(4, "Yes?"), (0, "no")]);
        check(&(good.clone() + &line("Another.", &[(1, "no")])), "2 tweets");
        check("", "there is no tweet in the files of --source");
        let after =
            |bad: String, what: &str| check(&(good.clone() + &bad), &format!("a.jsonl:2: {what}"));
        after(good.clone(), "the tweet is that of a.jsonl:1");
        after(line("B.", &[]), "the tweet has no reply");
        after(line("B.", &[(5, "a")]), "quality 5: it is 0, 1, 2, 3 or 4");
        after(line("B.", &[(2, "a"), (3, "a")]), "the reply \"a\" is there twice");
        after(line("B.", &[(2, "a  b")]), "\"a  b\" has blanks too many");
        after(line("B.", &[(2, "a ")]), "\"a \" has blanks too many");
        after(line("B.", &[(2, "")]), "a text is empty");
        after(line("a\tb", &[(2, "a")]), "\"a\\tb\" has a control character");
        let long = "x".repeat(281);
        after(line("B.", &[(2, &long)]), &format!("\"{long}\" has 281 characters, at most 280"));
        after("{\n".into(), "EOF while parsing an object at line 1 column 1");
    }
}
