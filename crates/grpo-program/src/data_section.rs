//! The section `[data]` of a command.

use std::path::PathBuf;
use std::sync::Arc;

use grpo_data::{ConfigFault, DataFiles, deserialize_settings};
use grpo_task::data::{DataFormat, DataReader, Records};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// A `[data]` section, consisting of the command's keys and the file format's keys.
#[derive(Clone, Debug)]
pub(crate) struct DataSection<K> {
    /// Keys of the command.
    pub(crate) keys: K,
    /// Reads files of the format.
    pub(crate) reader: Arc<dyn DataReader>,
}

impl<K: Serialize + DeserializeOwned> DataSection<K> {
    /// Parses the section. `formats` are the available file formats.
    pub(crate) fn parse(section: Table, formats: &[DataFormat]) -> Result<Self, ConfigFault> {
        let selected = format_of(&section, formats)?;
        let (reader, keys) = reader(section, selected, formats)?;
        let keys = deserialize_settings(keys).map_err(|fault: ConfigFault| {
            let is_unknown = fault.message.starts_with("unknown key");
            let more = selected.map_or(&Records::KEYS[..], |index| formats[index].keys);
            let more = more.iter().filter(|_| is_unknown).map(|key| format!(", `{key}`"));
            let more: String = more.collect();
            ConfigFault { message: format!("{}{more}", fault.message), ..fault }
        })?;
        Ok(Self { keys, reader })
    }

    /// Returns all keys of the section, including defaults.
    pub(crate) fn settings(&self) -> anyhow::Result<Table> {
        let mut table = Table::try_from(&self.keys)?;
        table.extend(self.reader.settings());
        Ok(table)
    }
}

impl<K> DataSection<K> {
    /// Checks the files of the section.
    ///
    /// # Errors
    /// Returns an error for an empty list, for weights out of range, and for several files of a format that
    /// reads one.
    pub(crate) fn check_files(&self, files: &DataFiles) -> Result<(), ConfigFault> {
        let key = "data.file";
        files.check(key)?;
        let is_one = matches!(files.listed().as_slice(), [file] if file.weight() == 1.0);
        if !is_one && !self.reader.reads_several() {
            let [_, items] = self.reader.nouns();
            let fault = format!("{key} is a list, but {items} are read from a single file");
            return Err(ConfigFault::new(key, fault, "join the files"));
        }
        Ok(())
    }
}

/// Returns the sections that name one of the files each.
pub(crate) fn of_each_file(data: &Table) -> Vec<Table> {
    let files = data.get("file").cloned().map(DataFiles::deserialize);
    let Some(Ok(files @ DataFiles::Several(_))) = files else { return vec![data.clone()] };
    let of_file = |path: &PathBuf| {
        let mut section = data.clone();
        section.insert("file".to_owned(), path.display().to_string().into());
        section
    };
    files.paths().map(of_file).collect()
}

/// Returns the index of the format that a section uses, or `None` for records.
///
/// # Errors
/// Returns an error if its files have different formats.
fn format_of(data: &Table, formats: &[DataFormat]) -> Result<Option<usize>, ConfigFault> {
    let of = |section: &Table| formats.iter().position(|format| (format.is_selected)(section));
    let mut each = of_each_file(data).into_iter();
    let first = each.next().unwrap_or_else(|| data.clone());
    let format = of(&first);
    let holds = |index: Option<usize>| index.map_or("records", |index| formats[index].holds);
    match each.map(|section| of(&section)).find(|other| *other != format) {
        None => Ok(format),
        Some(other) => Err(ConfigFault::from_sentence(
            "file",
            format!(
                "data.file mixes files of {} and of {}; name files of one kind",
                holds(format),
                holds(other)
            ),
        )),
    }
}

/// Creates the reader of a `[data]` section. Also returns the keys that the format does not use.
///
/// # Errors
/// Returns an error if a key belongs to a different format.
fn reader(
    mut data: Table,
    selected: Option<usize>,
    formats: &[DataFormat],
) -> Result<(Arc<dyn DataReader>, Table), ConfigFault> {
    for (index, format) in formats.iter().enumerate() {
        let unused = format.keys.iter().find(|key| data.contains_key(**key));
        if let (Some(key), true) = (unused, selected != Some(index)) {
            let first = of_each_file(&data).into_iter().next().unwrap_or_default();
            let file = first.get("file").and_then(Value::as_str).unwrap_or_default();
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
        let own = Records::KEYS.into_iter().filter_map(|key| data.remove_entry(key)).collect();
        return Ok((Arc::new(Records::parse(own)?), data));
    };
    if let Some(key) = Records::KEYS.into_iter().find(|key| data.contains_key(*key)) {
        let fault = format!(
            "this key is only valid for files of records, not for {}; remove it",
            format.holds
        );
        return Err(ConfigFault::from_sentence(key, fault));
    }
    let own = format.keys.iter().filter_map(|key| data.remove_entry(*key)).collect();
    Ok(((format.parse)(own)?, data))
}
