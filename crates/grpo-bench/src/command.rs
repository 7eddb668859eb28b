//! `grpo bench`: runs a single case, or one of the points of the scaling charts.
//!
//! A separate process per case allows peak memory to be measured. `cargo xtask bench` starts these
//! processes, and the programs that they are compared with. The cases and the communication
//! protocol are described in docs/benchmarks.md.

use std::io::{BufRead, stdin};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use grpo_runtime::ResidentMemory;
use grpo_task::device;
use grpo_task::output::say_data;
use grpo_task::task::{CommandGroup, Task, TaskCommand};
use serde::Serialize;
use serde_json::Value;

use crate::cases::{CASES, Case};
use crate::gpu_check;
use crate::scaling::{Point, draw, points};
use crate::work::{Repetition, Work};

/// Adds the commands `gpu-check` and `bench` to the program.
pub struct Bench;

impl Task for Bench {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn commands(&self) -> Vec<TaskCommand> {
        let about = [
            "Measure sampling, training or whole steps on this machine",
            "Models have random weights and are created when they are measured. The output has one JSON line when the case is ready, then one per repetition. `cargo xtask bench` compares cases with other programs and reports the results.",
        ];
        let bench =
            TaskCommand::new("bench", &about, CommandGroup::Other, |_, arguments| run(arguments));
        vec![gpu_check::command(), bench]
    }
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Measurement",
    after_help = "Examples:
  grpo bench --list                               the cases, a JSON line each
  grpo bench --case sampling-small --repeat 5     five repetitions
  grpo bench --case copy --device cuda:0          on a GPU
  grpo bench --case training-medium --serve       one for each line `run` on standard input
  grpo bench --list-scaling                       the points of the scaling charts
  grpo bench --draw scaling.json                  the charts"
)]
struct BenchArguments {
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
}

fn run(arguments: &BenchArguments) -> anyhow::Result<()> {
    if arguments.list {
        CASES.iter().for_each(say_line);
        return Ok(());
    }
    if arguments.list_scaling {
        points().into_iter().for_each(|point| say_line(&point.listed()));
        return Ok(());
    }
    if let Some(results) = &arguments.draw {
        return draw(results);
    }
    let name = arguments.case.as_deref().expect("clap asks for it");
    let (mut work, warms_up) = match Point::named(name) {
        Some(point) => (point.prepare()?, true),
        None => {
            let case = Case::named(name)?;
            ((case.prepare)()?, case.warms_up())
        }
    };
    // Warm up. The first repetition starts threads, allocates memory and the optimizer state, and
    // compiles kernels for a GPU.
    if warms_up {
        work()?;
    }
    let device = device::name().to_string();
    let (threads, instruction_set) = (rayon::current_num_threads(), instruction_set());
    say_line(&Ready { case: name, threads, device, instruction_set });
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
    let Repetition { seconds, work, flops, weight_bytes, details } = work()?;
    let peak_bytes = ResidentMemory::of_this_process().map(|memory| memory.peak);
    let device_bytes = grpo_kernels::gpu_memory(&device::device()?);
    say_line(&Answer { seconds, work, flops, weight_bytes, peak_bytes, device_bytes, details });
    Ok(())
}

/// The first line of the output, printed after the warm-up.
#[derive(Serialize)]
struct Ready<'a> {
    case: &'a str,
    threads: usize,
    device: String,
    /// The widest vectors that the program may use on the CPU.
    instruction_set: &'static str,
}

/// Returns the name that `cargo xtask bench` has for the widest vectors that kernels can choose.
fn instruction_set() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        "AVX-512"
    } else if is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH
}

/// The line printed for each repetition.
#[derive(Serialize)]
struct Answer {
    seconds: f64,
    work: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    flops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_bytes: Option<f64>,
    /// Peak resident memory since the start of the process, if it is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_bytes: Option<u64>,
    /// Memory that the program has reserved on a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

fn say_line(value: &impl Serialize) {
    say_data(format_args!("{}", serde_json::to_string(value).expect("plain data is JSON")));
}
