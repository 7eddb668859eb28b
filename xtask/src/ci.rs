//! The `cargo xtask ci` command.
//!
//! By default, clippy and rustdoc build their own artefacts for the dependencies, as `cargo check`
//! does. To compile each dependency only once, both reuse the test artefacts instead: clippy's
//! driver compiles the workspace crates for the tests, and rustdoc checks a crate's documentation
//! when it runs the doc tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::is_installed;
use crate::test::{Test, test};
use crate::workspace::Workspace;
use crate::{mpi, process, tidy, venv};

/// A step's name and function.
type Step = (&'static str, fn(&Path) -> Result<()>);

/// The steps, cheapest first.
const STEPS: &[Step] = &[
    ("format", format),
    ("tidy", tidy::tidy),
    ("python", python),
    ("schemas", schemas),
    ("deny", deny),
    ("book", book),
    ("package", package),
    ("lints", lints),
    ("tests", tests),
];

/// Runs all steps until one fails, then prints a summary.
pub(crate) fn ci(root: &Path) -> Result<()> {
    let mut times = Vec::new();
    let mut done = Ok(());
    for (name, step) in STEPS {
        println!("\n=== {name} ===");
        let start = Instant::now();
        done = step(root).with_context(|| format!("{name} failed"));
        let time = start.elapsed();
        println!("=== {name}: {} in {} ===", verdict(done.is_ok()), seconds(time));
        times.push(time);
        if done.is_err() {
            break;
        }
    }
    println!("\n{}", table(&times, done.is_ok()));
    done
}

fn format(root: &Path) -> Result<()> {
    process::run(process::cargo(root).args(["fmt", "--all", "--", "--check"]))
        .context("run `cargo fmt --all`")
}

/// Runs the tests of the Python package. DataFrames are tested if pandas and pyarrow are installed,
/// and a training run if `GRPO_BIN` is the path of the program.
fn python(root: &Path) -> Result<()> {
    if !is_installed(&mut Command::new("python3")) {
        println!("skipped: python3 is not installed (Python 3.9 or later)");
        return Ok(());
    }
    let mut python = Command::new("python3");
    python.current_dir(root).env("PYTHONPATH", "python").env("PYTHONDONTWRITEBYTECODE", "1");
    process::run(python.args(["-m", "unittest", "discover", "-s", "tests/python"]))
}

/// Checks the schemas of configurations with an independent validator, which is installed on first use. The
/// CI server never skips this.
fn schemas(root: &Path) -> Result<()> {
    let folder = root.join("tests/peers/schemas");
    let target = Workspace::read(root)?.target_directory;
    let python = venv::python(&target.join("peers/schemas"), &folder.join("requirements.txt"));
    match python {
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("skipped: the validator cannot be installed ({error:#})");
            Ok(())
        }
        python => process::run(Command::new(python?).arg(folder.join("check.py"))),
    }
}

/// Runs the checks that work offline. The CI server also checks advisories.
fn deny(root: &Path) -> Result<()> {
    if !is_installed(process::cargo(root).arg("deny")) {
        println!("skipped: cargo-deny is not installed (`cargo install --locked cargo-deny`)");
        return Ok(());
    }
    process::run(process::cargo(root).args(["deny", "check", "licenses", "bans", "sources"]))
}

/// Builds the documentation with mdBook. Links are checked by [`tidy::tidy`].
fn book(root: &Path) -> Result<()> {
    if !is_installed(&mut Command::new("mdbook")) {
        println!("skipped: mdBook is not installed (`cargo install --locked mdbook`)");
        return Ok(());
    }
    process::run(Command::new("mdbook").arg("build").current_dir(root))
}

