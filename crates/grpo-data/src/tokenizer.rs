//! Text to token ids and back, in the format of Hugging Face's `tokenizer.json`.

use crate::DataError;
use crate::caught::caught;
use crate::error::Shortened;
use crate::model_json::json_reason;
use crate::origin::read_text;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokenizers::Tokenizer;

/// The tokenizer of a language model.
///
/// Truncation and padding that `tokenizer.json` asks for are taken off: text is never cut in silence, and
/// batches have no padding.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    inner: Tokenizer,
    path: PathBuf,
    len: usize,
    /// The beginning of a text is a token of its own kind (`▁` of Llama 2), which a text behind another has not.
    marks_beginning: bool,
    /// The tokens that were added to those of the vocabulary.
    added: Vec<AddedToken>,
    /// Ids of what the tokenizer has no token for: `<unk>`, where it has one.
    unknown: Vec<u32>,
    /// Its name in a message.
    what: String,
}

/// A character without a meaning, which no tokenizer has a token for.
const UNKNOWN: &str = "\u{e000}";

/// Bytes of memory that any text may take.
const MEMORY: usize = 256 << 20;

/// Bytes of memory that a text may take for each of its own; a token with its offsets takes some hundred.
const MEMORY_PER_BYTE: usize = 1024;

/// What a text stands behind where its own beginning is not to be marked.
const ANCHOR: &str = "\n";

