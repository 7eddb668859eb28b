//! `grpo-bench`: runs a single benchmark case. A separate process per case allows peak memory to be
//! measured.
//!
//! `cargo xtask bench` starts this program and the programs that it is compared with. The cases and
//! the communication protocol are described in docs/benchmarks.md.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use grpo_bench::cases::{CASES, Case};
use grpo_bench::scaling::{Point, draw, points};
use grpo_bench::work::{Repetition, Work};
use grpo_process::ResidentMemory;
use serde::Serialize;
use serde_json::Value;

/// The same allocator as in `grpo`.
#[global_allocator]
static ALLOCATOR: grpo_process::Allocator = grpo_process::Allocator;

/// Run a benchmark case and print a JSON line for each repetition
#[derive(Parser)]
#[command(after_help = "Examples:
  grpo-bench --list                               the cases, a JSON line each
  grpo-bench --list-scaling                       the points of the scaling charts
  grpo-bench --draw scaling.json                  the charts
  grpo-bench --case sampling-small --repeat 5     five repetitions
  grpo-bench --case training-medium --serve       one for each line `run` on standard input")]
struct Arguments {
    /// List all cases as JSON lines
    #[arg(long)]
    list: bool,
    /// List all points of the scaling charts as JSON lines
    #[arg(long, conflicts_with = "list")]
    list_scaling: bool,
    /// Draw charts of the results in FILE next to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "list_scaling", "case"])]
    draw: Option<PathBuf>,
    /// Case or point to run
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "list_scaling", "draw"])]
    case: Option<String>,
    /// Number of repetitions, not counting the warm-up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeat: u32,
    /// Run a repetition for each line `run` on standard input
    #[arg(long, conflicts_with = "repeat")]
    serve: bool,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.list {
        CASES.iter().for_each(print_line);
        return Ok(());
    }
    if arguments.list_scaling {
        points().into_iter().for_each(|point| print_line(&point.listed()));
        return Ok(());
    }
    if let Some(results) = &arguments.draw {
        return draw(results);
    }
    grpo_process::compute(arguments.threads.map(usize::from), || measure(arguments))?
}

fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let name = arguments.case.as_deref().expect("clap asks for it");
    let (mut work, warms_up) = match Point::named(name) {
        Some(point) => (point.prepare()?, true),
        None => {
            let case = Case::named(name)?;
            ((case.prepare)()?, case.warms_up())
        }
    };
    // Warm up. The first repetition starts threads and allocates memory and the optimizer state.
    if warms_up {
        work()?;
    }
    print_line(&Ready { case: name, threads: rayon::current_num_threads() });
    if arguments.serve {
        return serve(&mut work);
    }
    for _ in 0..arguments.repeat {
        answer(&mut work)?;
    }
    Ok(())
}

/// Runs a repetition each time the line `run` is received.
fn serve(work: &mut Work) -> anyhow::Result<()> {
    for line in stdin().lock().lines() {
        let line = line.context("standard input could not be read")?;
        anyhow::ensure!(line == "run", "expected `run` on standard input, got `{line}`");
        answer(work)?;
    }
    Ok(())
}

fn answer(work: &mut Work) -> anyhow::Result<()> {
    let Repetition { seconds, work, flops, details } = work()?;
    let peak_bytes = ResidentMemory::of_this_process().map(|memory| memory.peak);
    print_line(&Answer { seconds, work, flops, peak_bytes, details });
    Ok(())
}

/// The first line of the output, printed after the warm-up.
#[derive(Serialize)]
struct Ready<'a> {
    case: &'a str,
    threads: usize,
}

/// The line printed for each repetition.
#[derive(Serialize)]
struct Answer {
    seconds: f64,
    work: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    flops: Option<f64>,
    /// Peak resident memory since the start of the process, if it is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

fn print_line(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("plain data is JSON"));
}
