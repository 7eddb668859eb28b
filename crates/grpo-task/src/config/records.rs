//! Metadata recorded with each run.

use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::Context;
use chrono::{DateTime, SecondsFormat, Utc};
use grpo_data::without_passwords;
use grpo_run::{DataFile, RecordedDevice, RunInfo};
use serde::Serialize;

use crate::recorded_device::of_this_process;

/// Git revision of this program.
pub static REVISION: OnceLock<&'static str> = OnceLock::new();

/// Versions of the dependencies that determine results. The workspace pins them exactly.
const PINNED: [(&str, &str); 2] = [("burn", "0.22.1"), ("chematic", "1.2.1")];

/// Serializes the entire configuration, including defaults.
pub fn resolved(config: &impl Serialize) -> anyhow::Result<String> {
    toml::to_string(config).context("cannot write the resolved configuration as TOML")
}

/// Collects the versions, command line, device and data files of this run.
pub fn run_info(seed: u64, data: Vec<DataFile>) -> RunInfo {
    let versions = [("grpo", env!("CARGO_PKG_VERSION"))].into_iter().chain(PINNED);
    let RecordedDevice { name: device, gpu } = of_this_process();
    RunInfo {
        command: std::env::args().map(|part| without_passwords(&part).into_owned()).collect(),
        started: now(),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).collect(),
        git_revision: REVISION.get().map(|revision| (*revision).to_owned()),
        seed,
        device,
        gpu,
        threads: rayon::current_num_threads(),
        // Filled in by `RunFolder`.
        config_sha256: String::new(),
        chained: false,
        data,
    }
}

/// Returns the current UTC time in seconds, e.g. `2026-01-31T12:00:00Z`.
pub fn now() -> String {
    // `Utc::now` panics if the clock is before 1970.
    DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
        let lock = std::fs::read_to_string(path).unwrap();
        for (package, version) in PINNED {
            let entry = format!("name = \"{package}\"\nversion = \"{version}\"\n");
            assert_eq!(lock.matches(&entry).count(), 1, "{package}");
        }
    }
}
