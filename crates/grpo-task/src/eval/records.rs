//! Records of JSON lines, Parquet and CSV files, and lines of text files.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use anyhow::Context;
use grpo_data::{
    Bytes, CsvQuotes, DataError, FileOrigin, LineReader, ObjectReader, cell_separator, counted,
    message_text, nested_field, open_file, short_text, too_long,
};
use serde_json::{Map, Value};

/// Longest line of a text file, in bytes.
pub(super) const LONGEST_LINE: usize = 16 << 20;

/// Longest row of a CSV file, in bytes.
pub(super) const LONGEST_ROW: usize = 1 << 20;

/// Buffer size of the CSV reader, in bytes.
const BUFFER: usize = 1 << 16;

/// Keys and columns for completions, in order of preference. The names are those of this program,
/// TRL and REINVENT 4.
pub(super) const COMPLETIONS: [&str; 12] = [
    "filled",
    "completion",
    "completions",
    "text",
    "reply",
    "response",
    "output",
    "smiles",
    "SMILES",
    "Smiles",
    "canonical_smiles",
    "molecule",
];
/// Keys and columns for prompts.
///
/// The key of the pair comes first, because templates change the prompt; recorded completions have
/// an index in `prompt` and the text in `prompt_text`.
pub(super) const PROMPTS: [&str; 7] =
    ["prompt_key", "prompt_text", "prompt", "prompts", "messages", "tweet", "blanked"];
/// Keys and columns for references.
pub(super) const REFERENCES: [&str; 4] = ["reference", "references", "answer", "target"];
/// Keys and columns for scores.
pub(super) const SCORES: [&str; 4] = ["reward", "score", "Score", "total_score"];

/// Reads the references of each prompt from a file of records.
///
/// # Errors
/// Returns an error if the file cannot be read or a record has no reference.
pub(super) fn read_references(path: &Path) -> anyhow::Result<HashMap<String, Vec<String>>> {
    let mut by_prompt: HashMap<String, Vec<String>> = HashMap::new();
    read_objects(path, |line, fields| {
        let row = Row { path, line, fields: &fields };
        let (_, prompt) = row.find("", "prompt", &PROMPTS, &None)?;
        let (_, value) = row.find("", "reference", &REFERENCES, &None)?;
        let found = references(value).filter(|found| !found.is_empty()).with_context(|| {
            format!(
                "{}: the record has no reference (expected {}; found {})",
                row.place(),
                REFERENCES.join(", "),
                row.names()
            )
        })?;
        let prompt = if prompt.is_null() { String::new() } else { as_text(prompt) };
        by_prompt.entry(prompt).or_default().extend(found);
        Ok(())
    })?;
    Ok(by_prompt)
}

/// A record of a file.
pub(super) struct Row<'a> {
    pub(super) path: &'a Path,
    pub(super) line: u64,
    pub(super) fields: &'a Map<String, Value>,
}

impl<'a> Row<'a> {
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path.display(), self.line)
    }

    pub(super) fn names(&self) -> String {
        short_text(&self.fields.keys().cloned().collect::<Vec<_>>().join(", ")).to_string()
    }

    /// Returns the chosen key, or the first of the usual ones, and its value, or null.
    pub(super) fn find(
        &self,
        option: &str,
        what: &str,
        names: &[&'a str],
        chosen: &'a Option<String>,
    ) -> anyhow::Result<(Option<&'a str>, &'a Value)> {
        if let Some(name) = chosen {
            let value = nested_field(self.fields, name).with_context(|| {
                format!(
                    "{}: the record has no key `{name}` for the {what} ({option}); it has {}",
                    self.place(),
                    self.names()
                )
            })?;
            return Ok((Some(name), value));
        }
        let is_there = |name: &&&str| self.fields.get(**name).is_some_and(|value| !value.is_null());
        // A key whose value is null counts if no other has a value.
        let name = names.iter().find(is_there);
        let name = name.or_else(|| names.iter().find(|name| self.fields.contains_key(**name)));
        Ok(name.map_or((None, &Value::Null), |name| (Some(*name), &self.fields[*name])))
    }
}

/// Returns a reference, or a list of references. Conversations count by their last message.
pub fn references(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        value => text_of(value),
    };
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(values) if values.iter().all(|value| !value.is_object()) => {
            values.iter().map(one).collect()
        }
        value => Some(vec![one(value)?]),
    }
}

