//! From a file of records to prompts to sample from, or to examples to train on.

use std::fmt;
use std::path::Path;

use crate::{ChatOptions, Codec, DataError, Example, Examples, Prompt, PromptReader, PromptRecord};

/// Prompts of a file, in its order.
#[derive(Clone, Debug)]
pub struct PromptFile {
    /// To sample from; their indices are their places in the file.
    pub prompts: Vec<Prompt>,
    /// The line of each.
    pub lines: Vec<u64>,
    /// What was read and left out.
    pub report: RecordReport,
}

/// Examples of a file.
#[derive(Clone, Debug)]
pub struct ExampleFile {
    /// To train on, and to measure the loss on.
    pub examples: Examples,
    /// What was read and left out.
    pub report: RecordReport,
}

/// The fate of every record of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordReport {
    /// All of them.
    pub records: u64,
    /// Those of too many tokens: the lines of the first few, and how many tokens they have.
    pub too_long: Vec<(u64, usize)>,
    /// How many those were.
    pub too_long_count: u64,
    /// The most tokens that were allowed.
    pub longest: usize,
}

/// Records of a report that are named.
const NAMED: usize = 3;

impl fmt::Display for RecordReport {
    /// `120 records, 2 left out with more than 256 tokens (line 7: 300, line 9: 280)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.records)?;
        if self.too_long_count == 0 {
            return Ok(());
        }
        write!(f, ", {} left out with more than {} tokens", self.too_long_count, self.longest)?;
        let named = self.too_long.iter().map(|(line, tokens)| format!("line {line}: {tokens}"));
        let more = if self.too_long_count > NAMED as u64 { ", …" } else { "" };
        write!(f, " ({}{more})", named.collect::<Vec<_>>().join(", "))
    }
}

impl RecordReport {
    /// Counts a record; says whether it is short enough.
    fn takes(&mut self, line: u64, tokens: usize) -> bool {
        self.records += 1;
        if tokens <= self.longest {
            return true;
        }
        self.too_long_count += 1;
        if self.too_long.len() < NAMED {
            self.too_long.push((line, tokens));
        }
        false
    }

    /// The error where nothing can be used.
    fn nothing_left(&self, path: &Path) -> DataError {
        let message = format!("`{}` has no record that can be used: {self}", path.display());
        DataError::NoRecords { too_long: self.too_long_count as usize, message }
    }
}

impl PromptFile {
    /// Reads a file whole; prompts of more than `longest` tokens are left out and counted.
    ///
    /// # Errors
    /// What [`PromptReader`] and [`Codec::prompt`] say, with the line; a file without a prompt that is short enough.
    pub fn read(
        path: &Path,
        codec: &Codec,
        options: &ChatOptions,
        longest: usize,
    ) -> Result<Self, DataError> {
        let mut report = RecordReport { longest, ..RecordReport::default() };
        let (mut prompts, mut lines) = (Vec::new(), Vec::new());
        for record in PromptReader::open(path)? {
            let record = record?;
            let ids = codec.prompt(&record.prompt, options);
            let ids = ids.map_err(|error| error.at_line(path, record.line))?;
            if report.takes(record.line, ids.len()) {
                let prompt = Prompt::of_ids(prompts.len() as u32, ids);
                prompts.push(Prompt { fields: record.fields, ..prompt });
                lines.push(record.line);
            }
        }
        match prompts.is_empty() {
            true => Err(report.nothing_left(path)),
            false => Ok(Self { prompts, lines, report }),
        }
    }
}

impl ExampleFile {
    /// Reads a file whole. A completion is learned with the end of a text behind it, a prompt is only seen; examples of
    /// more than `longest` tokens are left out and counted. `validation_fraction` of the distinct examples are held
    /// out, chosen by a hash of their ids and `seed`, so that equal ones are on one side.
    ///
    /// # Errors
    /// What [`PromptReader`] and [`Codec`] say, with the line; a record without a completion; a file without an example
    /// to train on.
    pub fn read(
        path: &Path,
        codec: &Codec,
        options: &ChatOptions,
        longest: usize,
        validation_fraction: f64,
        seed: u64,
    ) -> Result<Self, DataError> {
        let mut report = RecordReport { longest, ..RecordReport::default() };
        let mut all = Vec::new();
        for record in PromptReader::open(path)? {
            let record = record?;
            let example = example(&record, codec, options);
            let example = example.map_err(|error| error.at_line(path, record.line))?;
            if report.takes(record.line, example.ids.len()) {
                all.push(example);
            }
        }
        let examples = split(all, validation_fraction, seed);
        match examples.train.is_empty() {
            true => Err(report.nothing_left(path)),
            false => Ok(Self { examples, report }),
        }
    }
}

const NO_COMPLETION: &str = "there is nothing to learn: a record needs `text`, or a completion (`completion`, `completion_ids`, or an assistant's last message) of at least one token";

fn example(
    record: &PromptRecord,
    codec: &Codec,
    options: &ChatOptions,
) -> Result<Example, DataError> {
    let nothing = || DataError::Invalid(NO_COMPLETION.to_owned());
    let completion = record.completion.as_ref().ok_or_else(nothing)?;
    let prompt = match codec.prompt(&record.prompt, options) {
        // A whole text without a mark that begins it: its first token is seen, and not learned.
        Err(DataError::EmptyPrompt) => Vec::new(),
        prompt => prompt?,
    };
    let completion = codec.completion(completion)?;
    let first_target = prompt.len().max(1);
    let end = codec.learned_end()?.filter(|end| completion.last() != Some(end));
    let ids = [prompt, completion, end.into_iter().collect()].concat();
    if ids.len() <= first_target {
        return Err(nothing());
    }
    Ok(Example { ids, first_target })
}

/// Holds out a part of the distinct examples.
fn split(all: Vec<Example>, fraction: f64, seed: u64) -> Examples {
    let draw = |example: &Example| {
        let bytes: Vec<u8> = example.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        crate::split_draw(seed, &bytes)
    };
    let limit = crate::split_limit(all.iter().map(draw), fraction);
    let (validation, train) = all.into_iter().partition(|example| draw(example) < limit);
    Examples { train, validation }
}
