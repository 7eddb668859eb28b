//! From text to ids and back, by whatever files a model folder has for it.

use std::path::Path;

use crate::{DataError, Vocabulary};

/// How a model's ids are text.
#[derive(Clone, Debug)]
pub enum Codec {
    /// Tokens of SMILES (`vocabulary.json`).
    Smiles(Vocabulary),
    /// No file says: ids go in and come out.
    Ids,
}

/// The token list of a MolGPT.
const VOCABULARY_FILE: &str = "vocabulary.json";

impl Codec {
    /// Reads what a model folder has.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong.
    pub fn of_folder(folder: &Path) -> Result<Self, DataError> {
        let vocabulary = folder.join(VOCABULARY_FILE);
        if vocabulary.exists() {
            return Ok(Self::Smiles(Vocabulary::from_json_file(&vocabulary)?));
        }
        Ok(Self::Ids)
    }

    /// The file that ids come from, for messages.
    pub fn file(&self) -> &'static str {
        match self {
            Self::Smiles(_) => VOCABULARY_FILE,
            Self::Ids => "no file",
        }
    }

    /// Ids that are tokens: the largest and one; `None` where no file says.
    #[expect(clippy::len_without_is_empty, reason = "a vocabulary without tokens cannot be read")]
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Smiles(vocabulary) => Some(vocabulary.len()),
            Self::Ids => None,
        }
    }

    /// A hash of the tokens in their order, for vocabularies that we make ourselves.
    pub fn sha256(&self) -> Option<String> {
        match self {
            Self::Smiles(vocabulary) => Some(vocabulary.sha256()),
            Self::Ids => None,
        }
    }

    /// The files that a model folder needs for it.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        match self {
            Self::Smiles(vocabulary) => {
                vec![(VOCABULARY_FILE.to_owned(), vocabulary.to_json().into_bytes())]
            }
            Self::Ids => Vec::new(),
        }
    }
}
