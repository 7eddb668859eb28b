//! `grpo audit`: what a run's files prove of it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use grpo_model::{Policy, weights_digest};
use grpo_run::{
    Evidence, Finding, LedgerCompletion, Period, Plan, ReferencePlan, ReferenceUpdate, RunFolder,
    StoredWeights, Verdict, audit, verify,
};
use grpo_train::{ReferenceFrom, ReferenceSettings};
use serde::Serialize;
use serde_json::Value;

use crate::args::AuditArguments;
use crate::device;
use crate::models::{Trained, read};
use crate::output::{say, sentence};
use crate::task::Tasks;
use crate::train_file::TrainFile;

pub(crate) fn run(arguments: &AuditArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let run = arguments.run.display();
    let (steps, findings) = findings(&arguments.run, tasks)?;
    let violated = findings.iter().filter(|finding| !finding.violations().is_empty()).count();
    match arguments.json {
        true => {
            let violations = findings.iter().map(|finding| finding.violations().len()).sum();
            let report = Report { run: &arguments.run, steps, violations, findings };
            say(format_args!("{}", serde_json::to_string_pretty(&report)?));
        }
        false => findings.iter().for_each(print),
    }
    anyhow::ensure!(
        violated == 0,
        "{violated} of the properties that the files of `{run}` should prove {} violated",
        if violated == 1 { "is" } else { "are" }
    );
    Ok(())
}

/// What the files of a run prove, and steps in its ledger.
pub(crate) fn findings(run: &Path, tasks: &Tasks) -> anyhow::Result<(usize, Vec<Finding>)> {
    let folder = RunFolder::open(run)?;
    let loaded = TrainFile::of_run(&folder, tasks)?;
    let evidence = evidence(&folder, &loaded.value, tasks)?;
    Ok((evidence.ledger.len(), audit(&evidence)))
}

/// What `--json` writes.
#[derive(Serialize)]
struct Report<'a> {
    run: &'a Path,
    /// Steps in the ledger.
    steps: usize,
    /// In all findings together.
    violations: usize,
    findings: Vec<Finding>,
}

/// Violations of a property that are printed, at most.
const SHOWN: usize = 3;

/// One line; of a violation one for each of the first.
fn print(finding: &Finding) {
    let line = |property: &str, verdict: &str, words: &dyn std::fmt::Display| {
        say(format_args!("{property:<22}{verdict:<14}{words}"));
    };
    match &finding.verdict {
        Verdict::Proven => line(finding.property, "proven", &finding.checked),
        Verdict::NotRecorded { reason } => line(finding.property, "not recorded", reason),
        Verdict::Violated { violations } => {
            for (number, violation) in violations.iter().take(SHOWN).enumerate() {
                let names = if number == 0 { (finding.property, "VIOLATED") } else { ("", "") };
                line(names.0, names.1, violation);
            }
            if violations.len() > SHOWN {
                let more = format!("and {} more; --json shows all", violations.len() - SHOWN);
                line("", "", &more);
            }
        }
    }
}

/// Reads all that the audit looks at.
fn evidence(folder: &RunFolder, file: &TrainFile, tasks: &Tasks) -> anyhow::Result<Evidence> {
    let path = folder.ledger_path();
    let ledger = folder.read_ledger()?.with_context(|| {
        format!(
            "there is no `{}`: an older version of this program made the run, and kept no ledger; train again to have one",
            path.display()
        )
    })?;
    anyhow::ensure!(
        !ledger.is_empty(),
        "`{}` has no finished step yet, and so there is nothing to audit; wait until the run has made one",
        path.display()
    );
    let steps = folder.read_metrics()?;
    let metrics = steps.iter().filter_map(|line| line.get("step").and_then(Value::as_u64));
    let mut recorded = BTreeMap::new();
    for step in folder.completion_steps()? {
        let records = folder.completions_of(step)?;
        let entries: Vec<LedgerCompletion> =
            records.iter().filter_map(LedgerCompletion::of_record).collect();
        recorded.insert(step, entries);
    }
    let is_adapter = file.adapter.is_some() || file.lora.is_some();
    let checkpoints = folder.checkpoints()?.into_iter();
    let checkpoints =
        checkpoints.map(|kept| (kept.step, stored(&kept.path, file, tasks, is_adapter)));
    let trained = folder.path().join(if is_adapter { "adapter" } else { "model" });
    Ok(Evidence {
        ledger,
        metrics: metrics.collect(),
        events: folder.read_events()?,
        plan: plan(file)?,
        recorded,
        checkpoints: checkpoints.collect(),
        trained: trained.is_dir().then(|| stored(&trained, file, tasks, is_adapter)),
        base: is_adapter.then(|| base(file, tasks)),
    })
}

/// The weights in a folder of the run.
fn stored(path: &Path, file: &TrainFile, tasks: &Tasks, is_adapter: bool) -> StoredWeights {
    if let Err(fault) = verify(path) {
        return StoredWeights::Damaged(fault.to_string());
    }
    if is_adapter && let Some(reason) = missing(&file.model) {
        return StoredWeights::Unknown(reason);
    }
    let (model, trained) = match is_adapter {
        // Its base is a finding of its own.
        true => (file.model.as_path(), Trained::AdapterOfAnyBase(path)),
        false => (path, Trained::Whole),
    };
    let loaded = read(model, &tasks.codecs(), trained, file.base_precision, &device::device());
    hash(loaded.map(|loaded| loaded.policy))
}

/// The model that the adapter was trained on.
fn base(file: &TrainFile, tasks: &Tasks) -> StoredWeights {
    if let Some(reason) = missing(&file.model) {
        return StoredWeights::Unknown(reason);
    }
    let loaded =
        read(&file.model, &tasks.codecs(), Trained::Whole, file.base_precision, &device::device());
    hash(loaded.map(|loaded| loaded.policy))
}

fn missing(model: &Path) -> Option<String> {
    (!model.is_dir()).then(|| {
        format!(
            "the model folder {} is not here; go to the folder that the training ran in",
            model.display()
        )
    })
}

fn hash(policy: anyhow::Result<Policy>) -> StoredWeights {
    match policy {
        Ok(policy) => StoredWeights::Hash(weights_digest(&policy).into()),
        Err(error) => StoredWeights::Damaged(sentence(&error)),
    }
}

/// What the configuration says that the run was to do.
fn plan(file: &TrainFile) -> anyhow::Result<Plan> {
    Ok(Plan {
        steps: u64::from(file.train.steps),
        prompts_per_step: file.train.prompts_per_step,
        group_size: u32::try_from(file.train.group_size)?,
        updates_per_rollout: file.train.updates_per_rollout as usize,
        supervised_updates: file
            .combined
            .as_ref()
            .map_or(0, |combined| combined.every as usize - 1),
        completions_every: u64::from(file.save.completions_every),
        reference: reference(file.reference),
    })
}

/// What holds the policy back, and when that changes.
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
