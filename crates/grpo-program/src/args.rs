//! Command-line arguments.

pub(crate) mod completions;
mod import;
mod inspection;
pub(crate) mod man;
mod models;
mod program;
mod training;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use grpo_task::args::{RunArguments, SampleArguments};
use grpo_task::device::DeviceName;

pub(crate) use self::import::ImportTrlArguments;
pub(crate) use self::inspection::{
    AuditArguments, ExplainArguments, ReplayArguments, ReportArguments, SelftestArguments,
};
pub(crate) use self::models::{
    ExportArguments, InitArguments, LogprobArguments, MergeArguments, TokenizerArguments,
};
pub(crate) use self::program::{Asked, AskedCommand, parse, program};
pub(crate) use self::training::{TrainArguments, TrialArguments};
use crate::evaluate::compare::CompareArguments;
use crate::evaluate::dynamics::DynamicsArguments;
use crate::evaluate::eval::EvalArguments;
use crate::evaluate::judge::JudgeArguments;
use crate::evaluate::score::ScoreArguments;
use crate::inspect::adapter_layers::AdapterLayersArguments;
use crate::inspect::attention::AttentionArguments;
use crate::inspect::devices::DevicesArguments;
use crate::inspect::families::FamiliesArguments;
use crate::models::download::DownloadArguments;
use crate::orchestrate::pipeline::PipelineArguments;
use crate::orchestrate::sweep::SweepArguments;

/// Heading for the options shared by all commands.
const GLOBAL: &str = "Global options";

