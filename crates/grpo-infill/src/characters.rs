//! The vocabulary of infillers and judges: characters and three special ids.

use grpo_data::{CodecKind, DataError, Shortened, TextCodec, read_text};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The mark of a masked position in text. No vocabulary contains it, so blanks are unambiguous.
pub const BLANK: char = '␣';

/// Characters with ids `0..base_len`, followed by MASK, PAD and CLS.
///
/// A model folder contains it as `characters.json`, which alone defines these ids for the infiller
/// and its judge. They are never derived from the size of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    characters: Vec<char>,
    /// Ids of ASCII characters, or [`NONE`], for a fast lookup.
    ascii: Box<[u32; 128]>,
    others: BTreeMap<char, u32>,
}

/// No id; vocabularies are smaller.
const NONE: u32 = u32::MAX;

/// The file format. Missing ids are reported with a hint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CharactersFile {
    characters: String,
    mask: Option<u32>,
    pad: Option<u32>,
    cls: Option<u32>,
}

/// The characters of an infiller or its judge.
const CHARACTERS_FILE: &str = "characters.json";

impl Characters {
    /// Their registration for model folders.
    pub const CODEC: CodecKind =
        CodecKind { file: CHARACTERS_FILE, read: |path| Ok(Arc::new(Self::from_json_file(path)?)) };

    /// Creates a vocabulary of the characters in `texts`, sorted by code point.
    ///
    /// # Errors
    /// Returns an error if there are none, or if [`BLANK`] is one of them.
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

    /// Reads `characters.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read; also as [`Self::from_json`].
    pub fn from_json_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path)
    }

    /// Parses the output of [`TextCodec::to_json`]; errors name `path`.
    ///
    /// # Errors
    /// Returns an error if the text is invalid, characters are missing or repeated, [`BLANK`] is
    /// one of them, or the ids of MASK, PAD and CLS do not follow the characters.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, DataError> {
        let place = path.display();
        let malformed = |error: &dyn fmt::Display| {
            DataError::Invalid(format!(
                "`{place}` is not a character vocabulary: {error}; copy `characters.json` from the original model again"
            ))
        };
        let file: CharactersFile = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let wrong = |character| {
            DataError::Invalid(format!(
                "`characters` in `{place}` must contain each character once and no {BLANK:?}, the blank mark; remove one {character:?}"
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

    /// Returns the number of ids, including MASK, PAD and CLS: the vocabulary size of a model.
    #[expect(
        clippy::len_without_is_empty,
        reason = "the vocabulary has the three special ids and at least one character"
    )]
    pub fn len(&self) -> usize {
        self.characters.len() + 3
    }

    /// Returns the number of characters. Ids below it can be sampled.
    pub fn base_len(&self) -> usize {
        self.characters.len()
    }

    /// Returns the characters by id.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// Returns the id of a blank.
    pub fn mask_id(&self) -> u32 {
        self.characters.len() as u32
    }

    /// Returns the id of padding, which no model reads.
    pub fn pad_id(&self) -> u32 {
        self.mask_id() + 1
    }

    /// Returns the id in front of a judged text.
    pub fn cls_id(&self) -> u32 {
        self.mask_id() + 2
    }

    /// Returns MASK, PAD and CLS, which are never sampled.
    pub fn specials(&self) -> [u32; 3] {
        [self.mask_id(), self.pad_id(), self.cls_id()]
    }

    /// Returns the id of a character.
    pub fn id(&self, character: char) -> Option<u32> {
        match self.ascii.get(character as usize) {
            Some(&id) => (id != NONE).then_some(id),
            None => self.others.get(&character).copied(),
        }
    }

    /// Encodes `text`.
    ///
    /// # Errors
    /// Returns the first unknown character.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, None)
    }

    /// Encodes `text` with MASK for each `blank`, even if that is a character of the vocabulary.
    ///
    /// # Errors
    /// Returns the first other unknown character.
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

    /// Returns `None` if [`BLANK`] is one of the distinct characters.
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

/// The error of a text that contains the mark of a blank.
pub(crate) fn blank_in_text() -> DataError {
    DataError::Invalid(format!(
        "the text contains the character {BLANK:?}, which is the blank mark; replace it"
    ))
}

/// Texts have no begin or end marks. [`BLANK`] is a masked position.
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

    /// Returns a fingerprint of 64 hexadecimal digits that depends only on the characters and their
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

    /// Decodes `ids`: MASK as [`BLANK`], without PAD and CLS.
    ///
    /// # Panics
    /// Panics if an id is not below [`Self::len`].
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
