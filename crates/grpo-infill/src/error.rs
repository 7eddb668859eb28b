//! What texts with blanks, and models that fill them, can get wrong.

use crate::{BLANK, PassageUnit};
use grpo_data::DataError;
use grpo_logprob::NotFinite;
use grpo_rollout::RolloutError;
use grpo_train::TrainError;
use std::path::PathBuf;

/// A fault in passages, in what is masked of them, or in how blanks are filled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfillError {
    /// A file that cannot be read, or a character that a vocabulary lacks.
    #[error(transparent)]
    Data(#[from] DataError),
    /// What every engine refuses.
    #[error(transparent)]
    Rollout(#[from] RolloutError),
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
    /// Nothing is in front of a blank: all of them are filled at once.
    #[error(
        "sampling.repetition_penalty is about what was sampled before, and blanks are filled all at once; leave it out"
    )]
    PenaltyOfBlanks,
    /// A blank could stay one.
    #[error("the id {id} stands in blanks and could be drawn; it must be forbidden")]
    MaskAllowed {
        /// The id.
        id: u32,
    },
    /// There is nothing to fill.
    #[error(
        "text {prompt} has no blank, so there is nothing to fill; each text needs one at least"
    )]
    NoBlank {
        /// The prompt's index.
        prompt: u32,
    },
    /// A text that the model cannot see as a whole.
    #[error(
        "a text of {text} characters does not fit into the model's context of {context}; cut it, or take a model with a longer one"
    )]
    LongText {
        /// Its characters.
        text: usize,
        /// What the model can see.
        context: usize,
    },
    /// A model that cannot say which characters are wrong.
    #[error(
        "the model has no critic (`critic` in its config.json), so it cannot say which characters are wrong"
    )]
    NoCritic,
    /// A part of a whole that is none.
    #[error("{name} of {value} is out of range; expected 0 to 1")]
    NoPart {
        /// What it is.
        name: &'static str,
        /// What it was.
        value: f64,
    },
    /// A schedule of another length.
    #[error("{ratios} remasking ratios are not one fewer than the {iterations} iterations")]
    Schedule {
        /// Ratios of the schedule.
        ratios: usize,
        /// Times that blanks are filled.
        iterations: usize,
    },
}

impl From<NotFinite> for InfillError {
    fn from(error: NotFinite) -> Self {
        Self::Rollout(error.into())
    }
}

impl From<InfillError> for DataError {
    fn from(error: InfillError) -> Self {
        match error {
            InfillError::Data(error) => error,
            other => Self::Task(Box::new(other)),
        }
    }
}

impl From<InfillError> for TrainError {
    fn from(error: InfillError) -> Self {
        match error {
            InfillError::Data(error) => error.into(),
            InfillError::Rollout(error) => error.into(),
            other => Self::Objective(Box::new(other)),
        }
    }
}

impl From<InfillError> for RolloutError {
    fn from(error: InfillError) -> Self {
        match error {
            InfillError::Rollout(error) => error,
            other => Self::Engine(Box::new(other)),
        }
    }
}
