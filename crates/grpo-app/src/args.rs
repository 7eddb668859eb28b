//! Arguments of the command line.

mod program;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use grpo_model::{StoredAs, WeightPrecision};

use crate::pipeline::PipelineArguments;

pub(crate) use self::program::{Asked, AskedCommand, parse, program};

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
    /// Run a pipeline: train several models in order, each from the results of earlier ones
    Run(PipelineArguments),
    /// Improve a model with GRPO: all of it, or a LoRA adapter
    Train(TrainArguments),
    /// Try a configuration of `grpo train` with a short, careful run, and say whether the long one can begin
    ///
    /// A run of 100 steps in small batches with a low learning rate, under guards that end it. Then a table of its three
    /// stages, and a verdict: whether the reward fell, the KL stayed small and molecules stayed valid, whether steps had
    /// something to learn from, whether the run, taken up again from the checkpoint of three quarters, does the same steps bit
    /// for bit, and whether its files pass `grpo audit`. docs/configuration.md says what it sets and why. The exit code is 0
    /// where nothing speaks against the long run, else 1.
    Trial(TrialArguments),
    /// Train a new model, or go on training one, on molecules or texts (next-token prediction)
    ///
    /// The model of the lowest validation loss is kept; `pretrain.patience` ends a training that gains nothing,
    /// `[pretrain.eval]` shows completions of held-out prompts, and `[pretrain.diversity]` keeps completions unlike one
    /// another. With the section `[masked_lm]` in the configuration an infiller, which says what stands in the blanks of a
    /// text.
    Pretrain(RunArguments),
    /// Say what moved the policy in a step of a run, and why nothing else did
    ///
    /// From the files of the run alone. First in words: why the loss is 0, where it is. Then each group, with what each of
    /// its completions got for it, and how strongly it was pushed: above 0 the rewards made it likelier; the KL pull is what
    /// the penalty for leaving the reference added. Under the tables is what their words mean. With --prompt, token by token.
    Explain(ExplainArguments),
    /// Sample one completion of a run again, and show that it is the recorded one, bit for bit
    ///
    /// A token is a function of seed, step, prompt, sample, position and policy, so that the completion is sampled alone
    /// here, with any number of threads. The policy is the one that the run kept (a checkpoint of the step before, or the
    /// model that it began with); where it kept none, the steps before are trained again, and nothing is written.
    /// The exit code is 0 where ids and log-probabilities are the recorded ones, else 1.
    Replay(ReplayArguments),
    /// Prove from a run's files that it learned from its own policy's completions, at once, each as often as it should
    ///
    /// For each property: what was looked at, and whether it is proven. docs/trust.md says what each means, and what files
    /// cannot prove. The exit code is 1 where a property is violated, else 0.
    Audit(AuditArguments),
    /// Show a run as one HTML page: verdict, curves, events, completions; or several runs beside one another
    ///
    /// The page loads nothing and runs no script. The verdict holds the run against the section `success` of its
    /// configuration, which docs/configuration.md explains; it does not decide the exit code.
    Report(ReportArguments),
    /// Write what a model generates: molecules, one SMILES a line, or completions of prompts as JSON lines
    Sample(SampleArguments),
    /// Score given completions: log-probability and entropy of each token, as JSON lines
    Logprob(LogprobArguments),
    /// Write a model folder with an adapter added into its weights
    Merge(MergeArguments),
    /// Write a model folder with random weights for a config.json
    Init(InitArguments),
    /// Make a tokenizer from texts: byte-level byte pairs, with the special tokens of a chat
    TrainTokenizer(TokenizerArguments),
    /// Prove the mathematics of this program on this machine: TRL's values, f64 loops, difference quotients
    ///
    /// Advantages, losses, gradients and metrics are computed as training computes them, and compared with values that
    /// TRL computed (built in), with the formulas once more in plain f64 loops, and with difference quotients of those.
    /// A table says how far each suite is off; a number out of tolerance is shown below it, and the exit code is 1.
    Selftest(SelftestArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo train configs/molecules/grpo.toml                        the bundled job
  grpo train my.toml --set train.steps=50 --run runs/short      with other settings, into another folder
  grpo train my.toml --set train.steps=50 --check               only look whether the settings are good ones
  grpo train --resume runs/short                                after an interruption, from the newest checkpoint on
  grpo train --resume runs/short --verify                       and show that what was done can be done again

On a terminal, a screen shows curves, completions and events; `q` on it is Ctrl-C. With --plain it is lines.
Ctrl-C (or SIGTERM) ends a run between two steps, with a checkpoint; a second one ends it at once.")]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// Go on from an earlier checkpoint, so that at least the last step is done once more, and end where its numbers and
    /// weights are not what was recorded
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write plain lines, where there would be a screen with curves
    #[arg(long)]
    pub(crate) plain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo trial configs/molecules/grpo.toml        into runs/molecules-trial
  grpo trial my.toml --steps 40 --set optimizer.learning_rate=1e-5
  grpo trial --resume runs/my-trial             after an interruption; else its verdict once more

What a trial leaves behind is a run: `grpo report`, `grpo audit` and `grpo explain` read it.")]
pub(crate) struct TrialArguments {
    /// Configuration file (TOML) of the long run
    #[arg(required_unless_present = "resume")]
    pub(crate) config: Option<PathBuf>,
    /// Change one key, of the configuration or of what a trial sets, e.g. --set train.group_size=8; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,
    /// Steps, 10 or more; the stages and what is done every so many steps are in proportion [default: 100]
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub(crate) steps: Option<u32>,
    /// Folder of the run [default: the configuration's `run`, with -trial behind it]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub(crate) run: Option<PathBuf>,
    /// Where the run folder exists, rename it (nothing is deleted) and start from scratch
    #[arg(long, conflicts_with = "resume")]
    pub(crate) force: bool,
    /// Go on with this trial, from its newest checkpoint that is whole
    #[arg(long, value_name = "RUN", conflicts_with = "config")]
    pub(crate) resume: Option<PathBuf>,
    /// Leave out the check that the run can be taken up again, which does the last quarter of it once more
    #[arg(long)]
    pub(crate) no_resume_check: bool,
    /// Write plain lines, where there would be a screen with curves
    #[arg(long)]
    pub(crate) plain: bool,
}

/// A configuration file, and what to change in it.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Configuration file (TOML); every key is explained in docs/configuration.md
    #[arg(required_unless_present = "resume")]
    pub config: Option<PathBuf>,
    /// Change one key of the configuration, e.g. --set train.steps=50; may be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub set: Vec<String>,
    /// Folder of the run [default: the configuration's `run`]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub run: Option<PathBuf>,
    /// Where the run folder exists, rename it (nothing is deleted) and start from scratch
    #[arg(long, conflicts_with = "resume")]
    pub force: bool,
    /// Resume this run from its newest checkpoint that is whole
    #[arg(long, value_name = "RUN", conflicts_with = "config")]
    pub resume: Option<PathBuf>,
    /// Look for unknown keys and values out of range, and end: no model and no data is read, and nothing is written
    #[arg(long, conflicts_with = "resume")]
    pub check: bool,
}

