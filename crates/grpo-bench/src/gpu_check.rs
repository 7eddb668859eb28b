//! `grpo gpu-check`: compares a device with the CPU, and measures its speed.

mod peers;
mod rate;
mod runs;
mod speed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use clap::Args;
use grpo_task::output::{FileInPlace, say, say_aside};
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::{config, device};
use serde::Serialize;
use serde_json::Value;

use self::peers::{Peer, Peers};
use self::rate::rate_text;
use self::runs::{EXAMPLES, Example, Grpo, Measured};
use self::speed::Speed;
use grpo_examples::create;

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Check",
    after_help = "Examples:
  grpo gpu-check check                  the default device
  grpo gpu-check check --device cuda:1
  grpo gpu-check check --device cpu     CPU against CPU (no differences)
  grpo gpu-check check --python venv/bin/python     and against PyTorch, TRL and vLLM"
)]
pub(crate) struct GpuCheckArguments {
    /// Folder to create for the examples, the runs and gpu-check.json; must be empty if it exists
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Also measure PyTorch, transformers, TRL and, if it is installed, vLLM with this interpreter
    #[arg(long, value_name = "PYTHON")]
    python: Option<PathBuf>,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Compare a device with the CPU, and measure its speed",
        "Runs the selftest, and ten steps of GRPO for each kind of task on the device and on the CPU: molecules in f32, bf16 and f16, replies with an adapter, infilling. Before the first update, both have the same policy and the same random numbers, so the metrics of the first step must agree within rounding. In 16 bits, rounding changes some tokens, so the reward may differ by 10 % and the entropy by 2 % in bf16, and by 5 % and 0.2 % in f16. Rarely, rounding changes a sampled token, and with it the completion: compare completions.jsonl of both runs if reward and entropy differ while the selftest passes. Then models with random weights are sampled and trained, as `grpo bench` does, up to 1.7 billion parameters on a GPU. With --python, the same cases are measured with PyTorch, transformers and TRL (packages torch, transformers, trl, datasets, pandas and peft), and sampling with vLLM if it is installed. gpu-check.json lists devices, selftest, differences, speeds and memory, and is written after each part. A model that cannot be measured, for example for lack of memory, is listed with the reason. The exit code is 1 if the selftest fails or a difference exceeds its tolerance.",
    ];
    TaskCommand::new("gpu-check", &about, CommandGroup::Other, |_, arguments| run(arguments))
}

/// Contents of gpu-check.json.
#[derive(Serialize)]
struct Report {
    /// Whether the selftest passed and all metrics agree. Unknown until everything was measured; the file
    /// is written after each part.
    passed: Option<bool>,
    /// The same as in `run.json`.
    started: String,
    versions: BTreeMap<String, String>,
    git_revision: Option<String>,
    threads: usize,
    /// Name of the GPU.
    gpu: Option<String>,
    /// Name for `--device`.
    device: String,
    /// Lines of `grpo devices --json`.
    devices: Vec<Value>,
    /// Output of `grpo selftest --json`.
    selftest: Value,
    selftest_seconds: f64,
    runs: Vec<Measured>,
    differences: Vec<Difference>,
    /// Versions of the programs of `--python`.
    peers: BTreeMap<String, String>,
    speed: Vec<Speed>,
}

/// A metric of the first step on both devices.
#[derive(Serialize)]
struct Difference {
    task: &'static str,
    metric: &'static str,
    cpu: f64,
    device: f64,
    /// Largest difference due to rounding, relative to the value on the CPU.
    tolerance: f64,
    agrees: bool,
}

