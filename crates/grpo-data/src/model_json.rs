//! JSON files in a model folder.

use crate::error::{DataError, described};
use crate::json::parse_json;
use crate::origin::read_text_if_there;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The contents of a JSON file such as `config.json`, with its path.
pub(crate) struct ModelJson {
    pub(crate) path: PathBuf,
    pub(crate) object: Map<String, Value>,
}

impl ModelJson {
    /// Reads `folder/name`. A missing file is treated as an empty object.
    pub(crate) fn read(folder: &Path, name: &str) -> Result<Self, DataError> {
        let path = folder.join(name);
        let object = match read_text_if_there(&path)? {
            Some(text) => {
                parse_json(text.strip_prefix('\u{feff}').unwrap_or(&text)).map_err(|reason| {
                    DataError::Invalid(format!(
                        "`{}` is not a JSON object: {reason}; copy the file from the original model again",
                        path.display()
                    ))
                })?
            }
            None => Map::new(),
        };
        Ok(Self { path, object })
    }

    /// Returns the value of `key`, or `None` if it is missing or null.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// Returns the text of a special token such as `eos_token`. The value is either a string or an
    /// object with the text in `content`.
    pub(crate) fn token(&self, key: &str) -> Result<Option<&str>, DataError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.as_str().or_else(|| value.get("content")?.as_str());
        match text {
            Some(text) => Ok(Some(text)),
            None => Err(self.wrong(key, "a string, or an object with a string `content`", value)),
        }
    }

    pub(crate) fn wrong(&self, key: &str, expected: &str, found: &Value) -> DataError {
        DataError::Invalid(format!(
            "`{key}` in `{}` is {}; expected {expected}; correct or remove it",
            self.path.display(),
            described(found)
        ))
    }
}
