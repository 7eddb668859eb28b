//! Reads pairs and reports invalid lines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use grpo_data::{DataError, ObjectReader, counted};
use serde::Serialize;

use crate::PairRecord;
use crate::split_files::check_phase;

/// The pairs read from a file or folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PairFile {
    /// Path of the file or folder.
    pub path: PathBuf,
    /// All pairs, in order of file name and line.
    pub pairs: Vec<PairRecord>,
    /// The line of each pair without its newline or, for a Parquet file, the row as a JSON object.
    pub texts: Vec<String>,
    /// The first [`MOST_LISTED`] invalid lines. Empty lines are not included.
    pub skipped: Vec<SkippedLine>,
    /// Number of all invalid lines.
    pub invalid: usize,
    /// All files that were read.
    pub files: Vec<PathBuf>,
}

/// Maximum number of invalid lines that are listed. All of them are counted.
pub const MOST_LISTED: usize = 100_000;

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedLine {
    /// Path of the file.
    pub file: PathBuf,
    /// Line number, starting at 1.
    pub line: u64,
    /// Why the line is invalid.
    pub reason: String,
}

impl fmt::Display for SkippedLine {
    /// For example, `pairs.jsonl:7: the line is not UTF-8 text`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}

/// The keys that a pair requires.
const KEYS: &str = "`tweet_id`, `tweet` and `reply`";

/// Reads pairs from a file or a folder.
///
/// Supported files are `.jsonl` and `.json` with one object per line, optionally compressed
/// (`.gz`), and `.parquet`. In a folder, all files ending in `.jsonl`, `.jsonl.gz` or `.parquet`
/// are read. Invalid lines are skipped and reported in [`PairFile::skipped`].
///
/// # Errors
/// Returns an error if a file cannot be read, has an unsupported extension, is damaged (gzip,
/// Parquet) or contains no pairs, or if a folder contains no supported files.
pub fn read_pairs(path: &Path) -> Result<PairFile, DataError> {
    let files = if path.is_dir() { files_of(path)? } else { vec![path.to_owned()] };
    let mut read = PairFile { path: path.to_owned(), ..PairFile::default() };
    let mut tweets = BTreeMap::new();
    for file in &files {
        let before = (read.pairs.len(), read.skipped.len(), read.invalid);
        read.read(file, &mut tweets)?;
        if read.pairs.len() == before.0 {
            let invalid = read.invalid - before.2;
            let first = read.skipped.get(before.1).map(|first| format!(" (first: {first})"));
            let reason = match invalid {
                0 => "it has no lines".to_owned(),
                1 => "1 line was skipped".to_owned(),
                _ => format!("{invalid} lines were skipped"),
            };
            return Err(DataError::Invalid(format!(
                "`{}` has no valid pairs: {reason}{}; write one object per line with {KEYS}",
                file.display(),
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
            "folder `{}` has no .jsonl, .jsonl.gz or .parquet files",
            folder.display()
        )));
    }
    files.sort();
    Ok(files)
}

/// For each tweet text, the index of its first pair in [`PairFile::pairs`].
type Tweets = BTreeMap<String, usize>;

impl PairFile {
    fn read(&mut self, file: &Path, tweets: &mut Tweets) -> Result<(), DataError> {
        check_phase(file)?;
        let mut rows = ObjectReader::open(file, KEYS)?;
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
                "tweet {} has different text on line {} of {}",
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
            Err(reason) => {
                self.invalid += 1;
                if self.skipped.len() < MOST_LISTED {
                    self.skipped.push(SkippedLine { file: file.to_owned(), line, reason });
                }
            }
        }
    }

    /// Returns the number of distinct tweets.
    pub fn tweets(&self) -> usize {
        self.pairs.iter().map(|pair| &pair.tweet_id).collect::<BTreeSet<_>>().len()
    }

    /// Describes how many pairs lack a value for the engagement score and which default is used.
    /// `None` if all values are present.
    pub fn unsaid(&self) -> Option<String> {
        let count = |is_unsaid: fn(&PairRecord) -> bool| {
            self.pairs.iter().filter(|pair| is_unsaid(pair)).count()
        };
        let keys = [
            (count(|pair| pair.tweet_likes.is_none()), "`tweet_likes` (using 1)"),
            (count(|pair| pair.reply_likes.is_none()), "`reply_likes` (using 0)"),
        ];
        let said = keys.into_iter().filter(|(count, _)| *count > 0);
        let said: Vec<String> = said
            .map(|(count, key)| {
                let verb = if count == 1 { "is" } else { "are" };
                format!("{} {verb} missing {key}", counted(count, "pair"))
            })
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// Returns all pairs that repeat an earlier pair.
    pub fn duplicates(&self) -> Vec<RepeatedPair> {
        let mut seen = BTreeMap::new();
        let places = self.pairs.iter().enumerate();
        let all = places.map(|(pair, of)| {
            let first = *seen.entry((&of.tweet_id, of.reply.trim())).or_insert(pair);
            RepeatedPair { pair, first }
        });
        all.filter(|of| of.pair != of.first).collect()
    }
}

/// A pair that repeats an earlier one of the same file, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedPair {
    /// Index of the repetition.
    pub pair: usize,
    /// Index of the first occurrence.
    pub first: usize,
}

impl fmt::Display for PairFile {
    /// For example, `9 pairs from 4 tweets, 1 line skipped (a.jsonl:7: the line is not UTF-8)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} from {}",
            counted(self.pairs.len(), "pair"),
            counted(self.tweets(), "tweet")
        )?;
        if self.invalid == 0 {
            return Ok(());
        }
        let named: Vec<String> = self.skipped.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if self.invalid > NAMED { "; …" } else { "" };
        write!(f, ", {} skipped ({}{more})", counted(self.invalid, "line"), named.join("; "))
    }
}

/// Maximum number of lines listed in a report.
const NAMED: usize = 3;
