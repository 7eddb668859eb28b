//! `grpo merge`: merges an adapter into the weights of its model.

use std::path::Path;

use anyhow::Context;
use grpo_model::{Families, WeightPrecision};
use grpo_run::Existing;
use grpo_task::device;
use grpo_task::models::{Trained, note_without_effect, read, write_folder};
use grpo_task::output::{is_same_place, say_aside};
use grpo_task::recorded_folders::{is_model_folder, refuse_inside};
use grpo_task::task::Tasks;

use super::card::{Base, Card, Contents, TrainedBy};
use crate::args::MergeArguments;

pub(crate) fn run(arguments: &MergeArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let MergeArguments { model, adapter, output, dtype, force } = arguments;
    refuse_inside(output, "-o")?;
    let existing = Replaced { command: "merge", kind: "a model folder", is_kind: is_model_folder };
    let existing = existing.check(output, *force, &[model.as_path(), adapter.as_path()])?;
    let precision = WeightPrecision::F32;
    let trained = Trained::Adapter(adapter);
    let loaded = read(model, &tasks.formats(), trained, precision, &device::device()?)?;
    let (base, lora) = loaded.policy.parts();
    let merged = base.merged(lora.context("merging requires an adapter")?);
    note_without_effect(adapter, &loaded.policy);
    let family = loaded.spec.config.family();
    let is_in_transformers = Families::default().iter().any(|known| known == family);
    let card = Card {
        name: &output.file_name().unwrap_or_default().to_string_lossy(),
        base: Some(Base::of(model)),
        trained_by: TrainedBy::of(adapter),
        contents: Contents::Model { is_in_transformers },
        has_chat: loaded.spec.codec.has_chat_template(),
    };
    write_folder(output, existing, Some(&card.to_string()), |folder| {
        Ok(loaded.spec.write(folder, &merged, *dtype)?)
    })
    .with_context(|| format!("cannot merge {} into {}", adapter.display(), model.display()))?;
    say_aside(format_args!("written      {}", output.display()));
    Ok(())
}

/// What a command replaces with `--force`.
pub(super) struct Replaced {
    /// Name of the command.
    pub(super) command: &'static str,
    /// What it writes, with its article.
    pub(super) kind: &'static str,
    /// Returns whether a folder is that.
    pub(super) is_kind: fn(&Path) -> bool,
}

impl Replaced {
    /// Returns whether an existing output folder is replaced. With `force`, only one of the same kind is,
    /// and never one of the inputs.
    pub(super) fn check(
        &self,
        output: &Path,
        force: bool,
        inputs: &[&Path],
    ) -> anyhow::Result<Existing> {
        if !output.exists() {
            return Ok(Existing::Refuse);
        }
        let shown = output.display();
        anyhow::ensure!(
            force,
            "{shown} already exists; choose another folder, or replace it with --force"
        );
        anyhow::ensure!(
            !inputs.iter().any(|input| is_same_place(input, output)),
            "{shown} is an input of the {}; choose another folder for -o",
            self.command
        );
        anyhow::ensure!(
            (self.is_kind)(output) && !output.is_symlink(),
            "{shown} is not {}, so --force does not replace it; choose another folder for -o",
            self.kind
        );
        Ok(Existing::Replace)
    }
}
