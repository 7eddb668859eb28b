//! Tokenizers of models without `tokenizer.json`: byte-level BPE in `vocab.json` and `merges.txt`.
//!
//! The result is what the tokenizer classes of transformers build from the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::DataError;
use crate::json::parse_json;
use crate::model_json::ModelJson;
use crate::origin::read_text;

const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const SENTENCE_PIECE: &str = "tokenizer.model";
const CONFIG: &str = "tokenizer_config.json";

/// How Qwen2's class splits a text.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The purposes that special tokens can have, in the order in which they get ids.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The token that both classes use where the files name none.
const END_OF_TEXT: &str = "<|endoftext|>";

/// A class of tokenizers in transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Gpt2,
    Qwen2,
}

/// Returns the content of the `tokenizer.json` that corresponds to `vocab.json` and `merges.txt` in
/// `folder`, or `None` if the folder does not have both.
///
/// # Errors
/// Returns an error if a file cannot be read or is invalid, if the class of the tokenizer is not known, or
/// if the folder has a SentencePiece model instead.
pub(crate) fn tokenizer_json(folder: &Path) -> Result<Option<String>, DataError> {
    let has = |name: &str| folder.join(name).exists();
    if !(has(VOCABULARY) && has(MERGES)) {
        return match has(SENTENCE_PIECE) {
            true => Err(unconverted(
                folder,
                "has the SentencePiece model tokenizer.model, which is not read, but no tokenizer.json",
            )),
            false => Ok(None),
        };
    }
    let config = ModelJson::read(folder, CONFIG)?;
    let class = Class::of(folder, &config)?;
    let vocabulary = vocabulary(folder)?;
    let listed = Listed::read(folder, &config, class)?;
    let added = listed.with_ids(folder, class, &vocabulary)?;
    let has_prefix = config.get("add_prefix_space") == Some(&Value::Bool(true));
    let (normalizer, pre_tokenizer) = class.components(has_prefix);
    let [begin, end] =
        [("add_bos_token", "bos_token"), ("add_eos_token", "eos_token")].map(|(switch, key)| {
            let is_on = config.get(switch) == Some(&Value::Bool(true));
            let (_, token) = listed.named.iter().find(|(name, _)| is_on && *name == key)?;
            let (id, _) = added.iter().find(|(_, added)| added["content"] == token["content"])?;
            Some((*id, token["content"].as_str()?.to_owned()))
        });
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added.values().collect::<Vec<_>>(),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": template([begin, end]),
        "decoder": byte_level(true, true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": vocabulary,
            "merges": merges(folder, &vocabulary)?,
        },
    });
    Ok(Some(tokenizer.to_string()))
}

/// Describes a tokenizer that transformers has to convert.
fn unconverted(folder: &Path, what: &str) -> DataError {
    let folder = folder.display();
    DataError::Invalid(format!(
        "`{folder}` {what}; write one in Python with transformers: AutoTokenizer.from_pretrained(\"{folder}\").save_pretrained(\"{folder}\")"
    ))
}

impl Class {
    /// Finds the class that `tokenizer_config.json` names, or else that of the model family.
    fn of(folder: &Path, config: &ModelJson) -> Result<Self, DataError> {
        let text =
            |file: &ModelJson, key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
        let model = ModelJson::read(folder, "config.json")?;
        let named = text(config, "tokenizer_class").or_else(|| text(&model, "tokenizer_class"));
        let family = text(&model, "model_type");
        let found = match (named.as_deref(), family.as_deref()) {
            (Some("GPT2Tokenizer" | "GPT2TokenizerFast"), _) | (None, Some("gpt2")) => Self::Gpt2,
            (Some("Qwen2Tokenizer" | "Qwen2TokenizerFast"), _)
            | (None, Some("qwen2" | "qwen3")) => Self::Qwen2,
            (named, _) => {
                let which = match named {
                    Some(named) => format!("its tokenizer_class is {named}"),
                    None => "no file names its tokenizer_class".to_owned(),
                };
                return Err(unconverted(
                    folder,
                    &format!(
                        "has vocab.json and merges.txt, from which GPT2Tokenizer and Qwen2Tokenizer are built, but {which}, and there is no tokenizer.json"
                    ),
                ));
            }
        };
        Ok(found)
    }

