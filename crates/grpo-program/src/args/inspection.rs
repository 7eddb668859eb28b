//! Arguments of the self-test and of commands that inspect a run.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo explain runs/molecules --step 10
  grpo explain runs/molecules --step 10 --prompt 3 --sample 7   show its tokens")]
pub(crate) struct ExplainArguments {
    /// Run folder created by `grpo train`
    pub(crate) run: PathBuf,
    /// Step number, starting at 1, as in metrics.jsonl and completions/
    #[arg(long, value_name = "S", help_heading = "Selection")]
    pub(crate) step: u32,
    /// Prompt index within the step, starting at 0; shows its completions token by token
    #[arg(long, value_name = "P", help_heading = "Selection")]
    pub(crate) prompt: Option<u32>,
    /// Completion index within that prompt, starting at 0
    #[arg(long, value_name = "K", requires = "prompt", help_heading = "Selection")]
    pub(crate) sample: Option<u32>,
    /// JSON instead of tables
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo replay runs/molecules --step 10 --prompt 3 --sample 7
  grpo replay runs/molecules --step 10 --batch-size 64   sample the whole step
  grpo replay runs/molecules --step 80 --no-retrain      use a stored policy only

Run it in the folder where the training was started: paths in a configuration are relative to it.")]
pub(crate) struct ReplayArguments {
    /// Run folder created by `grpo train`
    pub(crate) run: PathBuf,
    /// Step number, starting at 1, as in metrics.jsonl and completions/
    #[arg(long, value_name = "S", help_heading = "Selection")]
    pub(crate) step: u32,
    /// Prompt index within the step, starting at 0, as in completions/step-S.parquet
    #[arg(long, value_name = "P", default_value_t = 0, help_heading = "Selection")]
    pub(crate) prompt: u32,
    /// Completion index within its group, starting at 0, as in completions/step-S.parquet
    #[arg(long, value_name = "K", default_value_t = 0, help_heading = "Selection")]
    pub(crate) sample: u32,
    /// Sample the entire step in batches of N completions [default: only this completion]
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub(crate) batch_size: Option<usize>,
    /// Run the program, Python file or server that the run's configuration names as its reward. Only
    /// for run folders that you trust
    #[arg(long, help_heading = "Sampling")]
    pub(crate) run_reward: bool,
    /// Fail instead of retraining if the run did not keep the policy for this step
    #[arg(long, help_heading = "Sampling")]
    pub(crate) no_retrain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo audit runs/molecules
  grpo audit runs/molecules --json | jq .violations

For a run that trained an adapter, run it in the folder where the training was started: the path of the model is relative to
it.")]
pub(crate) struct AuditArguments {
    /// Run folder created by `grpo train`
    pub(crate) run: PathBuf,
    /// One JSON object instead of a table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo report runs/molecules                                write runs/molecules/report.html
  grpo report runs/molecules runs/logp3 -o compared.html    compare two runs")]
pub(crate) struct ReportArguments {
    /// Run folders created by `grpo train`, finished or not
    #[arg(required = true, value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    /// HTML file to write [default: report.html in the folder of a single run]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing file of -o; the report in the folder of the run is always replaced
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo selftest
  grpo selftest --golden my-golden-values --json")]
pub(crate) struct SelftestArguments {
    /// Folder with advantages.json or losses.json, which replace the built-in values, or with model
    /// folders that contain an expected.json file
    #[arg(long, value_name = "FOLDER", help_heading = "Input")]
    pub(crate) golden: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}
