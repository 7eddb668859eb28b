//! The character vocabulary shared by infillers and judges.

use grpo_data::{CodecKind, DataError, Shortened, TextCodec, json_reason, read_text};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Placeholder for a masked position in text. It is never part of a vocabulary, so blanks are
/// unambiguous.
pub const BLANK: char = '␣';

/// A character vocabulary. Characters have the IDs `0..base_len`, followed by MASK, PAD and CLS.
///
/// It is stored in a model directory as `characters.json`. This file is the only source of the IDs,
/// both for an infiller and for its judge. They are never inferred from the size of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    characters: Vec<char>,
    /// IDs of the ASCII characters for fast lookup, or [`NONE`].
    ascii: Box<[u32; 128]>,
    others: BTreeMap<char, u32>,
}

/// Marks a missing ID. Vocabularies are smaller than this.
const NONE: u32 = u32::MAX;

/// The file format. IDs are optional so that a missing one can be reported with a hint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CharactersFile {
    characters: String,
    mask: Option<u32>,
    pad: Option<u32>,
    cls: Option<u32>,
}

/// File name of the vocabulary.
const CHARACTERS_FILE: &str = "characters.json";

impl Characters {
    /// Registers the codec for model directories.
    pub const CODEC: CodecKind =
        CodecKind { file: CHARACTERS_FILE, read: |path| Ok(Arc::new(Self::from_json_file(path)?)) };

    /// Creates a vocabulary from the characters in `texts`, sorted by code point.
    ///
    /// # Errors
    /// Returns an error if the texts are empty or contain [`BLANK`].
    pub fn from_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, DataError> {
        let (mut ascii, mut others) = ([false; 128], BTreeSet::new());
        for character in texts.into_iter().flat_map(str::chars) {
            match ascii.get_mut(character as usize) {
                Some(seen) => *seen = true,
                None => _ = others.insert(character),
            }
        }
        let ascii = (0..128u8).filter(|&byte| ascii[usize::from(byte)]).map(char::from);
        let characters: Vec<char> = ascii.chain(others).collect();
        if characters.is_empty() {
            let fault =
                "the text has no characters to build a vocabulary from; provide a non-empty text";
            return Err(DataError::Invalid(fault.to_owned()));
        }
        Self::new(characters).ok_or_else(blank_in_text)
    }

