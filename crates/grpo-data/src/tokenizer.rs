//! Tokenizers in the `tokenizer.json` format of Hugging Face.

use crate::DataError;
use crate::caught::caught;
use crate::error::Shortened;
use crate::json::parse_json;
use crate::origin::read_text;
use crate::plain_words::in_plain_words;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokenizers::Tokenizer;

/// A tokenizer of a language model.
///
/// The truncation and padding settings in `tokenizer.json` are ignored. Text is never truncated
/// silently, and sequences are never padded.
#[derive(Clone, Debug)]
pub struct TextTokenizer {
    inner: Tokenizer,
    path: PathBuf,
    len: usize,
    /// Whether the tokenizer marks the beginning of a text (e.g. `▁` in Llama 2). A continuation
    /// must not have this mark.
    marks_beginning: bool,
    /// Tokens that were added to the vocabulary.
    added: Vec<AddedToken>,
    /// Ids of the unknown token, e.g. `<unk>`. Empty if there is none.
    unknown: Vec<u32>,
    /// A description of the tokenizer for error messages.
    what: String,
}

/// A private-use character that is not part of any vocabulary.
const UNKNOWN: &str = "\u{e000}";

/// Base memory limit for encoding a text, in bytes.
const MEMORY: usize = 256 << 20;

/// Additional memory per byte of text. A token with its offsets needs about a hundred bytes.
const MEMORY_PER_BYTE: usize = 1024;

/// Prepended to a continuation so that its beginning is not marked.
const ANCHOR: &str = "\n";

/// Describes why the crate rejected a `tokenizer.json`, without Rust type names.
fn reason(error: &(dyn std::error::Error + Send + Sync)) -> String {
    let text = error.to_string();
    // The name of a Rust error follows.
    match text.starts_with("Unable to load vocab") {
        true => "its vocabulary is empty, or `unk_id` is not in it".to_owned(),
        false => in_plain_words(&text, "object"),
    }
}

/// Returns the largest id of the vocabulary with its added tokens.
fn largest_id(tokenizer: &Tokenizer) -> Result<u32, String> {
    let vocabulary = tokenizer.get_vocab(true);
    let mut ids: Vec<(u32, &String)> = vocabulary.iter().map(|(token, id)| (*id, token)).collect();
    ids.sort_unstable();
    if let Some([(id, one), (_, other)]) = ids.array_windows().find(|[one, other]| one.0 == other.0)
    {
        return Err(format!("its tokens `{one}` and `{other}` have the same id {id}"));
    }
    ids.last().map(|(id, _)| *id).ok_or_else(|| "it has no tokens".to_owned())
}

impl TextTokenizer {
    /// Loads a `tokenizer.json` file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not a tokenizer, or has no tokens. BPE
    /// dropout is also rejected, because it makes the encoding random, and so are added tokens
    /// whose ids do not follow the vocabulary.
    pub fn from_file(path: &Path) -> Result<Self, DataError> {
        Self::from_json(&read_text(path)?, path, "the `tokenizer.json` of a Hugging Face model")
    }

