//! Ranks of a run that was started with `mpirun` or `srun`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use grpo_model::{Policy, weights_digest};
use grpo_run::{Checkpoint, DataFile, RunFolder, sha256_of_manifest};
use grpo_runtime::{Launch, Ranks, launch};
use grpo_task::config::REVISION;
use grpo_task::device;
use grpo_task::output::{remove_incomplete, say_error, set_quiet};
use serde::{Deserialize, Serialize};

#[cfg(feature = "mpi")]
use crate::train::dashboard::terminal;
use crate::train_file::TrainFile;

/// Delay before a rank other than the first prints an error. If the first one has the same error, e.g.
/// in the configuration, it prints it and ends all ranks during this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the launch if it has several ranks.
fn several() -> Option<Launch> {
    launch().filter(|launch| launch.count > 1)
}

/// Checks that a command that uses one process was started as one process.
pub(crate) fn refuse_several() -> anyhow::Result<()> {
    match several() {
        None => Ok(()),
        Some(Launch { count, .. }) => anyhow::bail!(
            "this command runs in one process, but {count} were started; start it without mpirun or srun (only `grpo train` uses several)"
        ),
    }
}

/// Connects the ranks that were started together. Only the first one prints messages.
pub(crate) fn connect(time_limit: f64) -> anyhow::Result<Ranks> {
    let Some(Launch { rank, count }) = several() else { return Ok(Ranks::alone()) };
    let ranks = with_mpi(Duration::from_secs_f64(time_limit))?;
    anyhow::ensure!(
        ranks.count() == count,
        "{count} processes were started, but MPI connects {} of them; `mpirun` belongs to a different MPI library from the one that grpo was built with, or `srun` needs --mpi=pmix",
        ranks.count()
    );
    if rank > 0 {
        set_quiet(true);
    }
    Ok(ranks)
}

#[cfg(feature = "mpi")]
fn with_mpi(time_limit: Duration) -> anyhow::Result<Ranks> {
    let report = |error: &grpo_runtime::RankError| {
        terminal::restore();
        say_error(&anyhow::anyhow!(
            "{error}; if it is only slow, raise --rank-time-limit; `grpo train --resume` continues the run"
        ));
        remove_incomplete();
    };
    let mpi = grpo_runtime::Mpi::connect(time_limit, Box::new(report))
        .context("MPI cannot be used: it is already in use in this process, or the library does not support threads (MPI_THREAD_SERIALIZED)")?;
    Ok(Ranks::new(std::sync::Arc::new(mpi)))
}

#[cfg(not(feature = "mpi"))]
fn with_mpi(_time_limit: Duration) -> anyhow::Result<Ranks> {
    Err(anyhow::anyhow!("built without the feature `mpi`")).context(
        "several processes were started, but this grpo cannot connect them; build it with `cargo xtask build --features mpi`, or start one process without mpirun",
    )
}

/// Lets the first rank print an error before another one does.
pub(crate) fn let_first_report() {
    if several().is_some_and(|launch| launch.rank > 0) {
        thread::sleep(PATIENCE);
    }
}

/// Prints an error. A rank other than the first waits for the first one and says which it is.
pub(crate) fn report(error: &anyhow::Error) {
    let_first_report();
    match several() {
        Some(Launch { rank: rank @ 1.., .. }) => {
            say_error(&anyhow::anyhow!("rank {rank}: {error:#}"));
        }
        _ => say_error(error),
    }
}

/// Prints an error and ends all ranks, which would otherwise wait for this one.
pub(crate) fn give_up(ranks: &Ranks, error: &anyhow::Error) -> ! {
    report(error);
    remove_incomplete();
    ranks.abort(1)
}

/// What all ranks of a run must have in common.
#[derive(Serialize, Deserialize)]
pub(crate) struct Inputs {
    /// The resolved configuration.
    config: String,
    /// Path, size and SHA-256 of each input file.
    files: Vec<(String, u64, String)>,
    /// Hash of the initial policy.
    weights: String,
    /// Version and git revision of the program.
    version: String,
    /// What computes, see [`device::kind`].
    device: String,
}