/// Train molecule generators and language models with GRPO (Group Relative Policy Optimization).
#[derive(Debug, Parser)]
#[command(name = "grpo", version, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Number of compute threads; does not affect results [default: one per core]
    #[arg(long, global = true, value_name = "N", help_heading = GLOBAL)]
    pub(crate) threads: Option<usize>,
    /// Errors only: no progress, tables or summaries
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Compute device: cpu, cuda:N or wgpu:N, see `grpo devices` [default: the recorded device for
    /// --resume and replay, otherwise a GPU if the program was built for one, otherwise cpu]
    #[arg(long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) device: Option<DeviceName>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a pipeline of several training stages
    ///
    /// Reuses finished stages and resumes an interrupted one. Once a stage has to run, all later
    /// stages run as well, because they depend on its results.
    Run(PipelineArguments),
    /// Train a model with GRPO
    ///
    /// Trains all weights or a LoRA adapter, depending on the configuration. On a terminal, a live
    /// screen shows curves, completions and events; press `q` to stop the run. Ctrl-C or SIGTERM
    /// stops the run after the current step and writes a checkpoint; a second one stops it
    /// immediately.
    Train(TrainArguments),
    /// Test a training configuration with a short run
    ///
    /// Takes the first 20 steps of the configuration, with its batches, learning rate and guards. The
    /// verdict checks that the reward did not fall, the KL stayed small, samples
    /// stayed valid and rewards differed within groups. It also checks that resuming from the
    /// checkpoint three quarters of the way through reproduces the remaining steps bit for bit, and
    /// that the run passes `grpo audit`. The exit code is 0 if the verdict is to go ahead,
    /// otherwise 1. See docs/configuration.md for the keys that a trial sets and why.
    Trial(TrialArguments),
    /// Train a model on molecules or text with a supervised loss
    ///
    /// Trains a new model or continues training an existing one by next-token prediction. With a
    /// `[masked_lm]` section, trains an infiller, which fills blanks. Keeps the model with the
    /// lowest validation loss. `pretrain.patience` stops a run that no longer improves,
    /// `[pretrain.eval]` shows completions of held-out prompts, and `[pretrain.diversity]` rewards
    /// diverse completions.
    #[command(after_help = "Examples:
  grpo pretrain configs/molecules/finetune.toml --set data.file=my.smi
  grpo pretrain --resume runs/molecules-finetuned")]
    Pretrain(RunArguments),
    /// Explain what moved the policy in one step
    ///
    /// Reads only the files recorded by the run. If the loss is 0, the output starts with the
    /// reason. It then lists each group with the reward and advantage of each completion and how
    /// strongly the step pushed it: above 0, the rewards made the completion more likely. The KL
    /// pull is the contribution of the KL penalty. With --prompt, every token is shown.
    Explain(ExplainArguments),
    /// Sample a recorded completion again and compare the results
    ///
    /// Every token is a function of seed, step, prompt, sample, position and policy, so a single
    /// completion can be sampled again, with any number of threads. The policy comes from the
    /// checkpoint before the step or from the initial model. If the run kept neither, the preceding
    /// steps are retrained without writing anything. The exit code is 0 if token ids and
    /// log-probabilities match the recorded ones, otherwise 1.
    Replay(ReplayArguments),
    /// Check that a run trained on its own policy's completions
    ///
    /// Lists each property with its evidence and whether it is proven. The main properties are that
    /// completions come from the current policy and that each is used as often as it should be. See
    /// docs/trust.md for all properties and for what files cannot prove. The exit code is 1 if a
    /// property is violated, otherwise 0.
    Audit(AuditArguments),
    /// Write an HTML report on one or more runs
    ///
    /// The page contains the verdict, curves, events and completions, in a single file without
    /// external resources. The verdict compares the run with the `[success]` section of its
    /// configuration and does not affect the exit code.
    Report(ReportArguments),
    /// Sample molecules or completions from a model
    Sample(SampleArguments),
    /// Compute metrics of generated text, or evaluate a model
    ///
    /// With --model, samples completions of held-out prompts, scores them with the reward of a
    /// configuration, and shows the mean reward with its standard error over the prompts, Pass@k and the
    /// accuracy of majority votes. Otherwise, reads files:
    /// what `grpo sample` writes, recorded completions, and outputs of other programs: TRL's
    /// completions (Parquet), REINVENT 4's results (CSV), SMILES files. The same file gives the same
    /// metrics, always. Intervals are 95 % bootstrap intervals over prompts. docs/metrics.md
    /// describes each metric.
    Eval(EvalArguments),
    /// Compute the reward of completions, by component
    ///
    /// Writes a CSV table with one row per completion: the reward and each of its components, before and
    /// after its transform, or the reason why there is none. Use it to check a reward before training.
    /// The keys of a record are what the reward reads, e.g. the tweet or the answer.
    Score(ScoreArguments),
    /// Compare methods by the metrics of `grpo eval`
    ///
    /// Each method has one file of generated text per seed. Metrics are averaged over seeds and
    /// tested over prompts, which all files must share. The Pareto front shows which methods are not
    /// beaten in both quality and diversity.
    Compare(CompareArguments),
    /// Measure what a LoRA adapter changes in each layer
    ///
    /// For each adapted layer: norms of A, B and of the update, effective rank and the largest
    /// singular values. Two adapters of the same model are compared.
    #[command(name = "adapter-layers")]
    AdapterLayers(AdapterLayersArguments),
    /// Let a language model compare or rate answers
    ///
    /// Sends pairs of answers to the same prompts to an OpenAI-compatible endpoint, in both orders, and
    /// counts wins. With one file, each answer gets a score from 1 to 10.
    Judge(JudgeArguments),
    /// Show diversity over the steps of a run
    ///
    /// Computes metrics of the completions that a run recorded, step by step. Several runs are
    /// consecutive phases of one training process, such as a supervised phase and GRPO.
    Dynamics(DynamicsArguments),
    /// Draw the attention maps of a text
    Attention(AttentionArguments),
    /// Train with several values and seeds, and compare the results
    ///
    /// Trains a configuration once for each combination of values and each seed, samples from each
    /// model, and compares the combinations. Finished runs are kept, and an interrupted one is
    /// resumed.
    Sweep(SweepArguments),
    /// Score completions: log-probability and entropy of each token
    Logprob(LogprobArguments),
    /// Merge an adapter into the weights of its model
    Merge(MergeArguments),
    /// Download a model or data from the Hugging Face hub
    ///
    /// Commands that are given a name download it themselves. This command does so ahead, e.g. before a
    /// job without a network, and takes the newest commit. Prints the folder of the files. An interrupted
    /// download is resumed, and each file is checked by its hash.
    Download(DownloadArguments),
    /// Write a model or adapter as a GGUF file for llama.cpp and Ollama
    ///
    /// Writes a folder with the GGUF file (families llama, qwen2 and qwen3), a Modelfile, from which
    /// `ollama create` makes a model, and a model card. The tokenizer and the chat template are in the file.
    Export(ExportArguments),
    /// Create a model folder with random weights from a config.json
    Init(InitArguments),
    /// Train a tokenizer (byte-level BPE with chat tokens) on text
    TrainTokenizer(TokenizerArguments),
    /// Convert a configuration from TRL's GRPO trainer
    ///
    /// Writes a configuration for `grpo train` and prints how each key was handled: converted,
    /// unset with a different default here, or without a counterpart, with the reason or a remedy.
    /// TRL defaults that differ from grpo's are written out, so that the run trains in the same
    /// way.
    #[command(name = "import-trl")]
    ImportTrl(ImportTrlArguments),
    /// List the devices that can compute, and why the others cannot
    ///
    /// Each device is opened and computes a small product. The program only has the backends that it
    /// was built for.
    Devices(DevicesArguments),
    /// List the model families that can be loaded, and what each refuses
    ///
    /// A model belongs to the family that `model_type` in its config.json names.
    Families(FamiliesArguments),
    /// Verify this program's mathematics on this machine
    ///
    /// Computes advantages, losses, gradients and metrics with the same code as training. Compares
    /// them with built-in values from TRL, with the formulas in plain f64 loops, and with finite
    /// differences. Prints a table with the largest error of each suite. The exit code is 1 if a
    /// value is out of tolerance.
    Selftest(SelftestArguments),
    /// Print a shell completion script
    Completions(CompletionsArguments),
    /// Write a man page for each command
    Man(ManArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo completions bash > ~/.local/share/bash-completion/completions/grpo
  grpo completions fish > ~/.config/fish/completions/grpo.fish")]
pub(crate) struct CompletionsArguments {
    /// Shell to generate the script for
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo man ~/.local/share/man/man1
  grpo man pages && man pages/grpo-train.1")]
pub(crate) struct ManArguments {
    /// Folder for grpo.1, grpo-train.1 and so on; existing pages are overwritten
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

impl Command {
    /// Returns the options that name models and adapters: folders, or names of the hub.
    pub(crate) fn models(&mut self) -> Vec<&mut PathBuf> {
        let (model, adapter) = match self {
            Self::Sample(SampleArguments { model, adapter, .. })
            | Self::Logprob(LogprobArguments { model, adapter, .. })
            | Self::Attention(AttentionArguments { model, adapter, .. }) => {
                (model, adapter.as_mut())
            }
            Self::Merge(MergeArguments { model, adapter, .. }) => (model, Some(adapter)),
            Self::Export(ExportArguments { run, .. }) => (run, None),
            Self::Eval(arguments) => return arguments.models(),
            _ => return Vec::new(),
        };
        std::iter::once(model).chain(adapter).collect()
    }
}
