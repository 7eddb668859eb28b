//! Growing files of a run, and its checkpoint schedule, for GRPO and supervised training.

use std::path::Path;
use std::time::{Duration, Instant};

use grpo_run::{
    ChainWriter, Checkpoint, Event, EventKind, EventProof, JsonLinesWriter, ProvenEvent, RunFolder,
    TensorBoard, sha256_of_file, sha256_of_manifest,
};
use grpo_train::{GuardTrigger, TrainError};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::checkpoint::CheckpointSection;
use crate::config;
use crate::output::say;

/// A line of `metrics.jsonl`.
pub(crate) type Line = Map<String, Value>;

/// Gets the step of a checkpoint and the SHA-256 of its manifest before the checkpoint has its name.
pub(crate) type Announce<'a> = &'a mut dyn FnMut(u64, String) -> anyhow::Result<()>;

/// Metrics, for TensorBoard too, and events of a run, and its checkpoints.
pub(crate) struct RunLog {
    pub(crate) folder: RunFolder,
    metrics: JsonLinesWriter,
    tensorboard: TensorBoard,
    events: ChainWriter,
    /// Step and hash of the last synced ledger line, if the run keeps a ledger.
    ledger: Option<(u64, String)>,
    section: CheckpointSection,
    last_checkpoint: Instant,
}

impl RunLog {
    /// Opens the files of a run after `done` steps and returns their lines. Later lines are
    /// removed.
    pub(crate) fn open(
        folder: &RunFolder,
        done: u64,
        roll_backs: u32,
        section: CheckpointSection,
    ) -> anyhow::Result<(Self, Vec<Line>)> {
        let metrics = folder.metrics_from(done + 1)?;
        let lines = folder.read_metrics()?;
        let mut log = Self {
            ledger: None,
            metrics,
            tensorboard: TensorBoard::rebuild(folder, &lines)?,
            events: folder.events_from(done + 1, roll_backs)?,
            section,
            last_checkpoint: Instant::now(),
            folder: folder.clone(),
        };
        // Files of older versions are not hash chains.
        if done == 0 && folder.read_events()?.is_empty() && folder.read_info()?.chained {
            let info = Some(sha256_of_file(&folder.info_path())?);
            log.proven(0, EventKind::Started {}, EventProof { info, ..EventProof::default() })?;
        }
        Ok((log, lines))
    }

    /// Records the last synced ledger line for events of its step.
    pub(crate) fn anchor(&mut self, step: u64, ledger: &ChainWriter) {
        self.ledger = Some((step, ledger.head().to_owned()));
    }

    /// Opens the metrics again after a roll-back to `done` steps.
    pub(crate) fn go_back(&mut self, done: u64) -> anyhow::Result<Vec<Line>> {
        self.metrics = self.folder.metrics_from(done + 1)?;
        let lines = self.folder.read_metrics()?;
        self.tensorboard = TensorBoard::rebuild(&self.folder, &lines)?;
        Ok(lines)
    }

    /// Writes a line of metrics.
    pub(crate) fn line(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        let Value::Object(line) = serde_json::to_value(record)? else {
            anyhow::bail!("a line of metrics.jsonl is not an object");
        };
        self.metrics.append(&line)?;
        Ok(self.tensorboard.append(&line)?)
    }

    /// Writes and syncs an event.
    pub(crate) fn event(&mut self, step: u64, what: EventKind) -> anyhow::Result<()> {
        self.proven(step, what, EventProof::default())
    }

    fn proven(&mut self, step: u64, what: EventKind, proof: EventProof) -> anyhow::Result<()> {
        let ledger = self.ledger.as_ref().filter(|(of, _)| *of == step);
        let proof = EventProof { ledger: ledger.map(|(_, hash)| hash.clone()), ..proof };
        let event = Event { step, at: config::now(), what };
        self.events.append(&ProvenEvent { event, proof })?;
        Ok(self.events.sync()?)
    }