impl Inputs {
    pub(crate) fn new(config: String, data: &[DataFile], policy: &Policy) -> anyhow::Result<Self> {
        let path = |file: &DataFile| file.path.display().to_string();
        let files = data.iter().map(|file| (path(file), file.bytes, file.sha256.clone()));
        let weights = String::from(weights_digest(policy));
        let revision = REVISION.get().unwrap_or(&"unknown revision");
        let version = format!("{} {revision}", env!("CARGO_PKG_VERSION"));
        let device = device::kind()?;
        Ok(Self { config, files: files.collect(), weights, version, device })
    }

    /// Checks that all ranks have the same inputs.
    ///
    /// # Errors
    /// Returns the same error on all ranks.
    pub(crate) fn agree(self, ranks: &Ranks) -> anyhow::Result<()> {
        let all = ranks.gather(self)?;
        let others = all[1..].iter().zip(1..);
        match others.filter_map(|(other, rank)| Some((rank, all[0].difference(other)?))).next() {
            Some((rank, difference)) => {
                anyhow::bail!(
                    "rank {rank} has {difference} from rank 0; start all ranks with the same program, configuration, files and type of device (--device)"
                )
            }
            None => Ok(()),
        }
    }

    fn difference(&self, other: &Self) -> Option<String> {
        if self.version != other.version {
            return Some(format!("a different version of grpo ({})", other.version));
        }
        if self.device != other.device {
            let (own, other) = (&self.device, &other.device);
            return Some(format!("a different device ({other} instead of {own})"));
        }
        if self.config != other.config {
            let own = keys(&self.config);
            let line = keys(&other.config).into_iter().find(|line| !own.contains(line));
            let line = line.unwrap_or_else(|| "a key is missing".to_owned());
            return Some(format!("a different configuration (`{line}`)"));
        }
        let differs = |a: &Self, b: &Self| {
            a.files.iter().find(|file| !b.files.contains(file)).map(|(path, ..)| path.clone())
        };
        if let Some(path) = differs(other, self).or_else(|| differs(self, other)) {
            return Some(format!("a different file `{path}`"));
        }
        (self.weights != other.weights).then(|| "different initial weights".to_owned())
    }
}

/// Returns the lines of a configuration that set a key, with the section in front of the key.
fn keys(config: &str) -> Vec<String> {
    let mut section = "";
    let mut keys = Vec::new();
    for line in config.lines().map(str::trim) {
        match line.trim_start_matches('[').split_once(']') {
            Some((name, _)) if line.starts_with('[') => section = name,
            _ if section.is_empty() => keys.push(line.to_owned()),
            _ => keys.push(format!("{section}.{line}")),
        }
    }
    keys
}

/// A checkpoint from which all ranks continue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Restored {
    step: u64,
    /// SHA-256 of its manifest.
    manifest: String,
}

/// How long a rank waits until a checkpoint of the first rank appears on its file system.
const FILES_ARRIVE: Duration = Duration::from_secs(60);

impl Restored {
    pub(crate) fn new(step: u64, checkpoint: &Path) -> anyhow::Result<Self> {
        Ok(Self { step, manifest: sha256_of_manifest(checkpoint)? })
    }

    /// Returns the checkpoint that the first rank has written after a step.
    pub(crate) fn of_step(folder: &RunFolder, step: u32) -> anyhow::Result<Self> {
        let step = u64::from(step);
        let found = folder.checkpoints()?.into_iter().find(|checkpoint| checkpoint.step == step);
        Self::new(step, &found.context("the checkpoint was just written")?.path)
    }