/// Packages all crates as for crates.io, without compiling them again. [`tidy::tidy`] checks that they
/// include no files of others.
fn package(root: &Path) -> Result<()> {
    let mut cargo = process::cargo(root);
    process::run(cargo.args(["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]))
}

/// Compiles tests and benchmarks with clippy's driver.
fn lints(root: &Path) -> Result<()> {
    let mut cargo = process::cargo(root);
    process::run(
        cargo
            .envs(with_lints())
            .args(["test", "--workspace", "--all-targets", "--no-run", "--quiet"])
            .args(mpi::features()),
    )
}

/// Runs the tests compiled by [`lints`] and the doc tests, and checks the documentation.
fn tests(root: &Path) -> Result<()> {
    let rustdoc = std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    let us = std::env::current_exe().context("cannot determine the path of this program")?;
    let documentation = [(RUSTDOC, rustdoc), ("RUSTDOC", us.into_os_string())];
    test(root, &Test::ALL, with_lints().into_iter().chain(documentation))
}

fn with_lints() -> [(&'static str, OsString); 2] {
    let beside =
        std::env::var_os("CARGO").map(|cargo| PathBuf::from(cargo).with_file_name("clippy-driver"));
    let driver = beside.filter(|path| path.is_file()).unwrap_or_else(|| "clippy-driver".into());
    // Same as `cargo clippy -- -D warnings`.
    let arguments = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__".into();
    [("RUSTC_WORKSPACE_WRAPPER", driver.into_os_string()), ("CLIPPY_ARGS", arguments)]
}

/// Environment variable with the path of the real rustdoc. It is set when cargo runs this program
/// in place of rustdoc.
pub(crate) const RUSTDOC: &str = "XTASK_RUSTDOC";

/// Runs rustdoc. If it is invoked for doc tests, checks the documentation first.
pub(crate) fn rustdoc(program: &OsString) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let run = |arguments: &[OsString]| {
        let status = Command::new(program).args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    let is_good =
        documentation(&arguments).is_none_or(|arguments| run(&arguments)) && run(&arguments);
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Converts the arguments for doc tests to those for a documentation build. Returns `None` if they
/// are not for doc tests.
fn documentation(doc_tests: &[OsString]) -> Option<Vec<OsString>> {
    let mut words = doc_tests.iter();
    let mut arguments = Vec::new();
    let mut are_tests = false;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--test") => are_tests = true,
            Some("--test-run-directory" | "--test-args") => drop(words.next()),
            Some(text) if text.starts_with("--test-") || text == "--nocapture" => {}
            _ => arguments.push(word.clone()),
        }
    }
    let folder = std::env::temp_dir().join("grpo-xtask-doc");
    arguments.extend(["-Dwarnings".into(), "--out-dir".into(), folder.into_os_string()]);
    are_tests.then_some(arguments)
}

/// Formats a summary with one line per step. Steps after the first failure are marked as not run.
fn table(times: &[Duration], all_passed: bool) -> String {
    let mut lines = vec![format!("{:<8} {:>10}  outcome", "step", "time")];
    for (i, (name, _)) in STEPS.iter().enumerate() {
        let (time, outcome) = match times.get(i) {
            Some(time) => (seconds(*time), verdict(all_passed || i + 1 < times.len())),
            None => ("-".into(), "not run"),
        };
        lines.push(format!("{name:<8} {time:>10}  {outcome}"));
    }
    let total = seconds(times.iter().sum());
    lines.push(format!("{:<8} {total:>10}  {}", "all", verdict(all_passed)));
    lines.join("\n")
}

fn verdict(passed: bool) -> &'static str {
    if passed { "passed" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_what_was_not_run() {
        let mut times = [1, 2, 3, 6, 30, 4, 5, 40, 500].map(Duration::from_secs);
        let passed = table(&times, true);
        assert!(passed.starts_with("step           time  outcome\nformat        1.0 s  passed\n"));
        assert!(passed.ends_with("tests       500.0 s  passed\nall         591.0 s  passed"));
        times.reverse();
        let failed = table(&times[..2], false);
        assert!(
            failed.contains("\nformat      500.0 s  passed\ntidy         40.0 s  FAILED\npython")
        );
        assert!(failed.ends_with("\ntests             -  not run\nall         540.0 s  FAILED"));
    }

    #[test]
    fn documentation_is_made_from_what_doc_tests_are_made_from() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let tests = words(
            "--edition=2024 --test src/lib.rs --test-run-directory crates/a --extern b=libb.rlib",
        );
        let mut expected =
            words("--edition=2024 src/lib.rs --extern b=libb.rlib -Dwarnings --out-dir");
        expected.push(std::env::temp_dir().join("grpo-xtask-doc").into_os_string());
        assert_eq!(documentation(&tests), Some(expected));
        assert_eq!(documentation(&words("-vV")), None);
    }
}
