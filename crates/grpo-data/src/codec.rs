//! From text to ids and back, by whatever files a model folder has for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    BLANK, Characters, ChatOptions, ChatTemplate, CompletionSource, DataError, PromptSource,
    SpecialIds, TextTokenizer, Vocabulary,
};

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
    /// Tokens of SMILES.
    Smiles(Vocabulary),
    /// Characters, and blanks among them.
    Characters(Characters),
    /// Text in general.
    Text { tokenizer: Arc<TextTokenizer>, chat: Option<Arc<ChatTemplate>> },
    /// No file says: ids go in and come out.
    Ids,
}

/// The token list of a MolGPT.
const VOCABULARY_FILE: &str = "vocabulary.json";
/// The characters of an infiller or its judge.
const CHARACTERS_FILE: &str = "characters.json";
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
    /// Of a token list of SMILES.
    pub fn of_vocabulary(vocabulary: Vocabulary) -> Self {
        let boundary = vocabulary.boundary();
        let files = [(VOCABULARY_FILE.to_owned(), vocabulary.to_json().into_bytes())].into();
        let special = SpecialIds {
            bos: Some(boundary),
            eos: vec![boundary],
            learned_end: Some(boundary),
            pad: None,
        };
        Self {
            tokens: Tokens::Smiles(vocabulary),
            special,
            folder: PathBuf::new(),
            files,
            vocabulary: None,
        }
    }

    /// Of characters. A text of them neither begins nor ends with a mark.
    pub fn of_characters(characters: Characters) -> Self {
        let files = [(CHARACTERS_FILE.to_owned(), characters.to_json().into_bytes())].into();
        Self {
            tokens: Tokens::Characters(characters),
            special: SpecialIds::default(),
            folder: PathBuf::new(),
            files,
            vocabulary: None,
        }
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

    /// Reads what a model folder has: `vocabulary.json`, or `characters.json`, or `tokenizer.json` with a chat template,
    /// or nothing.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong, or both of the first two.
    pub fn of_folder(folder: &Path) -> Result<Self, DataError> {
        let vocabulary = folder.join(VOCABULARY_FILE);
        let characters = folder.join(CHARACTERS_FILE);
        if characters.exists() {
            if vocabulary.exists() {
                return Err(DataError::TwoVocabularies { folder: folder.to_owned() });
            }
            let codec = Self::of_characters(Characters::from_json_file(&characters)?);
            return Ok(Self { folder: folder.to_owned(), ..codec });
        }
        if vocabulary.exists() {
            let codec = Self::of_vocabulary(Vocabulary::from_json_file(&vocabulary)?);
            return Ok(Self { folder: folder.to_owned(), ..codec });
        }
        let path = folder.join(TOKENIZER_FILE);
        let tokens = if path.exists() {
            let tokenizer = Arc::new(TextTokenizer::from_file(&path)?);
            Tokens::Text { tokenizer, chat: ChatTemplate::from_folder(folder)?.map(Arc::new) }
        } else {
            Tokens::Ids
        };
        let tokenizer = match &tokens {
            Tokens::Text { tokenizer, .. } => Some(&**tokenizer),
            Tokens::Smiles(_) | Tokens::Characters(_) | Tokens::Ids => None,
        };
        let special = SpecialIds::from_folder(folder, tokenizer)?;
        let mut files = Vec::new();
        for name in COMPANIONS {
            let path = folder.join(name);
            if path.exists() {
                let bytes = std::fs::read(&path)
                    .map_err(|source| DataError::Unreadable { path, source })?;
                files.push((name.to_owned(), bytes));
            }
        }
        Ok(Self {
            tokens,
            special,
            folder: folder.to_owned(),
            files: files.into(),
            vocabulary: None,
        })
    }

    /// The token list, where the ids are tokens of SMILES.
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.tokens {
            Tokens::Smiles(vocabulary) => Some(vocabulary),
            Tokens::Characters(_) | Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// The characters, where the ids are characters.
    pub fn characters(&self) -> Option<&Characters> {
        match &self.tokens {
            Tokens::Characters(characters) => Some(characters),
            Tokens::Smiles(_) | Tokens::Text { .. } | Tokens::Ids => None,
        }
    }

    /// The file that ids come from, for messages.
    pub fn file(&self) -> &'static str {
        match self.tokens {
            Tokens::Smiles(_) => VOCABULARY_FILE,
            Tokens::Characters(_) => CHARACTERS_FILE,
            Tokens::Text { .. } => TOKENIZER_FILE,
            Tokens::Ids => "no file",
        }
    }

    /// The largest id that is a token, and one; `None` where no file says.
    pub fn token_count(&self) -> Option<usize> {
        match &self.tokens {
            Tokens::Smiles(vocabulary) => Some(vocabulary.len()),
            Tokens::Characters(characters) => Some(characters.len()),
            Tokens::Text { tokenizer, .. } => Some(tokenizer.len()),
            Tokens::Ids => None,
        }
    }

    /// Whether the list of tokens is one that we make ourselves: a model then has a logit for each of them, and no others.
    pub fn is_own(&self) -> bool {
        matches!(self.tokens, Tokens::Smiles(_) | Tokens::Characters(_))
    }

    /// A hash of the tokens in their order, for vocabularies that we make ourselves.
    pub fn sha256(&self) -> Option<String> {
        match &self.tokens {
            Tokens::Smiles(vocabulary) => Some(vocabulary.sha256()),
            Tokens::Characters(characters) => Some(characters.sha256()),
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
    /// the chat template. In a text of characters [`BLANK`] is a place to fill.
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
            (Tokens::Smiles(vocabulary), PromptSource::Text(text)) => {
                [vec![vocabulary.boundary()], encode_smiles(vocabulary, text)?].concat()
            }
            (Tokens::Characters(characters), PromptSource::Text(text)) => {
                characters.encode_blanks(text, BLANK)?
            }
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
                return Err(DataError::NoChatTemplate { folder: self.folder.clone() });
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
            (Tokens::Smiles(vocabulary), CompletionSource::Text(text)) => {
                encode_smiles(vocabulary, text)?
            }
            (Tokens::Characters(characters), CompletionSource::Text(text)) => {
                characters.encode(text)?
            }
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
            Tokens::Smiles(_) | Tokens::Characters(_) | Tokens::Ids => Ok(None),
        }
    }

    /// The text of ids, without marks at its ends; the ids with spaces between them where no file says what they
    /// are.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.tokens {
            Tokens::Smiles(vocabulary) => vocabulary.decode(ids),
            Tokens::Characters(characters) => characters.decode(ids),
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
            Some(&id) => Err(DataError::IdOutside { id, vocabulary }),
            None => Ok(ids),
        }
    }

    fn no_tokenizer(&self) -> DataError {
        DataError::NoTokenizer { folder: self.folder.clone() }
    }
}

fn encode_smiles(vocabulary: &Vocabulary, smiles: &str) -> Result<Vec<u32>, DataError> {
    vocabulary
        .encode(smiles)
        .map_err(|source| DataError::NotInVocabulary { smiles: smiles.to_owned(), source })
}
