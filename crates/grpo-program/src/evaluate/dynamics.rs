//! `grpo dynamics`: diversity over the steps of a run.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_report::{ComparedMethod, ComparisonPage, PhaseBoundary, render_comparison};
use grpo_task::eval::Generations;
use grpo_task::output::{FileInPlace, Formats, command_line, refuse_same, say, table};
use grpo_task::phase::Phase;
use grpo_task::task::Tasks;
use serde_json::json;

use crate::evaluate::eval::suite;
use crate::evaluate::measured_steps::Dynamics;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo dynamics runs/molecules
  grpo dynamics runs/replies/baseline runs/replies/grpo -o diversity_dynamics.json -o dynamics.html

Measures the recorded completions of GRPO runs and shows the evaluations of supervised runs.")]
pub(crate) struct DynamicsArguments {
    /// Run folders; several are consecutive phases of one training process
    #[arg(required = true, value_name = "RUN", help_heading = "Input")]
    runs: Vec<PathBuf>,
    /// Metrics to compute, as for `grpo eval` [default: what fits the last run]
    #[arg(long, value_name = "NAME", help_heading = "Metrics")]
    suite: Option<String>,
    /// Minimum number of steps between two snapshots of a GRPO run
    #[arg(
        long,
        value_name = "STEPS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Metrics"
    )]
    every: u64,
    /// Write the snapshots to this file (.json), or a page with curves (.html); repeatable
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Vec<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

const FORMATS: Formats = Formats { written: "JSON or a page", endings: &["json", "html"] };

pub(crate) fn run(arguments: &DynamicsArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let endings = arguments.output.iter().map(|path| FORMATS.require("-o", path));
    let endings = endings.collect::<anyhow::Result<Vec<&str>>>()?;
    refuse_same(&arguments.output.iter().map(|path| ("-o", Some(path))).collect::<Vec<_>>())?;
    let inputs: Vec<&Path> = arguments.runs.iter().map(PathBuf::as_path).collect();
    let create =
        |path: &PathBuf| FileInPlace::create_beside(path, FORMATS, &inputs, arguments.force);
    let outputs = arguments.output.iter().map(create).collect::<anyhow::Result<Vec<_>>>()?;
    let last = arguments.runs.last().context("clap requires a run")?;
    let generations = Generations::of_model_in(last);
    let suite = suite(tasks, arguments.suite.as_deref(), &generations)?;
    let phase = Phase::begin("measuring the recorded completions");
    let dynamics = Dynamics::of_runs(&arguments.runs, &suite, arguments.every)?;
    drop(phase);
    let mut files = Vec::new();
    for (file, ending) in outputs.into_iter().zip(endings) {
        let text = match ending {
            "html" => page(arguments, suite.name, &dynamics)?,
            _ => {
                let config = json!({
                    "runs": names(&arguments.runs),
                    "suite": suite.name,
                    "every": arguments.every,
                    "phase_ends": dynamics.ends,
                });
                let all = json!({"snapshots": dynamics.snapshots, "config": config});
                serde_json::to_string_pretty(&all).context("the metrics are finite")? + "\n"
            }
        };
        files.push(file.with_text(&text)?);
    }
    FileInPlace::finish_all(files)?;
    show(&arguments.runs, &dynamics);
    Ok(())
}

fn names(runs: &[PathBuf]) -> Vec<String> {
    runs.iter().map(|run| run.display().to_string()).collect()
}

/// Renders a page with a curve per metric and a line at the end of each phase.
fn page(arguments: &DynamicsArguments, suite: &str, dynamics: &Dynamics) -> anyhow::Result<String> {
    let names = names(&arguments.runs);
    let method = ComparedMethod {
        name: names.join(" → "),
        files: vec![names.join(", ")],
        dynamics: vec![dynamics.by_metric()],
        ..ComparedMethod::default()
    };
    let boundary = |(end, next): (&u64, &String)| PhaseBoundary { step: *end, label: next.clone() };
    let page = ComparisonPage {
        command: format!("grpo dynamics {}", command_line(&names)),
        suite: suite.to_owned(),
        methods: vec![method],
        phases: dynamics.ends.iter().zip(&names[1..]).map(boundary).collect(),
        ..ComparisonPage::default()
    };
    Ok(render_comparison(&page)?)
}

/// Prints the first and the last snapshot of each phase, and some between them.
fn show(runs: &[PathBuf], dynamics: &Dynamics) {
    const ROWS: usize = 8;
    let by_metric = dynamics.by_metric();
    let names: Vec<&String> = by_metric.keys().collect();
    let header = ["phase", "step"].into_iter().map(str::to_owned);
    let header: Vec<String> = header.chain(names.iter().map(|name| (*name).clone())).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (phase, run) in runs.iter().enumerate() {
        let of_phase: Vec<_> = dynamics.snapshots.iter().filter(|of| of.phase == phase).collect();
        let stride = of_phase.len().div_ceil(ROWS).max(1);
        for (index, snapshot) in of_phase.iter().enumerate() {
            if index % stride > 0 && index + 1 < of_phase.len() {
                continue;
            }
            let cell = |name: &&String| {
                let value = snapshot.metrics.get(*name);
                value.map_or(String::new(), |value| format!("{value:.4}"))
            };
            let first = [run.display().to_string(), snapshot.step.to_string()];
            rows.push(first.into_iter().chain(names.iter().map(cell)).collect());
        }
    }
    say(format_args!("{}", table(header, rows, 1..)));
}
