//! What can be wrong with molecules and their vocabularies.

use std::path::PathBuf;

use grpo_data::{DataError, Shortened};

/// A fault in a file of molecules or a vocabulary. The message says what is wrong, where, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MoleculeError {
    /// A file that cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A prompt or completion that is not made of the vocabulary's tokens.
    #[error("`{smiles}` is not in the model's vocabulary: {source}")]
    NotInVocabulary {
        /// The text.
        smiles: String,
        /// The token.
        source: UnknownToken,
    },
    /// A vocabulary file is no JSON object from tokens to numbers.
    #[error(
        "`{path}` is not a vocabulary: {source}; expected a JSON object from token to index, such as {{\"<\": 0, \"C\": 1}}"
    )]
    VocabularyFormat {
        /// The path as it was given.
        path: PathBuf,
        /// What the JSON reader said, with its line and column.
        source: serde_json::Error,
    },
    /// A vocabulary file's indices are not 0 to n − 1, each once.
    #[error("the vocabulary `{path}` gives token `{token}` the index {found}; the {len} tokens must have the indices 0 to {} each once", .len - 1)]
    VocabularyIndex {
        /// The path as it was given.
        path: PathBuf,
        /// The first token (in the order of its text) whose index is outside the range or used.
        token: String,
        /// Its index.
        found: u64,
        /// How many tokens the file has.
        len: usize,
    },
    /// A vocabulary has a token that splitting a SMILES never gives.
    #[error(
        "the vocabulary `{path}` has the entry `{token}`, which is not one SMILES token; make the vocabulary from tokens, not from characters"
    )]
    VocabularyToken {
        /// The path as it was given.
        path: PathBuf,
        /// The entry.
        token: String,
    },
    /// A vocabulary lacks the padding and end mark.
    #[error("the vocabulary `{path}` lacks the end mark `<`; add it")]
    VocabularyBoundary {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A SMILES has a token that the vocabulary lacks.
    #[error(transparent)]
    UnknownToken(#[from] UnknownToken),
    /// Too few molecules are left to train on.
    #[error(
        "{kept} usable training molecules are left of {rows} rows and at least {expected} are needed ({report}); give a larger file, or a vocabulary and a length limit that fit it"
    )]
    CorpusTooSmall {
        /// Training molecules that are left.
        kept: u64,
        /// Rows that were read.
        rows: u64,
        /// The least number of training molecules.
        expected: u64,
        /// What was left out and why, as text.
        report: String,
    },
}

impl From<MoleculeError> for DataError {
    fn from(error: MoleculeError) -> Self {
        match error {
            MoleculeError::Data(error) => error,
            error => Self::Task(Box::new(error)),
        }
    }
}

/// A part of a SMILES that is no token of the vocabulary, or no token at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{token}` (character {position} of `{}`) is not in the vocabulary; drop the molecule, or use a vocabulary that has the token", Shortened(.smiles))]
pub struct UnknownToken {
    /// The token, or the single character at which no token begins.
    pub token: String,
    /// Where it begins, in characters counted from 1.
    pub position: usize,
    /// The whole SMILES.
    pub smiles: String,
}
