//! Vocabularies for molecules in MolGPT's file format.

use crate::smiles_tokens::unknown_token;
use crate::{UnknownToken, smiles_tokens};
use grpo_data::{CodecKind, DataError, Shortened, SpecialIds, TextCodec, parse_json, read_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The boundary token, which marks the beginning and end of a molecule and is also used for
/// padding.
///
/// MolGPT's vocabularies have no begin token. Its models start each molecule with `C` (see
/// [`Vocabulary::starting_with`]). In other models, molecules start with the boundary token, so the
/// model also learns the first token and the file format stays the same. One token is enough for
/// both ends, because nothing follows the end of a molecule.
pub const BOUNDARY: &str = "<";

/// A list of tokens with the ids `0..len`.
///
/// The tokens of a vocabulary that is created from molecules are sorted by their bytes. Otherwise,
/// the order of the file is preserved, because the weights of a checkpoint depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Vec<String>,
    ids: BTreeMap<String, u32>,
    boundary: u32,
    /// The token that begins each molecule: the boundary token, or its first atom.
    start: u32,
}

/// A vocabulary file of a model whose molecules do not start with [`BOUNDARY`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Started {
    start: String,
    tokens: Map<String, Value>,
}

/// Name of the vocabulary file in a MolGPT model folder.
pub(crate) const VOCABULARY_FILE: &str = "vocabulary.json";

impl Vocabulary {
    /// The codec type for registering this vocabulary.
    pub const CODEC: CodecKind =
        CodecKind { file: VOCABULARY_FILE, read: |path| Ok(Arc::new(Self::from_json_file(path)?)) };

    /// Creates a vocabulary from all tokens in `smiles` and [`BOUNDARY`].
    ///
    /// # Errors
    /// Returns an error for the first SMILES that cannot be tokenized.
    pub fn from_smiles<'a>(
        smiles: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, UnknownToken> {
        let mut tokens = BTreeSet::from([BOUNDARY.to_owned()]);
        for smiles in smiles {
            for_each_token(smiles, |token, _| {
                if !tokens.contains(token) {
                    tokens.insert(token.to_owned());
                }
                Ok(())
            })?;
        }
        let tokens: Vec<String> = tokens.into_iter().collect();
        Ok(Self::from_tokens(tokens).expect("the end token was inserted"))
    }

    /// Reads a JSON file that maps tokens to indices, such as MolGPT's `moses2_stoi.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is invalid. See [`Self::from_json`].
    pub fn from_json_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path)
    }

    /// Parses a JSON object that maps tokens to indices. The object can also be the value of a
    /// `tokens` key, next to a `start` token. `path` is only used in error messages.
    ///
    /// # Errors
    /// Returns an error if the text is not such an object, if a key is not exactly one token, if
    /// the indices are not `0..len`, or if [`BOUNDARY`] or the start token is missing.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, DataError> {
        match parse_json(text) {
            Ok(Started { start, tokens }) => {
                Self::from_tokens_json(&Value::Object(tokens).to_string(), path)?
                    .starting_with(&start)
                    .map_err(|fault| DataError::Invalid(format!("`{}`: {fault}", path.display())))
            }
            Err(_) => Self::from_tokens_json(text, path),
        }
    }

    /// Makes each molecule start with a token that is part of it, as in MolGPT's published models.
    /// These models continue from the first atom and assign it no probability.
    ///
    /// # Errors
    /// Returns an error if the token is not in the vocabulary.
    pub fn starting_with(self, token: &str) -> Result<Self, DataError> {
        match self.id(token) {
            Some(start) => Ok(Self { start, ..self }),
            None => Err(DataError::Invalid(format!(
                "the start token `{token}` is not in the vocabulary; use one of its tokens, such as `C`"
            ))),
        }
    }

    fn from_tokens_json(text: &str, path: &Path) -> Result<Self, DataError> {
        let fault = |fault: String| Err(DataError::Invalid(fault));
        let place = path.display();
        let entries: BTreeMap<String, u64> = match parse_json(text) {
            Ok(entries) => entries,
            Err(reason) => {
                return fault(format!(
                    "`{place}` is not a vocabulary: {reason}; expected a JSON object that maps tokens to indices, such as {{\"<\": 0, \"C\": 1}}"
                ));
            }
        };
        let len = entries.len();
        let mut tokens: Vec<Option<String>> = vec![None; len];
        for (token, index) in entries {
            if !is_one_token(&token) {
                return fault(format!(
                    "vocabulary `{place}` has the entry `{token}`, which is not a single SMILES token; build the vocabulary from tokens, not from characters"
                ));
            }
            match usize::try_from(index).ok().and_then(|i| tokens.get_mut(i)) {
                Some(place) if place.is_none() => *place = Some(token),
                _ => {
                    return fault(format!(
                        "vocabulary `{place}` assigns index {index} to token `{token}`; the {len} tokens must have distinct indices from 0 to {}",
                        len - 1
                    ));
                }
            }
        }
        // The number of entries equals the number of indices and there are no duplicates, so every
        // index is used.
        match Self::from_tokens(tokens.into_iter().flatten().collect()) {
            Some(vocabulary) => Ok(vocabulary),
            None => fault(format!("vocabulary `{place}` is missing the end token `<`; add it")),
        }
    }

    /// Encodes `smiles` without boundary tokens.
    ///
    /// # Errors
    /// Returns an error for the first unknown token. [`BOUNDARY`] inside a molecule is also an
    /// error, because it would teach the model to stop there.
    pub fn encode(&self, smiles: &str) -> Result<Vec<u32>, UnknownToken> {
        let mut ids = Vec::with_capacity(smiles.len());
        for_each_token(smiles, |token, offset| {
            let id = self.ids.get(token);
            ids.push(*id.ok_or_else(|| unknown_token(smiles, offset, token))?);
            Ok(())
        })?;
        Ok(ids)
    }

    /// Returns the token with this id.
    ///
    /// # Panics
    /// Panics if `id` is not less than [`Self::len`].
    pub fn token(&self, id: u32) -> &str {
        self.tokens.get(id as usize).unwrap_or_else(|| {
            panic!("token id {id} is outside a vocabulary of {} tokens", self.len())
        })
    }

    /// Returns the id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Returns all tokens in order of their ids.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tokens.iter().map(String::as_str)
    }

    /// Returns the id of [`BOUNDARY`].
    pub fn boundary(&self) -> u32 {
        self.boundary
    }

    /// Returns the id of the token that begins each molecule.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Returns the begin token if it is part of the molecule.
    fn atom_at_start(&self) -> Option<u32> {
        (self.start != self.boundary).then_some(self.start)
    }

    /// Returns a training sequence for a molecule without boundary tokens.
    pub fn sequence(&self, molecule: &[u32]) -> Vec<u32> {
        let begin = if self.atom_at_start().is_none() { &[self.boundary][..] } else { &[] };
        [begin, molecule, &[self.boundary]].concat()
    }

    /// Returns the number of tokens, which includes [`BOUNDARY`] and is therefore at least 1.
    #[expect(clippy::len_without_is_empty, reason = "the vocabulary always contains the end token")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Creates a vocabulary from distinct tokens. Returns `None` if [`BOUNDARY`] is missing.
    fn from_tokens(tokens: Vec<String>) -> Option<Self> {
        let ids: BTreeMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
        let boundary = *ids.get(BOUNDARY)?;
        Some(Self { tokens, ids, boundary, start: boundary })
    }
}

