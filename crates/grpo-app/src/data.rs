//! The file that a section `[data]` names: records of prompts and completions, or what a task reads.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_data::{
    ChatOptions, Codec, ConfigFault, DataError, ExampleFile, Examples, Prompt, PromptFile,
    deserialize_settings,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A kind of file that a section `[data]` can name.
#[derive(Clone, Copy)]
pub struct DataFormat {
    /// What its files hold, in the plural.
    pub holds: &'static str,
    /// The keys of `[data]` that only it has.
    pub keys: &'static [&'static str],
    /// Whether a section is of this format.
    pub is_selected: fn(&Table) -> bool,
    /// Reads its keys; the keys of faults are relative to `[data]`.
    pub parse: fn(Table) -> Result<Arc<dyn DataReader>, ConfigFault>,
}

/// Reads files of a format.
pub trait DataReader: fmt::Debug + Send + Sync {
    /// Returns what an example is called, in the singular and in the plural.
    fn nouns(&self) -> [&'static str; 2] {
        ["text", "texts"]
    }

    /// Returns its keys of `[data]`, with every default written out.
    fn settings(&self) -> Table {
        Table::new()
    }

    /// Checks its keys next to those that all formats share. The keys of faults are those of the whole configuration.
    ///
    /// # Errors
    /// Keys that contradict each other.
    fn check(&self, _shared: &SharedKeys) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Reads prompts; those that are too long are left out and reported.
    ///
    /// # Errors
    /// A file that cannot be read, or without a prompt that is short enough.
    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts>;

    /// Reads examples, of which `validation_fraction` are held out, chosen by `seed`.
    ///
    /// # Errors
    /// A file that cannot be read, or without an example that is short enough.
    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples>;

    /// Whether reading failed because everything is longer than it may be.
    fn is_too_long(&self, error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(DataError::NoRecords { too_long: 1.., .. }))
    }

    /// Returns the codec of a new model for the examples of a file, if models are made for them.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn new_codec(&self, _file: &Path) -> anyhow::Result<Option<Codec>> {
        Ok(None)
    }
}

/// The keys of `[data]` that all formats share, as far as formats look at them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedKeys {
    /// The chat template's switch for thinking before the answer.
    pub thinking: Option<bool>,
    /// Whether there is a limit to the tokens of an example.
    pub has_max_tokens: bool,
    /// Whether the model exists already.
    pub has_start: bool,
}

/// What is read, and for which model.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrom<'a> {
    /// The file.
    pub file: &'a Path,
    /// The codec of the model.
    pub codec: &'a Codec,
    /// The chat template's switch for thinking before the answer.
    pub thinking: Option<bool>,
    /// The most tokens of a prompt or an example.
    pub longest: usize,
}

/// Prompts of a file.
#[derive(Clone, Debug)]
pub struct ReadPrompts {
    /// The prompts; their indices are their positions in the file.
    pub prompts: Vec<Prompt>,
    /// Where each stands, as `file:line`.
    pub places: Vec<String>,
    /// What was read and left out.
    pub report: String,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// Examples of a file.
#[derive(Clone, Debug)]
pub struct ReadExamples {
    /// The examples.
    pub examples: Examples,
    /// What was read and left out, in lines.
    pub report: Vec<String>,
    /// The files that were read, and what each is.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Records of prompts and completions, as JSON lines or Parquet.
#[derive(Debug)]
struct Records;

impl DataReader for Records {
    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts> {
        let options = ChatOptions::for_answer(from.thinking);
        let PromptFile { prompts, lines, report } =
            PromptFile::read(from.file, from.codec, &options, from.longest)?;
        let places = lines.iter().map(|line| format!("{}:{line}", from.file.display())).collect();
        let files = vec![from.file.to_owned()];
        Ok(ReadPrompts { prompts, places, report: report.to_string(), files })
    }

    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples> {
        let &ReadFrom { file, codec, thinking, longest } = from;
        let options = ChatOptions::for_answer(thinking);
        let read = ExampleFile::read(file, codec, &options, longest, validation_fraction, seed)?;
        let mut report = read.report.to_string();
        if validation_fraction > 0.0 {
            let Examples { train, validation } = &read.examples;
            report +=
                &format!(": {} for training, {} for validation", train.len(), validation.len());
        }
        let files = vec![("texts", file.to_owned())];
        Ok(ReadExamples { examples: read.examples, report: vec![report], files })
    }
}

/// A section `[data]`: the keys of a command, and those of the format of its file.
#[derive(Clone, Debug)]
pub(crate) struct DataSection<K> {
    pub(crate) keys: K,
    pub(crate) reader: Arc<dyn DataReader>,
}

impl<K: Serialize + DeserializeOwned> DataSection<K> {
    /// Reads the section, whose file may have one of these formats.
    pub(crate) fn parse(section: Table, formats: &[DataFormat]) -> Result<Self, ConfigFault> {
        let (reader, keys) = reader(section, formats)?;
        Ok(Self { keys: deserialize_settings(keys)?, reader })
    }

    /// Returns the section with every default written out.
    pub(crate) fn settings(&self) -> anyhow::Result<Table> {
        let mut table = Table::try_from(&self.keys)?;
        table.extend(self.reader.settings());
        Ok(table)
    }
}

/// Finds the format of a section `[data]` among those of tasks: its reader, and the keys that are left.
///
/// # Errors
/// A key of a format that it has not.
fn reader(
    mut data: Table,
    formats: &[DataFormat],
) -> Result<(Arc<dyn DataReader>, Table), ConfigFault> {
    let selected = formats.iter().position(|format| (format.is_selected)(&data));
    for (index, format) in formats.iter().enumerate() {
        let unused = format.keys.iter().find(|key| data.contains_key(**key));
        if let (Some(key), true) = (unused, selected != Some(index)) {
            let file = data.get("file").and_then(Value::as_str).unwrap_or_default();
            return Err(ConfigFault::from_sentence(
                *key,
                format!(
                    "only files of {} have this key, and {file} is not one; leave it out",
                    format.holds
                ),
            ));
        }
    }
    let Some(format) = selected.map(|index| formats[index]) else {
        return Ok((Arc::new(Records), data));
    };
    let own = format.keys.iter().filter_map(|key| data.remove_entry(*key)).collect();
    Ok(((format.parse)(own)?, data))
}
