//! Loads prompts and training examples from files.

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

use crate::{
    ChatOptions, Codec, ConfigFault, DataError, Example, Examples, FileOrigin, Message, Mixture,
    Prompt, PromptReader, PromptRecord, PromptSource, RecordFormat, Shortened,
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
    /// What the records of other programs were recognised as, in the order of their appearance.
    pub shapes: Vec<&'static str>,
    /// Line numbers of the first few records whose answer was not found.
    pub unanswered: Vec<u64>,
    /// Number of records whose answer was not found.
    pub unanswered_count: u64,
    /// Line number and answer of the first record whose answer was extracted.
    pub first_answer: Option<(u64, String)>,
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
        if !self.shapes.is_empty() {
            write!(f, " with {}", self.shapes.join(" or "))?;
        }
        if let Some((line, answer)) = &self.first_answer {
            write!(f, ", answers such as {:?} (line {line})", Shortened(answer).to_string())?;
        }
        if self.unanswered_count > 0 {
            let named = self.unanswered.iter().map(|line| format!("line {line}"));
            let more = if self.unanswered_count > NAMED as u64 { ", …" } else { "" };
            let named = named.collect::<Vec<_>>().join(", ");
            write!(f, ", {} skipped without an answer ({named}{more})", self.unanswered_count)?;
        }
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
    /// Notes what a record was recognised as, and its answer. Returns whether it has one.
    fn has_answer(&mut self, record: &PromptRecord, format: &RecordFormat) -> bool {
        if let Some(shape) = record.shape.filter(|shape| !self.shapes.contains(shape)) {
            self.shapes.push(shape);
        }
        if let (true, None, Some(_), Some(Value::String(answer))) =
            (record.has_answer, &self.first_answer, format.answer(), record.fields.get("answer"))
        {
            self.first_answer = Some((record.line, answer.clone()));
        }
        if !record.has_answer {
            self.records += 1;
            self.unanswered_count += 1;
            if self.unanswered.len() < NAMED {
                self.unanswered.push(record.line);
            }
        }
        record.has_answer
    }

    /// Returns an error if most records have no answer: what marks them is then something else.
    fn refuse_unanswered(&self, path: &Path, format: &RecordFormat) -> Result<(), DataError> {
        let (Some(line), Some(form)) = (self.unanswered.first(), format.answer()) else {
            return Ok(());
        };
        if 2 * self.unanswered_count <= self.records {
            return Ok(());
        }
        let fault = format!(
            "data.answer_extract = {:?} finds no answer in {} of {}, this one first; correct it, name the column of the answer with data.columns, or remove it if `answer` is the bare answer",
            form.as_str(),
            self.unanswered_count,
            crate::counted(self.records, "record")
        );
        Err(DataError::Invalid(fault).at_line(path, *line))
    }

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
    /// Reads all prompts from a file. Prompts with more than `longest` tokens, and those whose answer
    /// is not found where `format` says, are dropped and counted.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, if a prompt cannot be encoded, if every
    /// prompt is too long, or if most records have no answer. See [`PromptReader`] and [`Codec::prompt`].
    pub fn read(
        path: &Path,
        codec: &Codec,
        options: &ChatOptions,
        longest: usize,
        format: &RecordFormat,
    ) -> Result<Self, DataError> {
        refuse_lost_system(codec, format)?;
        let mut report = RecordReport { longest, ..RecordReport::default() };
        let (mut prompts, mut lines) = (Vec::new(), Vec::new());
        for record in PromptReader::open(path)?.with_format(format) {
            let record = record?;
            if !report.has_answer(&record, format) {
                continue;
            }
            let ids = codec.prompt(&record.prompt, &record.chat_options(options));
            let ids = ids.map_err(|error| error.at_line(path, record.line))?;
            if report.takes(record.line, ids.len()) {
                let prompt = Prompt::of_ids(prompts.len() as u32, ids);
                let mut fields = record.fields;
                // Rewards see a conversation as it was, in addition to its text.
                let messages = match &record.prompt {
                    PromptSource::Messages(messages) => Some(json!(messages)),
                    PromptSource::User(text) if codec.has_chat_template() => {
                        Some(json!([Message::new("user", text)]))
                    }
                    _ => None,
                };
                fields.extend(messages.map(|messages| ("prompt".to_owned(), messages)));
                prompts.push(Prompt { fields, ..prompt });
                lines.push(record.line);
            }
        }
        report.refuse_unanswered(path, format)?;
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
        format: &RecordFormat,
        longest: usize,
        validation_fraction: f64,
        seed: u64,
    ) -> Result<Self, DataError> {
        refuse_lost_system(codec, format)?;
        let mut report = RecordReport { longest, ..RecordReport::default() };
        let mut all = Vec::new();
        for record in PromptReader::open_texts(path)?.with_format(format) {
            let record = record?;
            if !report.has_answer(&record, format) {
                continue;
            }
            let example = example(&record, codec, options);
            let example = example.map_err(|error| error.at_line(path, record.line))?;
            if report.takes(record.line, example.ids.len()) {
                all.push(example);
            }
        }
        report.refuse_unanswered(path, format)?;
        let (train, validation) = split(vec![all], validation_fraction, seed);
        let train: Vec<Example> = train.into_iter().flatten().collect();
        match train.is_empty() {
            true => Err(report.nothing_left(path)),
            false => Ok(Self { examples: Examples::new(train, validation), report }),
        }
    }
}