impl TextCodec for Vocabulary {
    fn file(&self) -> &'static str {
        VOCABULARY_FILE
    }

    /// Returns a JSON object that maps tokens to indices and can be read by [`Self::from_json`].
    fn to_json(&self) -> String {
        let object: Map<String, Value> =
            self.tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
        let json = match self.atom_at_start() {
            None => serde_json::to_string_pretty(&object),
            Some(start) => {
                let start = self.token(start).to_owned();
                serde_json::to_string_pretty(&Started { start, tokens: object })
            }
        };
        json.expect("strings and numbers serialize to JSON")
    }

    fn token_count(&self) -> usize {
        self.len()
    }

    /// Returns a hash with 64 hexadecimal digits that only depends on the tokens, their order, and
    /// the start token if it is part of the molecule.
    fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for token in &self.tokens {
            // The length prefix distinguishes ["a", "bc"] from ["ab", "c"].
            hash.update((token.len() as u64).to_le_bytes());
            hash.update(token);
        }
        if let Some(start) = self.atom_at_start() {
            hash.update(start.to_le_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn special(&self) -> SpecialIds {
        let boundary = self.boundary;
        SpecialIds {
            bos: Some(self.start),
            eos: vec![boundary],
            learned_end: Some(boundary),
            pad: None,
        }
    }

    fn prompt_refusal(&self) -> Option<&'static str> {
        Some(
            "a molecule model starts from its begin token and does not take prompts; remove [data] (`grpo pretrain` trains the model on a file of molecules)",
        )
    }

    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match self.atom_at_start() {
            Some(start) if text.is_empty() => Ok(vec![start]),
            _ => {
                let of_prompt = |UnknownToken { token, position, smiles }| {
                    DataError::Invalid(format!(
                        "`{token}` (character {position} of `{}`) is not in the vocabulary of this molecule model; use a SMILES or its beginning, such as `c1ccccc1`, or no prompt",
                        Shortened(&smiles)
                    ))
                };
                self.encode(text).map_err(of_prompt)?;
                Ok([vec![self.start], self.encode_completion(text)?].concat())
            }
        }
    }

    /// Encodes a molecule. If the begin token is part of the molecule, only the rest is encoded.
    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let mut ids = self.encode(text)?;
        match self.atom_at_start() {
            Some(start) if ids.first() == Some(&start) => drop(ids.remove(0)),
            Some(start) => {
                let start = self.token(start);
                return Err(DataError::Invalid(format!(
                    "`{text}` does not start with `{start}`, the start token of this model; rewrite the SMILES so that it does"
                )));
            }
            None => {}
        }
        Ok(ids)
    }

    /// Decodes `ids`, skipping [`BOUNDARY`]. It does not stop at the end of a molecule.
    ///
    /// # Panics
    /// Panics if an id is not less than [`Self::len`].
    fn decode(&self, ids: &[u32]) -> String {
        ids.iter().filter(|&&id| id != self.boundary).map(|&id| self.token(id)).collect()
    }

    /// Decodes the ids behind the begin token, along with the begin token if it is part of the
    /// molecule.
    fn decode_completion(&self, ids: &[u32]) -> String {
        let begin = self.atom_at_start().map(|start| self.token(start));
        begin.unwrap_or_default().to_owned() + &self.decode(ids)
    }
}

/// Calls `visit` for each token of a molecule with its byte offset.
fn for_each_token<'a>(
    smiles: &'a str,
    mut visit: impl FnMut(&'a str, usize) -> Result<(), UnknownToken>,
) -> Result<(), UnknownToken> {
    let mut offset = 0;
    for token in smiles_tokens(smiles) {
        let token = token?;
        if token == BOUNDARY {
            return Err(unknown_token(smiles, offset, token));
        }
        visit(token, offset)?;
        offset += token.len();
    }
    Ok(())
}

fn is_one_token(text: &str) -> bool {
    smiles_tokens(text).next().and_then(Result::ok) == Some(text)
}
