//! Token lists of molecule models, in MolGPT's file format.

use crate::smiles_tokens::unknown_token;
use crate::{UnknownToken, smiles_tokens};
use grpo_data::{CodecKind, DataError, SpecialIds, TextCodec, parse_json, read_text};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The mark that begins and ends a molecule and pads a batch.
///
/// MolGPT's vocabularies have no beginning mark; its models start every molecule with `C`. Ours
/// start with this mark, which keeps the format and lets the model learn the first token. One mark
/// suffices, because no token follows an end.
pub const BOUNDARY: &str = "<";

/// Tokens with ids `0..len`.
///
/// A vocabulary made from molecules is sorted by bytes; one read from a file keeps its order, on
/// which the weights of a checkpoint depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    tokens: Vec<String>,
    ids: BTreeMap<String, u32>,
    boundary: u32,
}

/// The token list of a MolGPT.
const VOCABULARY_FILE: &str = "vocabulary.json";

impl Vocabulary {
    /// Its registration for model folders.
    pub const CODEC: CodecKind =
        CodecKind { file: VOCABULARY_FILE, read: |path| Ok(Arc::new(Self::from_json_file(path)?)) };

    /// Creates a vocabulary of the tokens in `smiles`, and [`BOUNDARY`].
    ///
    /// # Errors
    /// Returns the first position at which a SMILES cannot be tokenized.
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

    /// Reads a JSON object from token to index, such as MolGPT's `moses2_stoi.json`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read; also as [`Self::from_json`].
    pub fn from_json_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path)
    }

    /// Parses a JSON object from token to index; errors name `path`.
    ///
    /// # Errors
    /// Returns an error if the text is not such an object, an entry is not a single token, the
    /// indices are not `0..len`, or [`BOUNDARY`] is missing.
    pub fn from_json(text: &str, path: &Path) -> Result<Self, DataError> {
        let fault = |fault: String| Err(DataError::Invalid(fault));
        let place = path.display();
        let entries: BTreeMap<String, u64> = match parse_json(text) {
            Ok(entries) => entries,
            Err(reason) => {
                return fault(format!(
                    "`{place}` is not a vocabulary: {reason}; expected a JSON object from token to index, such as {{\"<\": 0, \"C\": 1}}"
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
        // As many entries as indices and no duplicates: every index is used.
        match Self::from_tokens(tokens.into_iter().flatten().collect()) {
            Some(vocabulary) => Ok(vocabulary),
            None => fault(format!("vocabulary `{place}` is missing the end token `<`; add it")),
        }
    }

    /// Encodes `smiles` without boundary marks.
    ///
    /// # Errors
    /// Returns the first unknown token. [`BOUNDARY`] inside of a molecule is an error too, because
    /// a model would learn to stop there.
    pub fn encode(&self, smiles: &str) -> Result<Vec<u32>, UnknownToken> {
        let mut ids = Vec::with_capacity(smiles.len());
        for_each_token(smiles, |token, offset| {
            let id = self.ids.get(token);
            ids.push(*id.ok_or_else(|| unknown_token(smiles, offset, token))?);
            Ok(())
        })?;
        Ok(ids)
    }

    /// Returns the token of an id.
    ///
    /// # Panics
    /// Panics if `id` is not below [`Self::len`].
    pub fn token(&self, id: u32) -> &str {
        self.tokens.get(id as usize).unwrap_or_else(|| {
            panic!("token id {id} is outside a vocabulary of {} tokens", self.len())
        })
    }

    /// Returns the id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// Returns the tokens by id.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tokens.iter().map(String::as_str)
    }

    /// Returns the id of [`BOUNDARY`].
    pub fn boundary(&self) -> u32 {
        self.boundary
    }

    /// Returns the number of tokens, including [`BOUNDARY`]; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "the vocabulary always contains the end token")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns `None` without [`BOUNDARY`]. The tokens are distinct.
    fn from_tokens(tokens: Vec<String>) -> Option<Self> {
        let ids: BTreeMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
        let boundary = *ids.get(BOUNDARY)?;
        Some(Self { tokens, ids, boundary })
    }
}

impl TextCodec for Vocabulary {
    fn file(&self) -> &'static str {
        VOCABULARY_FILE
    }

    /// Returns the JSON object from token to index, which [`Self::from_json`] reads.
    fn to_json(&self) -> String {
        let object: serde_json::Map<String, serde_json::Value> =
            self.tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id.into())).collect();
        serde_json::to_string_pretty(&object).expect("strings and numbers serialize to JSON")
    }

    fn token_count(&self) -> usize {
        self.len()
    }

    /// Returns a fingerprint of 64 hexadecimal digits that depends only on tokens and their order.
    fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for token in &self.tokens {
            // The length prefix distinguishes ["a", "bc"] from ["ab", "c"].
            hash.update((token.len() as u64).to_le_bytes());
            hash.update(token);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn special(&self) -> SpecialIds {
        let boundary = self.boundary;
        SpecialIds {
            bos: Some(boundary),
            eos: vec![boundary],
            learned_end: Some(boundary),
            pad: None,
        }
    }

    fn prompt_refusal(&self) -> Option<&'static str> {
        Some(
            "a molecule model starts from its begin token and does not take prompts; remove [data]",
        )
    }

    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError> {
        Ok([vec![self.boundary], self.encode_completion(text)?].concat())
    }

    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.encode(text).map_err(|error| {
            DataError::Invalid(format!("`{text}` is not in the model's vocabulary: {error}"))
        })
    }

    /// Decodes `ids`, skipping [`BOUNDARY`]. It does not stop at an end mark.
    ///
    /// # Panics
    /// Panics if an id is not below [`Self::len`].
    fn decode(&self, ids: &[u32]) -> String {
        ids.iter().filter(|&&id| id != self.boundary).map(|&id| self.token(id)).collect()
    }
}

/// Calls `visit` with each token of a molecule and its byte offset.
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
