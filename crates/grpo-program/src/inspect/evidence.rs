//! Collects the evidence for audits, which `grpo audit` and other commands run.

use std::collections::BTreeMap;
use std::path::Path;

use grpo_model::weights_digest;
use grpo_run::{
    EventKind, Evidence, Finding, LedgerCompletion, LedgerStep, Period, Plan, RecordPlan,
    ReferencePlan, ReferenceUpdate, RunError, RunFolder, StoredWeights, audit, audit_records,
    last_state, unreadable, verify,
};
use grpo_task::device;
use grpo_task::models::{Trained, read};
use grpo_task::output::sentence;
use grpo_task::task::Tasks;
use grpo_task::violations::{PropertyViolation, violations_of};
use grpo_train::{ReferenceFrom, ReferenceSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::inspect::run_reward::resume_command;
use crate::train_file::TrainFile;

/// Depth of an audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Checks files only. Used by commands other than `grpo audit`.
    Files,
    /// Also loads models and hashes their weights.
    Weights,
}

/// Audits a run. Returns the number of steps in the ledger and the findings.
pub(crate) fn findings(
    run: &Path,
    tasks: &Tasks,
    depth: Depth,
) -> anyhow::Result<(usize, Vec<Finding>)> {
    let folder = RunFolder::open(run)?;
    let file = configuration(&folder, tasks)?;
    let plan = RecordPlan {
        trained: Some(kind(&file)),
        checkpoint_every: u64::from(file.settings.save.every),
        min_gain: file.trainer.eval.min_gain,
        metrics: file.extensions.metrics(),
    };
    let records = audit_records(&folder, &plan);
    let mut faults = Vec::new();
    let has_ledger = folder.has("ledger.jsonl").unwrap_or(true);
    let ledger = has_ledger.then(|| sound_lines(&folder, "ledger.jsonl", &mut faults));
    let is_violated = records.iter().any(|finding| !finding.violations().is_empty());
    if ledger.as_ref().is_none_or(Vec::is_empty) && (is_violated || depth == Depth::Files) {
        return Ok((0, with_faults(&folder, records, &faults)));
    }
    let ledger = some_steps(&folder, &file, ledger)?;
    let evidence = evidence(&folder, &file, tasks, ledger, depth, &mut faults)?;
    let findings = audit(&evidence).into_iter().chain(records).collect();
    Ok((evidence.ledger.len(), with_faults(&folder, findings, &faults)))
}

/// Returns the valid lines of a file, and adds the errors of the others.
fn sound_lines<T: DeserializeOwned>(
    folder: &RunFolder,
    name: &str,
    faults: &mut Vec<RunError>,
) -> Vec<T> {
    let (lines, of_lines) = folder.sound_lines_of(name);
    faults.extend(of_lines);
    lines
}

/// Adds errors that occurred while collecting the evidence to the property `files`.
fn with_faults(
    folder: &RunFolder,
    mut findings: Vec<Finding>,
    faults: &[RunError],
) -> Vec<Finding> {
    let Some(mut found) = unreadable(folder, faults) else { return findings };
    let earlier = findings.iter().position(|finding| finding.property == found.property);
    if let Some(earlier) = earlier.map(|place| findings.remove(place)) {
        found.add(earlier.violations());
    }
    findings.push(found);
    findings
}

/// Audits the files of a `grpo train` run and returns all violations.
pub(crate) fn violations_of_files(run: &Path, tasks: &Tasks) -> Vec<PropertyViolation> {
    match findings(run, tasks, Depth::Files) {
        Ok((_, findings)) => violations_of(&findings),
        Err(error) => vec![PropertyViolation { property: None, what: sentence(&error) }],
    }
}

/// Reads the configuration of the run. If this fails and the file was modified, the error says so.
fn configuration(folder: &RunFolder, tasks: &Tasks) -> anyhow::Result<TrainFile> {
    TrainFile::of_run(folder, tasks).map(|loaded| loaded.value).map_err(|error| {
        let changed = folder.read_info().and_then(|info| folder.check_config(&info));
        changed.err().map_or(error, anyhow::Error::from)
    })
}

/// Returns the name of the subfolder with the trained weights.
pub(crate) fn kind(file: &TrainFile) -> &'static str {
    if file.settings.adapter.is_some() || file.settings.lora.is_some() {
        "adapter"
    } else {
        "model"
    }
}

/// Returns the ledger, or an error if it has no steps.
fn some_steps(
    folder: &RunFolder,
    file: &TrainFile,
    ledger: Option<Vec<LedgerStep>>,
) -> anyhow::Result<Vec<LedgerStep>> {
    let path = folder.ledger_path();
    match ledger {
        Some(ledger) if !ledger.is_empty() => return Ok(ledger),
        None if folder.has_steps()? => anyhow::bail!(
            "`{}` does not exist: it was removed, or the run was created by an older version without a ledger; restore it from a copy, or train again",
            path.display()
        ),
        _ => {}
    }
    let run = folder.path().display().to_string();
    let resume = format!("grpo {}", resume_command("train", folder.path(), file));
    match last_state(folder.read_events()?) {
        Some(EventKind::Stopped { reason }) => anyhow::bail!(
            "nothing to audit: `{run}` stopped before its first step: {reason}; resume it with `{resume}`"
        ),
        _ => anyhow::bail!(
            "nothing to audit: `{run}` has no completed step yet; wait for the first one, or resume it with `{resume}` if it has ended"
        ),
    }
}

