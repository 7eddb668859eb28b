//! From text to ids and back, by whatever files a model folder has for it.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::regular_file;
use crate::{
    ChatOptions, ChatTemplate, CompletionSource, DataError, PromptSource, SpecialIds, TextTokenizer,
};

/// A way to write text as ids that needs one file of a model folder, which a task brings: a vocabulary of our own. A model
/// with it has a logit for each of its tokens, and no others.
pub trait TextCodec: Any + fmt::Debug + Send + Sync {
    /// Returns the name of the file.
    fn file(&self) -> &'static str;

    /// Returns the content of the file.
    fn to_json(&self) -> String;

    /// Returns the number of its tokens.
    fn token_count(&self) -> usize;

    /// Returns a hash of the tokens in their order; by default that of the file.
    fn sha256(&self) -> String {
        let hash = Sha256::digest(self.to_json());
        hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the ids that begin and end a text; by default there are none.
    fn special(&self) -> SpecialIds {
        SpecialIds::default()
    }

    /// Returns why a model with it is not trained on prompts of a file, if it is not.
    fn prompt_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Returns the ids in front of a completion of `text`.
    ///
    /// # Errors
    /// A text that cannot be written with the tokens.
    fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Returns the ids of `text`, without marks at its ends.
    ///
    /// # Errors
    /// A text that cannot be written with the tokens.
    fn encode_completion(&self, text: &str) -> Result<Vec<u32>, DataError>;

    /// Returns the text of ids, without marks at its ends.
    fn decode(&self, ids: &[u32]) -> String;
}

/// A [`TextCodec`] as model folders have it: the name of its file, and what reads that.
#[derive(Clone, Copy, Debug)]
pub struct CodecKind {
    /// The file whose presence in a model folder selects this codec.
    pub file: &'static str,
    /// Reads the file at a path.
    pub read: fn(&Path) -> Result<Arc<dyn TextCodec>, DataError>,
}

/// The codecs that model folders can have besides a tokenizer. The default knows none.
#[derive(Clone, Debug, Default)]
pub struct Codecs(Vec<CodecKind>);

impl Codecs {
    /// Makes a registry of `kinds`.
    pub fn new(kinds: Vec<CodecKind>) -> Self {
        Self(kinds)
    }

    /// Reads what a model folder has: the file of one of these kinds, or `tokenizer.json` with a chat template, or nothing.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong; the files of two kinds.
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

/// How a model's ids are text, and which of them begin and end one.
#[derive(Clone, Debug)]
pub struct Codec {
    tokens: Tokens,
    special: SpecialIds,
    /// Where it was read.
    folder: PathBuf,
    /// The files of the folder that belong to it, as they were.
    files: Arc<[(String, Vec<u8>)]>,
    /// Tokens that the model has logits for, where a model is known.
    vocabulary: Option<usize>,
}

#[derive(Clone, Debug)]
enum Tokens {
    /// A vocabulary of our own.
    Own(Arc<dyn TextCodec>),
    /// Text in general.
    Text { tokenizer: Arc<TextTokenizer>, chat: Option<Arc<ChatTemplate>> },
    /// No file says: ids go in and come out.
    Ids,
}

const TOKENIZER_FILE: &str = "tokenizer.json";

/// The files that a Hugging Face model keeps its text in; they go with the model wherever it goes.
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
    /// Makes the codec of a vocabulary of our own.
    pub fn from_text_codec(codec: impl TextCodec) -> Self {
        Self::from_shared(Arc::new(codec))
    }

    fn from_shared(codec: Arc<dyn TextCodec>) -> Self {
        let files = [(codec.file().to_owned(), codec.to_json().into_bytes())].into();
        let special = codec.special();
        let tokens = Tokens::Own(codec);
        Self { tokens, special, folder: PathBuf::new(), files, vocabulary: None }
    }

    /// The same for a model that has logits for `vocabulary` tokens: other ids are refused where they are used. An end
    /// mark among them can never be drawn, and so ends nothing.
    #[must_use]
    pub fn for_model(mut self, vocabulary: usize) -> Self {
        self.special.eos.retain(|id| (*id as usize) < vocabulary);
        Self { vocabulary: Some(vocabulary), ..self }
    }

    /// Of ids that no file says anything of.
    pub fn of_ids(special: SpecialIds) -> Self {
        Self {
            tokens: Tokens::Ids,
            special,
            folder: PathBuf::new(),
            files: [].into(),
            vocabulary: None,
        }
    }