fn run(arguments: &GpuCheckArguments) -> anyhow::Result<()> {
    let name = device::name().to_string();
    // Fails before anything is written if the device does not work.
    device::device()?;
    let peers = arguments.python.as_deref();
    let peers = peers.map(|python| Peers::of(python, &name, &arguments.folder)).transpose()?;
    create(&arguments.folder)?;
    peers.as_ref().map_or(Ok(()), Peers::write)?;
    let program = config::run_info(0, Vec::new());
    let grpo = Grpo::new(&arguments.folder)?;
    let devices = grpo.json_lines(&["devices", "--json"])?;
    say_aside(format_args!("selftest on {name}"));
    let begin = Instant::now();
    let selftest = grpo.json_lines(&["selftest", "--json", "--device", &name])?.swap_remove(0);
    let mut report = Report {
        passed: None,
        started: program.started,
        versions: program.versions,
        git_revision: program.git_revision,
        threads: program.threads,
        gpu: program.gpu,
        device: name.clone(),
        devices,
        selftest,
        selftest_seconds: begin.elapsed().as_secs_f64(),
        runs: Vec::new(),
        differences: Vec::new(),
        peers: peers.as_ref().map(|peers| peers.versions.clone()).unwrap_or_default(),
        speed: Vec::new(),
    };
    let path = arguments.folder.join("gpu-check.json");
    report.write(&path)?;
    say_aside(format_args!(
        "{} has the results of each part as soon as it is complete",
        path.display()
    ));
    for example in EXAMPLES {
        example.prepare(&grpo)?;
        let on = |device: &str, folder: &str| {
            say_aside(format_args!("{}: ten steps on {device}", example.task));
            example.train(&grpo, device, folder)
        };
        report.compare(&example, on("cpu", "cpu")?, on(&name, "device")?);
        report.write(&path)?;
    }
    speed::measure(&grpo, &name, peers.as_ref(), |speed| {
        report.speed.push(speed);
        report.write(&path)
    })?;
    let passed = report.has_passed();
    report.passed = Some(passed);
    report.write(&path)?;
    show(&report);
    say(format_args!("results      {}", path.display()));
    ensure!(passed, "{} does not compute what the CPU computes", report.device);
    Ok(())
}

impl Report {
    /// Compares the first steps of two runs.
    fn compare(&mut self, of: &Example, cpu: Measured, other: Measured) {
        self.differences.extend(of.compared.iter().map(|&(metric, tolerance)| {
            let [cpu, device] = [&cpu, &other].map(|run| run.first(metric));
            let agrees = (cpu - device).abs() <= tolerance * cpu.abs();
            Difference { task: of.task, metric, cpu, device, tolerance, agrees }
        }));
        self.runs.extend([cpu, other]);
    }

    fn has_passed(&self) -> bool {
        self.selftest["passed"] == true && self.differences.iter().all(|of| of.agrees)
    }

    /// Writes what is known so far, so that an interrupted check is not lost.
    fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        FileInPlace::create(path)?.write_text(&text)
    }
}

fn show(report: &Report) {
    let verdict = if report.selftest["passed"] == true { "passed" } else { "FAILED" };
    say(format_args!("selftest     {verdict} in {:.0} s", report.selftest_seconds));
    for Difference { task, metric, cpu, device, tolerance, agrees } in &report.differences {
        let verdict = if *agrees { "agrees" } else { "DIFFERS" };
        say(format_args!(
            "{task:<17} {metric:<9} {cpu:.6} on the CPU, {device:.6}: {verdict} (within {:.1} %)",
            100.0 * tolerance
        ));
    }
    for run in &report.runs {
        say(format_args!(
            "{:<17} {:<7} {:.0} tokens/s, {:.2} s a step, {:.0} s with start and evaluation",
            run.task, run.device, run.tokens_per_second, run.step_seconds, run.seconds
        ));
    }
    report.speed.iter().for_each(show_speed);
}

fn show_speed(speed: &Speed) {
    let Speed { case, unit, per_second, of_products, limit, of_copy, device_bytes, peers } = speed;
    let details = [
        of_products.map(|part| format!(", {:.1} % of {limit}", 100.0 * part)),
        of_copy.map(|part| format!(", {:.1} % of copy", 100.0 * part)),
        device_bytes.map(|bytes| format!(", {:.1} GB", bytes as f64 / 1e9)),
    ];
    let details: String = details.into_iter().flatten().collect();
    match per_second {
        Ok(rate) => say(format_args!("{case:<29} {}{details}", rate_text(*rate, unit))),
        Err(reason) => say(format_args!("{case:<29} could not be measured: {reason}")),
    }
    for Peer { name, per_second, ratio } in peers {
        let ratio = ratio.map(|ratio| format!(", grpo is {ratio:.2} times as fast"));
        match per_second {
            Ok(rate) => {
                let rate = rate_text(*rate, unit);
                say(format_args!("  {name:<27} {rate}{}", ratio.unwrap_or_default()));
            }
            Err(reason) => say(format_args!("  {name:<27} could not be measured: {reason}")),
        }
    }
}
