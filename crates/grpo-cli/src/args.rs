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
    /// Improve a model with GRPO
    Train(RunArguments),
    /// Train a new model, or go on training one, on a file of molecules (next-token prediction)
    Pretrain(RunArguments),
    /// Write molecules that a model generates, one SMILES a line
    Sample(SampleArguments),
    /// Describe each molecule of a file as one row of CSV
    ///
    /// hba, hbd, rotatable, aromatic_rings and alerts are counted as QED counts them (RDKit's QED.properties), which
    /// is not what RDKit's descriptors of similar names count.
    Describe(DescribeArguments),
    /// Prove the mathematics of this program on this machine: TRL's values, f64 loops, difference quotients
    ///
    /// Advantages, losses, gradients and metrics are computed as training computes them, and compared with values that
    /// TRL computed (built in), with the formulas once more in plain f64 loops, and with difference quotients of those.
    /// A table says how far each suite is off; a number out of tolerance is shown below it, and the exit code is 1.
    Selftest(SelftestArguments),
}

/// A configuration file, and what to change in it.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Configuration file (TOML); every key is explained in docs/configuration.md
    pub(crate) config: PathBuf,
    /// Change one key of the configuration, e.g. --set train.steps=50; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Folder of the run [default: the configuration's `run`]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) run: Option<PathBuf>,
    /// Where the run folder exists, rename it (nothing is deleted) and begin anew
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SampleArguments {
    /// Model folder: a bundled one, or `model` in the folder of a run
    #[arg(long, value_name = "FOLDER", default_value = "data/molecules/prior")]
    pub(crate) model: PathBuf,
    /// Molecules to draw
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 1000)]
    pub(crate) number: u32,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Divides the logits; below 1 for likelier molecules, above 1 for bolder ones
    #[arg(long, default_value_t = 1.0)]
    pub(crate) temperature: f32,
    /// Draw from the K most probable tokens only
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Draw from the fewest most probable tokens that have probability P together
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<f32>,
    /// Draw from the tokens with at least this part of the largest probability
    #[arg(long, value_name = "PART")]
    pub(crate) min_p: Option<f32>,
    /// Above 1 for fewer tokens that the molecule has already, below 1 for more of them
    #[arg(long, value_name = "PENALTY")]
    pub(crate) repetition_penalty: Option<f32>,
    /// Longest molecule in tokens, its end mark among them [default: what the model can see]
    #[arg(long, value_name = "N")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Molecules drawn at the same time
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) batch_size: usize,
    /// Write only valid molecules, each once, in canonical form
    #[arg(long)]
    pub(crate) distinct: bool,
    /// Count which molecules are new against this file; with --distinct, write only those
    #[arg(long, value_name = "FILE")]
    pub(crate) not_in: Option<PathBuf>,
    /// Write to this file, compressed where it ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeArguments {
    /// Molecules: .smi, .smi.gz, .csv or .csv.gz
    pub(crate) file: PathBuf,
    /// Column of the SMILES in a CSV file [default: smiles, canonical_smiles or molecule]
    #[arg(long, value_name = "NAME")]
    pub(crate) smiles_column: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SelftestArguments {
    /// Folder with advantages.json, losses.json or both, to be read instead of what is built in
    #[arg(long, value_name = "FOLDER")]
    pub(crate) golden: Option<PathBuf>,
    /// Device whose tensors are proved, among those built in [default: the one that trains]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}
