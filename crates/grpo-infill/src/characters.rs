//! The vocabulary of an infiller and its judge: characters, and three ids that are none.

use grpo_data::{CodecKind, DataError, Shortened, TextCodec, read_text};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How a masked place is written in text. No vocabulary has it as a character of its own, so that a written text says
/// which of its places are blanks.
pub const BLANK: char = '␣';

/// Characters and their ids `0..base_len`; behind them MASK, PAD and CLS, each with an id of its own.
///
/// A model folder holds it as `characters.json`: the one place that says which ids these are, for the infiller and for
/// the judge that is made from it. Nobody computes such an id from the size of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Characters {
    characters: Vec<char>,
    /// Ids of ASCII, or [`NONE`]: nearly all of most texts, and a look into a table.
    ascii: Box<[u32; 128]>,
    others: BTreeMap<char, u32>,
}

/// No id: there are fewer characters than this.
const NONE: u32 = u32::MAX;

/// The file as it is written. Ids that are missing are an error of their own, with a hint.
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
    /// How model folders have them.
    pub const CODEC: CodecKind =
        CodecKind { file: CHARACTERS_FILE, read: |path| Ok(Arc::new(Self::from_json_file(path)?)) };

    /// The characters that occur in `texts`, in the order of their code points.
    ///
    /// # Errors
    /// There are none, or [`BLANK`] is among them.
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
            let fault = "there is no character to make a vocabulary of; give a text that has some";
            return Err(DataError::Invalid(fault.to_owned()));
        }
        Self::new(characters).ok_or_else(blank_in_text)
    }

    /// Reads `characters.json`.
    ///
    /// # Errors
    /// The file cannot be read, or [`Self::from_json`] refuses its text.
    pub fn from_json_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path)
    }

    /// Reads what [`TextCodec::to_json`] writes out of `text`; errors name `path` as its origin.
    ///
    /// # Errors
    /// The text is something else, a character stands there twice, there is none, [`BLANK`] is among them, or the ids
    /// of MASK, PAD and CLS are not the three behind those of the characters.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, DataError> {
        let place = path.display();
        let malformed = |error: &dyn fmt::Display| {
            DataError::Invalid(format!(
                "`{place}` is not a vocabulary of characters: {error}; copy `characters.json` from the model again"
            ))
        };
        let file: CharactersFile = serde_json::from_str(text).map_err(|error| malformed(&error))?;
        let wrong = |character| {
            DataError::Invalid(format!(
                "`characters` in `{place}` must hold each character once and no {BLANK:?}, the mark of a blank; take one {character:?} out"
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
                    "`{name}` in `{place}` is {}; expected {expected}: behind the ids of the {} characters come those of MASK, PAD and CLS, which differ",
                    found.map_or("missing".to_owned(), |id| id.to_string()),
                    characters.base_len()
                )));
            }
        }
        Ok(characters)
    }

    /// Ids in all: characters, MASK, PAD and CLS. The size of a model's vocabulary.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there are always the three ids, and a character"
    )]
    pub fn len(&self) -> usize {
        self.characters.len() + 3
    }

    /// Characters: the ids that text is made of, and that may be sampled, are those below it.
    pub fn base_len(&self) -> usize {
        self.characters.len()
    }

    /// The characters in the order of their ids.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// Stands at a place that is to be filled.
    pub fn mask_id(&self) -> u32 {
        self.characters.len() as u32
    }

    /// Fills what comes from outside in rectangles. It enters no model.
    pub fn pad_id(&self) -> u32 {
        self.mask_id() + 1
    }

    /// Stands in front of a text that is judged, with a vector of its own.
    pub fn cls_id(&self) -> u32 {
        self.mask_id() + 2
    }

    /// MASK, PAD and CLS: what may never be sampled.
    pub fn specials(&self) -> [u32; 3] {
        [self.mask_id(), self.pad_id(), self.cls_id()]
    }

    /// The id of a character.
    pub fn id(&self, character: char) -> Option<u32> {
        match self.ascii.get(character as usize) {
            Some(&id) => (id != NONE).then_some(id),
            None => self.others.get(&character).copied(),
        }
    }

    /// The ids of `text`.
    ///
    /// # Errors
    /// The first character that has none.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, None)
    }

    /// The ids of `text`, where each `blank` is MASK, whether or not it is a character too.
    ///
    /// # Errors
    /// The first other character that has none.
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

    /// `None` where [`BLANK`] is among the characters. They are distinct.
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

/// The error where the mark of a blank is a character of a text.
pub(crate) fn blank_in_text() -> DataError {
    DataError::Invalid(format!(
        "the text has the character {BLANK:?}, which is the mark of a blank; replace it by another"
    ))
}

/// A text of characters neither begins nor ends with a mark. [`BLANK`] is a place to fill.
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

    /// A fingerprint in 64 hexadecimal digits; equal for the same characters in the same order.
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

    /// The text of `ids`: MASK gives [`BLANK`], PAD and CLS give nothing.
    ///
    /// # Panics
    /// If an id is not below [`Self::len`].
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