/// Returns a finite number, also from the text of a CSV cell.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    number.filter(|number: &f64| number.is_finite())
}

/// Returns a string as it is, and any other value as compact JSON.
pub(super) fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns a text, or the text of the last message of a conversation.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(messages) => message_text(messages.last()?.get("content")?),
        _ => None,
    }
}

pub(super) fn read_objects(
    path: &Path,
    mut add: impl FnMut(u64, Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut reader = ObjectReader::open(path, "a completion")?;
    while let Some(row) = reader.next_row()? {
        let place = || format!("{}:{}", path.display(), row.line);
        let object = row.object.map_err(|fault| anyhow::anyhow!("{}: {fault}", place()));
        add(row.line, object?.1)?;
    }
    Ok(())
}

pub(super) fn read_lines(path: &Path, mut add: impl FnMut(&str)) -> anyhow::Result<()> {
    let (origin, _) = FileOrigin::new(path);
    let mut lines = LineReader::new(origin.decoded(open_file(path)?), LONGEST_LINE);
    while let Some((line, bytes)) = lines.next_line(&origin)? {
        // An empty line is a text, because a sampled text can be empty.
        add(origin.text(bytes, line)?.trim_end_matches(['\n', '\r']));
    }
    Ok(())
}

pub(super) fn read_csv(
    path: &Path,
    mut add: impl FnMut(u64, Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (origin, _) = FileOrigin::new(path);
    let source = origin.decoded(open_file(path)?);
    let (separator, source) = cell_separator(source, LONGEST_ROW, &origin)?;
    let (source, quotes) = CsvQuotes::new(source, separator);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(separator)
        // The number of cells is checked below, so that the error names the line.
        .flexible(true)
        .buffer_capacity(BUFFER)
        .from_reader(RowLimit { source, read: 0 });
    let mut row = csv::ByteRecord::new();
    let mut header: Option<Vec<String>> = None;
    loop {
        let before = reader.position().line() - 1;
        reader.get_mut().read = 0;
        let read = reader.read_byte_record(&mut row);
        let is_row = read.map_err(|error| csv_fault(error, &origin, before))?;
        if let Some((line, fault)) = quotes.first() {
            anyhow::bail!("line {line} of `{}` {fault}", path.display());
        }
        if !is_row {
            return Ok(());
        }
        let line = row.position().map_or(1, csv::Position::line);
        if row.as_slice().len() > LONGEST_ROW {
            return Err(too_long(LONGEST_ROW).at_line(path, line).into());
        }
        let cells = row.iter().map(|cell| origin.text(cell, line));
        let cells = cells.collect::<Result<Vec<&str>, DataError>>()?;
        let Some(names) = &header else {
            header = Some(columns(path, &cells)?);
            continue;
        };
        anyhow::ensure!(
            cells.len() == names.len(),
            "line {line} of `{}` has {}, but the header has {}; add the missing fields, or quote fields that contain the separator",
            path.display(),
            counted(cells.len(), "field"),
            names.len()
        );
        let values = cells.iter().map(|cell| match cell.is_empty() {
            true => Value::Null,
            false => Value::String((*cell).to_owned()),
        });
        add(line, names.iter().cloned().zip(values).collect())?;
    }
}

/// Returns the names of the columns.
fn columns(path: &Path, cells: &[&str]) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = cells.iter().map(|name| name.trim().to_owned()).collect();
    if let Some((_, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        anyhow::bail!(
            "{}: two columns are named `{}`; rename one",
            path.display(),
            short_text(name)
        );
    }
    Ok(names)
}

/// Converts an error after `before` complete lines. Only reading can fail.
fn csv_fault(error: csv::Error, origin: &FileOrigin, before: u64) -> DataError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) if error.kind() == ErrorKind::QuotaExceeded => {
            too_long(LONGEST_ROW).at_line(&origin.path, before + 1)
        }
        csv::ErrorKind::Io(error) => origin.io_error(error, before),
        _ => DataError::Invalid("the row cannot be read".to_owned())
            .at_line(&origin.path, before + 1),
    }
}

/// Limits the bytes that are read for one row.
struct RowLimit {
    source: CsvQuotes<Bytes>,
    /// Bytes since the last row.
    read: usize,
}

impl Read for RowLimit {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read > LONGEST_ROW + BUFFER {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let read = self.source.read(buffer)?;
        self.read += read;
        Ok(read)
    }
}