    /// Creates a tokenizer from the content of `tokenizer.json`. Messages contain `path` and what is
    /// `expected` there.
    ///
    /// # Errors
    /// See [`Self::from_file`].
    pub(crate) fn from_json(text: &str, path: &Path, expected: &str) -> Result<Self, DataError> {
        let bad = |reason: String| {
            DataError::Invalid(format!(
                "`{}` is not a usable tokenizer: {reason}; expected {expected}",
                path.display()
            ))
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // Validate the JSON first, because the `tokenizers` crate panics on malformed JSON.
        let AddedTokens { added_tokens } = parse_json(text).map_err(bad)?;
        let load = || caught(|| Tokenizer::from_str(text).map_err(|error| reason(&*error)));
        let what = format!("the tokenizer `{}`", path.display().to_string().escape_debug());
        let inner = limited(&what, text.len(), load);
        let mut inner = inner.flatten().map_err(bad)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| bad(error.to_string()))?;
        if let tokenizers::ModelWrapper::BPE(model) = inner.get_model()
            && let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0)
        {
            // With dropout, the ids would depend on the random number generator of the crate.
            return Err(bad(format!("its `model.dropout` is {dropout}, which must be null")));
        }
        for AddedToken { id, content, .. } in &added_tokens {
            // The crate renumbers added tokens and only logs a warning if the ids differ from the
            // file.
            if let Some(read) = inner.token_to_id(content).filter(|read| read != id) {
                let fault =
                    format!("it assigns `{content}` the id {id}, which would be decoded as {read}");
                return Err(bad(fault));
            }
        }
        let largest = largest_id(&inner).map_err(bad)?;
        let (len, path) = (largest as usize + 1, PathBuf::from(path));
        let (added, unknown) = (added_tokens, Vec::new());
        let mut tokenizer = Self { inner, path, len, marks_beginning: false, added, unknown, what };
        tokenizer.unknown = tokenizer.encode(UNKNOWN).unwrap_or_default();
        let [alone, behind] = [tokenizer.encode("x"), tokenizer.behind_anchor("x")];
        tokenizer.marks_beginning = matches!((alone, behind), (Ok(a), Ok(b)) if a != b);
        Ok(tokenizer)
    }

    /// Encodes `text` without adding special tokens.
    ///
    /// Special tokens that appear in the text, e.g. `<|im_start|>`, are converted to their ids.
    /// Chat templates depend on this.
    ///
    /// # Errors
    /// Returns an error if part of the text is not in the vocabulary and there is no unknown token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, false)
    }

    /// Like [`Self::encode`], but adds the special tokens of the tokenizer's post-processor, e.g.
    /// the BOS token of Llama.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded. See [`Self::encode`].
    pub fn encode_with_special(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.ids(text, true)
    }

    /// Encodes a continuation, e.g. the completion of a prompt. Like [`Self::encode`], but without
    /// the prefix that some tokenizers (e.g. Llama 2) add to every text.
    ///
    /// # Errors
    /// Returns an error if [`Self::encode`] fails or if the continuation cannot be separated from
    /// its anchor.
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
                    "its first characters merge with a preceding line break into one token";
                Err(self.not_encoded(text, reason))
            }
        }
    }

    /// Returns the first special token in `text`.
    ///
    /// In untrusted text, a special token would act as a control signal, e.g. end a turn. Added
    /// tokens in `marks` count as special, regardless of `tokenizer.json`. The unknown token counts
    /// only if the text contains it literally.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded. See [`Self::encode`].
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

    /// Decodes `ids`, skipping special tokens.
    ///
    /// Unknown ids are also skipped. Invalid UTF-8, e.g. an incomplete character at the end of a
    /// truncated completion, is replaced with `�`. If the tokenizer's decoder fails, the tokens are
    /// concatenated instead, including special tokens.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.text(ids, true)
    }

    /// Like [`Self::decode`], but includes special tokens.
    pub fn decode_all(&self, ids: &[u32]) -> String {
        self.text(ids, false)
    }

    /// Returns the id of a token.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns whether an id has a token.
    pub fn has_token(&self, id: u32) -> bool {
        self.inner.id_to_token(id).is_some()
    }

    /// Returns the largest id plus 1, which is at least 1. Not every smaller id is necessarily
    /// used, and the output layer of the model can be larger.
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
            "the tokenizer `{}` cannot encode `{}`: {reason}; remove the text, or use a tokenizer with an unknown token",
            self.path.display(),
            Shortened(text)
        ))
    }

    fn text(&self, ids: &[u32], skip_special: bool) -> String {
        match limited(&self.what, ids.len(), || caught(|| self.inner.decode(ids, skip_special))) {
            Ok(Ok(text)) => text,
            // The decoder failed, so concatenate the tokens.
            _ => ids.iter().filter_map(|&id| self.inner.id_to_token(id)).collect(),
        }
    }
}

/// Runs a tokenizer operation on an input of `length` bytes or ids with limited memory. The limit
/// is needed because a sequence of normalizers can expand each character to a text of any length.
fn limited<R>(what: &str, length: usize, work: impl FnOnce() -> R) -> R {
    let remedy = "use a trusted model's tokenizer, or shorter text";
    let bytes = MEMORY.saturating_add(length.saturating_mul(MEMORY_PER_BYTE));
    grpo_runtime::limited(what, remedy, bytes, work)
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
