//! Codecs between text and ids, according to the files of a model folder.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::regular_file;
use crate::{
    ChatOptions, ChatTemplate, CompletionSource, DataError, PromptSource, SpecialIds, TextTokenizer,
};

/// A codec with its own vocabulary file, provided by a task. A model with it has exactly one logit
/// per token.
pub trait TextCodec: Any + fmt::Debug + Send + Sync {
    /// Returns the name of the vocabulary file.
    fn file(&self) -> &'static str;

    /// Returns the content of the vocabulary file.
    fn to_json(&self) -> String;

    /// Returns the number of tokens.
    fn token_count(&self) -> usize;

    /// Returns a hash of the tokens in order; by default the hash of the file.
    fn sha256(&self) -> String {
        let hash = Sha256::digest(self.to_json());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the ids that begin and end a text; none by default.
    fn special(&self) -> SpecialIds {
        SpecialIds::default()
    }

    /// Returns why a model with this codec cannot be trained on prompts of a file, if so.
    fn prompt_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Encodes a prompt.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded.
    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Encodes a completion, without begin and end marks.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded.
    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Decodes ids, without begin and end marks.
    fn decode(&self, ids: &[u32]) -> String;
}

/// A kind of [`TextCodec`]: the name of its file, and its reader.
#[derive(Clone, Copy, Debug)]
pub struct CodecKind {
    /// The file that selects this codec in a model folder.
    pub file: &'static str,
    /// Reads the file.
    pub read: fn(&Path) -> Result<Arc<dyn TextCodec>, DataError>,
}

/// The codecs that model folders can have besides a tokenizer; none by default.
#[derive(Clone, Debug, Default)]
pub struct Codecs(Vec<CodecKind>);

impl Codecs {
    /// Creates a registry of `kinds`.
    pub fn new(kinds: Vec<CodecKind>) -> Self {
        Self(kinds)
    }

