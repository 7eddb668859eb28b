//! `grpo download`: downloads a model, an adapter or files of a data set into the cache of the Hugging
//! Face hub.

use anyhow::Context;
use clap::Args;
use grpo_hub::{DataName, RepoName};
use grpo_task::hub::{download_data, download_model};
use grpo_task::output::say_data;

/// Arguments of `grpo download`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo download Qwen/Qwen3-0.6B
  grpo download Qwen/Qwen3-0.6B@main
  grpo download 'hf://datasets/openai/gsm8k/main/train-*.parquet'

Environment: HF_TOKEN for private and gated models, HF_ENDPOINT for a mirror, HF_HOME or HF_HUB_CACHE for the
folder of the cache, which Python's tools share.")]
pub(crate) struct DownloadArguments {
    /// Model or adapter (org/name, with @revision for another branch, tag or commit), or files of a
    /// data set (hf://datasets/org/name/path, with * in the path for several)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

pub(crate) fn run(arguments: &DownloadArguments) -> anyhow::Result<()> {
    for name in &arguments.names {
        let data = match name.starts_with("hf://datasets/") {
            true => DataName::parse(name)?,
            false => None,
        };
        let snapshot = match data {
            Some(data) => download_data(&data)?,
            None => {
                let repo = RepoName::model(name)?.with_context(|| {
                    format!(
                        "`{name}` is a path or not a name of the hub; expected org/name, or hf://org/name if a folder `org` exists here"
                    )
                })?;
                download_model(&repo)?
            }
        };
        say_data(format_args!("{}", snapshot.folder.display()));
    }
    Ok(())
}