/// Returns an error if there is no chat template that could show the system message.
fn refuse_lost_system(codec: &Codec, format: &RecordFormat) -> Result<(), DataError> {
    if format.keys().system.is_none() || codec.has_chat_template() {
        return Ok(());
    }
    let fault = "the model has no chat template, so data.system cannot be shown to it; remove it, or begin data.template with its text";
    Err(DataError::Invalid(fault.to_owned()))
}

const NO_COMPLETION: &str = "no tokens to train on: a record requires `text`, or a completion of at least one token (`completion`, `completion_ids`, or a final assistant message), whose column data.columns.completion can name";

fn example(
    record: &PromptRecord,
    codec: &Codec,
    options: &ChatOptions,
) -> Result<Example, DataError> {
    let nothing = || DataError::Invalid(NO_COMPLETION.to_owned());
    let completion = record.completion.as_ref().ok_or_else(nothing)?;
    let prompt = match codec.prompt(&record.prompt, &record.chat_options(options)) {
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

impl Examples {
    /// Joins the examples of several files, each with its weight, and holds out a fraction of the distinct ones
    /// as [`ExampleFile::read`] does, so that equal examples of two files are on one side.
    ///
    /// # Errors
    /// Returns an error if an epoch would have too many examples. See [`Mixture::new`].
    pub fn of_files(
        files: Vec<(Vec<Example>, f64)>,
        fraction: f64,
        seed: u64,
    ) -> Result<Self, ConfigFault> {
        let (files, weights): (Vec<_>, Vec<f64>) = files.into_iter().unzip();
        let (train, validation) = split(files, fraction, seed);
        let is_weighted = weights.iter().any(|weight| *weight != 1.0);
        let sizes: Vec<_> = train.iter().map(Vec::len).zip(weights).collect();
        let mixture = is_weighted.then(|| Mixture::new(&sizes)).transpose()?;
        Ok(Self { train: train.into_iter().flatten().collect(), validation, mixture })
    }
}

/// Moves a fraction of the distinct examples of all files to the validation split. Returns what is left of
/// each file.
fn split(files: Vec<Vec<Example>>, fraction: f64, seed: u64) -> (Vec<Vec<Example>>, Vec<Example>) {
    let draw = |example: &Example| {
        let bytes: Vec<u8> = example.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        crate::split_draw(seed, &bytes)
    };
    let limit = crate::split_limit(files.iter().flatten().map(draw), fraction);
    let mut validation = Vec::new();
    let mut train_of = |file: Vec<Example>| {
        let (held_out, train): (Vec<_>, _) =
            file.into_iter().partition(|example| draw(example) < limit);
        validation.extend(held_out);
        train
    };
    let train = files.into_iter().map(&mut train_of).collect();
    (train, validation)
}
