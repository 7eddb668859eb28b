//! Arguments of the `grpo fill` command.

use crate::{PassageUnit, RemaskRule};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use grpo_task::hub::find_folders;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  grpo fill runs/infill/grpo/model --judge runs/infill/judge/model --text 'CC(=O)N__c1ccccc1'
  grpo fill runs/infill/grpo/model --file molecules.txt --random 0.3 --iterations 15
  grpo fill runs/infill/grpo/model --file blanked.jsonl --json > filled.jsonl
  grpo fill runs/infill/grpo/model --before runs/infill/generator/model --file molecules.txt --random 0.3

A blank is `_` or the character of --blank; `␣` is always a blank. One pass fills all blanks at the same time, independently of
each other. --iterations fills the least certain ones again.")]
pub(crate) struct FillArguments {
    /// Model folder of an infiller, written by `grpo pretrain` with a `[masked_lm]` section or by `grpo train`
    #[arg(value_name = "FOLDER|NAME")]
    pub(crate) model: PathBuf,
    /// Text with blanks; repeatable
    #[arg(long, value_name = "TEXT", help_heading = "Input")]
    pub(crate) text: Vec<String>,
    /// File of texts with blanks, one per line, or JSON lines (.jsonl) with `blanked` and, if the solution is known, `text`
    #[arg(long, value_name = "FILE", conflicts_with = "text", help_heading = "Input")]
    pub(crate) file: Option<PathBuf>,
    /// Text or molecule file whose held-out passages are used; requires --random. The passages are
    /// those held out during training if --unit, --length and --validation-fraction match the
    /// training configuration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "file"], requires = "random", help_heading = "Input")]
    pub(crate) held_out: Option<PathBuf>,
    /// Unit of a --held-out passage [default: lines]
    #[arg(long, value_name = "UNIT", help_heading = "Input")]
    pub(crate) unit: Option<PassageUnit>,
    /// Maximum length of a --held-out passage in characters, like `data.length` [default: the
    /// model's context length]
    #[arg(long, value_name = "N", help_heading = "Input")]
    pub(crate) length: Option<usize>,
    /// Fraction at the end of the --held-out file that is held out [default: 0.1]
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true, help_heading = "Input")]
    pub(crate) validation_fraction: Option<f64>,
    /// Number of --held-out passages [default: 5]
    #[arg(long, value_name = "N", help_heading = "Input")]
    pub(crate) passages: Option<u32>,
    /// Character that marks a blank
    #[arg(long, value_name = "CHAR", default_value = "_", value_parser = one_character, help_heading = "Input")]
    pub(crate) blank: char,
    /// Fraction of each text to blank at random positions; the text must not contain blanks, and
    /// the recovered fraction is shown
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true, help_heading = "Input")]
    pub(crate) random: Option<f64>,
    /// Model folder of a judge that scores each completion; its reward is 1 − score, where 1 is
    /// natural
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Scoring")]
    pub(crate) judge: Option<PathBuf>,
    /// Model folder of a second judge
    #[arg(long, value_name = "FOLDER|NAME", requires = "judge", help_heading = "Scoring")]
    pub(crate) second_judge: Option<PathBuf>,
    /// Ranking of the completions for each text, best first [default: judge with --judge, otherwise
    /// self]
    #[arg(long, value_name = "QUALITY", help_heading = "Scoring")]
    pub(crate) quality: Option<Order>,
    /// Earlier model to compare with: it fills the same blanks with the same random numbers
    #[arg(long, value_name = "FOLDER|NAME", conflicts_with = "json", help_heading = "Scoring")]
    pub(crate) before: Option<PathBuf>,
    /// Number of completions per text
    #[arg(
        short = 'n',
        long = "number",
        value_name = "N",
        default_value_t = 4,
        help_heading = "Sampling"
    )]
    pub(crate) number: u32,
    /// Divisor of the logits: below 1 for more likely characters, above 1 for more varied ones
    #[arg(long, default_value_t = 0.8, allow_negative_numbers = true, help_heading = "Sampling")]
    pub(crate) temperature: f32,
    /// Sample from the smallest set of most probable characters with total probability P; 1 for all
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.95,
        allow_negative_numbers = true,
        help_heading = "Sampling"
    )]
    pub(crate) top_p: f32,
    /// Random seed
    #[arg(long, default_value_t = 42, help_heading = "Sampling")]
    pub(crate) seed: u64,
    /// Number of passes over the blanks; 0 or 1 for a single pass
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Refilling")]
    pub(crate) iterations: usize,
    /// What selects the characters to refill: `probability` (the least likely ones), `critic` (the model's critic), or the
    /// folder of another infiller with a critic [default: probability]
    #[arg(long, value_name = "HOW", help_heading = "Refilling")]
    pub(crate) remask: Option<String>,
    /// Rule for the number of characters to refill: the worst ones up to the ratio, or all whose
    /// error estimate exceeds 1 − ratio [default: ratio]
    #[arg(long, value_name = "RULE", help_heading = "Refilling")]
    pub(crate) remask_rule: Option<RemaskRule>,
    /// Ratio after each iteration except the last, comma-separated [default: 0.95 to 0.05 in equal steps]
    #[arg(long, value_name = "RATIOS", value_delimiter = ',', help_heading = "Refilling")]
    pub(crate) remask_ratios: Vec<f64>,
    /// How much randomness to use when choosing the characters to refill [default: 0.2]
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Refilling")]
    pub(crate) randomness: Option<f64>,
    /// JSON lines, one per completion
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Parses the value of `--blank`.
fn one_character(text: &str) -> Result<char, String> {
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) => Ok(character),
        _ => Err(format!("it has {} characters; expected one", text.chars().count())),
    }
}

impl FillArguments {
    /// Replaces names of the hub by folders.
    pub(super) fn found(&self) -> anyhow::Result<Self> {
        let mut found = self.clone();
        let Self { model, judge, second_judge, before, .. } = &mut found;
        let others = [judge, second_judge, before].into_iter().flatten();
        find_folders(std::iter::once(model).chain(others))?;
        Ok(found)
    }
}

/// See [`crate::Quality`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The order of sampling
    None,
    /// The mean log-probability of the filled blanks
    #[value(name = "self")]
    Own,
    /// The judge's reward
    Judge,
}
