//! Checks that the files of a run have not been modified.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use grpo_data::FileKind;
use serde::Deserialize;

use super::complete::{bytes_after_end, missing_events, missing_hashes};
use super::event_lines::{EventLine, after_roll_back, read_events};
use super::finding::{Finding, Violation, count};
use super::plan::RecordPlan;
use super::saved::saved_folders;
use crate::chain::{ChainLine, broken_links, read_chain};
use crate::completions::name_of;
use crate::folder::{EVENTS, LEDGER, METRICS};
use crate::{
    DataFile, EventKind, MODEL_CARD, RecordedHashes, RunError, RunFolder, RunInfo, sha256_of_file,
};

/// Name of the property that the input files are those that the run was started with.
pub const INPUTS: &str = "inputs";

/// Checks the files of a run against recorded hashes. Does not load any weights. Files and lines that
/// cannot be read violate the property `files`, and the others are checked all the same.
pub fn audit_records(run: &RunFolder, plan: &RecordPlan) -> Vec<Finding> {
    // Read events first. If the run is still in progress, the other files may be further ahead.
    let (events, mut faults) = read_events(run);
    let (ledger, of_ledger) = read_chain(&run.folder, LEDGER.as_ref());
    let (metrics, of_metrics) = read_chain(&run.folder, METRICS.as_ref());
    faults.extend(of_ledger);
    faults.extend(of_metrics);
    let info = run.read_info();
    let records = Records { run, plan, info: info.as_ref().ok(), events, ledger, metrics };
    let mut findings = vec![records.configuration(info.as_ref().err())];
    findings.extend(records.inputs());
    findings.push(records.chains());
    if plan.trained.is_some() {
        findings.push(records.metrics());
        findings.extend(records.completion_files().map_err(|fault| faults.push(fault)).ok());
    }
    let saved = saved_folders(run, &records.events, plan.trained, records.is_chained());
    findings.extend(saved.map_err(|fault| faults.push(fault)).ok());
    findings.extend(unreadable(run, &faults));
    findings
}

/// Returns a violation of the property `files` for each error and each foreign file. Returns `None`
/// if there are none.
pub fn unreadable(run: &RunFolder, faults: &[RunError]) -> Option<Finding> {
    let mut violations: Vec<Violation> = Vec::new();
    for fault in faults.iter().map(ToString::to_string).chain(foreign(run)) {
        if violations.iter().all(|violation| violation.what != fault) {
            violations.push(Violation { step: None, what: fault });
        }
    }
    (!violations.is_empty()).then(|| Finding::new("files", String::new(), violations))
}

fn foreign(run: &RunFolder) -> Vec<String> {
    run.foreign_files().iter().map(ToString::to_string).collect()
}

struct Records<'a> {
    run: &'a RunFolder,
    plan: &'a RecordPlan,
    /// `None` if `run.json` cannot be read.
    info: Option<&'a RunInfo>,
    events: Vec<EventLine>,
    ledger: Vec<ChainLine>,
    metrics: Vec<ChainLine>,
}

