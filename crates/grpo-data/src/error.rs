//! Everything that a user's data can get wrong, as one enum.

mod prompt_fault;

pub use prompt_fault::PromptFault;

use crate::{BLANK, PassageUnit, RecordReport};
use grpo_text::EmbedError;
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;

/// A fault in the user's data. The message says what is wrong, where, and how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No tokenizer can be made of the texts.
    #[error("no tokenizer: {reason}")]
    TokenizerTraining {
        /// Why.
        reason: String,
    },
    /// A fault in the data of a task.
    #[error(transparent)]
    Task(Box<dyn std::error::Error + Send + Sync>),
    /// The file does not exist.
    #[error("`{path}` does not exist; check the path")]
    MissingFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The operating system refused to open or read the file.
    #[error("cannot read `{path}`: {source}; check that it is a readable file")]
    Unreadable {
        /// The path as it was given.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// What is wrong with one record of a file.
    #[error("{path}:{line}: {source}", path = path.display())]
    AtLine {
        /// The path as it was given.
        path: PathBuf,
        /// The line, or the row of a Parquet file, counted from 1.
        line: u64,
        /// The fault.
        source: Box<DataError>,
    },
    /// A record without what is to be learned.
    #[error(
        "there is nothing to learn: a record needs `text`, or a completion (`completion`, `completion_ids`, or an assistant's last message) of at least one token"
    )]
    NoCompletion,
    /// A file that nothing can be done with.
    #[error("`{path}` has no record that can be used: {report}")]
    NoRecords {
        /// The path as it was given.
        path: PathBuf,
        /// What was read and left out.
        report: RecordReport,
    },
    /// Text, and nothing to make ids of it.
    #[error(
        "`{folder}` has no tokenizer.json, so text cannot become ids; put the model's own beside its weights, or give `prompt_ids` and `completion_ids`"
    )]
    NoTokenizer {
        /// The model folder.
        folder: PathBuf,
    },
    /// Messages, and nothing to make a text of them.
    #[error(
        "`{folder}` has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json), so messages cannot become a prompt; give the prompt as text"
    )]
    NoChatTemplate {
        /// The model folder.
        folder: PathBuf,
    },
    /// Nothing to continue.
    #[error("a prompt has no tokens; give it at least one")]
    EmptyPrompt,
    /// An id that the model has no logit for.
    #[error("the id {id} is outside the model's vocabulary of {vocabulary} tokens")]
    IdOutside {
        /// The id.
        id: u32,
        /// Tokens of the model.
        vocabulary: usize,
    },
    /// The name of the file does not tell its format.
    #[error(
        "cannot tell the format of `{path}` from its name; expected a name that ends in {expected}"
    )]
    UnknownFormat {
        /// The path as it was given.
        path: PathBuf,
        /// The endings that are known.
        expected: &'static str,
    },
    /// A file named `.gz` is not gzip, or is cut off or damaged.
    #[error(
        "`{path}` cannot be decompressed after line {line}: {source}; compress the file again, or drop `.gz` from its name if it is plain text"
    )]
    BadGzip {
        /// The path as it was given.
        path: PathBuf,
        /// The last line that was read whole (0: none).
        line: u64,
        /// What the decompressor said.
        source: std::io::Error,
    },
    /// A line holds bytes that are not UTF-8.
    #[error(
        "line {line} of `{path}` is not UTF-8 text; save the file as UTF-8 (a compressed file's name must end in `.gz`)"
    )]
    NotUtf8 {
        /// The path as it was given.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// A CSV file has no column of that name.
    #[error(
        "`{path}` has no column {expected}; its columns are {found}; rename one, or name the column that holds the SMILES"
    )]
    MissingColumn {
        /// The path as it was given.
        path: PathBuf,
        /// The names that would have done.
        expected: Names,
        /// The names in the file's header line.
        found: Names,
    },
    /// A CSV row has more or fewer cells than the header.
    #[error(
        "line {line} of `{path}` has {found} cells where the header has {expected}; put cells that contain commas in double quotes"
    )]
    RowWidth {
        /// The path as it was given.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// Cells of the header line.
        expected: usize,
        /// Cells of this row.
        found: usize,
    },
    /// A `tokenizer.json` is none that can be used.
    #[error(
        "`{path}` is not a usable tokenizer: {reason}; expected the `tokenizer.json` of a Hugging Face model"
    )]
    BadTokenizer {
        /// The path as it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tokenizer has no ids for a text.
    #[error(
        "the tokenizer `{path}` cannot encode `{text}`: {reason}; drop the text, or use a tokenizer with a token for what is unknown"
    )]
    NotEncoded {
        /// The tokenizer's file.
        path: PathBuf,
        /// The text, shortened.
        text: String,
        /// What the tokenizer said.
        reason: String,
    },
    /// A JSON file of a model is no JSON object.
    #[error("`{path}` is not a JSON object: {source}; copy the file from the model again")]
    ModelJson {
        /// The file.
        path: PathBuf,
        /// What the JSON reader said, with its line and column.
        source: serde_json::Error,
    },
    /// A key in a JSON file of a model holds what it cannot mean.
    #[error("`{key}` in `{path}` is {found}; expected {expected}; correct it or take it out")]
    ModelKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What can stand there.
        expected: &'static str,
        /// What stands there, in words.
        found: String,
    },
    /// A chat template does not parse.
    #[error(
        "line {line} of the chat template in `{path}` does not parse: {reason}; correct the template"
    )]
    TemplateSyntax {
        /// The file that holds the template.
        path: PathBuf,
        /// The line of the template, counted from 1.
        line: u64,
        /// What the template engine said.
        reason: String,
    },
    /// A chat template refuses messages, or fails on them.
    #[error(
        "line {line} of the chat template in `{path}` fails on the messages: {reason}; correct the messages or the template"
    )]
    TemplateFailed {
        /// The file that holds the template.
        path: PathBuf,
        /// The line of the template, counted from 1.
        line: u64,
        /// What the template or its engine said.
        reason: String,
    },
    /// A line or row of prompts says something else than a prompt.
    #[error("{path}:{line}: {fault}", path = path.display())]
    BadPrompt {
        /// The path as it was given.
        path: PathBuf,
        /// The line or row, counted from 1.
        line: u64,
        /// What is wrong there.
        fault: PromptFault,
    },
    /// A Parquet file is none, or is cut off or damaged.
    #[error("`{path}` cannot be read as Parquet after row {row}: {reason}; write the file again")]
    BadParquet {
        /// The path as it was given.
        path: PathBuf,
        /// The last row that was read whole (0: none).
        row: u64,
        /// What the Parquet reader said.
        reason: String,
    },
    /// A `characters.json` is none.
    #[error(
        "`{path}` is not a vocabulary of characters: {source}; copy `characters.json` from the model again"
    )]
    CharactersFormat {
        /// The path as it was given.
        path: PathBuf,
        /// What the JSON reader said, with its line and column.
        source: serde_json::Error,
    },
    /// A `characters.json` has a character twice, or the mark of a blank.
    #[error(
        "`characters` in `{path}` must hold each character once and no {BLANK:?}, the mark of a blank; take one {character:?} out"
    )]
    CharactersEntry {
        /// The path as it was given.
        path: PathBuf,
        /// The character.
        character: char,
    },
    /// A `characters.json` lacks MASK, PAD or CLS, or gives one an id that it cannot have.
    #[error(
        "`{name}` in `{path}` is {}; expected {expected}: behind the ids of the {characters} characters come those of MASK, PAD and CLS, which differ",
        .found.map_or("missing".to_owned(), |id| id.to_string())
    )]
    SpecialId {
        /// The path as it was given.
        path: PathBuf,
        /// The key.
        name: &'static str,
        /// The id that it has.
        found: Option<u32>,
        /// The id that it must have.
        expected: u32,
        /// Characters of the vocabulary.
        characters: usize,
    },
    /// Two vocabularies of our own in a model folder.
    #[error(
        "`{folder}` has both {} and {}; keep the one that the model was trained with", .files[0], .files[1]
    )]
    TwoVocabularies {
        /// The model folder.
        folder: PathBuf,
        /// Their files.
        files: [&'static str; 2],
    },
    /// No character to make a vocabulary of.
    #[error("there is no character to make a vocabulary of; give a text that has some")]
    NoCharacters,
    /// The mark of a blank stands in a text as a character.
    #[error(
        "the text has the character {BLANK:?}, which is the mark of a blank; replace it by another"
    )]
    BlankInText,
    /// A character that a vocabulary lacks.
    #[error(
        "{character:?} (character {position} of {text:?}) is not one of the {known} characters of the model; replace it, or train a model on text that has it"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Where it stands, in characters counted from 1.
        position: usize,
        /// The text, shortened.
        text: String,
        /// Characters that are known.
        known: usize,
    },
    /// Nothing in a file.
    #[error("`{path}` is empty; give a file with text")]
    EmptyFile {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A text shorter than a passage.
    #[error(
        "the {part} text of `{path}` has {found} characters, fewer than a passage of {length} (`length`); give a longer text or a smaller `length`"
    )]
    ShortText {
        /// The path as it was given.
        path: PathBuf,
        /// `whole`, `training` or `validation`.
        part: &'static str,
        /// Its characters.
        found: usize,
        /// Characters of a passage.
        length: usize,
    },
    /// Too few lines to have one on each side of the split.
    #[error(
        "`{path}` has {found} lines that a passage of at most {length} characters can begin with, and at least 2 are needed, one of them held out ({report}); give a file with more lines of 2 or more characters"
    )]
    FewLines {
        /// The path as it was given.
        path: PathBuf,
        /// Lines that can be used.
        found: usize,
        /// Characters of a passage.
        length: usize,
        /// What was left out and why, as text.
        report: String,
    },
    /// A setting outside its range.
    #[error("`{key}` is {found}; expected {expected}")]
    Setting {
        /// The key, with the place in it: `stages[2].ratio`.
        key: String,
        /// What stands there, in words.
        found: String,
        /// What can stand there.
        expected: &'static str,
    },
    /// A masking that cannot be had of these passages.
    #[error(
        "stage {stage} of the masking, `line`, replaces whole lines, and passages have none with `unit` = {:?}; use `unit` = \"lines\", or take the stage out",
        .unit.name()
    )]
    LinesNeeded {
        /// The stage, counted from 0.
        stage: usize,
        /// The unit of the passages.
        unit: PassageUnit,
    },
    /// A masking that hardly ever masks anything.
    #[error(
        "stage {stage} of the masking, `{masking}`, masked nothing in {attempts} passages one after another; give it a larger ratio"
    )]
    NothingMasked {
        /// The stage, counted from 0.
        stage: usize,
        /// What it is.
        masking: &'static str,
        /// Passages that were tried.
        attempts: u32,
    },
    /// A masking of lines where there is no other line.
    #[error(
        "stage {stage} of the masking, `line`, found no other line to put in in {attempts} passages one after another: lines of this half are all alike; give a text with different lines, or take the stage out"
    )]
    LinesAlike {
        /// The stage, counted from 0.
        stage: usize,
        /// Passages that were tried.
        attempts: u32,
    },
    /// A masking that is no exercise of infilling.
    #[error(
        "completions can only stand at blanks: {reason}, so that places that are not blank would be wrong or would count; {mend}"
    )]
    NotPure {
        /// What else it does.
        reason: String,
        /// How to mend it.
        mend: &'static str,
    },
    /// A file, or a folder of them, without a tweet and its reply.
    #[error(
        "`{path}` has no pair of a tweet and a reply: {skipped} lines were left out{}; write one object a line with `tweet_id`, `tweet` and `reply`",
        .first.as_ref().map(|first| format!(", the first of them {first}")).unwrap_or_default()
    )]
    NoPairs {
        /// The path as it was given.
        path: PathBuf,
        /// Lines that are no pairs.
        skipped: usize,
        /// The first of them, and why.
        first: Option<String>,
    },
    /// A folder without files of pairs.
    #[error("the folder `{path}` has no file that ends in .jsonl, .jsonl.gz or .parquet")]
    NoPairFiles {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Fewer tweets than parts to put them in.
    #[error(
        "{found} tweets with different texts cannot be split into {parts} parts, as all replies to a tweet stay together; give at least {parts} tweets"
    )]
    FewTweets {
        /// Tweets.
        found: usize,
        /// Parts that are not to be empty.
        parts: usize,
    },
    /// A text that cannot be compared with others.
    #[error(transparent)]
    NoVector(EmbedError),
    /// Pairs of a file, and none of them short enough and of text alone.
    #[error("no pair of `{path}` can be used: {report}")]
    NoUsablePairs {
        /// The path as it was given.
        path: PathBuf,
        /// How many were too long.
        too_long: usize,
        /// What was read and left out.
        report: String,
    },
    /// A saved position lies outside the data that it is applied to.
    #[error(
        "the saved position {found} lies outside the {len} items of this data set; resume with the data that the run began with"
    )]
    OrderPosition {
        /// The saved index.
        found: u64,
        /// Items of the data set.
        len: u64,
    },
}

/// Names in a message: `a`, `b`, `c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(none)");
        }
        for (i, name) in self.0.iter().enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// A JSON value in a message: `the value 3`, `the string "a"`, `a list`.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("the value {value}"),
        Value::String(text) => format!("the string {:?}", Shortened(text).to_string()),
        Value::Array(list) if list.is_empty() => "an empty list".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The first hundred characters of a text that may be as long as a file, for messages.
pub struct Shortened<'a>(pub &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(100) {
            Some((end, _)) => write!(f, "{}…", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}
