//! Ranks of a run that was started with `mpirun` or `srun`.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use grpo_model::{Policy, weights_digest};
use grpo_ranks::{Launch, Ranks, launch};
use grpo_run::DataFile;
use serde::{Deserialize, Serialize};

use crate::output::{remove_incomplete, say_error, set_quiet};

/// Delay before a rank other than the first prints an error. Usually the first one prints the same
/// error and ends all ranks.
const FIRST_RANK_SPEAKS: Duration = Duration::from_secs(2);

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
    anyhow::ensure!(
        time_limit > 0.0 && time_limit <= 1e6,
        "--rank-time-limit {time_limit} is out of range; expected a number of seconds above 0 and up to 1000000"
    );
    let ranks = with_mpi(Duration::from_secs_f64(time_limit))?;
    anyhow::ensure!(
        ranks.count() == count,
        "{count} processes were started, but MPI connects {} of them; `mpirun` belongs to another MPI library than the one that grpo was built with",
        ranks.count()
    );
    if rank > 0 {
        set_quiet(true);
    }
    Ok(ranks)
}

#[cfg(feature = "mpi")]
fn with_mpi(time_limit: Duration) -> anyhow::Result<Ranks> {
    let report = |error: &grpo_ranks::RankError| say_error(&anyhow::Error::new(error.clone()));
    let mpi = grpo_ranks::Mpi::connect(time_limit, Box::new(report))
        .context("the MPI library does not support programs with several threads (MPI_THREAD_SERIALIZED); install another one")?;
    Ok(Ranks::new(std::sync::Arc::new(mpi)))
}

#[cfg(not(feature = "mpi"))]
fn with_mpi(_time_limit: Duration) -> anyhow::Result<Ranks> {
    Err(anyhow::anyhow!("built without the feature `mpi`")).context(
        "several processes were started, but this grpo cannot connect them; build it with `cargo build --release -p grpo-cli --features mpi`, or start one process without mpirun",
    )
}

/// Prints an error and ends all ranks, which would otherwise wait for this one.
pub(crate) fn give_up(ranks: &Ranks, error: &anyhow::Error) -> ! {
    if ranks.is_first() {
        say_error(error);
    } else {
        thread::sleep(FIRST_RANK_SPEAKS);
        say_error(&anyhow::anyhow!("rank {}: {error:#}", ranks.rank()));
    }
    remove_incomplete();
    ranks.abort(1)
}

/// What all ranks of a run must have in common.
#[derive(Serialize, Deserialize)]
pub(crate) struct Inputs {
    /// The resolved configuration.
    config: String,
    /// Path, size and SHA-256 of each input file.
    files: Vec<(PathBuf, u64, String)>,
    /// Hash of the initial policy.
    weights: String,
    /// Version of the program.
    version: String,
}

impl Inputs {
    pub(crate) fn new(config: String, data: &[DataFile], policy: &Policy) -> Self {
        let files = data.iter().map(|file| (file.path.clone(), file.bytes, file.sha256.clone()));
        let weights = String::from(weights_digest(policy));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { config, files: files.collect(), weights, version }
    }

    /// Checks that all ranks have the same inputs.
    ///
    /// # Errors
    /// Returns the same error on all ranks.
    pub(crate) fn agree(self, ranks: &Ranks) -> anyhow::Result<()> {
        if ranks.is_alone() {
            return Ok(());
        }
        let all = ranks.gather(self)?;
        let others = all[1..].iter().zip(1..);
        match others.filter_map(|(other, rank)| Some((rank, all[0].difference(other)?))).next() {
            Some((rank, difference)) => {
                anyhow::bail!("rank {rank} has {difference} than rank 0; give all ranks the same")
            }
            None => Ok(()),
        }
    }

    fn difference(&self, other: &Self) -> Option<String> {
        if self.version != other.version {
            return Some(format!("another version of grpo ({})", other.version));
        }
        if self.config != other.config {
            let mut lines = self.config.lines().zip(other.config.lines());
            let line = lines.find(|(own, other)| own != other).map(|(_, other)| other.trim());
            return Some(format!("another configuration (`{}`)", line.unwrap_or_default()));
        }
        if let Some((path, ..)) = other.files.iter().find(|file| !self.files.contains(file)) {
            return Some(format!("another file `{}`", path.display()));
        }
        (self.weights != other.weights).then(|| "other initial weights".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_other_inputs_are_named() {
        let inputs = |config: &str, sha: &str| Inputs {
            config: config.to_owned(),
            files: vec![(PathBuf::from("a.smi"), 3, sha.to_owned())],
            weights: "w".to_owned(),
            version: "1".to_owned(),
        };
        let same = inputs("seed = 1\nrun = \"r\"", "aa");
        assert_eq!(same.difference(&inputs("seed = 1\nrun = \"r\"", "aa")), None);
        let other = same.difference(&inputs("seed = 2\nrun = \"r\"", "aa")).unwrap();
        assert_eq!(other, "another configuration (`seed = 2`)");
        let other = same.difference(&inputs("seed = 1\nrun = \"r\"", "ab")).unwrap();
        assert_eq!(other, "another file `a.smi`");
    }
}