    /// Returns the normalizer and the pre-tokenizer.
    fn components(self, has_prefix: bool) -> (Value, Value) {
        match self {
            Self::Gpt2 => (Value::Null, byte_level(has_prefix, true)),
            Self::Qwen2 => {
                let split = json!({ "type": "Split", "pattern": { "Regex": QWEN2 }, "behavior": "Isolated", "invert": false });
                let parts = [split, byte_level(has_prefix, false)];
                (json!({ "type": "NFC" }), json!({ "type": "Sequence", "pretokenizers": parts }))
            }
        }
    }

    /// Returns the token for a purpose if the files name none.
    fn default_token(self, key: &str) -> Option<&'static str> {
        let has = match self {
            Self::Gpt2 => ["bos_token", "eos_token", "unk_token"],
            Self::Qwen2 => ["eos_token", "unk_token", "pad_token"],
        };
        has.contains(&key).then_some(END_OF_TEXT)
    }
}

fn byte_level(has_prefix: bool, uses_regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": has_prefix, "trim_offsets": true, "use_regex": uses_regex })
}

fn vocabulary(folder: &Path) -> Result<BTreeMap<String, u32>, DataError> {
    let path = folder.join(VOCABULARY);
    let text = read_text(&path)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    parse_json(text).map_err(|reason| {
        DataError::Invalid(format!(
            "`{}` is not a vocabulary: {reason}; copy the file from the original model again",
            path.display()
        ))
    })
}

/// Reads pairs of tokens, one per line.
fn merges(
    folder: &Path,
    vocabulary: &BTreeMap<String, u32>,
) -> Result<Vec<[String; 2]>, DataError> {
    let path = folder.join(MERGES);
    let text = read_text(&path)?;
    let mut merges = Vec::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with("#version"))
    {
        let pair = line.split_once(' ').filter(|(left, right)| {
            let merged = format!("{left}{right}");
            [*left, *right, &merged].iter().all(|token| vocabulary.contains_key(*token))
        });
        let Some((left, right)) = pair else {
            return Err(DataError::Invalid(format!(
                "{}:{number}: expected two tokens of vocab.json that merge into a third one; use both files from the same model",
                path.display()
            )));
        };
        merges.push([left.to_owned(), right.to_owned()]);
    }
    Ok(merges)
}

/// The special tokens and the added tokens of a folder, as entries of `added_tokens`.
///
/// As in transformers, the latter are those of `added_tokens_decoder`, or else of `added_tokens.json`.
struct Listed {
    /// Special tokens by their purposes, e.g. `eos_token`.
    named: Vec<(&'static str, Value)>,
    /// Other special tokens.
    extra: Vec<Value>,
    /// Added tokens by the ids that the files give them.
    added: BTreeMap<u32, Value>,
}

impl Listed {
    fn read(folder: &Path, config: &ModelJson, class: Class) -> Result<Self, DataError> {
        let decoder = config.get("added_tokens_decoder");
        // These files are older, and only read if the configuration does not have their content.
        let older = |name: &str| match decoder {
            Some(_) => Ok(ModelJson { path: folder.join(name), object: Map::new() }),
            None => ModelJson::read(folder, name),
        };
        let (map, encoder) = (older("special_tokens_map.json")?, older("added_tokens.json")?);
        let mut named = Vec::new();
        for key in NAMES {
            let file = if map.get(key).is_some() { &map } else { config };
            match (file.token(key)?, file.get(key)) {
                (Some(_), Some(value)) => named.push((key, added_token(value, true))),
                // A null in the configuration removes the default.
                _ if config.object.contains_key(key) => {}
                _ => {
                    let default = class.default_token(key);
                    named.extend(default.map(|token| (key, added_token(&token.into(), true))));
                }
            }
        }
        let lists = [config, &map].into_iter().flat_map(|file| {
            let keys = ["extra_special_tokens", "additional_special_tokens"];
            keys.map(|key| file.get(key).and_then(Value::as_array))
        });
        let extra = lists.flatten().find(|tokens| !tokens.is_empty());
        let extra = extra.into_iter().flatten().map(|token| added_token(token, true)).collect();
        let mut listed = Self { named, extra, added: BTreeMap::new() };
        let special: BTreeSet<String> = listed.special().map(content).collect();
        for (id, token) in decoder.and_then(Value::as_object).into_iter().flatten() {
            let mut token = added_token(token, false);
            if listed.named.iter().any(|(_, named)| named["content"] == token["content"]) {
                token["special"] = true.into();
            }
            listed.add(&config.path, id.parse().ok(), id, token)?;
        }
        for (content, id) in &encoder.object {
            let is_special = special.contains(content);
            let content = Value::from(content.as_str());
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let token = added_token(&content, is_special);
            listed.add(&encoder.path, number, &id.to_string(), token)?;
        }
        Ok(listed)
    }

