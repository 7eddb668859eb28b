//! Checkpoints of training runs.
//!
//! ```text
//! checkpoints/step-N/
//!   config.json, model.safetensors, …    the model: a model folder, or an adapter folder
//!   trainer/state.json                   steps, controllers, evaluations
//!   trainer/optimizer.safetensors        AdamW's moving averages of each parameter
//!   trainer/reference.safetensors        the reference, if it differs from the initial one
//!   manifest.json                        size and SHA-256 of each file
//! ```
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

mod section;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use burn::module::Module;
use burn::tensor::TensorData;
use grpo_data::regular_file;
use grpo_extensions::{ArchivedCall, ScoreArchive, archived_calls};
use grpo_model::{
    Adapted, AdapterFolder, LanguageModel, ModelFolder, Policy, StoredAs, StoredTensors,
    read_tensors,
};
use grpo_run::{Checkpoint, RunFolder, VerifiedFolder};
use grpo_train::{SavedState, StateNumbers, TrainerState, Training};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::section::CheckpointSection;
use crate::models::Writer;
use crate::run_log::Announce;

const FOLDER: &str = "trainer";
const STATE: &str = "state.json";
const MOMENTS: &str = "optimizer.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// Writes the checkpoint of a step. `model` writes the model files, `numbers` and the tensors hold
/// the state of the trainer.
pub(crate) fn write_state(
    run: &RunFolder,
    step: u64,
    model: impl FnOnce(&Path) -> anyhow::Result<()>,
    numbers: &impl Serialize,
    moments: &StoredTensors,
    reference: Option<&StoredTensors>,
    announce: Announce<'_>,
) -> anyhow::Result<Checkpoint> {
    let state = serde_json::to_string_pretty(numbers).context("cannot write the trainer state")?;
    let fill = |folder: &Path| {
        model(folder)?;
        let folder = folder.join(FOLDER);
        let failed = || format!("cannot write `{}`", folder.display());
        std::fs::create_dir(&folder).with_context(failed)?;
        std::fs::write(folder.join(STATE), state + "\n").with_context(failed)?;
        moments.write(&folder.join(MOMENTS), StoredAs::F32, None)?;
        if let Some(reference) = reference {
            reference.write(&folder.join(REFERENCE), StoredAs::F32, None)?;
        }
        anyhow::Ok(())
    };
    run.write_checkpoint(step, fill, |manifest| announce(step, manifest))
}

/// Reads the trainer state and the optimizer's moving averages.
pub(crate) fn read_state<N: DeserializeOwned>(
    checkpoint: &VerifiedFolder,
) -> anyhow::Result<(N, BTreeMap<String, TensorData>)> {
    let moments = read_tensors(&checkpoint.path().join(FOLDER).join(MOMENTS))?;
    Ok((read_numbers(checkpoint)?, moments))
}

/// Reads the trainer state without tensors.
fn read_numbers<N: DeserializeOwned>(checkpoint: &VerifiedFolder) -> anyhow::Result<N> {
    let state = checkpoint.path().join(FOLDER).join(STATE);
    let text = regular_file::read_data(&state)
        .with_context(|| format!("cannot read `{}`", state.display()))?;
    serde_json::from_slice(&text).with_context(|| {
        format!("`{}` is not a trainer state written by this program", state.display())
    })
}

/// Returns the distinct completions that the reward of a run has scored, in the order in which it
/// scored them.
///
/// # Errors
/// Returns an error if the run has no checkpoint, or if a file cannot be read.
pub fn archive_of(run: &RunFolder) -> anyhow::Result<Vec<ArchivedCall>> {
    let newest = run.checkpoints()?.into_iter().max_by_key(|checkpoint| checkpoint.step);
    let newest = newest.with_context(|| format!("{} has no checkpoint", run.path().display()))?;
    let mut numbers: StateNumbers = read_numbers(&newest.verify()?)?;
    archived_calls(numbers.take_extension(ScoreArchive::NAME)).map_err(anyhow::Error::msg)
}

/// Returns the error message for a checkpoint that does not match the run.
pub fn unusable(checkpoint: &VerifiedFolder) -> String {
    format!("cannot resume from `{}`", checkpoint.path().display())
}

/// Writes a checkpoint of the current state.
pub fn write(
    run: &RunFolder,
    writer: &Writer,
    training: &Training<Policy>,
    announce: Announce<'_>,
) -> anyhow::Result<Checkpoint> {
    let TrainerState { numbers, moments, reference } = training.state();
    let model = |folder: &Path| writer.fill(folder, training.policy());
    let step = u64::from(training.steps());
    write_state(run, step, model, &numbers, &moments, reference.as_ref(), announce)
}

/// Returns the number of roll-backs before the checkpoint, or `u64::MAX` if it is not recorded.
pub fn roll_backs(checkpoint: &Checkpoint) -> u64 {
    let state =
        regular_file::read_data(&checkpoint.path.join(FOLDER).join(STATE)).unwrap_or_default();
    let state: Value = serde_json::from_slice(&state).unwrap_or_default();
    state["roll_backs"].as_u64().unwrap_or(u64::MAX)
}

/// Loads the policy from a checkpoint. An adapter is loaded onto the base model of `like`.
pub fn policy(checkpoint: &VerifiedFolder, like: &Policy) -> anyhow::Result<Policy> {
    let folder = checkpoint.path();
    Ok(match like {
        Policy::Whole(model) => {
            let families = model.family().into();
            Policy::Whole(ModelFolder::load_model(folder, &families, &model.device())?)
        }
        Policy::Adapted(adapted) => {
            let device = adapted.adapter().devices().remove(0);
            let AdapterFolder { adapter, .. } =
                AdapterFolder::load(folder, adapted.base(), &device)?;
            Policy::Adapted(Adapted::new(adapted.base(), adapter))
        }
    })
}

/// Restores `training` from a checkpoint of its run.
pub fn restore(training: &mut Training<Policy>, checkpoint: &VerifiedFolder) -> anyhow::Result<()> {
    let reference = checkpoint.path().join(FOLDER).join(REFERENCE);
    let restored = (|| {
        let (numbers, moments) = read_state(checkpoint)?;
        let reference = match reference.exists() {
            true => Some((read_tensors(&reference)?, reference.as_path())),
            false => None,
        };
        let policy = policy(checkpoint, training.policy())?;
        anyhow::Ok(training.restore(policy, SavedState { numbers, moments, reference })?)
    })();
    restored.with_context(|| unusable(checkpoint))
}
