//! `grpo families`: the model families that can be loaded.

use clap::Args;
use grpo_task::output::{say, say_data, table};
use grpo_task::task::Tasks;
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo families
  grpo families --json | jq -r .model_type")]
pub(crate) struct FamiliesArguments {
    /// One JSON object per line instead of a table
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    model_type: &'static str,
    models: &'static str,
    /// What its models are instead of causal language models.
    not_causal: Option<&'static str>,
    refuses: &'static str,
}

pub(crate) fn run(arguments: &FamiliesArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let formats = tasks.formats();
    let listed = formats.families.iter().map(|kind| Listed {
        model_type: kind.name,
        models: kind.models,
        not_causal: kind.not_causal,
        refuses: kind.refuses,
    });
    if arguments.json {
        for family in listed {
            say_data(format_args!("{}", serde_json::to_string(&family)?));
        }
        return Ok(());
    }
    // Models of tasks are made by the task.
    let known = listed.filter(|family| !family.models.is_empty());
    let row =
        |family: Listed| [family.model_type, family.models, family.refuses].map(str::to_owned);
    say(format_args!("{}", table(["model_type", "models", "refused"], known.map(row), 0..0)));
    Ok(())
}
