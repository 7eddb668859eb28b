//! A training run as a checkpoint, and back.
//!
//! ```text
//! checkpoints/step-N/
//!   config.json, model.safetensors, …    the model: a model folder, or an adapter folder
//!   trainer/state.json                   steps, controllers, what evaluations said
//!   trainer/optimizer.safetensors        AdamW's two means of each parameter
//!   trainer/reference.safetensors        the reference, where it is another one than at the start
//!   manifest.json                        size and SHA-256 of each of these
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use burn::module::Module;
use burn::tensor::TensorData;
use grpo_model::{
    Adapted, AdapterFolder, LanguageModel, ModelFolder, Policy, StoredAs, StoredTensors,
    read_tensors,
};
use grpo_run::{Checkpoint, RunFolder, VerifiedFolder};
use grpo_train::{SavedState, TrainerState, Training};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Origin;
use crate::models::Writer;

const FOLDER: &str = "trainer";
const STATE: &str = "state.json";
const MOMENTS: &str = "optimizer.safetensors";
const REFERENCE: &str = "reference.safetensors";

/// The section `[save]` of a supervised run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Steps from one checkpoint to the next; 0 for only by time and at the end.
    pub every: u32,
    /// Minutes after which a checkpoint is written at the next end of a step; 0 for never.
    pub every_minutes: f64,
    /// The newest checkpoints that are kept.
    pub keep_last: usize,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 0, every_minutes: 10.0, keep_last: 2 }
    }
}

impl CheckpointSection {
    /// Refuses what is out of range.
    pub fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.keep_last >= 1,
            "{}save.keep_last = 0 would keep no checkpoint; use 1 or more",
            origin.place("save.keep_last")
        );
        anyhow::ensure!(
            (0.0..=1e6).contains(&self.every_minutes),
            "{}save.every_minutes = {} is out of range; expected 0 to 1000000",
            origin.place("save.every_minutes"),
            self.every_minutes
        );
        Ok(())
    }
}

/// When the next checkpoint is due.
pub(crate) struct CheckpointClock {
    section: CheckpointSection,
    last: Instant,
}

impl CheckpointClock {
    pub(crate) fn new(section: CheckpointSection) -> Self {
        Self { section, last: Instant::now() }
    }

    /// Returns whether one is due after `step` steps.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        let CheckpointSection { every, every_minutes, .. } = self.section;
        let limit = Duration::from_secs_f64(60.0 * every_minutes);
        let is_time = every_minutes > 0.0 && self.last.elapsed() > limit;
        is_time || (every > 0 && step.is_multiple_of(every.into()))
    }

    /// Takes note of a checkpoint that was written, and removes older ones that are not kept, but those of `besides`.
    pub(crate) fn written(&mut self, run: &RunFolder, besides: &[u64]) -> anyhow::Result<()> {
        self.last = Instant::now();
        Ok(run.keep_checkpoints(self.section.keep_last, besides)?)
    }
}

/// Writes the checkpoint of a step: the files that `model` writes, the numbers of the trainer, and its tensors.
pub(crate) fn write_state(
    run: &RunFolder,
    step: u64,
    model: impl FnOnce(&Path) -> anyhow::Result<()>,
    numbers: &impl Serialize,
    moments: &StoredTensors,
    reference: Option<&StoredTensors>,
) -> anyhow::Result<Checkpoint> {
    let state = serde_json::to_string_pretty(numbers).context("the state of the trainer")?;
    run.write_checkpoint(step, |folder| {
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
    })
}

/// Reads the numbers of a trainer and the optimizer's means.
pub(crate) fn read_state<N: DeserializeOwned>(
    checkpoint: &VerifiedFolder,
) -> anyhow::Result<(N, BTreeMap<String, TensorData>)> {
    let folder = checkpoint.path().join(FOLDER);
    let state = folder.join(STATE);
    let text =
        std::fs::read(&state).with_context(|| format!("cannot read `{}`", state.display()))?;
    let numbers = serde_json::from_slice(&text)
        .with_context(|| format!("`{}` is no state of this program", state.display()))?;
    Ok((numbers, read_tensors(&folder.join(MOMENTS))?))
}

/// The error of a checkpoint that does not fit.
pub(crate) fn unusable(checkpoint: &VerifiedFolder) -> String {
    format!("`{}` cannot be gone on from", checkpoint.path().display())
}

/// Writes the checkpoint of this moment.
pub(crate) fn write(
    run: &RunFolder,
    writer: &Writer,
    training: &Training<Policy>,
) -> anyhow::Result<Checkpoint> {
    let TrainerState { numbers, moments, reference } = training.state();
    let model = |folder: &Path| writer.fill(folder, training.policy());
    let step = u64::from(training.steps());
    write_state(run, step, model, &numbers, &moments, reference.as_ref())
}

/// How often the run had gone back when the checkpoint was written, as far as it says.
pub(crate) fn roll_backs(checkpoint: &Checkpoint) -> u64 {
    let state = std::fs::read(checkpoint.path.join(FOLDER).join(STATE)).unwrap_or_default();
    let state: Value = serde_json::from_slice(&state).unwrap_or_default();
    state["roll_backs"].as_u64().unwrap_or(u64::MAX)
}

/// The policy of a checkpoint; an adapter is put on the model of `like`.
pub(crate) fn policy(checkpoint: &VerifiedFolder, like: &Policy) -> anyhow::Result<Policy> {
    let folder = checkpoint.path();
    Ok(match like {
        Policy::Whole(model) => Policy::Whole(ModelFolder::load_model(folder, &model.device())?),
        Policy::Adapted(adapted) => {
            let device = adapted.adapter().devices().remove(0);
            let AdapterFolder { adapter, .. } =
                AdapterFolder::load(folder, adapted.base(), &device)?;
            Policy::Adapted(Adapted::new(adapted.base(), adapter))
        }
    })
}

/// Takes `training` back to the moment of a checkpoint of its run.
pub(crate) fn restore(
    training: &mut Training<Policy>,
    checkpoint: &VerifiedFolder,
) -> anyhow::Result<()> {
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
