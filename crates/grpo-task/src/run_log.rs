//! Append-only files and checkpoints of a run, for both GRPO and supervised training.

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use grpo_run::{
    ChainWriter, Checkpoint, Event, EventKind, EventProof, JsonLinesWriter, ProvenEvent,
    RecordedDevice, RunFolder, TensorBoard, sha256_of_file, sha256_of_manifest,
};
use grpo_train::{GuardTrigger, MetricTable, TrainError};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::checkpoint::CheckpointSection;
use crate::config;
use crate::output::{say, say_aside};
use crate::recorded_device::of_this_process;
use crate::used_inputs::{Dependents, dependents_of_each};

/// Whether the reason why checkpoints are kept was printed.
static KEPT_NOTE: Once = Once::new();

/// A line of `metrics.jsonl`.
pub type Line = Map<String, Value>;

/// Called with the step of a checkpoint and the SHA-256 of its manifest, just before the checkpoint
/// folder is renamed to its final name.
pub(crate) type Announce<'a> = &'a mut dyn FnMut(u64, String) -> anyhow::Result<()>;

/// Writes the metrics, TensorBoard data, events and checkpoints of a run.
pub struct RunLog {
    /// Folder of the run.
    pub folder: RunFolder,
    metrics: JsonLinesWriter,
    tensorboard: TensorBoard,
    events: ChainWriter,
    /// Step and hash of the last synced ledger line. `None` if the run has no ledger.
    ledger: Option<(u64, String)>,
    section: CheckpointSection,
    last_checkpoint: Instant,
}

/// Returns the event that records that a run is resumed by this process.
pub fn resumed() -> EventKind {
    let RecordedDevice { name, gpu } = of_this_process();
    EventKind::Resumed { device: Some(name), gpu }
}

/// Opens `events.jsonl` after `done` steps and writes the events of starting and resuming.
pub(crate) fn open_events(
    folder: &RunFolder,
    done: u64,
    roll_backs: u32,
    is_resumed: bool,
) -> anyhow::Result<ChainWriter> {
    let mut events = folder.events_from(done + 1, roll_backs)?;
    // Older versions did not write hash chains.
    if done == 0 && folder.read_events()?.is_empty() && folder.read_info()?.chained {
        let info = Some(sha256_of_file(&folder.info_path())?);
        let proof = EventProof { info, ..EventProof::default() };
        write_event(&mut events, 0, EventKind::Started {}, proof)?;
    }
    if is_resumed {
        write_event(&mut events, done, resumed(), EventProof::default())?;
    }
    Ok(events)
}

/// Records why a run ended before its first step. A step that was recorded before is not removed.
pub fn stopped_at_start(
    folder: &RunFolder,
    is_resumed: bool,
    reason: String,
) -> anyhow::Result<()> {
    if folder.has_steps()? {
        return Ok(());
    }
    let mut events = open_events(folder, 0, 0, is_resumed)?;
    write_event(&mut events, 0, EventKind::Stopped { reason }, EventProof::default())
}

impl RunLog {
    /// Opens the files of a run after `done` steps. Lines of later steps are removed, and the
    /// remaining metrics are returned. `described` has the metrics of the run. With `is_resumed`, the event is written before any other file
    /// is truncated, so that an audit can explain the files of a run killed in between.
    pub fn open(
        folder: &RunFolder,
        done: u64,
        roll_backs: u32,
        section: CheckpointSection,
        is_resumed: bool,
        described: MetricTable,
    ) -> anyhow::Result<(Self, Vec<Line>)> {
        let events = open_events(folder, done, roll_backs, is_resumed)?;
        let metrics = folder.metrics_from(done + 1)?;
        let lines = folder.read_metrics()?;
        let log = Self {
            ledger: None,
            metrics,
            tensorboard: TensorBoard::rebuild(folder, &lines, described)?,
            events,
            section,
            last_checkpoint: Instant::now(),
            folder: folder.clone(),
        };
        Ok((log, lines))
    }

    /// Stores the last synced ledger line, which subsequent events refer to.
    pub fn anchor(&mut self, step: u64, ledger: &ChainWriter) {
        self.ledger = Some((step, ledger.head().to_owned()));
    }

    /// Reopens the metrics after a roll-back to step `done` and returns the remaining lines.
    pub fn go_back(&mut self, done: u64) -> anyhow::Result<Vec<Line>> {
        self.metrics = self.folder.metrics_from(done + 1)?;
        let lines = self.folder.read_metrics()?;
        self.tensorboard.rewrite(&self.folder, &lines)?;
        Ok(lines)
    }

    /// Checks that the files that grow are still those that the run writes.
    pub fn check_files(&self) -> anyhow::Result<()> {
        self.metrics.check()?;
        Ok(self.events.check()?)
    }

    /// Appends a line of metrics.
    pub fn line(&mut self, record: &impl Serialize) -> anyhow::Result<()> {
        let Value::Object(line) = serde_json::to_value(record)? else {
            anyhow::bail!("a line of metrics.jsonl is not an object");
        };
        self.metrics.append(&line)?;
        Ok(self.tensorboard.append(&line)?)
    }

    /// Appends an event and syncs the file.
    pub fn event(&mut self, step: u64, what: EventKind) -> anyhow::Result<()> {
        self.proven(step, what, EventProof::default())
    }