    /// Reads a `characters.json` file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is invalid (see [`Self::from_json`]).
    pub fn from_json_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path)
    }

    /// Parses the output of [`TextCodec::to_json`]. `path` is used in error messages.
    ///
    /// # Errors
    /// Returns an error if the text is malformed, if there are no characters, if a character is
    /// repeated or equals [`BLANK`], or if the IDs of MASK, PAD and CLS don't directly follow the
    /// characters.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, DataError> {
        let place = path.display();
        let malformed = |error: &dyn fmt::Display| {
            DataError::Invalid(format!(
                "`{place}` is not a character vocabulary: {error}; copy `characters.json` from the original model again"
            ))
        };
        let file: CharactersFile =
            serde_json::from_str(text).map_err(|error| malformed(&json_reason(&error)))?;
        let wrong = |character| {
            DataError::Invalid(format!(
                "`characters` in `{place}` must contain each character once and must not contain {BLANK:?}, the blank mark; remove one {character:?}"
            ))
        };
        let characters: Vec<char> = file.characters.chars().collect();
        let mut seen = BTreeSet::new();
        if let Some(&twice) = characters.iter().find(|character| !seen.insert(**character)) {
            return Err(wrong(twice));
        }
        if characters.is_empty() {
            return Err(malformed(&"`characters` is empty"));
        }
        let characters = Self::new(characters).ok_or_else(|| wrong(BLANK))?;
        let found = [("mask", file.mask), ("pad", file.pad), ("cls", file.cls)];
        for ((name, found), expected) in found.into_iter().zip(characters.specials()) {
            if found != Some(expected) {
                return Err(DataError::Invalid(format!(
                    "`{name}` in `{place}` is {}; expected {expected}: MASK, PAD and CLS have distinct ids after those of the {} characters",
                    found.map_or("missing".to_owned(), |id| id.to_string()),
                    characters.base_len()
                )));
            }
        }
        Ok(characters)
    }

    /// Returns the number of IDs including MASK, PAD and CLS. This is the vocabulary size of a
    /// model.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the vocabulary has the three special ids and at least one character"
    )]
    pub fn len(&self) -> usize {
        self.characters.len() + 3
    }

    /// Returns the number of characters. Only IDs below this number can be sampled.
    pub fn base_len(&self) -> usize {
        self.characters.len()
    }

    /// Returns the characters in order of their IDs.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// Returns the ID of MASK, which marks a blank.
    pub fn mask_id(&self) -> u32 {
        self.characters.len() as u32
    }

    /// Returns the ID of PAD. Models never see padding.
    pub fn pad_id(&self) -> u32 {
        self.mask_id() + 1
    }

    /// Returns the ID of the CLS token, which precedes the text being judged.
    pub fn cls_id(&self) -> u32 {
        self.mask_id() + 2
    }

    /// Returns the IDs of MASK, PAD and CLS. They are never sampled.
    pub fn specials(&self) -> [u32; 3] {
        [self.mask_id(), self.pad_id(), self.cls_id()]
    }

    /// Returns the ID of a character, or `None` if it is not in the vocabulary.
    pub fn id(&self, character: char) -> Option<u32> {
        match self.ascii.get(character as usize) {
            Some(&id) => (id != NONE).then_some(id),
            None => self.others.get(&character).copied(),
        }
    }

    /// Encodes `text`.
    ///
    /// # Errors
    /// Returns an error that names the first unknown character.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, None)
    }

    /// Encodes `text`, with MASK in place of each `blank`. This applies even if `blank` is a
    /// character of the vocabulary.
    ///
    /// # Errors
    /// Returns an error that names the first unknown character other than `blank`.
    pub fn encode_blanks(&self, text: &str, blank: char) -> Result<Vec<u32>, DataError> {
        self.ids(text, Some(blank))
    }

    fn ids(&self, text: &str, blank: Option<char>) -> Result<Vec<u32>, DataError> {
        let mut ids = Vec::with_capacity(text.len());
        for (at, character) in text.chars().enumerate() {
            match self.id(character) {
                _ if Some(character) == blank => ids.push(self.mask_id()),
                Some(id) => ids.push(id),
                None => {
                    return Err(DataError::Invalid(format!(
                        "{character:?} (character {} of {:?}) is not one of the {} characters of the model; replace it, or train a model on text that has it",
                        at + 1,
                        Shortened(text).to_string(),
                        self.base_len()
                    )));
                }
            }
        }
        Ok(ids)
    }

    /// Creates a vocabulary from distinct characters. Returns `None` if one of them is [`BLANK`].
    fn new(characters: Vec<char>) -> Option<Self> {
        let (mut ascii, mut others) = (Box::new([NONE; 128]), BTreeMap::new());
        for (&character, id) in characters.iter().zip(0..) {
            match ascii.get_mut(character as usize) {
                Some(place) => *place = id,
                None => _ = others.insert(character, id),
            }
        }
        (!others.contains_key(&BLANK)).then_some(Self { characters, ascii, others })
    }
}

/// Returns the error for a text that contains [`BLANK`].
pub(crate) fn blank_in_text() -> DataError {
    DataError::Invalid(format!(
        "the text contains the character {BLANK:?}, which is the blank mark; replace it"
    ))
}

/// Texts have no start or end tokens. [`BLANK`] stands for a masked position.
impl TextCodec for Characters {
    fn file(&self) -> &'static str {
        CHARACTERS_FILE
    }

    fn to_json(&self) -> String {
        let [mask, pad, cls] = self.specials().map(Some);
        let file = CharactersFile { characters: self.characters.iter().collect(), mask, pad, cls };
        serde_json::to_string_pretty(&file).expect("strings and numbers are JSON")
    }

    fn token_count(&self) -> usize {
        self.len()
    }

    /// Returns a fingerprint of 64 hexadecimal digits. It depends only on the characters and their
    /// order.
    fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        hash.update("characters, then MASK, PAD, CLS\0");
        hash.update(self.characters.iter().collect::<String>());
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.encode_blanks(text, BLANK)
    }

    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.encode(text)
    }

    /// Decodes `ids`. MASK becomes [`BLANK`]; PAD and CLS are skipped.
    ///
    /// # Panics
    /// Panics if an ID is not below [`Self::len`].
    fn decode(&self, ids: &[u32]) -> String {
        let character = |&id: &u32| match self.characters.get(id as usize) {
            Some(&character) => Some(character),
            None if id == self.mask_id() => Some(BLANK),
            None if id == self.pad_id() || id == self.cls_id() => None,
            None => panic!("id {id} is outside a vocabulary of {} ids", self.len()),
        };
        ids.iter().filter_map(character).collect()
    }
}