/// Collects the evidence for all audited properties.
fn evidence(
    folder: &RunFolder,
    file: &TrainFile,
    tasks: &Tasks,
    ledger: Vec<LedgerStep>,
    depth: Depth,
    faults: &mut Vec<RunError>,
) -> anyhow::Result<Evidence> {
    let steps: Vec<Map<String, Value>> = sound_lines(folder, "metrics.jsonl", faults);
    let metrics = steps.iter().filter_map(|line| line.get("step").and_then(Value::as_u64));
    let mut recorded = BTreeMap::new();
    for step in or_fault(folder.completion_steps(), faults) {
        match folder.completions_of(step) {
            Ok(records) => {
                let entries = records.iter().filter_map(LedgerCompletion::of_record);
                recorded.insert(step, entries.collect::<Vec<_>>());
            }
            Err(fault) => faults.push(fault),
        }
    }
    let is_adapter = kind(file) == "adapter";
    let stored = |path: &Path| stored(path, file, tasks, is_adapter, depth);
    let checkpoints = or_fault(folder.checkpoints(), faults).into_iter();
    let checkpoints = checkpoints.map(|kept| (kept.step, stored(&kept.path)));
    let trained = folder.path().join(kind(file));
    Ok(Evidence {
        ledger,
        metrics: metrics.collect(),
        events: sound_lines(folder, "events.jsonl", faults),
        plan: plan(file)?,
        recorded,
        checkpoints: checkpoints.collect(),
        trained: trained.is_dir().then(|| stored(&trained)),
        base: is_adapter.then(|| match depth {
            Depth::Files => StoredWeights::Unknown(NOT_LOADED.to_owned()),
            Depth::Weights => base(file, tasks),
        }),
    })
}

/// Returns the default value after an error, which it adds.
fn or_fault<T: Default>(read: Result<T, RunError>, faults: &mut Vec<RunError>) -> T {
    read.unwrap_or_else(|fault| {
        faults.push(fault);
        T::default()
    })
}

const NOT_LOADED: &str = "its weights were not loaded";

/// Loads and hashes the weights in a folder of the run.
fn stored(
    path: &Path,
    file: &TrainFile,
    tasks: &Tasks,
    is_adapter: bool,
    depth: Depth,
) -> StoredWeights {
    if let Err(fault) = verify(path) {
        return StoredWeights::Damaged(fault.to_string());
    }
    if depth == Depth::Files {
        return StoredWeights::Unknown(NOT_LOADED.to_owned());
    }
    if is_adapter && let Some(reason) = missing(&file.settings.model) {
        return StoredWeights::Unknown(reason);
    }
    let (model, trained) = match is_adapter {
        // The base model is audited separately.
        true => (file.settings.model.as_path(), Trained::AdapterOfAnyBase(path)),
        false => (path, Trained::Whole),
    };
    hash(model, trained, file, tasks)
}

/// Loads and hashes the base model of an adapter.
fn base(file: &TrainFile, tasks: &Tasks) -> StoredWeights {
    if let Some(reason) = missing(&file.settings.model) {
        return StoredWeights::Unknown(reason);
    }
    hash(&file.settings.model, Trained::Whole, file, tasks)
}

fn missing(model: &Path) -> Option<String> {
    (!model.exists()).then(|| {
        format!(
            "model {} does not exist; change to the folder from which the run was started",
            model.display()
        )
    })
}

/// Loads and hashes weights.
fn hash(model: &Path, trained: Trained<'_>, file: &TrainFile, tasks: &Tasks) -> StoredWeights {
    let device = match device::device() {
        Ok(device) => device,
        Err(error) => return StoredWeights::Unknown(sentence(&error)),
    };
    match read(model, &tasks.formats(), trained, file.settings.base_precision, &device) {
        Ok(loaded) => StoredWeights::Hash(weights_digest(&loaded.policy).into()),
        Err(error) => StoredWeights::Damaged(sentence(&error)),
    }
}

/// Derives the expected course of the run from its configuration.
fn plan(file: &TrainFile) -> anyhow::Result<Plan> {
    let mut plan = Plan {
        steps: u64::from(file.trainer.train.steps),
        prompts_per_step: file.trainer.train.prompts_per_step,
        group_size: u32::try_from(file.trainer.train.group_size)?,
        staleness: 0,
        updates_per_rollout: file.trainer.train.updates_per_rollout as usize,
        further_updates: Vec::new(),
        endings: Vec::new(),
        may_end_early: file.trainer.eval.patience > 0,
        completions_every: u64::from(file.settings.save.completions_every),
        reference: reference(file.trainer.reference),
    };
    file.extensions.plan(&mut plan);
    Ok(plan)
}

/// Derives the expected reference updates.
fn reference(settings: ReferenceSettings) -> ReferencePlan {
    let ReferenceSettings { from, every_steps, every_epochs, mix } = settings.resolved();
    let every = every_steps
        .map(|steps| Period::Steps(steps.into()))
        .or(every_epochs.map(|epochs| Period::Epochs(epochs.into())));
    ReferencePlan {
        from_base: from == ReferenceFrom::Base,
        update: every.zip(mix).map(|(every, mix)| ReferenceUpdate { every, mix }),
    }
}