impl Records<'_> {
    /// Returns whether the run wrote hash chains. A single file that says so suffices, because any
    /// of them may have been modified.
    fn is_chained(&self) -> bool {
        self.info.is_some_and(|info| info.chained)
            || self.events.iter().any(|event| event.what == EventKind::Started {})
    }

    /// Checks `run.json` against the first event, and `config.toml` against `run.json`.
    fn configuration(&self, damage: Option<&RunError>) -> Finding {
        const PROPERTY: &str = "configuration";
        let mut violations = Vec::new();
        let mut violated = |what: String| violations.push(Violation { step: None, what });
        if let Some(damage) = damage {
            violated(damage.to_string());
        }
        let started = self.events.iter().find_map(|event| event.proof.info.as_ref());
        if let Some(recorded) = started
            && sha256_of_file(&self.run.info_path()).ok().as_ref() != Some(recorded)
        {
            violated(
                "run.json changed after the run started (events.jsonl has its SHA-256)".to_owned(),
            );
        }
        let has_hash = self.info.is_some_and(|info| !info.config_sha256.is_empty());
        if let Some(info) = self.info
            && let Err(changed) = self.run.check_config(info)
        {
            violated(changed.to_string());
        }
        if let Some(info) = self.info.filter(|_| !has_hash && self.is_chained()) {
            violated(format!(
                "run.json has no SHA-256 of config.toml (found {:?})",
                info.config_sha256
            ));
        }
        match (violations.is_empty(), has_hash, started) {
            (true, false, _) => Finding::not_recorded(
                PROPERTY,
                "created by an older version: changes to config.toml cannot be detected",
            ),
            (_, _, None) => Finding::new(
                PROPERTY,
                "config.toml; created by an older version: changes to run.json cannot be detected"
                    .to_owned(),
                violations,
            ),
            _ => Finding::new(PROPERTY, "config.toml and run.json".to_owned(), violations),
        }
    }

    /// Checks that input files have not changed and that model folders have no new files, which a
    /// resumed run would read. Files that no longer exist are skipped.
    fn inputs(&self) -> Option<Finding> {
        const PROPERTY: &str = INPUTS;
        let mut info = self.info?.clone();
        info.find_renamed();
        let files = &info.data;
        let mut violations = Vec::new();
        let mut missing = None;
        for file in files {
            let now = match DataFile::measure(&file.role, &file.path) {
                Ok(now) => now,
                Err(_) => {
                    missing = missing.or(Some(&file.path));
                    continue;
                }
            };
            if now.sha256 != file.sha256 {
                let what = format!(
                    "`{}` ({}) changed after the run: its SHA-256 is {} now, but was {}",
                    file.path.display(),
                    file.role,
                    now.sha256,
                    file.sha256
                );
                violations.push(Violation { step: None, what });
            }
        }
        violations.extend(added_inputs(files).into_iter().map(|path| Violation {
            step: None,
            what: format!(
                "`{}` was added after the run started: run.json does not list it",
                path.display()
            ),
        }));
        Some(match missing.filter(|_| violations.is_empty()) {
            Some(path) => Finding::not_recorded(
                PROPERTY,
                format!(
                    "`{}` does not exist here; change to the folder from which the run was started",
                    path.display()
                ),
            ),
            None => Finding::new(PROPERTY, count(files.len(), "file"), violations),
        })
    }

    /// Checks the hash chains of ledger and events, and the ledger hashes in events.
    fn chains(&self) -> Finding {
        const PROPERTY: &str = "chain of records";
        let is_chained = self.is_chained();
        let mut violations = Vec::new();
        let events: Vec<ChainLine> = self.events.iter().map(|event| event.line.clone()).collect();
        for (number, what) in broken_links("events.jsonl", &events, is_chained) {
            violations.push(Violation { step: step_at(&events, number), what });
        }
        for (number, what) in broken_links("ledger.jsonl", &self.ledger, is_chained) {
            violations.push(Violation { step: step_at(&self.ledger, number), what });
        }
        let has_steps = !self.ledger.is_empty() || self.has_metrics();
        if is_chained && has_steps && self.events.is_empty() {
            let what =
                "events.jsonl is missing or empty, although run.json records that the run kept one";
            violations.push(Violation { step: None, what: what.to_owned() });
        } else if is_chained
            && self.events.first().is_some_and(|first| first.what != EventKind::Started {})
        {
            let what = "events.jsonl does not start with the event `started`";
            violations.push(Violation { step: None, what: what.to_owned() });
        }
        // A run that is rolled back or resumed at its beginning removes all lines.
        let is_restarted =
            self.events.last().and_then(|event| event.what.rewritten_after(event.step)) == Some(0);
        let may_lack = self.plan.trained.is_none() || is_restarted;
        if is_chained && !may_lack && self.ledger.is_empty() && self.has_metrics() {
            let what =
                "ledger.jsonl is missing or empty, although run.json records that the run kept one";
            violations.push(Violation { step: None, what: what.to_owned() });
        }
        self.anchors(&mut violations);
        if is_chained {
            let steps: Vec<u64> = self.ledger.iter().filter_map(ChainLine::step).collect();
            violations.extend(missing_hashes(&self.events, self.plan));
            violations.extend(missing_events(self.run, &self.events, &steps, self.plan));
        }
        for name in [LEDGER, EVENTS] {
            violations.extend(bytes_after_end(self.run, name, &self.events));
        }
        let linked = |line: &&ChainLine| line.previous.is_some();
        let all = events.iter().chain(&self.ledger);
        let (linked, all) = (all.clone().filter(linked).count(), all.count());
        if linked == 0 && violations.is_empty() {
            return Finding::not_recorded(
                PROPERTY,
                "created by an older version: changes to lines of events.jsonl, and consistent changes to lines of ledger.jsonl, cannot be detected",
            );
        }
        let mut checked = count(linked, "line");
        if linked < all {
            checked +=
                &format!("; {} from an older version are not covered", count(all - linked, "line"));
        }
        Finding::new(PROPERTY, checked, violations)
    }

    fn has_metrics(&self) -> bool {
        !self.metrics.is_empty()
    }

    /// Checks that the ledger contains all lines whose hashes are recorded in events.
    fn anchors(&self, violations: &mut Vec<Violation>) {
        let mut found = BTreeSet::new();
        for event in after_roll_back(&self.events) {
            let Some(recorded) = &event.proof.ledger else { continue };
            let mut lines = self.ledger.iter().filter(|line| line.step() == Some(event.step));
            let is_there = lines.any(|line| line.hash == *recorded);
            if !is_there && found.insert(event.step) {
                let what = "the hash of this line of ledger.jsonl does not match events.jsonl; the ledger was truncated or the line replaced";
                violations.push(Violation { step: Some(event.step), what: what.to_owned() });
            }
        }
    }

    /// Iterates over the hashes of other files recorded in the ledger, with their steps.
    fn recorded(&self) -> impl Iterator<Item = (u64, RecordedHashes)> {
        self.ledger.iter().filter_map(|line| {
            let hashes = line.record.get("recorded")?;
            Some((line.step()?, RecordedHashes::deserialize(hashes).ok()?))
        })
    }

    /// Checks the lines of `metrics.jsonl` against the hashes in the ledger.
    fn metrics(&self) -> Finding {
        const PROPERTY: &str = "metrics";
        let recorded: BTreeMap<u64, RecordedHashes> = self.recorded().collect();
        let mut violations = Vec::new();
        let mut checked = 0;
        let mut best: Option<(u64, f64)> = None;
        for line in &self.metrics {
            let Some(step) = line.step() else {
                let number = line.number;
                let what = format!("line {number} of metrics.jsonl does not belong to a step");
                violations.push(Violation { step: None, what });
                continue;
            };
            if let Some(reward) = line.record.get("eval_reward").and_then(serde_json::Value::as_f64)
                && best.is_none_or(|(_, best)| reward > best && reward >= best + self.plan.min_gain)
            {
                best = Some((step, reward));
            }
            let Some(hashes) = recorded.get(&step) else { continue };
            checked += 1;
            let now = RecordedHashes::of_metrics_line(line.record.clone(), |name| {
                self.plan.metrics.is_of_machine(name)
            });
            if now != hashes.metrics {
                let what = "its line in metrics.jsonl changed after the run wrote it (ledger.jsonl has its SHA-256)";
                violations.push(Violation { step: Some(step), what: what.to_owned() });
            }
        }
        violations.extend(self.other_best(best));
        violations.extend(bytes_after_end(self.run, METRICS, &self.events));
        if recorded.is_empty() && violations.is_empty() {
            return Finding::not_recorded(PROPERTY, OLDER);
        }
        let checked = format!("{}, without times and memory", count(checked, "line"));
        Finding::new(PROPERTY, checked, violations)
    }

    /// Returns a violation if the `best` event does not name the best evaluation in the metrics.
    fn other_best(&self, best: Option<(u64, f64)>) -> Option<Violation> {
        let named = self.events.iter().rev().find_map(|event| match event.what {
            EventKind::Best { best_step, reward, .. } => Some((best_step, reward)),
            _ => None,
        })?;
        (Some(named) != best).then(|| {
            let found = best.map_or("no evaluation".to_owned(), |(step, reward)| {
                format!("the best evaluation after step {step}, with mean reward {reward}")
            });
            let (step, reward) = named;
            let what = format!(
                "events.jsonl records the evaluation after step {step} with mean reward {reward} as the best, but metrics.jsonl has {found}"
            );
            Violation { step: None, what }
        })
    }

    /// Checks the completions files against the hashes in the ledger.
    fn completion_files(&self) -> Result<Finding, RunError> {
        const PROPERTY: &str = "completion files";
        let mut violations = Vec::new();
        let (mut is_recorded, mut checked) = (false, 0);
        for (step, hashes) in self.recorded() {
            is_recorded = true;
            let path = self.run.completions_path(step);
            let kind = self.run.folder.kind(name_of(step)).map_err(RunError::read(&path))?;
            let what = match hashes.completions {
                // Missing files violate the property `recorded completions`, and links `files`.
                _ if kind != Some(FileKind::File) => continue,
                Some(hash) if hash == sha256_of_file(&path)? => {
                    checked += 1;
                    continue;
                }
                Some(_) => {
                    "its completions file changed after the run wrote it (ledger.jsonl has its SHA-256)"
                }
                None => "the run recorded no completions for it, but a completions file exists",
            };
            violations.push(Violation { step: Some(step), what: what.to_owned() });
        }
        for name in self.run.foreign_completions()? {
            let what = format!("`completions/{name}` is not a file of the run");
            violations.push(Violation { step: None, what });
        }
        Ok(match is_recorded || !violations.is_empty() {
            false => Finding::not_recorded(PROPERTY, OLDER),
            true => {
                let checked = match checked {
                    0 => "none was due, and none is there".to_owned(),
                    _ => count(checked, "file"),
                };
                Finding::new(PROPERTY, checked, violations)
            }
        })
    }
}