    /// Writes that what was trained is saved in the folder `name` of the run, with a manifest of this SHA-256.
    pub(crate) fn saved(&mut self, step: u64, name: &str, manifest: String) -> anyhow::Result<()> {
        let (folder, manifest) = (Some(name.to_owned()), Some(manifest));
        let proof = EventProof { folder, manifest, ..EventProof::default() };
        self.proven(step, EventKind::Saved {}, proof)
    }

    /// Writes that the run returned to `step`, with the hash of the undone steps' records in `aside`.
    pub(crate) fn rolled_back(
        &mut self,
        step: u64,
        event: EventKind,
        aside: &Path,
    ) -> anyhow::Result<()> {
        let folder = aside.strip_prefix(self.folder.path())?.display().to_string();
        let (folder, manifest) = (Some(folder), Some(sha256_of_manifest(aside)?));
        self.proven(step, event, EventProof { folder, manifest, ..EventProof::default() })
    }

    /// Writes that the checkpoint of a step, with a manifest of this SHA-256, is written, and which are kept.
    pub(crate) fn checkpointed(
        &mut self,
        step: u64,
        manifest: String,
        best: bool,
        kept: Vec<u64>,
    ) -> anyhow::Result<()> {
        let proof = EventProof {
            folder: Some(format!("checkpoints/step-{step}")),
            manifest: Some(manifest),
            kept: Some(kept),
            ..EventProof::default()
        };
        self.proven(step, EventKind::Checkpoint { best }, proof)
    }

    /// Writes the event of a guard, and returns it as a line to show.
    pub(crate) fn guard(&mut self, step: u64, trigger: &GuardTrigger) -> anyhow::Result<String> {
        let GuardTrigger { watch, value, bound, steps, action, message, .. } = trigger.clone();
        let action = action.name().to_owned();
        let line = format!("guard        {message}: {action}");
        self.event(step, EventKind::Guard { watch, value, bound, steps, action, message })?;
        Ok(line)
    }

    /// Writes and prints that a run was interrupted after `step` of `steps` steps, and how to
    /// resume it.
    pub(crate) fn interrupted(
        &mut self,
        [step, steps]: [u64; 2],
        resume: &str,
    ) -> anyhow::Result<()> {
        self.event(step, EventKind::Interrupted {})?;
        say(format_args!("interrupted  after step {step} of {steps}; resume with `grpo {resume}`"));
        Ok(())
    }

    /// Returns whether a checkpoint is due after `step` steps.
    pub(crate) fn is_checkpoint_due(&self, step: u64) -> bool {
        let CheckpointSection { every, every_minutes, .. } = self.section;
        let limit = Duration::from_secs_f64(60.0 * every_minutes);
        let is_time = every_minutes > 0.0 && self.last_checkpoint.elapsed() > limit;
        is_time || (every > 0 && step.is_multiple_of(every.into()))
    }

    /// Writes a checkpoint with `write`, and removes older ones except kept ones and `besides`.
    pub(crate) fn checkpoint(
        &mut self,
        best: bool,
        besides: &[u64],
        write: impl FnOnce(&RunFolder, Announce<'_>) -> anyhow::Result<Checkpoint>,
    ) -> anyhow::Result<()> {
        // The steps before a checkpoint are synced first.
        self.metrics.sync()?;
        self.events.sync()?;
        let (folder, last) = (self.folder.clone(), self.section.keep_last);
        write(&folder, &mut |step, manifest| {
            let kept = folder.kept_checkpoints(last, besides, Some(step))?;
            self.checkpointed(step, manifest, best, kept)
        })?;
        self.last_checkpoint = Instant::now();
        Ok(folder.keep_checkpoints(last, besides)?)
    }
}

/// Converts a write error to an error of training.
pub(crate) fn observer_error(error: impl Into<anyhow::Error>) -> TrainError {
    TrainError::Observer(error.into().into_boxed_dyn_error())
}
