//! Arguments of `grpo fill`.

use crate::{PassageUnit, RemaskRule};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo fill runs/infill/grpo/model --judge runs/infill/judge/model --text 'CC(=O)N__c1ccccc1'
  grpo fill runs/infill/grpo/model --file molecules.txt --random 0.3 --iterations 15
  grpo fill runs/infill/grpo/model --file blanked.jsonl --json > filled.jsonl
  grpo fill runs/infill/grpo/model --before runs/infill/generator/model --file molecules.txt --random 0.3

A blank is `_`, or what --blank says; `␣` always is one. One pass fills all blanks at once, each without knowing what is put
into the others; --iterations fills the least trusted ones again.")]
pub(crate) struct FillArguments {
    /// Folder of an infiller, as `grpo pretrain` with a section `[masked_lm]` or `grpo train` writes one
    pub(crate) model: PathBuf,
    /// A text with blanks; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Texts with blanks, one a line; or, where the name ends in .jsonl, JSON lines with `blanked` (and `text`, where it is
    /// known what belongs into the blanks) or with `text` alone
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
    /// Passages of the last part of a text, or of a file of molecules: what a model that was trained on the file did not see,
    /// where --unit, --length and --validation-fraction are those of its training; needs --random
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file"], requires = "random")]
    pub(crate) held_out: Option<PathBuf>,
    /// What a passage of --held-out is [default: lines]
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<PassageUnit>,
    /// The most characters of a passage of --held-out, `data.length` of the training [default: all that the model can see]
    #[arg(long, value_name = "N")]
    pub(crate) length: Option<usize>,
    /// The part at the end of the file of --held-out that is held out [default: 0.1]
    #[arg(long, value_name = "PART")]
    pub(crate) validation_fraction: Option<f64>,
    /// How many passages of --held-out [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) passages: Option<u32>,
    /// The character that stands for a blank in what is given
    #[arg(long, value_name = "CHAR", default_value = "_")]
    pub(crate) blank: char,
    /// Blank this part of each text, which has no blanks then, at random places; how much is recovered is shown
    #[arg(long, value_name = "RATIO")]
    pub(crate) random: Option<f64>,
    /// A judge: each completion gets its reward, 1 − the judge's score (1 is natural)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) judge: Option<PathBuf>,
    /// Another judge, beside the first
    #[arg(long, value_name = "FOLDER", requires = "judge")]
    pub(crate) second_judge: Option<PathBuf>,
    /// Completions of each text
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 4)]
    pub(crate) number: u32,
    /// Divides the logits; below 1 for likelier characters, above 1 for bolder ones
    #[arg(long, default_value_t = 0.8)]
    pub(crate) temperature: f32,
    /// Draw from the fewest most probable characters that have probability P together; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub(crate) top_p: f32,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Times that blanks are filled; 0 or 1 for a single pass
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) iterations: usize,
    /// What finds the characters that are filled again: `probability` (the improbable ones), `critic` (the model's own), or
    /// the folder of another infiller with a critic [default: probability]
    #[arg(long, value_name = "HOW")]
    pub(crate) remask: Option<String>,
    /// Which characters are filled again: the worst, so many as the ratio says, or all whose wrongness is above 1 − ratio
    /// [default: ratio]
    #[arg(long, value_name = "RULE")]
    pub(crate) remask_rule: Option<RemaskRule>,
    /// The ratio after each iteration but the last, with commas [default: 0.95 to 0.05 in equal steps]
    #[arg(long, value_name = "RATIOS", value_delimiter = ',')]
    pub(crate) remask_ratios: Vec<f64>,
    /// Part of chance in the choice of what is filled again [default: 0.2]
    #[arg(long, value_name = "PART")]
    pub(crate) randomness: Option<f64>,
    /// What completions of a text are ordered by, the best first [default: judge where there is one, else self]
    #[arg(long, value_name = "QUALITY")]
    pub(crate) quality: Option<Order>,
    /// An earlier model: compare what it fills into the same blanks, with the same random numbers
    #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
    pub(crate) before: Option<PathBuf>,
    /// Write JSON lines, one a completion
    #[arg(long)]
    pub(crate) json: bool,
}

/// See [`crate::Quality`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// As they were drawn
    None,
    /// The mean log-probability of what was put into the blanks
    #[value(name = "self")]
    Own,
    /// The judge's reward
    Judge,
}
