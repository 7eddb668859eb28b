//! What a run writes down about itself.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use grpo_run::{DataFile, RunInfo};
use serde::Serialize;

use crate::device;

/// The whole configuration as it was used, defaults among it.
pub fn resolved(config: &impl Serialize) -> anyhow::Result<String> {
    toml::to_string(config).context("the resolved configuration cannot be written as TOML")
}

/// Versions, command line, device and data of this run.
pub fn run_info(seed: u64, data: Vec<DataFile>) -> RunInfo {
    let versions = [
        ("grpo", env!("CARGO_PKG_VERSION")),
        ("burn", locked_version("burn")),
        ("chematic", locked_version("chematic")),
    ];
    RunInfo {
        command: std::env::args().collect(),
        started: now(),
        versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
        git_revision: git_revision(),
        seed,
        device: device::name().to_owned(),
        threads: rayon::current_num_threads(),
        // The folder of the run knows it.
        config_sha256: String::new(),
        data,
    }
}

/// The version of a dependency that this program was built with.
fn locked_version(package: &str) -> &'static str {
    const LOCK: &str = include_str!("../../../../Cargo.lock");
    let version = LOCK
        .split("[[package]]")
        .find(|entry| entry.trim_start().starts_with(&format!("name = \"{package}\"\n")))
        .and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.expect("Cargo.lock names every dependency")
}

/// The revision of the working folder, which is where the program of a workspace was built; `None` outside a
/// git checkout.
fn git_revision() -> Option<String> {
    let output = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output().ok()?;
    let revision = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| revision.trim().to_owned())
}

/// UTC to the second.
pub fn now() -> String {
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()))
}

/// `2026-01-31T12:00:00Z` of the seconds since 1970.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a date by Hinnant's algorithm ("chrono-compatible low-level date algorithms"), with years that
    // begin in March.
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against `date -u -d @N`.
    #[test]
    fn seconds_become_dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        assert_eq!(locked_version("burn"), "0.22.1");
        assert_eq!(locked_version("chematic"), "1.2.1");
    }
}