impl RunArguments {
    /// Returns the configuration file, which clap asks for unless a run is resumed.
    pub fn configuration(&self) -> anyhow::Result<&Path> {
        let missing = "missing argument CONFIG (for example configs/molecules/grpo.toml)";
        self.config.as_deref().context(missing)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo explain runs/molecules --step 10
  grpo explain runs/molecules --step 10 --prompt 3 --sample 7   its tokens")]
pub(crate) struct ExplainArguments {
    /// Folder of a run of `grpo train`
    pub(crate) run: PathBuf,
    /// The step, from 1, as in metrics.jsonl and completions/
    #[arg(long, value_name = "S")]
    pub(crate) step: u32,
    /// One prompt of the step, from 0, with the tokens of its completions
    #[arg(long, value_name = "P")]
    pub(crate) prompt: Option<u32>,
    /// One completion of that prompt, from 0
    #[arg(long, value_name = "K", requires = "prompt")]
    pub(crate) sample: Option<u32>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo replay runs/molecules --step 10 --prompt 3 --sample 7
  grpo replay runs/molecules --step 10 --batch-size 64   among the others of its step
  grpo replay runs/molecules --step 80 --no-retrain      where the run kept the policy

Run it in the folder that the training ran in: paths in a configuration are relative to that.")]
pub(crate) struct ReplayArguments {
    /// Folder of a run of `grpo train`
    pub(crate) run: PathBuf,
    /// The step, from 1, as in metrics.jsonl and completions/
    #[arg(long, value_name = "S")]
    pub(crate) step: u32,
    /// The prompt's place in the step, from 0, as in completions/step-S.parquet
    #[arg(long, value_name = "P", default_value_t = 0)]
    pub(crate) prompt: u32,
    /// The completion's place in its group, from 0, as in completions/step-S.parquet
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub(crate) sample: u32,
    /// Sample the whole step, N completions at the same time, and look at this one [default: this one alone]
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<usize>,
    /// Where the run did not keep the policy of the step, say so instead of training the steps before again
    #[arg(long)]
    pub(crate) no_retrain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo audit runs/molecules
  grpo audit runs/molecules --json | jq .violations

Where an adapter was trained, run it in the folder that the training ran in: the path of its model is relative to that.")]
pub(crate) struct AuditArguments {
    /// Folder of a run of `grpo train`
    pub(crate) run: PathBuf,
    /// Write the findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Folders of runs of `grpo train`, finished or not
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write to this file [default: report.html in the folder of the run, where there is one]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Options of `grpo sample` that all tasks share.
#[derive(Debug, Args)]
pub struct SampleArguments {
    /// Model folder: a bundled one, one from the Hugging Face hub, or `model` in the folder of a run
    #[arg(long, value_name = "FOLDER", default_value = "data/molecules/prior")]
    pub model: PathBuf,
    /// Adapter folder (PEFT's format), or `adapter` in the folder of a run
    #[arg(long, value_name = "FOLDER")]
    pub adapter: Option<PathBuf>,
    /// Text to continue; may be repeated. Without it, what the model says from its beginning mark on
    #[arg(long, value_name = "TEXT")]
    pub prompt: Vec<String>,
    /// Prompts to continue, as JSON lines or Parquet: `prompt` (text, ids or messages) or `prompt_ids`
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompts: Option<PathBuf>,
    /// Send each --prompt through the model's chat template, as what the user says
    #[arg(long, requires = "prompt")]
    pub chat: bool,
    /// The template's switch for thinking before the answer
    #[arg(long, value_name = "BOOL")]
    pub thinking: Option<bool>,
    /// Molecules to draw, or completions of each prompt [default: 1000 molecules, or 1 completion]
    #[arg(short = 'n', long = "number", value_name = "N")]
    pub number: Option<u32>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Divides the logits; below 1 for likelier molecules, above 1 for bolder ones
    #[arg(long, default_value_t = 1.0)]
    pub temperature: f32,
    /// Draw from the K most probable tokens only
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Draw from the fewest most probable tokens that have probability P together
    #[arg(long, value_name = "P")]
    pub top_p: Option<f32>,
    /// Draw from the tokens with at least this part of the largest probability
    #[arg(long, value_name = "PART")]
    pub min_p: Option<f32>,
    /// Above 1 for fewer tokens that the molecule has already, below 1 for more of them
    #[arg(long, value_name = "PENALTY")]
    pub repetition_penalty: Option<f32>,
    /// Longest molecule or completion in tokens, its end mark among them [default: what the model can see, at
    /// most 256 for completions of prompts]
    #[arg(long, value_name = "N")]
    pub max_new_tokens: Option<usize>,
    /// End a completion with the token that completes this text, which stays part of it; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// How the matrices of the model's blocks are held: f32, bf16, q8 or q4 (q4 is coarse)
    #[arg(long, value_name = "PRECISION", default_value = "f32", value_parser = precision)]
    pub weights: WeightPrecision,
    /// Molecules or completions drawn at the same time
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub batch_size: usize,
    /// Write to this file, compressed where it ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LogprobArguments {
    /// Model folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) model: PathBuf,
    /// Adapter folder (PEFT's format)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) adapter: Option<PathBuf>,
    /// JSON lines or Parquet: `prompt` and `completion` (text or ids), or `prompt_ids` and `completion_ids`. Ids need
    /// no tokenizer
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// Divides the logits
    #[arg(long, default_value_t = 1.0)]
    pub(crate) temperature: f32,
    /// Completions scored at the same time; decides memory
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) batch_size: usize,
    /// How the matrices of the model's blocks are held: f32, bf16, q8 or q4 (q4 is coarse)
    #[arg(long, value_name = "PRECISION", default_value = "f32", value_parser = precision)]
    pub(crate) weights: WeightPrecision,
    /// The chat template's switch for thinking before the answer
    #[arg(long, value_name = "BOOL")]
    pub(crate) thinking: Option<bool>,
    /// Also write the log-probability of every token of the vocabulary at each position, as Parquet (.parquet)
    #[arg(long, value_name = "FILE")]
    pub(crate) full: Option<PathBuf>,
    /// Write to this file, compressed where it ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// Model folder that the adapter was trained on
    #[arg(long, value_name = "FOLDER")]
    pub(crate) model: PathBuf,
    /// Adapter folder (PEFT's format)
    #[arg(long, value_name = "FOLDER")]
    pub(crate) adapter: PathBuf,
    /// Folder to write, which must not exist
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Numbers of the weights: f32, or bf16 for half the size
    #[arg(long, value_name = "NUMBERS", default_value = "f32", value_parser = stored_as)]
    pub(crate) dtype: StoredAs,
}

#[derive(Debug, Args)]
pub(crate) struct InitArguments {
    /// The config.json of a family that is known
    pub(crate) config: PathBuf,
    /// Folder to write, which must not exist
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Seed of the weights
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Numbers of the weights: f32, or bf16 for half the size
    #[arg(long, value_name = "NUMBERS", default_value = "f32", value_parser = stored_as)]
    pub(crate) dtype: StoredAs,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizerArguments {
    /// JSON lines with the texts
    #[arg(long, value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// A key of each record whose text is taken; may be repeated
    #[arg(long = "key", value_name = "KEY", default_value = "text")]
    pub(crate) keys: Vec<String>,
    /// A text that counts once with each record, such as the instruction in front of it; may be repeated
    #[arg(long = "with", value_name = "TEXT")]
    pub(crate) with: Vec<String>,
    /// Ids of the vocabulary, the 256 bytes and 3 special tokens among them
    #[arg(long, value_name = "N")]
    pub(crate) vocabulary: usize,
    /// Folder for tokenizer.json and tokenizer_config.json, which must not have them yet
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
}

fn precision(text: &str) -> Result<WeightPrecision, String> {
    match text {
        "f32" => Ok(WeightPrecision::F32),
        "bf16" => Ok(WeightPrecision::Bf16),
        "q8" => Ok(WeightPrecision::Q8),
        "q4" => Ok(WeightPrecision::Q4),
        _ => Err("expected f32, bf16, q8 or q4".to_owned()),
    }
}

fn stored_as(text: &str) -> Result<StoredAs, String> {
    match text {
        "f32" => Ok(StoredAs::F32),
        "bf16" => Ok(StoredAs::Bf16),
        _ => Err("expected f32 or bf16".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct SelftestArguments {
    /// Folder with advantages.json or losses.json, to be read instead of what is built in, or with model folders that have
    /// an expected.json
    #[arg(long, value_name = "FOLDER")]
    pub(crate) golden: Option<PathBuf>,
    /// Device whose tensors are proved, among those built in [default: the one that trains]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
}
