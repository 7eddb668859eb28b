//! Command-line arguments that commands of the program and of tasks share.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_logprob::SamplingSettings;
use grpo_model::WeightPrecision;
use grpo_rollout::RolloutError;

/// Maximum number of samples, which are all kept in memory.
const MOST: u32 = 10_000_000;

/// Heading for options that affect memory and speed.
pub const MEMORY: &str = "Memory and speed";

/// A configuration file and its overrides.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Configuration file (TOML); docs/configuration.md explains every key
    #[arg(required_unless_present = "resume")]
    pub config: Option<PathBuf>,
    /// Value for a configuration key, e.g. --set train.steps=50; repeatable
    #[arg(
        long,
        value_name = "KEY=VALUE",
        conflicts_with = "resume",
        help_heading = "Configuration"
    )]
    pub set: Vec<String>,
    /// Check keys and values, then exit without reading or writing anything else
    #[arg(long, conflicts_with = "resume", help_heading = "Configuration")]
    pub check: bool,
    /// Run folder [default: configuration key `run`]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume", help_heading = "Run")]
    pub run: Option<PathBuf>,
    /// Rename an existing run folder and start from scratch; nothing is deleted
    #[arg(long, conflicts_with = "resume", help_heading = "Run")]
    pub force: bool,
    /// Resume the run in this folder from its newest complete checkpoint
    #[arg(long, value_name = "RUN", conflicts_with = "config", help_heading = "Run")]
    pub resume: Option<PathBuf>,
}

impl RunArguments {
    /// Returns the configuration file, which clap requires unless a run is resumed.
    pub fn configuration(&self) -> anyhow::Result<&Path> {
        let missing = "missing argument CONFIG (for example configs/molecules/grpo.toml)";
        self.config.as_deref().context(missing)
    }
}

/// Options of `grpo sample` shared by all tasks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo sample --model runs/molecules/model -n 1000 --distinct -o molecules.smi
  grpo sample --model models/Qwen3-0.6B --prompt \"What is 2 + 3?\" --chat --thinking false

Molecules are written one SMILES per line, completions of prompts as JSON lines.")]
pub struct SampleArguments {
    /// Model folder, such as `model` in a run folder, GGUF file, or a name of the Hugging Face hub (org/name)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub model: PathBuf,
    /// Adapter folder (PEFT format), such as `adapter` in a run folder
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub adapter: Option<PathBuf>,
    /// Text to continue; repeatable [default: start from the beginning-of-sequence token]
    #[arg(long, value_name = "TEXT", help_heading = "Input")]
    pub prompt: Vec<String>,
    /// Prompt file (JSON lines or Parquet) with `prompt` (text, ids or messages) or `prompt_ids`
    #[arg(long, value_name = "FILE", conflicts_with = "prompt", help_heading = "Input")]
    pub prompts: Option<PathBuf>,
    /// Treat each --prompt as a user message in the model's chat template
    #[arg(long, requires = "prompt", help_heading = "Input")]
    pub chat: bool,
    /// Enable or disable the thinking mode of the chat template
    #[arg(long, value_name = "BOOL", help_heading = "Input")]
    pub thinking: Option<bool>,
    /// Number of molecules, or of completions per prompt [default: 1000 molecules, 100 per
    /// condition, or 1 completion]
    #[arg(short = 'n', long = "number", value_name = "N", help_heading = "Sampling")]
    pub number: Option<u32>,
    /// Random seed
    #[arg(long, default_value_t = 42, help_heading = "Sampling")]
    pub seed: u64,
    /// Sampling temperature: below 1 for more likely samples, above 1 for more varied ones
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Sampling")]
    pub temperature: f32,
    /// Sample only from the K most probable tokens
    #[arg(long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<usize>,
    /// Sample from the smallest set of most probable tokens with total probability P
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = "Sampling")]
    pub top_p: Option<f32>,
    /// Sample only from tokens with at least this fraction of the highest probability
    #[arg(long, value_name = "FRACTION", allow_negative_numbers = true, help_heading = "Sampling")]
    pub min_p: Option<f32>,
    /// Penalty for tokens already in the sample: above 1 for fewer repetitions, below 1 for more
    #[arg(long, value_name = "PENALTY", allow_negative_numbers = true, help_heading = "Sampling")]
    pub repetition_penalty: Option<f32>,
    /// Maximum length in tokens, including the end token [default: the model's context length; at
    /// most 256 for completions of prompts]
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub max_new_tokens: Option<usize>,
    /// Text that ends a completion and is kept in it; repeatable
    #[arg(long, value_name = "TEXT", help_heading = "Sampling")]
    pub stop: Vec<String>,
    /// Precision of the weight matrices in memory: f32, bf16, q8 or q4 (coarse)
    #[arg(long, value_name = "PRECISION", default_value = "f32", value_parser = precision, help_heading = MEMORY)]
    pub weights: WeightPrecision,
    /// Number of samples generated in parallel
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = MEMORY)]
    pub batch_size: usize,
    /// File to write, compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, requires = "output", help_heading = "Output")]
    pub force: bool,
}

impl SampleArguments {
    /// Checks the values that do not depend on the model.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(number) = self.number {
            anyhow::ensure!(number > 0, "-n 0 is out of range; expected 1 or more");
            anyhow::ensure!(number <= MOST, "-n {number} is out of range; expected 1 to {MOST}");
        }
        anyhow::ensure!(
            self.thinking.is_none() || self.chat || self.prompts.is_some(),
            "--thinking requires --chat with --prompt; add --chat or remove --thinking"
        );
        self.sampling().check()?;
        let values =
            [("max_new_tokens", self.max_new_tokens), ("batch_size", Some(self.batch_size))];
        match values.into_iter().find(|(_, value)| *value == Some(0)) {
            Some((name, _)) => Err(RolloutError::Zero { name }.into()),
            None => Ok(()),
        }
    }

    /// Returns the settings of the sampling distribution.
    pub fn sampling(&self) -> SamplingSettings {
        SamplingSettings {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            forbidden: Vec::new(),
        }
    }
}

/// Parses the precision of weights in memory.
///
/// # Errors
/// Returns an error that lists the precisions.
pub fn precision(text: &str) -> Result<WeightPrecision, String> {
    match text {
        "f32" => Ok(WeightPrecision::F32),
        "bf16" => Ok(WeightPrecision::Bf16),
        "q8" => Ok(WeightPrecision::Q8),
        "q4" => Ok(WeightPrecision::Q4),
        _ => Err("expected f32, bf16, q8 or q4".to_owned()),
    }
}
