//! Data files of the `[data]` section: prompt and completion records, or formats defined by tasks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grpo_data::schema::Keys;
use grpo_data::{
    Augmentation, ChatOptions, Codec, ConfigFault, DataError, ExampleFile, Examples, Prompt,
    PromptFile, RecordFormat, RecordKeys, deserialize_settings,
};
use grpo_model::{ModelConfig, ModelError, chat_template};
use toml::Table;

use crate::models::no_thinking_switch;

/// A file format for the `[data]` section.
#[derive(Clone, Copy)]
pub struct DataFormat {
    /// Plural noun for the contents of a file.
    pub holds: &'static str,
    /// Endings of the names of its files, which may also end in `.gz`. Empty if names do not select it.
    pub endings: &'static [&'static str],
    /// Additional `[data]` keys of this format.
    pub keys: &'static [&'static str],
    /// What these keys are.
    pub schema: Keys,
    /// Whether its files have prompts for `grpo train`, rather than examples for `grpo pretrain` alone.
    pub has_prompts: bool,
    /// Returns whether a `[data]` section uses this format.
    pub is_selected: fn(&Table) -> bool,
    /// Parses the additional keys. Keys in errors are relative to `[data]`.
    pub parse: fn(Table) -> Result<Arc<dyn DataReader>, ConfigFault>,
}

/// Reads data files of one format.
pub trait DataReader: fmt::Debug + Send + Sync {
    /// Returns the singular and plural noun for an example.
    fn nouns(&self) -> [&'static str; 2] {
        ["text", "texts"]
    }

    /// Returns the additional `[data]` keys with all defaults.
    fn settings(&self) -> Table {
        Table::new()
    }

    /// Checks the additional keys together with the shared ones. Errors contain the full key path.
    ///
    /// # Errors
    /// Returns an error if two keys contradict each other.
    fn check(&self, _shared: &SharedKeys) -> Result<(), ConfigFault> {
        Ok(())
    }

    /// Reads the prompts. Prompts that are too long are dropped and mentioned in the report.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or all prompts are too long.
    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts>;

    /// Reads the examples and uses `seed` to hold out a `validation_fraction` of them.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or all examples are too long.
    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples>;

    /// Returns whether `data.file` can name several files of this format.
    fn reads_several(&self) -> bool {
        false
    }

    /// Returns whether files of this format contain prompts as `grpo sample --prompts` reads them.
    fn holds_prompts(&self) -> bool {
        false
    }

    /// Returns the option of `grpo sample`, without hyphens, that gives the model this prompt, and its
    /// value.
    fn prompt_option(&self, _prompt: &Prompt) -> Option<(&'static str, String)> {
        None
    }

    /// Returns whether `error` means that all records were too long.
    fn is_too_long(&self, error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(DataError::NoRecords { too_long: 1.., .. }))
    }

    /// Returns whether prompts can be conversations, which `thinking` affects.
    fn has_conversations(&self) -> bool {
        false
    }

    /// Returns the configuration of a new model. By default, it is a GPT-2 whose output layer is not
    /// tied to the token embedding.
    ///
    /// # Errors
    /// Returns an error if the sizes are inconsistent.
    fn new_model(&self, sizes: &NewModel) -> Result<ModelConfig, ModelError> {
        let &NewModel { vocabulary, context, layers, heads, width } = sizes;
        let json = serde_json::json!({
            "model_type": "gpt2", "vocab_size": vocabulary, "n_positions": context,
            "n_layer": layers, "n_head": heads, "n_embd": width, "tie_word_embeddings": false,
        });
        ModelConfig::from_json(&json.to_string()).map_err(ModelError::Unfit)
    }

    /// Returns further `config.json` keys of a new model.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    fn new_config(
        &self,
        _file: &Path,
    ) -> anyhow::Result<serde_json::Map<String, serde_json::Value>> {
        Ok(serde_json::Map::new())
    }

    /// Returns a function that builds the codec of a new model from the examples in a file, or `None`
    /// if the format does not support this.
    fn new_codec(&self) -> Option<NewCodec<'_>> {
        None
    }
}

/// Builds a codec from the examples in a file.
pub type NewCodec<'a> = Box<dyn Fn(&Path) -> anyhow::Result<Codec> + 'a>;

/// Sizes of a new model.
#[derive(Clone, Copy, Debug)]
pub struct NewModel {
    /// Number of tokens.
    pub vocabulary: usize,
    /// Context length in tokens.
    pub context: usize,
    /// Number of transformer blocks.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
}

/// `[data]` keys shared by all formats.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedKeys {
    /// The chat template's `thinking` option.
    pub thinking: Option<bool>,
    /// Whether the configuration limits the number of tokens of an example.
    pub has_max_tokens: bool,
    /// Whether training starts from an existing model.
    pub has_start: bool,
}

/// Parameters for reading a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadFrom<'a> {
    /// File to read.
    pub file: &'a Path,
    /// Codec of the model.
    pub codec: &'a Codec,
    /// Keys of the model's `config.json`.
    pub config: &'a serde_json::Map<String, serde_json::Value>,
    /// The chat template's `thinking` option.
    pub thinking: Option<bool>,
    /// Maximum number of tokens of a prompt or example.
    pub longest: usize,
}