    fn proven(&mut self, step: u64, what: EventKind, proof: EventProof) -> anyhow::Result<()> {
        self.metrics.check()?;
        let ledger = self.ledger.as_ref().filter(|(of, _)| *of == step);
        let proof = EventProof { ledger: ledger.map(|(_, hash)| hash.clone()), ..proof };
        write_event(&mut self.events, step, what, proof)
    }

    /// Records that the trained weights were saved in the subfolder `name`. `manifest` is the
    /// SHA-256 of the manifest.
    pub fn saved(&mut self, step: u64, name: &str, manifest: String) -> anyhow::Result<()> {
        let (folder, manifest) = (Some(name.to_owned()), Some(manifest));
        let proof = EventProof { folder, manifest, ..EventProof::default() };
        self.proven(step, EventKind::Saved {}, proof)
    }

    /// Records a roll-back to `step`, including the manifest hash of the folder `aside`, which
    /// contains the records of the undone steps.
    pub fn rolled_back(&mut self, step: u64, event: EventKind, aside: &Path) -> anyhow::Result<()> {
        let folder = aside.strip_prefix(self.folder.path())?.display().to_string();
        let (folder, manifest) = (Some(folder), Some(sha256_of_manifest(aside)?));
        self.proven(step, event, EventProof { folder, manifest, ..EventProof::default() })
    }

    /// Records a written checkpoint and the list of kept checkpoints. `manifest` is the SHA-256 of
    /// its manifest.
    pub fn checkpointed(
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

    /// Records a triggered guard and returns a message for the user.
    pub fn guard(&mut self, step: u64, trigger: &GuardTrigger) -> anyhow::Result<String> {
        let GuardTrigger { watch, value, bound, steps, action, message, .. } = trigger.clone();
        let action = action.name().to_owned();
        let line = format!("guard        {message}: {action}");
        self.event(step, EventKind::Guard { watch, value, bound, steps, action, message })?;
        Ok(line)
    }

    /// Records that a run was interrupted after `step` of `steps` steps, and prints how to resume
    /// it.
    pub fn interrupted(&mut self, [step, steps]: [u64; 2], resume: &str) -> anyhow::Result<()> {
        self.event(step, EventKind::Interrupted {})?;
        say(format_args!("interrupted  after step {step} of {steps}; resume with `grpo {resume}`"));
        Ok(())
    }

    /// Returns whether a checkpoint has to be written after `step` steps.
    pub fn is_checkpoint_due(&self, step: u64) -> bool {
        let CheckpointSection { every, every_minutes, .. } = self.section;
        let limit = Duration::from_secs_f64(60.0 * every_minutes);
        let is_time = every_minutes > 0.0 && self.last_checkpoint.elapsed() > limit;
        is_time || (every > 0 && step.is_multiple_of(every.into()))
    }

    /// Writes a checkpoint with `write`, then removes older ones. `besides` lists additional steps
    /// whose checkpoints are kept.
    pub fn checkpoint(
        &mut self,
        best: bool,
        besides: &[u64],
        write: impl FnOnce(&RunFolder, Announce<'_>) -> anyhow::Result<Checkpoint>,
    ) -> anyhow::Result<()> {
        // Syncs the preceding steps before writing the checkpoint.
        self.metrics.sync()?;
        self.events.sync()?;
        let (folder, last) = (self.folder.clone(), self.section.keep_last);
        // Other runs may have been started from a checkpoint of this one.
        let next = folder.kept_checkpoints(last.saturating_sub(1), besides, None)?;
        let outdated = folder.checkpoints()?.into_iter();
        let outdated = outdated.filter(|checkpoint| !next.contains(&checkpoint.step));
        let outdated: Vec<Checkpoint> = outdated.collect();
        let paths: Vec<&Path> = outdated.iter().map(|checkpoint| &*checkpoint.path).collect();
        let found = dependents_of_each(&paths);
        if found.iter().any(|found| matches!(found, Dependents::Unknown)) {
            KEPT_NOTE.call_once(|| {
                say_aside(format_args!(
                    "note: outdated checkpoints of {} are kept, because not all runs around it could be searched for one that was started from them; move the run to a folder with fewer files",
                    folder.path().display()
                ));
            });
        }
        let is_kept = |found: &Dependents| !matches!(found, Dependents::Unused);
        let used = outdated.iter().zip(found).filter(|(_, found)| is_kept(found));
        let besides: Vec<u64> =
            used.map(|(checkpoint, _)| checkpoint.step).chain(besides.iter().copied()).collect();
        let besides = &*besides;
        write(&folder, &mut |step, manifest| {
            let kept = folder.kept_checkpoints(last, besides, Some(step))?;
            self.checkpointed(step, manifest, best, kept)
        })?;
        self.last_checkpoint = Instant::now();
        Ok(folder.keep_checkpoints(last, besides)?)
    }
}

/// Writes and syncs an event.
fn write_event(
    events: &mut ChainWriter,
    step: u64,
    what: EventKind,
    proof: EventProof,
) -> anyhow::Result<()> {
    let event = Event { step, at: config::now(), what };
    events.append(&ProvenEvent { event, proof })?;
    Ok(events.sync()?)
}

/// Wraps an error that occurred while writing run files.
pub fn observer_error(error: impl Into<anyhow::Error>) -> TrainError {
    TrainError::Observer(error.into().into_boxed_dyn_error())
}
