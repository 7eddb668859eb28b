//! Arguments of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Group Relative Policy Optimization in one program.
#[derive(Debug, Parser)]
#[command(name = "grpo", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Threads to compute with; results do not depend on it [default: one for each core]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train a new model on a file of molecules (next-token prediction)
    Pretrain(RunArguments),
}

/// A configuration file, and what to change in it.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Configuration file (TOML); every key is explained in docs/configuration.md
    pub(crate) config: PathBuf,
    /// Change one key of the configuration, e.g. --set train.steps=50; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Folder of the run; must not exist yet [default: the configuration's `run`]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) run: Option<PathBuf>,
}
