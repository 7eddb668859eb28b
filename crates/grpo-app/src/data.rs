//! Files of a section `[data]`: records of prompts and completions, or formats of tasks.

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

/// A file format of the section `[data]`.
#[derive(Clone, Copy)]
pub struct DataFormat {
    /// The contents of its files, in the plural.
    pub holds: &'static str,
    /// Its additional keys of `[data]`.
    pub keys: &'static [&'static str],
    /// Returns whether a section has this format.
    pub is_selected: fn(&Table) -> bool,
    /// Parses its keys; keys of errors are relative to `[data]`.
    pub parse: fn(Table) -> Result<Arc<dyn DataReader>, ConfigFault>,
}

/// Reads files of a format.
pub trait DataReader: fmt::Debug + Send + Sync {
    /// Returns the name of an example in the singular and the plural.
    fn nouns(&self) -> [&'static str; 2] {
        ["text", "texts"]
    }

    /// Returns its keys of `[data]` with all defaults.
    fn settings(&self) -> Table {
        Table::new()
    }

    /// Checks its keys together with the shared ones. Errors have complete keys.
    ///
    /// # Errors
    /// Returns an error if keys contradict each other.
    fn check(&self, _shared: &SharedKeys) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Reads prompts; those that are too long are dropped and reported.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or no prompt is short enough.
    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts>;

    /// Reads examples, of which `validation_fraction` is held out with `seed`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or no example is short enough.
    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples>;

    /// Returns whether reading failed because everything is too long.
    fn is_too_long(&self, error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(DataError::NoRecords { too_long: 1.., .. }))
    }

    /// Returns the codec of a new model for the examples of a file, if the format supports that.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn new_codec(&self, _file: &Path) -> anyhow::Result<Option<Codec>> {
        Ok(None)
    }
}

/// Keys of `[data]` that formats share.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedKeys {
    /// The chat template's option for thinking.
    pub thinking: Option<bool>,
    /// Whether the number of tokens of an example is limited.
    pub has_max_tokens: bool,
    /// Whether the model exists already.
    pub has_start: bool,
}

/// What to read, and for which model.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrom<'a> {
    /// The file.
    pub file: &'a Path,
    /// The codec of the model.
    pub codec: &'a Codec,
    /// The chat template's option for thinking.
    pub thinking: Option<bool>,
    /// Largest number of tokens of a prompt or example.
    pub longest: usize,
}

/// Prompts of a file.
#[derive(Clone, Debug)]
pub struct ReadPrompts {
    /// The prompts, indexed by their order in the file.
    pub prompts: Vec<Prompt>,
    /// Position of each as `file:line`.
    pub places: Vec<String>,
    /// Report on the prompts.
    pub report: String,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// Examples of a file.
#[derive(Clone, Debug)]
pub struct ReadExamples {
    /// The examples.
    pub examples: Examples,
    /// Report on the examples, in lines.
    pub report: Vec<String>,
    /// The files that were read, with their roles.
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

/// A section `[data]`: keys of a command and of the file format.
#[derive(Clone, Debug)]
pub(crate) struct DataSection<K> {
    pub(crate) keys: K,
    pub(crate) reader: Arc<dyn DataReader>,
}

impl<K: Serialize + DeserializeOwned> DataSection<K> {
    /// Parses the section, whose file may have one of these formats.
    pub(crate) fn parse(section: Table, formats: &[DataFormat]) -> Result<Self, ConfigFault> {
        let (reader, keys) = reader(section, formats)?;
        Ok(Self { keys: deserialize_settings(keys)?, reader })
    }

    /// Returns the section with all defaults.
    pub(crate) fn settings(&self) -> anyhow::Result<Table> {
        let mut table = Table::try_from(&self.keys)?;
        table.extend(self.reader.settings());
        Ok(table)
    }
}

/// Returns the reader of a section `[data]` and the remaining keys.
///
/// # Errors
/// Returns an error for a key of another format.
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
                    "this key is only valid for files of {}, not for {file}; remove it",
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
