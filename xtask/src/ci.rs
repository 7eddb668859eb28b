//! `cargo xtask ci`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::test::{Test, test};
use crate::{process, tidy};

/// A step and what it does.
type Step = (&'static str, fn(&Path) -> Result<()>);

/// The cheapest first. Each reuses what the one before has built, as far as cargo can.
const STEPS: &[Step] = &[
    ("format", format),
    ("tidy", tidy::tidy),
    ("clippy", clippy),
    ("docs", docs),
    ("tests", |root| test(root, &Test::ALL)),
];

/// Every step up to the first that fails, and a table of them.
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
        .context("mend it with `cargo fmt --all`")
}

fn clippy(root: &Path) -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    process::run(process::cargo(root).args(arguments))
}

fn docs(root: &Path) -> Result<()> {
    // Read by rustdoc alone, so that nothing is compiled anew.
    let mut cargo = process::cargo(root);
    process::run(cargo.env("RUSTDOCFLAGS", "-D warnings").args(["doc", "--workspace", "--no-deps"]))
}

/// One line a step; those after the first failure were not run.
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

    fn check(seconds: &[u64], all_passed: bool, expect: &str) {
        let times: Vec<Duration> = seconds.iter().map(|s| Duration::from_secs(*s)).collect();
        assert_eq!(table(&times, all_passed), expect);
    }

    #[test]
    fn the_table_of_a_passed_run() {
        check(
            &[1, 2, 30, 40, 500],
            true,
            "\
step           time  outcome
format        1.0 s  passed
tidy          2.0 s  passed
clippy       30.0 s  passed
docs         40.0 s  passed
tests       500.0 s  passed
all         573.0 s  passed",
        );
    }

    #[test]
    fn what_comes_after_a_failure_was_not_run() {
        check(
            &[1, 2],
            false,
            "\
step           time  outcome
format        1.0 s  passed
tidy          2.0 s  FAILED
clippy            -  not run
docs              -  not run
tests             -  not run
all           3.0 s  FAILED",
        );
    }
}