/// Returns the step of the line with this number.
fn step_at(lines: &[ChainLine], number: u64) -> Option<u64> {
    lines.iter().find(|line| line.number == number)?.step()
}

/// Roles of input files whose whole folder is read.
const FOLDER_ROLES: [&str; 2] = ["model", "adapter"];

/// Returns the files in model and adapter folders that are not listed as inputs, except model cards. The folder
/// of a GGUF file is not a model folder.
fn added_inputs(files: &[DataFile]) -> Vec<PathBuf> {
    let is_config =
        |path: &Path| path.ends_with("config.json") || path.ends_with("adapter_config.json");
    let of_folder = files
        .iter()
        .filter(|file| FOLDER_ROLES.contains(&file.role.as_str()) && is_config(&file.path));
    let folders: BTreeSet<&Path> = of_folder.filter_map(|file| file.path.parent()).collect();
    // A bare file name has the parent "", which stands for the working directory.
    let read = |folder: &&Path| match folder.as_os_str().is_empty() {
        true => fs::read_dir("."),
        false => fs::read_dir(folder),
    };
    let there = folders.iter().filter_map(|folder| read(folder).ok()).flatten().flatten();
    let is_read = |path: &PathBuf| path.is_file() && !path.ends_with(MODEL_CARD);
    let is_listed = |path: &PathBuf| files.iter().any(|file| file.path == *path);
    let mut added: Vec<PathBuf> =
        there.map(|entry| entry.path()).filter(|path| is_read(path) && !is_listed(path)).collect();
    added.sort();
    added
}

const OLDER: &str =
    "created by an older version: changes to numbers, text, prompts and rewards cannot be detected";
