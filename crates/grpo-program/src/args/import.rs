//! Arguments of commands that convert files from other programs.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo import-trl qwen.yaml -o qwen.toml
  grpo import-trl training_args.json --processes 8 --prompts 7473")]
pub(crate) struct ImportTrlArguments {
    /// Configuration for `trl grpo` (YAML), or GRPOConfig as JSON
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Number of TRL processes; multiplies the batch size [default: 1, or as recorded in JSON]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Input")]
    pub(crate) processes: Option<u64>,
    /// Number of prompts in the data set, to convert epochs to steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000), help_heading = "Input")]
    pub(crate) prompts: Option<u64>,
    /// File to write [default: CONFIG with the extension .toml]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
    /// Print the report as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
