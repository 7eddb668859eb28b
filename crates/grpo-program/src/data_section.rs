//! The section `[data]` of a command.

use std::sync::Arc;

use grpo_data::{ConfigFault, deserialize_settings};
use grpo_task::data::{DataFormat, DataReader, Records};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
        let selected = formats.iter().find(|format| (format.is_selected)(&section));
        let (reader, keys) = reader(section, formats)?;
        let keys = deserialize_settings(keys).map_err(|fault: ConfigFault| {
            let of_format = selected.filter(|_| fault.message.starts_with("unknown key"));
            let more = of_format.iter().flat_map(|format| format.keys);
            let more: String = more.map(|key| format!(", `{key}`")).collect();
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

/// Selects the reader for a `[data]` section. Also returns the keys that the format does not use.
///
/// # Errors
/// Returns an error if a key belongs to a different format.
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
