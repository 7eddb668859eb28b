//! Codecs that convert between text and token ids, loaded from a model folder.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::regular_file;
use crate::tokenizer_parts::tokenizer_json;
use crate::{
    ChatOptions, ChatTemplate, CompletionSource, DataError, Message, PromptSource, SpecialIds,
    TextTokenizer,
};

/// A task-specific codec with a custom vocabulary file. A model that uses it has exactly one logit
/// per token.
pub trait TextCodec: Any + fmt::Debug + Send + Sync {
    /// Returns the name of the vocabulary file.
    fn file(&self) -> &'static str;

    /// Returns the content of the vocabulary file.
    fn to_json(&self) -> String;

    /// Returns the number of tokens.
    fn token_count(&self) -> usize;

    /// Returns a hash of the ordered list of tokens. By default, this is the hash of the file.
    fn sha256(&self) -> String {
        let hash = Sha256::digest(self.to_json());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the special token ids. By default, there are none.
    fn special(&self) -> SpecialIds {
        SpecialIds::default()
    }

    /// Returns the reason why models with this codec cannot be trained on a prompt file, or `None`
    /// if they can.
    fn prompt_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Encodes a prompt.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded.
    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Encodes a completion without begin and end tokens.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded.
    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Decodes ids, skipping begin and end tokens.
    fn decode(&self, ids: &[u32]) -> String;

    /// Decodes a completion. By default, this is [`Self::decode`]. A codec whose begin token is part
    /// of the text adds it.
    fn decode_completion(&self, ids: &[u32]) -> String {
        self.decode(ids)
    }
}

/// A type of [`TextCodec`], identified by its vocabulary file.
#[derive(Clone, Copy, Debug)]
pub struct CodecKind {
    /// Name of the vocabulary file. A model folder that contains it uses this codec.
    pub file: &'static str,
    /// Function that loads the codec from this file.
    pub read: fn(&Path) -> Result<Arc<dyn TextCodec>, DataError>,
}

/// A registry of the task-specific codecs that a model folder can use instead of a tokenizer. Empty
/// by default.
#[derive(Clone, Debug, Default)]
pub struct Codecs(Vec<CodecKind>);

impl Codecs {
    /// Creates a registry with these codecs.
    pub fn new(kinds: Vec<CodecKind>) -> Self {
        Self(kinds)
    }

    /// Loads the codec of a model folder.
    ///
    /// This is a registered codec if the folder contains its vocabulary file. Otherwise it is
    /// `tokenizer.json`, or `vocab.json` with `merges.txt`, and an optional chat template. Without any of these files, the codec only
    /// supports ids.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or is invalid, or if the folder contains the
    /// vocabulary files of two codecs.
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

/// Converts between text and a model's token ids.
#[derive(Clone, Debug)]
pub struct Codec {
    tokens: Tokens,
    special: SpecialIds,
    /// The folder from which the codec was loaded.
    folder: PathBuf,
    /// Names and contents of the codec's files in this folder.
    files: Arc<[(String, Vec<u8>)]>,
    /// The number of logits of the model, if known.
    vocabulary: Option<usize>,
}

#[derive(Clone, Debug)]
enum Tokens {
    /// A task-specific codec.
    Own(Arc<dyn TextCodec>),
    /// A tokenizer with an optional chat template.
    Text { tokenizer: Arc<TextTokenizer>, chat: Option<Arc<ChatTemplate>> },
    /// No codec. Only token ids are supported.
    Ids,
}

const TOKENIZER_FILE: &str = "tokenizer.json";

/// Tokenizer files of a Hugging Face model, which are copied together with the model.
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
    /// Creates a codec from a task-specific vocabulary.
    pub fn from_text_codec(codec: impl TextCodec) -> Self {
        Self::from_shared(Arc::new(codec))
    }