    /// Reads `tokenizer.json` with a chat template, or nothing.
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

    /// Returns the vocabulary of our own, where it is a `T`.
    pub fn own<T: TextCodec>(&self) -> Option<&T> {
        match &self.tokens {
            Tokens::Own(codec) => (&**codec as &dyn Any).downcast_ref(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// Why the model is not trained on prompts of a file, if it is not.
    pub fn prompt_refusal(&self) -> Option<&'static str> {
        match &self.tokens {
            Tokens::Own(codec) => codec.prompt_refusal(),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// The file that ids come from, for messages.
    pub fn file(&self) -> &'static str {
        match &self.tokens {
            Tokens::Own(codec) => codec.file(),
            Tokens::Text { .. } => TOKENIZER_FILE,
            Tokens::Ids => "no file",
        }
    }

    /// The largest id that is a token, and one; `None` where no file says.
    pub fn token_count(&self) -> Option<usize> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.token_count()),
            Tokens::Text { tokenizer, .. } => Some(tokenizer.len()),
            Tokens::Ids => None,
        }
    }

    /// Whether the list of tokens is one that we make ourselves: a model then has a logit for each of them, and no others.
    pub fn is_own(&self) -> bool {
        matches!(self.tokens, Tokens::Own(_))
    }

    /// A hash of the tokens in their order, for vocabularies that we make ourselves.
    pub fn sha256(&self) -> Option<String> {
        match &self.tokens {
            Tokens::Own(codec) => Some(codec.sha256()),
            Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// The files that a model folder needs for it.
    pub fn files(&self) -> &[(String, Vec<u8>)] {
        &self.files
    }

    /// The id that begins a text, where there is one.
    pub fn begin_id(&self) -> Option<u32> {
        self.special.bos
    }

    /// The ids that end a text.
    pub fn end_ids(&self) -> &[u32] {
        &self.special.eos
    }

    /// The id that ends what is learned, where there is one.
    ///
    /// # Errors
    /// The model lacks it.
    pub fn learned_end(&self) -> Result<Option<u32>, DataError> {
        Ok(self.known(self.special.learned_end.into_iter().collect())?.first().copied())
    }

    /// The ids in front of a completion. Text gets what the tokenizer puts in front of a text; messages go through
    /// the chat template; a vocabulary of our own reads text by its own rules.
    ///
    /// # Errors
    /// Text without a tokenizer, messages without a chat template, what these refuse, a prompt of no tokens, or an id
    /// that the model lacks.
    pub fn prompt(
        &self,
        prompt: &PromptSource,
        options: &ChatOptions,
    ) -> Result<Vec<u32>, DataError> {
        let ids = match (&self.tokens, prompt) {
            (_, PromptSource::Ids(ids)) => ids.clone(),
            (Tokens::Ids, _) => return Err(self.no_tokenizer()),
            (Tokens::Own(codec), PromptSource::Text(text)) => codec.encode_prompt(text)?,
            // A text that begins nowhere begins at the mark for it.
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
                    "`{}` has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so messages cannot become a prompt; give the prompt as text",
                    self.folder.display()
                )));
            }
        };
        if ids.is_empty() {
            return Err(DataError::EmptyPrompt);
        }
        self.known(ids)
    }

    /// The ids of a completion, without an end mark that it does not have.
    ///
    /// # Errors
    /// Text without a tokenizer, what the tokenizer refuses, or an id that the model lacks.
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

    /// The first special token of the tokenizer that is written in `text`, or mark that begins, ends or pads one; see
    /// [`TextTokenizer::special_token_in`]. Other codecs have none that can be written.
    ///
    /// # Errors
    /// What the tokenizer refuses.
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

    /// The text of ids, without marks at its ends; the ids with spaces between them where no file says what they
    /// are.
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

    /// Whether messages can become a prompt.
    pub fn has_chat_template(&self) -> bool {
        matches!(self.tokens, Tokens::Text { chat: Some(_), .. })
    }

    /// Whether ids are text.
    pub fn is_text(&self) -> bool {
        !matches!(self.tokens, Tokens::Ids)
    }

    /// Ids that the model has logits for.
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
            "`{}` has no tokenizer.json, so text cannot become ids; put the model's own beside its weights, or give `prompt_ids` and `completion_ids`",
            self.folder.display()
        ))
    }
}