impl TextTokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// The file cannot be read, is no tokenizer, has no tokens, encodes at random (BPE dropout), or
    /// gives its added tokens ids that do not follow on its vocabulary.
    pub fn from_file(path: &Path) -> Result<Self, DataError> {
        let bad = |reason: String| {
            DataError::Invalid(format!(
                "`{}` is not a usable tokenizer: {reason}; expected the `tokenizer.json` of a Hugging Face model",
                path.display()
            ))
        };
        let text = read_text(path)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        // Before the crate, which panics on malformed JSON.
        let added_tokens = added_tokens(text).map_err(|error| bad(json_reason(&error)))?;
        let load = || caught(|| Tokenizer::from_str(text).map_err(|error| error.to_string()));
        let what = format!("the tokenizer `{}`", path.display().to_string().escape_debug());
        let inner = limited(&what, text.len(), load);
        let mut inner = inner.flatten().map_err(bad)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| bad(error.to_string()))?;
        if let tokenizers::ModelWrapper::BPE(model) = inner.get_model()
            && let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0)
        {
            // The same text would have other ids each time, from a generator that is not ours.
            return Err(bad(format!("its `model.dropout` is {dropout}, which must be null")));
        }
        for AddedToken { id, content, .. } in &added_tokens {
            // The crate numbers added tokens on from the vocabulary and only logs where the file differs.
            if let Some(read) = inner.token_to_id(content).filter(|read| read != id) {
                let fault =
                    format!("it gives `{content}` the id {id}, which would be read as {read}");
                return Err(bad(fault));
            }
        }
        let largest = inner.get_vocab(true).into_values().max();
        let largest = largest.ok_or_else(|| bad("it has no tokens".to_owned()))?;
        let (len, path) = (largest as usize + 1, PathBuf::from(path));
        let (added, unknown) = (added_tokens, Vec::new());
        let mut tokenizer = Self { inner, path, len, marks_beginning: false, added, unknown, what };
        tokenizer.unknown = tokenizer.encode(UNKNOWN).unwrap_or_default();
        let [alone, behind] = [tokenizer.encode("x"), tokenizer.behind_anchor("x")];
        tokenizer.marks_beginning = matches!((alone, behind), (Ok(a), Ok(b)) if a != b);
        Ok(tokenizer)
    }

    /// The ids of `text`. Nothing is added around it; special tokens that are written in the text
    /// (`<|im_start|>`) become their ids, as chat templates need it.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text, not even one for what it does not know.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, false)
    }

    /// As [`Self::encode`], with the special tokens that the tokenizer's post-processor puts around a
    /// text, such as the beginning mark of Llama.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, true)
    }

    /// The ids of a text that stands behind another, such as a completion behind its prompt: as [`Self::encode`],
    /// without the mark that some tokenizers (Llama 2's) put in front of every text.
    ///
    /// # Errors
    /// As [`Self::encode`]; or the text cannot be told from what it stands behind.
    pub fn encode_behind(&self, text: &str) -> Result<Vec<u32>, DataError> {
        if self.marks_beginning && !text.is_empty() {
            self.behind_anchor(text)
        } else {
            self.encode(text)
        }
    }

    fn behind_anchor(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let anchor = self.encode(ANCHOR)?;
        let both = self.encode(&format!("{ANCHOR}{text}"))?;
        match both.strip_prefix(anchor.as_slice()) {
            Some(ids) => Ok(ids.to_vec()),
            None => {
                let reason =
                    "its first characters become one token with a line end in front of them";
                Err(self.not_encoded(text, reason))
            }
        }
    }

    /// The first special token that `text` becomes when it is encoded, or that is written in it: in a text of somebody
    /// else it would be a sign to the model, such as the end of a turn. The token for what the tokenizer does not know is
    /// one only where it is written out. An added token among `marks` counts as special, whatever `tokenizer.json` says.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn special_token_in(&self, text: &str, marks: &[u32]) -> Result<Option<&str>, DataError> {
        let ids = self.encode(text)?;
        let is_in = |token: &AddedToken| match self.unknown.contains(&token.id) {
            true => text.contains(&token.content),
            false => ids.contains(&token.id),
        };
        let mut special =
            self.added.iter().filter(|token| token.special || marks.contains(&token.id));
        Ok(special.find(|token| is_in(token)).map(|token| token.content.as_str()))
    }

    /// The text of `ids` without special tokens. Ids that the tokenizer lacks are skipped, and bytes
    /// that are not UTF-8 (half a character at the end of a cut completion) become `�`. Where the
    /// tokenizer's own decoder fails, the tokens stand one after another, special ones too.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.text(ids, true)
    }

    /// As [`Self::decode`], with special tokens.
    pub fn decode_all(&self, ids: &[u32]) -> String {
        self.text(ids, false)
    }

    /// The id of a token, special or not.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The largest id + 1, at least 1. A model's head can have more rows, and ids below can be unused.
    #[expect(clippy::len_without_is_empty, reason = "a tokenizer without tokens is refused")]
    pub fn len(&self) -> usize {
        self.len
    }

    fn ids(&self, text: &str, special: bool) -> Result<Vec<u32>, DataError> {
        let encode =
            || caught(|| self.inner.encode_fast(text, special).map_err(|error| error.to_string()));
        let encoding = limited(&self.what, text.len(), encode);
        let encoding = encoding.flatten().map_err(|reason| self.not_encoded(text, &reason))?;
        Ok(encoding.get_ids().to_vec())
    }

    fn not_encoded(&self, text: &str, reason: &str) -> DataError {
        DataError::Invalid(format!(
            "the tokenizer `{}` cannot encode `{}`: {reason}; drop the text, or use a tokenizer with a token for what is unknown",
            self.path.display(),
            Shortened(text)
        ))
    }

    fn text(&self, ids: &[u32], skip_special: bool) -> String {
        match limited(&self.what, ids.len(), || caught(|| self.inner.decode(ids, skip_special))) {
            Ok(Ok(text)) => text,
            // A decoder that fails leaves the tokens themselves.
            _ => ids.iter().filter_map(|&id| self.inner.id_to_token(id)).collect(),
        }
    }
}

/// Runs work of the tokenizer `what` on `length` bytes or ids. Normalizers can replace each character by any text, one behind
/// another.
fn limited<R>(what: &str, length: usize, work: impl FnOnce() -> R) -> R {
    let remedy = "use the tokenizer of a model that can be trusted, or shorter texts";
    let bytes = MEMORY.saturating_add(length.saturating_mul(MEMORY_PER_BYTE));
    grpo_process::limited(what, remedy, bytes, work)
}

#[derive(Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Clone, Debug, Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

fn added_tokens(text: &str) -> Result<Vec<AddedToken>, serde_json::Error> {
    serde_json::from_str::<AddedTokens>(text).map(|file| file.added_tokens)
}