    fn from_shared(codec: Arc<dyn TextCodec>) -> Self {
        let files = [(codec.file().to_owned(), codec.to_json().into_bytes())].into();
        let special = codec.special();
        let tokens = Tokens::Own(codec);
        Self { tokens, special, folder: PathBuf::new(), files, vocabulary: None }
    }

    /// Restricts the codec to a model with `vocabulary` logits.
    ///
    /// Ids that the model does not have are rejected when used. Such ids are also removed from the
    /// end tokens, because they can never be sampled.
    #[must_use]
    pub fn for_model(mut self, vocabulary: usize) -> Self {
        self.special.eos.retain(|id| (*id as usize) < vocabulary);
        Self { vocabulary: Some(vocabulary), ..self }
    }

    /// Creates a codec without text support.
    pub fn of_ids(special: SpecialIds) -> Self {
        Self {
            tokens: Tokens::Ids,
            special,
            folder: PathBuf::new(),
            files: [].into(),
            vocabulary: None,
        }
    }

    /// Loads `tokenizer.json`, or what it can be made of, and the chat template, if present. A tokenizer
    /// that was made is one of the files that are saved with a model.
    fn from_tokenizer(folder: &Path) -> Result<Self, DataError> {
        let path = folder.join(TOKENIZER_FILE);
        let mut files = Vec::new();
        let tokenizer = if path.exists() {
            Some(TextTokenizer::from_file(&path)?)
        } else if let Some(text) = tokenizer_json(folder)? {
            let expected = "the vocab.json and merges.txt of one model";
            let tokenizer = TextTokenizer::from_json(&text, folder, expected)?;
            files.push((TOKENIZER_FILE.to_owned(), text.into_bytes()));
            Some(tokenizer)
        } else {
            None
        };
        let special = SpecialIds::from_folder(folder, tokenizer.as_ref())?;
        let tokens = match tokenizer.map(Arc::new) {
            Some(tokenizer) => {
                let chat = ChatTemplate::from_folder(folder)?.map(Arc::new);
                Tokens::Text { tokenizer, chat }
            }
            None => Tokens::Ids,
        };
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

    /// Returns the task-specific codec if its type is `T`.
    pub fn own<T: TextCodec>(&self) -> Option<&T> {
        match &self.tokens {
            Tokens::Own(codec) => (&**codec as &dyn Any).downcast_ref(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns the reason why the model cannot be trained on a prompt file, or `None` if it can.
    pub fn prompt_refusal(&self) -> Option<&'static str> {
        match &self.tokens {
            Tokens::Own(codec) => codec.prompt_refusal(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns the name of the vocabulary file for use in messages.
    pub fn file(&self) -> &'static str {
        match &self.tokens {
            Tokens::Own(codec) => codec.file(),
            Tokens::Text { .. } => TOKENIZER_FILE,
            Tokens::Ids => "no file",
        }
    }

    /// Returns the largest token id plus 1, or `None` if it is unknown.
    pub fn token_count(&self) -> Option<usize> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.token_count()),
            Tokens::Text { tokenizer, .. } => Some(tokenizer.len()),
            Tokens::Ids => None,
        }
    }

    /// Returns whether an id has a token. Of a model without a tokenizer, all ids count as tokens. A model can
    /// have more ids than its tokenizer has tokens, because tables are padded for speed. Such an id decodes
    /// to nothing.
    pub fn has_token(&self, id: u32) -> bool {
        match &self.tokens {
            Tokens::Own(codec) => (id as usize) < codec.token_count(),
            Tokens::Text { tokenizer, .. } => tokenizer.has_token(id),
            Tokens::Ids => true,
        }
    }

    /// Returns whether the codec is task-specific. If so, the model has exactly one logit per token.
    pub fn is_own(&self) -> bool {
        matches!(self.tokens, Tokens::Own(_))
    }

    /// Returns a hash of the ordered list of tokens for a task-specific codec.
    pub fn sha256(&self) -> Option<String> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.sha256()),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Returns the files that must be saved with a model.
    pub fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// Returns the begin token's id, if defined.
    pub fn begin_id(&self) -> Option<u32> {
        self.special.bos
    }

    /// Returns the ids of all end tokens.
    pub fn end_ids(&self) -> &[u32] {
        &self.special.eos
    }

    /// Returns the id of the end token appended to training text, if defined.
    ///
    /// # Errors
    /// Returns an error if the id is outside the model's vocabulary.
    pub fn learned_end(&self) -> Result<Option<u32>, DataError> {
        Ok(self.known(self.special.learned_end.into_iter().collect())?.first().copied())
    }

    /// Encodes a prompt.
    ///
    /// For text, the tokenizer adds its special tokens. Messages are first formatted with the chat
    /// template. Task-specific codecs define their own encoding.
    ///
    /// # Errors
    /// Returns an error for text if there is no tokenizer, for messages if there is no chat
    /// template, for an empty prompt, and for ids outside the vocabulary. Tokenizer and template
    /// errors are also returned.
    pub fn prompt(
        &self,
        prompt: &PromptSource,
        options: &ChatOptions,
    ) -> Result<Vec<u32>, DataError> {
        let ids = match (&self.tokens, prompt) {
            (_, PromptSource::Ids(ids)) => ids.clone(),
            (Tokens::Ids, _) => return Err(self.no_tokenizer()),
            (Tokens::Text { tokenizer, chat: Some(chat) }, PromptSource::User(text)) => {
                tokenizer.encode(&chat.render(&[Message::new("user", text)], options)?)?
            }
            (_, PromptSource::User(text)) => {
                return self.prompt(&PromptSource::Text(text.clone()), options);
            }
            (Tokens::Own(codec), PromptSource::Text(text)) => codec.encode_prompt(text)?,
            // An empty prompt consists of the begin token only.
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

    /// Encodes a completion. No end token is appended.
    ///
    /// # Errors
    /// Returns an error for text if there is no tokenizer, for ids outside the vocabulary, or if
    /// the tokenizer fails.
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

    /// Returns the first special token of the tokenizer that occurs in `text`. Begin, end and
    /// padding tokens count as special even if the tokenizer does not mark them. Always `None` for
    /// other codecs, whose special tokens have no text form.
    ///
    /// See [`TextTokenizer::special_token_in`].
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

    /// Decodes ids, skipping begin and end tokens. Without text support, returns the ids separated
    /// by spaces.
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

    /// Decodes a completion, including any text that its begin token stands for.
    pub fn decode_completion(&self, ids: &[u32]) -> String {
        match &self.tokens {
            Tokens::Own(codec) => codec.decode_completion(ids),
            Tokens::Text { .. } | Tokens::Ids => self.decode(ids),
        }
    }

    /// Returns `true` if the codec can encode messages.
    pub fn has_chat_template(&self) -> bool {
        matches!(self.tokens, Tokens::Text { chat: Some(_), .. })
    }

    /// Returns whether the chat template has a switch for thinking (`enable_thinking`). Without a
    /// template, there is none.
    pub fn has_thinking_switch(&self) -> bool {
        match &self.tokens {
            Tokens::Text { chat: Some(chat), .. } => chat.has_thinking_switch(),
            _ => false,
        }
    }

    /// Returns whether the chat template says anything about thinking, with or without a switch.
    pub fn mentions_thinking(&self) -> bool {
        match &self.tokens {
            Tokens::Text { chat: Some(chat), .. } => chat.mentions_thinking(),
            _ => false,
        }
    }

    /// Decodes ids, including special tokens if they have a text.
    pub fn decode_all(&self, ids: &[u32]) -> String {
        match &self.tokens {
            Tokens::Text { tokenizer, .. } => tokenizer.decode_all(ids),
            Tokens::Own(_) | Tokens::Ids => self.decode(ids),
        }
    }

    /// Returns `true` if the codec can decode ids to text.
    pub fn is_text(&self) -> bool {
        !matches!(self.tokens, Tokens::Ids)
    }

    /// Returns an error if the model has no logit for one of the ids.
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
