//! Reading pairs: every line that is one, and of every other line why it is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use grpo_data::{DataError, ObjectReader};
use serde::Serialize;

use crate::PairRecord;
use crate::split_files::check_phase;

/// What a file, or all files of a folder, hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairFile {
    /// What it was called.
    pub path: PathBuf,
    /// The pairs, in the order of the files' names and of their lines.
    pub pairs: Vec<PairRecord>,
    /// The line of each pair as it stands in its file, without its end; the row of a Parquet file as an object.
    pub texts: Vec<String>,
    /// Lines that are no pairs; empty lines are not counted.
    pub skipped: Vec<SkippedLine>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// A line that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedLine {
    /// Its file.
    pub file: PathBuf,
    /// Its number, counted from 1.
    pub line: u64,
    /// Why it is no pair, or cannot be used.
    pub reason: String,
}

impl fmt::Display for SkippedLine {
    /// `pairs.jsonl:7: there is no `reply``
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}

/// Reads the pairs of a file (`.jsonl` or `.json` with one object a line, either with `.gz` behind it, or `.parquet`), or
/// of all files of a folder whose names end in `.jsonl`, `.jsonl.gz` or `.parquet`. What is no pair is left out, and
/// listed with the reason.
///
/// # Errors
/// A file that cannot be read, has another ending, or is damaged (gzip, Parquet); a folder without such files; a file
/// without a single pair, also where others of the folder have some.
pub fn read_pairs(path: &Path) -> Result<PairFile, DataError> {
    let files = if path.is_dir() { files_of(path)? } else { vec![path.to_owned()] };
    let mut read = PairFile { path: path.to_owned(), ..PairFile::default() };
    let mut tweets = BTreeMap::new();
    for file in &files {
        let before = (read.pairs.len(), read.skipped.len());
        read.read(file, &mut tweets)?;
        if read.pairs.len() == before.0 {
            let skipped = &read.skipped[before.1..];
            let first = skipped.first().map(|first| format!(", the first of them {first}"));
            return Err(DataError::Invalid(format!(
                "`{}` has no pair of a tweet and a reply: {} lines were left out{}; write one object a line with `tweet_id`, `tweet` and `reply`",
                file.display(),
                skipped.len(),
                first.unwrap_or_default()
            )));
        }
    }
    read.files = files;
    Ok(read)
}

fn files_of(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |source| DataError::Unreadable { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let fits = [".jsonl", ".jsonl.gz", ".parquet"].iter().any(|end| name.ends_with(end));
        if fits && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(DataError::Invalid(format!(
            "the folder `{}` has no file that ends in .jsonl, .jsonl.gz or .parquet",
            folder.display()
        )));
    }
    files.sort();
    Ok(files)
}

/// Where the text of a tweet was first, in [`PairFile::pairs`].
type Tweets = BTreeMap<String, usize>;

impl PairFile {
    fn read(&mut self, file: &Path, tweets: &mut Tweets) -> Result<(), DataError> {
        check_phase(file)?;
        let mut rows = ObjectReader::open(file)?;
        while let Some(row) = rows.next_row()? {
            let pair = row.object.map_err(|fault| fault.to_string()).and_then(|(text, keys)| {
                Ok((PairRecord::from_keys(file.to_owned(), row.line, keys)?, text))
            });
            self.take(file, row.line, pair, tweets);
        }
        Ok(())
    }

    fn take(
        &mut self,
        file: &Path,
        line: u64,
        pair: Result<(PairRecord, String), String>,
        tweets: &mut Tweets,
    ) {
        let mut first = |pair: &PairRecord| {
            let first = *tweets.entry(pair.tweet_id.clone()).or_insert(self.pairs.len());
            self.pairs.get(first)
        };
        let pair = pair.and_then(|(pair, text)| match first(&pair) {
            Some(first) if first.tweet.trim() != pair.tweet.trim() => Err(format!(
                "the tweet {} has another text on line {} of {}",
                pair.tweet_id,
                first.line,
                first.file.display()
            )),
            _ => Ok((pair, text)),
        });
        match pair {
            Ok((pair, text)) => {
                self.pairs.push(pair);
                self.texts.push(text);
            }
            Err(reason) => self.skipped.push(SkippedLine { file: file.to_owned(), line, reason }),
        }
    }

    /// Different tweets.
    pub fn tweets(&self) -> usize {
        self.pairs.iter().map(|pair| &pair.tweet_id).collect::<BTreeSet<_>>().len()
    }

    /// How many pairs do not say a key that an engagement score is of, and what stands in for it; nothing where all do.
    pub fn unsaid(&self) -> Option<String> {
        let count = |is_unsaid: fn(&PairRecord) -> bool| {
            self.pairs.iter().filter(|pair| is_unsaid(pair)).count()
        };
        let keys = [
            (count(|pair| pair.tweet_likes.is_none()), "`tweet_likes`, for which 1 stands in"),
            (count(|pair| pair.reply_likes.is_none()), "`reply_likes`, for which 0 stands in"),
        ];
        let said = keys.into_iter().filter(|(count, _)| *count > 0);
        let said: Vec<String> =
            said.map(|(count, key)| format!("{count} pairs do not say {key}")).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Pairs whose tweet and reply stand in front of them already, each with the place of the first, as places in
    /// [`Self::pairs`].
    pub fn duplicates(&self) -> Vec<(usize, usize)> {
        let mut seen = BTreeMap::new();
        let places = self.pairs.iter().enumerate();
        let first = places.map(|(place, pair)| {
            (place, *seen.entry((&pair.tweet_id, pair.reply.trim())).or_insert(place))
        });
        first.filter(|(place, first)| place != first).collect()
    }
}

impl fmt::Display for PairFile {
    /// `1200 pairs of 420 tweets, 2 lines left out (a.jsonl:7: there is no `reply`; …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs of {} tweets", self.pairs.len(), self.tweets())?;
        if self.skipped.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = self.skipped.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if self.skipped.len() > NAMED { "; …" } else { "" };
        write!(f, ", {} lines left out ({}{more})", self.skipped.len(), named.join("; "))
    }
}

/// Lines of a report that are named.
const NAMED: usize = 3;
