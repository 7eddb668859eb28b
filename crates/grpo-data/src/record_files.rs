//! Loads prompts and training examples from files.

use std::fmt;
use std::path::Path;

use crate::{
    ChatOptions, Codec, DataError, Example, Examples, FileOrigin, Prompt, PromptReader,
    PromptRecord, PromptSource,
};

/// The prompts in a file, in their original order.
#[derive(Clone, Debug)]
pub struct PromptFile {
    /// The prompts. Their indices follow the order of the file.
    pub prompts: Vec<Prompt>,
    /// The line number of each prompt.
    pub lines: Vec<u64>,
    /// Statistics about the records.
    pub report: RecordReport,
}

/// The training examples in a file.
#[derive(Clone, Debug)]
pub struct ExampleFile {
    /// Training and validation examples.
    pub examples: Examples,
    /// Statistics about the records.
    pub report: RecordReport,
}

/// Statistics about the records in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordReport {
    /// Total number of records.
    pub records: u64,
    /// The first few records that were too long.
    pub too_long: Vec<LongRecord>,
    /// Number of records that were too long.
    pub too_long_count: u64,
    /// Maximum number of tokens per record.
    pub longest: usize,
}

/// A record that was too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongRecord {
    /// Line number, starting at 1.
    pub line: u64,
    /// Number of its tokens.
    pub tokens: usize,
}

/// Number of dropped records that a report lists individually.
const NAMED: usize = 3;

impl fmt::Display for RecordReport {
    /// For example, `120 records, 2 left out with more than 256 tokens (line 7: 300, line 9: 280)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::counted(self.records, "record"))?;
        if self.too_long_count == 0 {
            return Ok(());
        }
        let longest = crate::counted(self.longest, "token");
        write!(f, ", {} skipped with more than {longest}", self.too_long_count)?;
        let named = self.too_long.iter();
        let named = named.map(|LongRecord { line, tokens }| format!("line {line}: {tokens}"));
        let more = if self.too_long_count > NAMED as u64 { ", …" } else { "" };
        write!(f, " ({}{more})", named.collect::<Vec<_>>().join(", "))
    }
}

impl RecordReport {
    /// Counts a record and returns whether it is within the length limit.
    fn takes(&mut self, line: u64, tokens: usize) -> bool {
        self.records += 1;
        if tokens <= self.longest {
            return true;
        }
        self.too_long_count += 1;
        if self.too_long.len() < NAMED {
            self.too_long.push(LongRecord { line, tokens });
        }
        false
    }

    /// Returns the error for a file without usable records.
    fn nothing_left(&self, path: &Path) -> DataError {
        let is_parquet = FileOrigin::new(path).1 == "parquet";
        let path = path.display();
        let message = match self.records {
            0 if is_parquet => format!(
                "`{path}` has no records; write one row per record, with columns such as `prompt` and `completion`"
            ),
            0 => format!(
                "`{path}` has no records; write one JSON object per line, such as {{\"prompt\": \"…\", \"completion\": \"…\"}}"
            ),
            _ => format!("`{path}` has no usable record: {self}"),
        };
        DataError::NoRecords { too_long: self.too_long_count as usize, message }
    }
}

impl PromptFile {
    /// Reads all prompts from a file. Prompts with more than `longest` tokens are dropped and
    /// counted.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if a prompt cannot be encoded, or if every
    /// prompt is too long. See [`PromptReader`] and [`Codec::prompt`].
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
                let mut fields = record.fields;
                // Rewards see a conversation as it was, in addition to its text.
                if let PromptSource::Messages(messages) = &record.prompt {
                    fields.insert("prompt".to_owned(), serde_json::json!(messages));
                }
                prompts.push(Prompt { fields, ..prompt });
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
    /// Reads all examples from a file.
    ///
    /// The loss covers the completion and its end token but not the prompt. Examples with more than
    /// `longest` tokens are dropped and counted. A fraction `validation_fraction` of the distinct
    /// examples is held out, chosen by a hash of their ids and `seed`. Duplicates therefore end up
    /// in the same split.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if a record cannot be encoded or has no
    /// completion, or if there are no training examples. See [`PromptReader`] and [`Codec`].
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
        for record in PromptReader::open_texts(path)? {
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

const NO_COMPLETION: &str = "no tokens to train on: a record requires `text`, or a completion of at least one token (`completion`, `completion_ids`, or a final assistant message)";

fn example(
    record: &PromptRecord,
    codec: &Codec,
    options: &ChatOptions,
) -> Result<Example, DataError> {
    let nothing = || DataError::Invalid(NO_COMPLETION.to_owned());
    let completion = record.completion.as_ref().ok_or_else(nothing)?;
    let prompt = match codec.prompt(&record.prompt, options) {
        // Plain text without a begin token. Its first token is not a target.
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
    Ok(Example::new(ids, first_target))
}

/// Moves a fraction of the distinct examples to the validation split.
fn split(all: Vec<Example>, fraction: f64, seed: u64) -> Examples {
    let draw = |example: &Example| {
        let bytes: Vec<u8> = example.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        crate::split_draw(seed, &bytes)
    };
    let limit = crate::split_limit(all.iter().map(draw), fraction);
    let (validation, train) = all.into_iter().partition(|example| draw(example) < limit);
    Examples { train, validation }
}
