//! Arguments of commands that use, score or create models.

use std::path::PathBuf;

use clap::Args;
use grpo_gguf::StoredType;
use grpo_model::{StoredAs, WeightPrecision};
use grpo_task::args::{MEMORY, precision};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo logprob --model models/Qwen3-0.6B --input examples.jsonl -o scores.jsonl
  grpo logprob --model data/molecules/prior --input molecules.jsonl --full distributions.parquet")]
pub(crate) struct LogprobArguments {
    /// Model folder, GGUF file, or a name of the Hugging Face hub (org/name)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) model: PathBuf,
    /// Adapter folder (PEFT format)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) adapter: Option<PathBuf>,
    /// Completion file (JSON lines or Parquet) with `prompt` and `completion` (text or ids), or
    /// with `prompt_ids` and `completion_ids`; ids need no tokenizer
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) input: PathBuf,
    /// Enable or disable the thinking mode of the chat template
    #[arg(long, value_name = "BOOL", help_heading = "Input")]
    pub(crate) thinking: Option<bool>,
    /// Sampling temperature; logits are divided by it
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true, help_heading = "Scoring")]
    pub(crate) temperature: f32,
    /// Precision of the weight matrices in memory: f32, bf16, q8 or q4 (coarse)
    #[arg(long, value_name = "PRECISION", default_value = "f32", value_parser = precision, help_heading = MEMORY)]
    pub(crate) weights: WeightPrecision,
    /// Number of completions scored in parallel
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = MEMORY)]
    pub(crate) batch_size: usize,
    /// File to write, compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Parquet file for the log-probabilities of the entire vocabulary at each position
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) full: Option<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo merge --model models/Qwen3-0.6B --adapter runs/text/adapter -o models/mine
  grpo merge --model models/Qwen3-0.6B --adapter runs/text/adapter -o models/mine --dtype bf16

Weights that would not be finite are refused. README.md is a model card: base model, licence, data, reward,
evaluation and how to load the model, as far as they are known.")]
pub(crate) struct MergeArguments {
    /// Model on which the adapter was trained: a folder, a GGUF file, or a name of the Hugging Face hub
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) model: PathBuf,
    /// Adapter folder (PEFT format)
    #[arg(long, value_name = "FOLDER|NAME", help_heading = "Input")]
    pub(crate) adapter: PathBuf,
    /// Model folder to create
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: PathBuf,
    /// Data type of the weights: f32, or bf16 for half the size
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = stored_as, help_heading = "Output")]
    pub(crate) dtype: StoredAs,
    /// Replace an existing model folder
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo export runs/text --gguf q8_0 -o exported
  grpo export runs/text --gguf f16 --adapter-only
  grpo export Qwen/Qwen3-0.6B --gguf f16
  ollama create mine -f exported/Modelfile

Without --adapter-only, an adapter is merged into its base model.")]
pub(crate) struct ExportArguments {
    /// Run folder, model or adapter folder, GGUF file, or a name of the Hugging Face hub (org/name)
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// How matrices are stored: q8_0 (8 bits), f16, bf16 or f32
    #[arg(long, value_name = "TYPE", value_parser = gguf_type, help_heading = "Output")]
    pub(crate) gguf: (StoredType, String),
    /// Write only the adapter, for use with its base model
    #[arg(long, help_heading = "Output")]
    pub(crate) adapter_only: bool,
    /// Folder to create, with the GGUF file, a Modelfile for Ollama and a model card [default: next to RUN, e.g.
    /// runs/text-q8_0]
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing exported folder
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
}

/// Parses the type of a GGUF file and keeps its name.
fn gguf_type(name: &str) -> Result<(StoredType, String), String> {
    let stored = StoredType::from_name(name).ok_or("expected q8_0, f16, bf16 or f32")?;
    Ok((stored, name.to_owned()))
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo init my-model/config.json -o models/random
  grpo init models/Qwen3-0.6B/config.json -o models/random --seed 7 --dtype bf16

A tokenizer next to the config.json is copied.")]
pub(crate) struct InitArguments {
    /// config.json of a supported model family
    pub(crate) config: PathBuf,
    /// Model folder to create; must not exist
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: PathBuf,
    /// Seed for the random weights
    #[arg(long, default_value_t = 42, help_heading = "Output")]
    pub(crate) seed: u64,
    /// Data type of the weights: f32, or bf16 for half the size
    #[arg(long, value_name = "DTYPE", default_value = "f32", value_parser = stored_as, help_heading = "Output")]
    pub(crate) dtype: StoredAs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo train-tokenizer --input texts.jsonl --vocabulary 4096 -o my-model
  grpo train-tokenizer --input replies.jsonl --key tweet --key reply --vocabulary 4096 -o my-model")]
pub(crate) struct TokenizerArguments {
    /// Text file (JSON lines)
    #[arg(long, value_name = "FILE", help_heading = "Input")]
    pub(crate) input: PathBuf,
    /// Key of the text in each record; repeatable
    #[arg(long = "key", value_name = "KEY", default_value = "text", help_heading = "Input")]
    pub(crate) keys: Vec<String>,
    /// Text counted once per record, such as the instruction that precedes it; repeatable
    #[arg(long = "with", value_name = "TEXT", help_heading = "Input")]
    pub(crate) with: Vec<String>,
    /// Vocabulary size, including the 256 bytes and 3 special tokens
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) vocabulary: usize,
    /// Folder for tokenizer.json and tokenizer_config.json, which must not exist yet
    #[arg(short, long, value_name = "FOLDER", help_heading = "Output")]
    pub(crate) output: PathBuf,
}

fn stored_as(text: &str) -> Result<StoredAs, String> {
    match text {
        "f32" => Ok(StoredAs::F32),
        "bf16" => Ok(StoredAs::Bf16),
        _ => Err("expected f32 or bf16".to_owned()),
    }
}