    fn add(
        &mut self,
        file: &Path,
        number: Option<u32>,
        id: &str,
        token: Value,
    ) -> Result<(), DataError> {
        let Some(number) = number else {
            return Err(DataError::Invalid(format!(
                "`{}`: the id {id} of an added token is not a token id; copy the file from the original model again",
                file.display()
            )));
        };
        self.added.insert(number, token);
        Ok(())
    }

    fn special(&self) -> impl Iterator<Item = &Value> {
        self.named.iter().map(|(_, token)| token).chain(&self.extra)
    }

    /// Returns the tokens that are found in a text before anything else, by their ids. What is not in the
    /// vocabulary gets the ids behind it.
    fn with_ids(
        &self,
        folder: &Path,
        class: Class,
        vocabulary: &BTreeMap<String, u32>,
    ) -> Result<BTreeMap<u32, Value>, DataError> {
        let contents: BTreeSet<String> = self.added.values().map(content).collect();
        let special = self.special().filter_map(|token| match class {
            // Its class adds all special tokens again, without their properties.
            Class::Qwen2 => Some(added_token(&token["content"], true)),
            Class::Gpt2 => (!contents.contains(&content(token))).then(|| token.clone()),
        });
        let added = self.added.iter().map(|(id, token)| (Some(*id), token.clone()));
        let mut next = vocabulary.len() as u32;
        let mut ids: BTreeMap<String, u32> = BTreeMap::new();
        let mut tokens = BTreeMap::new();
        for (expected, mut token) in added.chain(special.map(|token| (None, token))) {
            let content = content(&token);
            if content.is_empty() {
                continue;
            }
            let known = ids.get(&content).or_else(|| vocabulary.get(&content)).copied();
            let id = known.unwrap_or(next);
            if let Some(expected) = expected.filter(|expected| *expected != id) {
                return Err(DataError::Invalid(format!(
                    "`{}`: the added token `{content}` has the id {expected}, but after the {} tokens of vocab.json and the added tokens before it, it gets {id}; use all files from the same model",
                    folder.display(),
                    vocabulary.len()
                )));
            }
            next += u32::from(known.is_none());
            ids.insert(content, id);
            token["id"] = id.into();
            tokens.insert(id, token);
        }
        Ok(tokens)
    }
}

/// Returns the text of an entry of `added_tokens`.
fn content(token: &Value) -> String {
    token["content"].as_str().unwrap_or_default().to_owned()
}

/// Returns an entry of `added_tokens`, given a text or an object.
fn added_token(token: &Value, special: bool) -> Value {
    let flag =
        |key: &str, default: bool| token.get(key).and_then(Value::as_bool).unwrap_or(default);
    let special = special || flag("special", false);
    json!({
        "id": null,
        "content": token.as_str().or_else(|| token.get("content")?.as_str()).unwrap_or_default(),
        "single_word": flag("single_word", false),
        "lstrip": flag("lstrip", false),
        "rstrip": flag("rstrip", false),
        "normalized": flag("normalized", !special),
        "special": special,
    })
}

/// Returns the `post_processor` that adds a begin and an end token, with their ids.
fn template(wrapped: [Option<(u32, String)>; 2]) -> Value {
    if wrapped == [None, None] {
        return Value::Null;
    }
    let special = |token: &str| json!({ "SpecialToken": { "id": token, "type_id": 0 } });
    let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
    let around = |texts: Vec<Value>| {
        let [before, after] = [&wrapped[0], &wrapped[1]]
            .map(|token| token.iter().map(|(_, token)| special(token)).collect::<Vec<_>>());
        [before, texts, after].concat()
    };
    let tokens = wrapped
        .iter()
        .flatten()
        .map(|(id, token)| (token.clone(), json!({ "id": token, "ids": [id], "tokens": [token] })));
    json!({
        "type": "TemplateProcessing",
        "single": around(vec![text("A")]),
        "pair": around(vec![text("A"), text("B")]),
        "special_tokens": tokens.collect::<Map<String, Value>>(),
    })
}
