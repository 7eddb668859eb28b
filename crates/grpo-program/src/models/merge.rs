//! `grpo merge`: merges an adapter into the weights of its model.

use anyhow::Context;
use grpo_model::WeightPrecision;
use grpo_run::Existing;
use grpo_task::device;
use grpo_task::models::{Trained, note_without_effect, read, write_model};
use grpo_task::output::{is_same_place, say_aside};
use grpo_task::recorded_folders::{is_model_folder, refuse_inside};
use grpo_task::task::Tasks;

use crate::args::MergeArguments;

pub(crate) fn run(arguments: &MergeArguments, tasks: &Tasks) -> anyhow::Result<()> {
    refuse_inside(&arguments.output, "-o")?;
    let existing = replaced(arguments)?;
    let trained = Trained::Adapter(&arguments.adapter);
    let precision = WeightPrecision::F32;
    let loaded = read(&arguments.model, &tasks.formats(), trained, precision, &device::device()?)?;
    let (base, adapter) = loaded.policy.parts();
    let merged = base.merged(adapter.context("merging requires an adapter")?);
    note_without_effect(&arguments.adapter, &loaded.policy);
    let written = write_model(&arguments.output, existing, &loaded.spec, &merged, arguments.dtype);
    written.with_context(|| {
        format!("cannot merge {} into {}", arguments.adapter.display(), arguments.model.display())
    })?;
    say_aside(format_args!("written      {}", arguments.output.display()));
    Ok(())
}

/// Returns whether an existing output folder is replaced. With `--force`, only a model is, and never
/// one of the inputs.
fn replaced(arguments: &MergeArguments) -> anyhow::Result<Existing> {
    let output = &arguments.output;
    if !output.exists() {
        return Ok(Existing::Refuse);
    }
    anyhow::ensure!(
        arguments.force,
        "{} already exists; choose another folder, or replace it with --force",
        output.display()
    );
    let is_input = [&arguments.model, &arguments.adapter]
        .into_iter()
        .any(|input| is_same_place(input, output));
    anyhow::ensure!(
        !is_input,
        "{} is an input of the merge; choose another folder for -o",
        output.display()
    );
    anyhow::ensure!(
        is_model_folder(output) && !output.is_symlink(),
        "{} is not a model folder, so --force does not replace it; choose another folder for -o",
        output.display()
    );
    Ok(Existing::Replace)
}