    /// Tells the other ranks from which checkpoint they continue, if there is one, and waits until they
    /// have read it. Afterwards, it may be replaced.
    pub(crate) fn announce(ranks: &Ranks, restored: Option<Self>) -> anyhow::Result<()> {
        ranks.from_first(Some(restored))?;
        Ok(ranks.wait_for_all()?)
    }

    /// Returns the same checkpoint as this rank sees it. Network file systems may show it late.
    pub(crate) fn find(&self, folder: &RunFolder) -> anyhow::Result<Checkpoint> {
        let started = Instant::now();
        loop {
            let is_same = |checkpoint: &Checkpoint| {
                checkpoint.step == self.step
                    && sha256_of_manifest(&checkpoint.path).is_ok_and(|own| own == self.manifest)
            };
            if let Some(found) = folder.checkpoints()?.into_iter().find(is_same) {
                return Ok(found);
            }
            anyhow::ensure!(
                started.elapsed() < FILES_ARRIVE,
                "`{}` does not have the checkpoint of step {} that rank 0 uses; all ranks need the same run folder, on a shared file system",
                folder.path().display(),
                self.step
            );
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Checks that ranks wait for each other longer than rewards may take.
///
/// # Errors
/// Returns an error if they do not.
pub(crate) fn refuse_short_limit(file: &TrainFile, ranks: &Ranks) -> anyhow::Result<()> {
    let Some(limit) = ranks.time_limit() else { return Ok(()) };
    let of_step =
        f64::from(file.trainer.train.prompts_per_step) * file.trainer.train.group_size as f64;
    // Evaluations have the same time per completion as steps, but not less in all.
    let share = (f64::from(file.trainer.eval.samples) / of_step).max(1.0);
    let (limit, of_rewards) = (limit.as_secs_f64(), file.trainer.train.reward_time_limit * share);
    let (what, keys) = match share > 1.0 {
        true => ("an evaluation", "train.reward_time_limit or eval.samples"),
        false => ("a step", "train.reward_time_limit"),
    };
    anyhow::ensure!(
        limit > of_rewards,
        "--rank-time-limit {limit} must be longer than the {} s that the rewards of {what} may take; raise it, or lower {keys}",
        of_rewards.ceil()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_other_inputs_are_named() {
        let inputs = |config: &str, sha: &str| Inputs {
            config: config.to_owned(),
            files: vec![("a.smi".to_owned(), 3, sha.to_owned())],
            weights: "w".to_owned(),
            version: "1".to_owned(),
            device: "NVIDIA H100 (cuda)".to_owned(),
        };
        let same = inputs("seed = 1\nrun = \"r\"", "aa");
        assert_eq!(same.difference(&inputs("seed = 1\nrun = \"r\"", "aa")), None);
        let other = same.difference(&inputs("seed = 2\nrun = \"r\"", "aa")).unwrap();
        assert_eq!(other, "a different configuration (`seed = 2`)");
        let other = same.difference(&inputs("seed = 1\nrun = \"r\"", "ab")).unwrap();
        assert_eq!(other, "a different file `a.smi`");
        let fewer = Inputs { files: Vec::new(), ..inputs("seed = 1\nrun = \"r\"", "aa") };
        assert_eq!(same.difference(&fewer).unwrap(), "a different file `a.smi`");
        let table = |rate: &str| inputs(&format!("[optimizer]\nlearning_rate = {rate}"), "aa");
        let other = table("1e-3").difference(&table("2e-3")).unwrap();
        assert_eq!(other, "a different configuration (`optimizer.learning_rate = 2e-3`)");
        let on_cpu = Inputs { device: "cpu".to_owned(), ..inputs("seed = 1\nrun = \"r\"", "aa") };
        let other = same.difference(&on_cpu).unwrap();
        assert_eq!(other, "a different device (cpu instead of NVIDIA H100 (cuda))");
        let missing = same.difference(&inputs("seed = 1", "aa")).unwrap();
        assert_eq!(missing, "a different configuration (`a key is missing`)");
    }
}
