//! `grpo audit`: checks what a run's files prove.

use std::path::Path;

use grpo_run::{Finding, Verdict};
use grpo_task::output::{say, say_data};
use grpo_task::task::Tasks;
use serde::Serialize;

use crate::args::AuditArguments;
use crate::inspect::evidence::{Depth, findings};

pub(crate) fn run(arguments: &AuditArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let run = arguments.run.display();
    let (steps, findings) = findings(&arguments.run, tasks, Depth::Weights)?;
    // Files that could not be read for lack of resources are not a violation.
    if let Some(fault) = grpo_data::system_fault() {
        anyhow::bail!(fault);
    }
    let violated = findings.iter().filter(|finding| !finding.violations().is_empty()).count();
    match arguments.json {
        true => {
            let violations = findings.iter().map(|finding| finding.violations().len()).sum();
            let report = Report { run: &arguments.run, steps, violations, findings };
            say_data(format_args!("{}", serde_json::to_string_pretty(&report)?));
        }
        false => findings.iter().for_each(print),
    }
    anyhow::ensure!(
        violated == 0,
        "{violated} of the audited properties of `{run}` {} violated",
        if violated == 1 { "is" } else { "are" }
    );
    Ok(())
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    run: &'a Path,
    /// Number of steps in the ledger.
    steps: usize,
    /// Total number of violations.
    violations: usize,
    findings: Vec<Finding>,
}

/// Maximum number of violations printed per property.
const SHOWN: usize = 3;

/// Prints a finding, followed by its first violations.
fn print(finding: &Finding) {
    let line = |property: &str, verdict: &str, words: &dyn std::fmt::Display| {
        say(format_args!("{property:<22}{verdict:<14}{words}"));
    };
    match &finding.verdict {
        Verdict::Proven => line(finding.property, "proven", &finding.checked),
        Verdict::NotRecorded { reason } => line(finding.property, "not recorded", reason),
        Verdict::Violated { violations } => {
            for (number, violation) in violations.iter().take(SHOWN).enumerate() {
                let names = if number == 0 { (finding.property, "VIOLATED") } else { ("", "") };
                line(names.0, names.1, violation);
            }
            if violations.len() > SHOWN {
                let more = format!("and {} more; --json shows all", violations.len() - SHOWN);
                line("", "", &more);
            }
        }
    }
}
