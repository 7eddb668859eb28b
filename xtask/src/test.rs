//! The `cargo xtask test` command.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::{mpi, process};

/// Run all tests of the workspace, including doc tests
///
/// This uses plain `cargo test`, so nothing needs to be installed. If MPI and libclang are there,
/// training as several processes is tested too. The last line shows the number
/// of tests in all packages. Ignored tests are an error.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask test                        all tests
  cargo xtask test -p grpo-core           those of one package
  cargo xtask test advantage              those with `advantage` in their name
  cargo xtask test -- --nocapture         with what they print")]
pub(crate) struct Test {
    /// Test only this package; repeatable
    #[arg(short, long, value_name = "NAME")]
    package: Vec<OsString>,
    /// Arguments for `cargo test`
    #[arg(allow_hyphen_values = true)]
    arguments: Vec<OsString>,
    /// Arguments for the test binaries
    #[arg(last = true)]
    harness: Vec<OsString>,
}

impl Test {
    /// Runs all tests in all packages.
    pub(crate) const ALL: Self =
        Self { package: Vec::new(), arguments: Vec::new(), harness: Vec::new() };
}

/// Runs `cargo test`. If no package is given, tests the entire workspace.
pub(crate) fn test(
    root: &Path,
    test: &Test,
    environment: impl IntoIterator<Item = (&'static str, OsString)>,
) -> Result<()> {
    let mut cargo = process::cargo(root);
    cargo.arg("test").envs(environment);
    if test.package.is_empty() {
        cargo.arg("--workspace").args(mpi::features());
        if let Some(missing) = mpi::missing() {
            println!(
                "skipped: the tests of `grpo train` as several processes, because {missing} is not installed ({})",
                mpi::INSTALL
            );
        }
    }
    for package in &test.package {
        cargo.arg("--package").arg(package);
    }
    cargo.args(&test.arguments);
    if !test.harness.is_empty() {
        cargo.arg("--").args(&test.harness);
    }
    let mut total = Total::default();
    let done = process::run_reading(&mut cargo, |line| total.add(line));
    println!("\n{total}");
    done.and_then(|()| total.all_ran())
}

/// Runs the test that compares the schemas and the references of configurations and metrics with the code, and
/// lets it write them.
pub(crate) fn config_reference(root: &Path) -> Result<()> {
    let arguments = ["--test", "cli", "schemas_and_reference_follow_from_the_types"];
    let only = Test {
        // The whole workspace: a single package has other features, with which Burn would be built again.
        package: Vec::new(),
        arguments: arguments.map(OsString::from).into(),
        harness: Vec::new(),
    };
    test(root, &only, [("GRPO_WRITE_SCHEMAS", "1".into())])
}

/// Test counts across all test binaries.
#[derive(Debug, Default)]
struct Total {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Total {
    /// Adds the counts if this is the summary line of a test binary:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    fn all_ran(&self) -> Result<()> {
        ensure!(self.skipped == 0, "ignored tests prove nothing: make them run, or delete them");
        Ok(())
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tests: {} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(output: &str, expect: &str) {
        let mut total = Total::default();
        output.lines().for_each(|line| total.add(line));
        assert_eq!(total.to_string(), expect);
        assert_eq!(total.all_ran().is_ok(), expect.ends_with(" 0 skipped"));
    }

    #[test]
    fn closing_lines_are_added_up() {
        check("", "tests: 0 passed, 0 failed, 0 skipped");
        check(
            "\
running 4 tests
test a ... ok
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s
   Doc-tests a
test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
            "tests: 13 passed, 2 failed, 1 skipped",
        );
    }
}