/// Prompts read from a file.
#[derive(Clone, Debug, Default)]
pub struct ReadPrompts {
    /// The prompts, indexed in file order.
    pub prompts: Vec<Prompt>,
    /// Location of each prompt as `file:line`.
    pub places: Vec<String>,
    /// Summary for the user.
    pub report: String,
    /// All files that were read.
    pub files: Vec<PathBuf>,
}

/// Examples read from a file.
#[derive(Clone, Debug)]
pub struct ReadExamples {
    /// The examples.
    pub examples: Examples,
    /// Random variants of the training examples, if any.
    pub augmentation: Option<Augmentation>,
    /// Summary for the user, line by line.
    pub report: Vec<String>,
    /// All files that were read, with their roles.
    pub files: Vec<(&'static str, PathBuf)>,
}

/// Prompt and completion records, stored as JSON or Parquet.
#[derive(Debug, Default)]
pub struct Records(pub RecordFormat);

impl Records {
    /// Keys of `[data]` that say what the columns of records are.
    pub const KEYS: [&str; 4] = ["columns", "system", "template", "answer_extract"];

    /// Creates the reader from these keys.
    ///
    /// # Errors
    /// Returns an error if a key is invalid.
    pub fn parse(keys: Table) -> Result<Self, ConfigFault> {
        Ok(Self(RecordFormat::new(deserialize_settings::<RecordKeys>(keys)?)?))
    }
}

impl DataReader for Records {
    fn settings(&self) -> Table {
        Table::try_from(self.0.keys()).expect("texts can be written as TOML")
    }

    fn reads_several(&self) -> bool {
        true
    }

    fn holds_prompts(&self) -> bool {
        true
    }

    fn has_conversations(&self) -> bool {
        true
    }

    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts> {
        let note = thinking_note(from.thinking, Thinking::of(from.codec))?;
        let options = ChatOptions::for_answer(from.thinking);
        let PromptFile { prompts, lines, report } =
            PromptFile::read(from.file, from.codec, &options, from.longest, &self.0)?;
        let places = lines.iter().map(|line| format!("{}:{line}", from.file.display())).collect();
        let files = vec![from.file.to_owned()];
        let report = format!("{report}{}", note.map_or(String::new(), |note| format!("; {note}")));
        Ok(ReadPrompts { prompts, places, report, files })
    }

    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples> {
        let &ReadFrom { file, codec, thinking, longest, .. } = from;
        let options = ChatOptions::for_answer(thinking);
        let (format, fraction) = (&self.0, validation_fraction);
        let read = ExampleFile::read(file, codec, &options, format, longest, fraction, seed)?;
        let mut report = read.report.to_string();
        report.extend(thinking_note(thinking, Thinking::of(codec))?.map(|n| format!("; {n}")));
        if validation_fraction > 0.0 {
            let Examples { train, validation, .. } = &read.examples;
            report +=
                &format!(": {} for training, {} for validation", train.len(), validation.len());
        }
        let files = vec![("texts", file.to_owned())];
        let (examples, report) = (read.examples, vec![report]);
        Ok(ReadExamples { examples, augmentation: None, report, files })
    }
}

/// What a chat template does about thinking.
#[derive(Clone, Copy)]
pub(crate) enum Thinking {
    /// It has a switch.
    Switch,
    /// It has none, although it mentions thinking: the model may think whatever the key says.
    Always,
    /// It does not mention thinking.
    Never,
}

impl Thinking {
    fn new(has_switch: bool, is_mentioned: bool) -> Self {
        match (has_switch, is_mentioned) {
            (true, _) => Self::Switch,
            (false, true) => Self::Always,
            (false, false) => Self::Never,
        }
    }

    fn of(codec: &Codec) -> Self {
        Self::new(codec.has_thinking_switch(), codec.mentions_thinking())
    }
}

/// Returns a note if `data.thinking` has no effect because the chat template has no such switch. A
/// model that never thinks does what `thinking = false` asks for.
///
/// # Errors
/// Returns an error if the template cannot enable thinking although the key asks for it.
pub(crate) fn thinking_note(
    thinking: Option<bool>,
    of_template: Thinking,
) -> anyhow::Result<Option<String>> {
    let thinking = match (thinking, of_template) {
        (None, _) | (_, Thinking::Switch) | (Some(false), Thinking::Never) => return Ok(None),
        (Some(thinking), _) => thinking,
    };
    let effect = no_thinking_switch(&format!("data.thinking = {thinking}"), &"the model");
    anyhow::ensure!(!thinking, "{effect}; remove it");
    Ok(Some(effect))
}

/// Returns a note if the key `thinking` has no effect with the chat template of `model`, which need not exist.
///
/// # Errors
/// Returns an error if training would refuse the key.
pub fn check_thinking(
    reader: &dyn DataReader,
    thinking: Option<bool>,
    model: &Path,
) -> anyhow::Result<Option<String>> {
    if !(reader.has_conversations() && model.exists()) {
        return Ok(None);
    }
    // Other faults of the model are found when it is loaded.
    let Ok(template) = chat_template(model) else { return Ok(None) };
    let of_template = template.map_or(Thinking::Never, |template| {
        Thinking::new(template.has_thinking_switch(), template.mentions_thinking())
    });
    thinking_note(thinking, of_template)
}
