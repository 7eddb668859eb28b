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
pub(crate) static REVISION: OnceLock<&'static str> = OnceLock::new();

/// Serializes the entire configuration, including defaults.
pub fn resolved(config: &impl Serialize) -> anyhow::Result<String> {
    toml::to_string(config).context("cannot write the resolved configuration as TOML")
}

/// Collects the versions, command line, device and data files of this run.
pub fn run_info(seed: u64, data: Vec<DataFile>) -> RunInfo {
    let versions = [
        ("grpo", env!("CARGO_PKG_VERSION")),
        ("burn", locked_version("burn")),
        ("chematic", locked_version("chematic")),
    ];
    let RecordedDevice { name: device, gpu } = of_this_process();
    RunInfo {
        command: std::env::args().map(|part| without_passwords(&part).into_owned()).collect(),
        started: now(),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
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

/// Returns the version of a dependency from `Cargo.lock`.
fn locked_version(package: &str) -> &'static str {
    const LOCK: &str = include_str!("../../../../Cargo.lock");
    let version = LOCK
        .split("[[package]]")
        .find(|entry| entry.trim_start().starts_with(&format!("name = \"{package}\"\n")))
        .and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.expect("Cargo.lock names every dependency")
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
        assert_eq!(locked_version("burn"), "0.22.1");
        assert_eq!(locked_version("chematic"), "1.2.1");
    }
}
