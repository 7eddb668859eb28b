//! Arguments of commands that train.

use std::path::PathBuf;

use clap::Args;
use grpo_task::args::RunArguments;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo train configs/molecules/grpo.toml                        train the bundled molecule model
  grpo train my.toml --set train.steps=50 --run runs/short      change a setting and the run folder
  grpo train my.toml --set train.steps=50 --check               only check the configuration
  grpo train --resume runs/short                                resume from the newest checkpoint
  mpirun -n 4 grpo train my.toml                                train as 4 processes (docs/cluster.md)")]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    pub(crate) run: RunArguments,
    /// With --resume: repeat at least the last step, and fail if its metrics or weights differ from
    /// the recorded ones
    #[arg(long, help_heading = "Run")]
    pub(crate) verify: bool,
    /// With --resume: run the program, Python file or server that the run's configuration names as
    /// its reward. Only for run folders that you trust
    #[arg(long, help_heading = "Run")]
    pub(crate) run_reward: bool,
    /// With --resume: URL of a vLLM server, if they have changed; repeatable
    #[arg(long, value_name = "URL", help_heading = "Run")]
    pub(crate) rollout_url: Vec<String>,
    /// Plain progress lines instead of the live screen
    #[arg(long, help_heading = "Display")]
    pub(crate) plain: bool,
    /// With mpirun: seconds to wait for another process before ending the run; longer than
    /// train.reward_time_limit
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds, help_heading = "Run")]
    pub(crate) rank_time_limit: f64,
}

/// Parses a time limit.
fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    number.ok_or_else(|| "expected a number of seconds from 0.001 to 1000000".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo trial configs/molecules/grpo.toml        write to runs/molecules-trial
  grpo trial my.toml --steps 40 --set optimizer.learning_rate=1e-5
  grpo trial --resume runs/my-trial             resume, or show the verdict again

A trial is a run: `grpo report`, `grpo audit` and `grpo explain` read it.")]
pub(crate) struct TrialArguments {
    /// Configuration file (TOML) of the long run
    #[arg(required_unless_present = "resume")]
    pub(crate) config: Option<PathBuf>,
    /// Value for a configuration or trial key, e.g. --set train.group_size=8; repeatable
    #[arg(
        long,
        value_name = "KEY=VALUE",
        conflicts_with = "resume",
        help_heading = "Configuration"
    )]
    pub(crate) set: Vec<String>,
    /// Number of steps, at least 10; stages and intervals scale with it [default: 20]
    #[arg(long, value_name = "N", conflicts_with = "resume", help_heading = "Configuration")]
    pub(crate) steps: Option<u32>,
    /// Run folder [default: configuration key `run`, plus -trial]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume", help_heading = "Run")]
    pub(crate) run: Option<PathBuf>,
    /// Rename an existing run folder and start from scratch; nothing is deleted
    #[arg(long, conflicts_with = "resume", help_heading = "Run")]
    pub(crate) force: bool,
    /// Resume the trial in this run folder from its newest complete checkpoint
    #[arg(long, value_name = "RUN", conflicts_with = "config", help_heading = "Run")]
    pub(crate) resume: Option<PathBuf>,
    /// With --resume: run the program, Python file or server that the run's configuration names as
    /// its reward. Only for run folders that you trust
    #[arg(long, help_heading = "Run")]
    pub(crate) run_reward: bool,
    /// Skip the resume check, which repeats the last quarter of the steps
    #[arg(long, help_heading = "Run")]
    pub(crate) no_resume_check: bool,
    /// Plain progress lines instead of the live screen
    #[arg(long, help_heading = "Display")]
    pub(crate) plain: bool,
}
