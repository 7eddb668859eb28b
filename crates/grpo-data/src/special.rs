//! Special token ids.

use crate::model_json::ModelJson;
use crate::{DataError, TextTokenizer};
use serde_json::Value;
use std::path::Path;

/// The special token ids of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// The begin token (BOS).
    pub bos: Option<u32>,
    /// The end tokens (EOS). Chat models often have two: one for the end of a turn and one for the
    /// end of a document.
    pub eos: Vec<u32>,
    /// The end token appended to training text. This is the tokenizer's EOS token, which ends a
    /// chat turn. If the tokenizer has none, the first of [`Self::eos`] is used.
    pub learned_end: Option<u32>,
    /// The padding token, if defined.
    pub pad: Option<u32>,
}

impl SpecialIds {
    /// Reads `generation_config.json`, `config.json` and `tokenizer_config.json` in `folder`, in
    /// this order.
    ///
    /// EOS ids are collected from all files. For the BOS and padding ids, the first file that
    /// defines them takes precedence. Missing files and keys are ignored. Tokens that are given by
    /// name are looked up in `tokenizer`, or ignored if there is none.
    ///
    /// # Errors
    /// Returns an error if a file is malformed, an id is invalid, or `tokenizer` does not have a
    /// token.
    pub fn from_folder(
        folder: &Path,
        tokenizer: Option<&TextTokenizer>,
    ) -> Result<Self, DataError> {
        let generation = ModelJson::read(folder, "generation_config.json")?;
        let config = ModelJson::read(folder, "config.json")?;
        let names = ModelJson::read(folder, "tokenizer_config.json")?;
        let found = |id_key, token_key| -> Result<Vec<u32>, DataError> {
            let mut ids = ids(&generation, id_key)?;
            ids.extend(self::ids(&config, id_key)?);
            ids.extend(token_id(&names, token_key, tokenizer)?);
            Ok(ids)
        };
        let mut eos = Vec::new();
        for id in found("eos_token_id", "eos_token")? {
            if !eos.contains(&id) {
                eos.push(id);
            }
        }
        let learned_end = token_id(&names, "eos_token", tokenizer)?.or(eos.first().copied());
        let bos = found("bos_token_id", "bos_token")?.first().copied();
        let pad = found("pad_token_id", "pad_token")?.first().copied();
        Ok(Self { bos, eos, learned_end, pad })
    }
}

/// Maximum length of a list of ids. The longest known lists have about ten.
const MOST_IDS: usize = 1000;

/// Returns the value of a key that contains either one id or a list of ids.
fn ids(file: &ModelJson, key: &str) -> Result<Vec<u32>, DataError> {
    let Some(value) = file.get(key) else { return Ok(Vec::new()) };
    let list = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    if list.len() > MOST_IDS {
        return Err(DataError::Invalid(format!(
            "`{key}` in `{}` lists {} ids; expected at most {MOST_IDS}; copy the file from the original model again",
            file.path.display(),
            list.len()
        )));
    }
    let id = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| file.wrong(key, "a token id or a list of token ids", value))
    };
    list.iter().map(id).collect()
}

fn token_id(
    file: &ModelJson,
    key: &str,
    tokenizer: Option<&TextTokenizer>,
) -> Result<Option<u32>, DataError> {
    let (Some(token), Some(tokenizer)) = (file.token(key)?, tokenizer) else { return Ok(None) };
    match tokenizer.token_id(token) {
        Some(id) => Ok(Some(id)),
        None => Err(file.wrong(key, "a token of the tokenizer", &token.into())),
    }
}