    /// Reads the codec of a model folder: the file of one of these kinds, or `tokenizer.json` with
    /// a chat template, or none.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid, or if the folder has files of two
    /// kinds.
    pub fn read(&self, folder: &Path) -> Result<Codec, DataError> {
        let mut found = self.0.iter().filter(|kind| folder.join(kind.file).exists());
        let Some(kind) = found.next() else { return Codec::from_tokenizer(folder) };
        if let Some(second) = found.next() {
            return Err(DataError::Invalid(format!(
                "`{}` has both {} and {}; keep the one that the model was trained with",
                folder.display(),
                kind.file,
                second.file
            )));
        }
        let codec = Codec::from_shared((kind.read)(&folder.join(kind.file))?);
        Ok(Codec { folder: folder.to_owned(), ..codec })
    }
}

/// A codec between text and the ids of a model.
#[derive(Clone, Debug)]
pub struct Codec {
    tokens: Tokens,
    special: SpecialIds,
    /// The folder from which it was read.
    folder: PathBuf,
    /// Contents of its files in the folder.
    files: Arc<[(String, Vec<u8>)]>,
    /// Number of the model's logits, if the model is known.
    vocabulary: Option<usize>,
}

#[derive(Clone, Debug)]
enum Tokens {
    /// A codec of a task.
    Own(Arc<dyn TextCodec>),
    /// A tokenizer with an optional chat template.
    Text { tokenizer: Arc<TextTokenizer>, chat: Option<Arc<ChatTemplate>> },
    /// No codec: ids only.
    Ids,
}

const TOKENIZER_FILE: &str = "tokenizer.json";

/// Files with the tokenizer of a Hugging Face model, copied with the model.
const COMPANIONS: [&str; 9] = [
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "generation_config.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

impl Codec {
    /// Creates a codec from a vocabulary of a task.
    pub fn from_text_codec(codec: impl TextCodec) -> Self {
        Self::from_shared(Arc::new(codec))
    }

    fn from_shared(codec: Arc<dyn TextCodec>) -> Self {
        let files = [(codec.file().to_owned(), codec.to_json().into_bytes())].into();
        let special = codec.special();
        let tokens = Tokens::Own(codec);
        Self { tokens, special, folder: PathBuf::new(), files, vocabulary: None }
    }

    /// Restricts the codec to a model with `vocabulary` logits. Larger ids are rejected when used.
    /// An end mark among them can never be sampled.
    #[must_use]
    pub fn for_model(mut self, vocabulary: usize) -> Self {
        self.special.eos.retain(|id| (*id as usize) < vocabulary);
        Self { vocabulary: Some(vocabulary), ..self }
    }

    /// Creates a codec that does not convert ids to text.
    pub fn of_ids(special: SpecialIds) -> Self {
        Self {
            tokens: Tokens::Ids,
            special,
            folder: PathBuf::new(),
            files: [].into(),
            vocabulary: None,
        }
    }

    /// Reads `tokenizer.json` with a chat template, if present.
    fn from_tokenizer(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join(TOKENIZER_FILE);
        let (tokens, special) = if path.exists() {
            let tokenizer = Arc::new(TextTokenizer::from_file(&path)?);
            let chat = ChatTemplate::from_folder(folder)?.map(Arc::new);
            let special = SpecialIds::from_folder(folder, Some(&tokenizer))?;
            (Tokens::Text { tokenizer, chat }, special)
        } else {
            (Tokens::Ids, SpecialIds::from_folder(folder, None)?)
        };
        let mut files = Vec::new();
        for name in COMPANIONS {
            let path = folder.join(name);
            if path.exists() {
                let bytes = regular_file::read(&path)
                    .map_err(|source| DataError::Unreadable { path, source })?;
                files.push((name.to_owned(), bytes));
            }
        }
        let (folder, files) = (folder.to_owned(), files.into());
        Ok(Self { tokens, special, folder, files, vocabulary: None })
    }

    /// Returns the task's codec if it is a `T`.
    pub fn own<T: TextCodec>(&self) -> Option<&T> {
        match &self.tokens {
            Tokens::Own(codec) => (&**codec as &dyn Any).downcast_ref(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns why the model cannot be trained on prompts of a file, if so.
    pub fn prompt_refusal(&self) -> Option<&'static str> {
        match &self.tokens {
            Tokens::Own(codec) => codec.prompt_refusal(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns the name of the vocabulary file, for messages.
    pub fn file(&self) -> &'static str {
        match &self.tokens {
            Tokens::Own(codec) => codec.file(),
            Tokens::Text { .. } => TOKENIZER_FILE,
            Tokens::Ids => "no file",
        }
    }

    /// Returns the largest token id plus 1; `None` if unknown.
    pub fn token_count(&self) -> Option<usize> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.token_count()),
            Tokens::Text { tokenizer, .. } => Some(tokenizer.len()),
            Tokens::Ids => None,
        }
    }

    /// Returns whether the vocabulary belongs to a task, so that a model has exactly one logit per
    /// token.
    pub fn is_own(&self) -> bool {
        matches!(self.tokens, Tokens::Own(_))
    }

    /// Returns a hash of the tokens in order, for vocabularies of tasks.
    pub fn sha256(&self) -> Option<String> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.sha256()),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns the files that a model folder needs.
    pub fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// Returns the id that begins a text, if any.
    pub fn begin_id(&self) -> Option<u32> {
        self.special.bos
    }

    /// Returns the ids that end a text.
    pub fn end_ids(&self) -> &[u32] {
        &self.special.eos
    }

    /// Returns the id that ends a training text, if any.
    ///
    /// # Errors
    /// Returns an error if it is outside of the model's vocabulary.
    pub fn learned_end(&self) -> Result<Option<u32>, DataError> {
        Ok(self.known(self.special.learned_end.into_iter().collect())?.first().copied())
    }

    /// Encodes a prompt. The tokenizer adds its special tokens to text; messages are formatted by
    /// the chat template; a vocabulary of a task has its own rules.
    ///
    /// # Errors
    /// Returns an error for text without a tokenizer, messages without a chat template, an empty
    /// prompt, an id outside of the vocabulary, or if tokenizer or template fail.
    pub fn prompt(
        &self,
        prompt: &PromptSource,
        options: &ChatOptions,
    ) -> Result<Vec<u32>, DataError> {
        let ids = match (&self.tokens, prompt) {
            (_, PromptSource::Ids(ids)) => ids.clone(),
            (Tokens::Ids, _) => return Err(self.no_tokenizer()),
            (Tokens::Own(codec), PromptSource::Text(text)) => codec.encode_prompt(text)?,
            // An empty text starts with the beginning mark.
            (Tokens::Text { .. }, PromptSource::Text(text)) if text.is_empty() => {
                self.special.bos.into_iter().collect()
            }
            (Tokens::Text { tokenizer, .. }, PromptSource::Text(text)) => {
                tokenizer.encode_with_special(text)?
            }
            (Tokens::Text { tokenizer, chat: Some(chat) }, PromptSource::Messages(messages)) => {
                tokenizer.encode(&chat.render(messages, options)?)?
            }
            (_, PromptSource::Messages(_)) => {
                return Err(DataError::Invalid(format!(
                    "`{}` has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so messages cannot be converted to a prompt; provide the prompt as text",
                    self.folder.display()
                )));
            }
        };
        if ids.is_empty() {
            return Err(DataError::EmptyPrompt);
        }
        self.known(ids)
    }

    /// Encodes a completion, without adding an end mark.
    ///
    /// # Errors
    /// Returns an error for text without a tokenizer, an id outside of the vocabulary, or if the
    /// tokenizer fails.
    pub fn completion(&self, completion: &CompletionSource) -> Result<Vec<u32>, DataError> {
        let ids = match (&self.tokens, completion) {
            (_, CompletionSource::Ids(ids)) => ids.clone(),
            (Tokens::Own(codec), CompletionSource::Text(text)) => codec.encode_completion(text)?,
            (Tokens::Text { tokenizer, .. }, CompletionSource::Text(text)) => {
                tokenizer.encode_behind(text)?
            }
            (Tokens::Ids, CompletionSource::Text(_)) => return Err(self.no_tokenizer()),
        };
        self.known(ids)
    }

    /// Returns the first special token of the tokenizer, or mark that begins, ends or pads a text,
    /// that occurs in `text`; see [`TextTokenizer::special_token_in`]. Other codecs have none that
    /// can be written.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub fn special_token_in(&self, text: &str) -> Result<Option<&str>, DataError> {
        match &self.tokens {
            Tokens::Text { tokenizer, .. } => {
                let SpecialIds { bos, eos, pad, .. } = &self.special;
                let marks: Vec<u32> = eos.iter().chain(bos).chain(pad).copied().collect();
                tokenizer.special_token_in(text, &marks)
            }
            Tokens::Own(_) | Tokens::Ids => Ok(None),
        }
    }

    /// Decodes ids without begin and end marks. Without a codec, returns the ids separated by
    /// spaces.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.tokens {
            Tokens::Own(codec) => codec.decode(ids),
            Tokens::Text { tokenizer, .. } => tokenizer.decode(ids),
            Tokens::Ids => {
                let inside = ids.iter().filter(|id| !self.special.eos.contains(id));
                inside.map(u32::to_string).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Returns whether messages can be encoded.
    pub fn has_chat_template(&self) -> bool {
        matches!(self.tokens, Tokens::Text { chat: Some(_), .. })
    }

    /// Returns whether ids can be decoded to text.
    pub fn is_text(&self) -> bool {
        !matches!(self.tokens, Tokens::Ids)
    }

    /// Checks that the model has logits for all ids.
    fn known(&self, ids: Vec<u32>) -> Result<Vec<u32>, DataError> {
        let Some(vocabulary) = self.vocabulary else { return Ok(ids) };
        match ids.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(DataError::Invalid(format!(
                "the id {id} is outside the model's vocabulary of {vocabulary} tokens"
            ))),
            None => Ok(ids),
        }
    }

    fn no_tokenizer(&self) -> DataError {
        DataError::Invalid(format!(
            "`{}` has no tokenizer.json, so text cannot be tokenized; add the model's tokenizer.json to the folder, or provide `prompt_ids` and `completion_ids`",
            self.folder.display()
        ))
    }
}
