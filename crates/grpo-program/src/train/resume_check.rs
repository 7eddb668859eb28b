//! Checks that resuming a finished run from an earlier checkpoint repeats the same steps. The run
//! is resumed by a different process in a copy of its folder.
#![expect(clippy::disallowed_methods, reason = "a temporary folder of this process")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use grpo_data::regular_file;
use grpo_report::{Judged, Outcome};
use grpo_run::RunFolder;
use grpo_task::device;
use grpo_task::interrupt::{Deferred, Interrupted};
use grpo_task::output::{last_error, say};
use grpo_train::MetricTable;
use serde_json::{Map, Value};
use tempfile::TempDir;

const NAME: &str = "Resume is exact";

/// Returns the verdict for a skipped check.
pub(crate) fn left_out(reason: &str) -> Judged {
    judged(Outcome::NotJudged, reason.to_owned())
}

fn judged(outcome: Outcome, sentence: String) -> Judged {
    Judged::new(NAME, outcome, sentence)
}

/// Repeats the last quarter of the run and compares the result. This covers the metrics except
/// times and memory by `table`, the ledger with its weight hashes, and the trained weights in the subfolder
/// `kind`.
///
/// # Errors
/// Returns an error if the folder cannot be copied or a signal arrives.
pub(crate) fn resume_check(
    run: &Path,
    kind: &str,
    table: &MetricTable,
    interrupt: &AtomicBool,
) -> anyhow::Result<Judged> {
    let folder = RunFolder::open(run)?;
    let metrics = folder.read_metrics()?;
    let last = metrics.iter().filter_map(step_of).max().unwrap_or(0);
    let three_quarters = folder.newest_checkpoint(Some(3 * last / 4))?.whole;
    let from = match three_quarters {
        Some(from) => Some(from),
        None => folder.newest_checkpoint(Some(last.saturating_sub(1)))?.whole,
    };
    let Some((from, checkpoint)) = from else {
        let sentence = "no intact checkpoint from before the last step is left to resume from; set save.every, or increase save.keep_last";
        return Ok(judged(Outcome::Failed, sentence.to_owned()));
    };
    let steps = format!("steps {} to {last}", from + 1);
    say(format_args!("repeating {steps} from the checkpoint of step {from} in a copy"));
    // A signal ends the subprocess, and the copy is removed.
    let _deferred = Deferred::new();
    let copy = copy(&folder, checkpoint.path(), from)?;
    if let Some(fault) = take_up_again(copy.path(), interrupt)? {
        return Ok(judged(Outcome::Failed, fault));
    }
    let again = RunFolder::open(copy.path())?;
    Ok(match difference(&folder, &again, from, kind, table)? {
        Some(fault) => judged(Outcome::Failed, fault),
        None => judged(
            Outcome::Passed,
            format!(
                "{steps}, repeated from the checkpoint of step {from}, are equal bit for bit: metrics, completions, weights"
            ),
        ),
    })
}

fn step_of(line: &Map<String, Value>) -> Option<u64> {
    line.get("step").and_then(Value::as_u64)
}

/// Copies the run folder with a single checkpoint. The copy is placed in the same parent folder so
/// that large files can be hard-linked.
fn copy(run: &RunFolder, checkpoint: &Path, step: u64) -> anyhow::Result<TempDir> {
    let beside = run.path().parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let copied = (|| {
        let copy = tempfile::Builder::new().prefix(".resume-check-").tempdir_in(beside)?;
        let to = copy.path();
        for name in ["completions", "checkpoints"] {
            fs::create_dir(to.join(name))?;
        }
        let files = ["config.toml", "run.json", "metrics.jsonl", "ledger.jsonl", "events.jsonl"];
        for name in files {
            let mut copy = File::create_new(to.join(name))?;
            std::io::copy(&mut run.files().open_file(name)?, &mut copy)?;
        }
        link(checkpoint, &to.join("checkpoints").join(format!("step-{step}")))?;
        std::io::Result::Ok(copy)
    })();
    copied.with_context(|| format!("cannot copy `{}` for the resume check", run.path().display()))
}

/// Hard-links all files of a checkpoint. This is safe because they are never modified.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link(&from, &to)?;
        } else if fs::hard_link(&from, &to).is_err() {
            // Some file systems do not support hard links.
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// Runs `grpo train --resume` as a subprocess. Returns its error message if it fails.
fn take_up_again(run: &Path, interrupt: &AtomicBool) -> anyhow::Result<Option<String>> {
    let words = run.join("words");
    let log = File::create(&words).with_context(|| format!("cannot write {}", words.display()))?;
    let program = std::env::current_exe().context("cannot determine the path of this program")?;
    let threads = rayon::current_num_threads().to_string();
    let mut child = Command::new(program)
        .args(["--threads", &threads, "--device", &device::name().to_string()])
        .args(["train", "--plain", "--verify", "--run-reward", "--resume"])
        .arg(run)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start this program again")?;
    let status = loop {
        if interrupt.load(Ordering::Relaxed) {
            let _ended_already = child.kill();
            child.wait()?;
            return Err(Interrupted.into());
        }
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if status.success() {
        return Ok(None);
    }
    let words = regular_file::read_to_string(&words).unwrap_or_default();
    // Removes the name of the copy, which means nothing to the user.
    let said = last_error(&words)
        .and_then(|said| said.split_once(" ended early: ").map(|(_, said)| said).or(Some(said)));
    Ok(Some(said.map_or_else(|| format!("the resumed run ended with {status}"), str::to_owned)))
}

/// Describes the first difference after step `from`. The ledger was already checked by `--verify`.
fn difference(
    run: &RunFolder,
    again: &RunFolder,
    from: u64,
    kind: &str,
    table: &MetricTable,
) -> anyhow::Result<Option<String>> {
    let lines = |run: &RunFolder| -> anyhow::Result<Vec<Map<String, Value>>> {
        let mut lines = run.read_metrics()?;
        lines.retain(|line| step_of(line).is_some_and(|step| step > from));
        lines.iter_mut().for_each(|line| line.retain(|name, _| !table.is_of_machine(name)));
        Ok(lines)
    };
    let (was, now) = (lines(run)?, lines(again)?);
    if was.len() != now.len() {
        return Ok(Some(format!(
            "there were {} steps, but now there are {}",
            was.len(),
            now.len()
        )));
    }
    if let Some((was, _)) = was.iter().zip(&now).find(|(was, now)| was != now) {
        let step = step_of(was).unwrap_or(0);
        return Ok(Some(format!("step {step} has different values in metrics.jsonl")));
    }
    let manifest = |run: &RunFolder| {
        let path = run.path().join(kind).join("manifest.json");
        regular_file::read_data(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let same = manifest(run)? == manifest(again)?;
    Ok((!same).then(|| format!("the final files in `{kind}` differ")))
}
