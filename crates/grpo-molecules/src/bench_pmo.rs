//! `grpo bench-pmo`: the PMO benchmark of sample efficiency.

mod results;
mod score;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use grpo_chem::pmo::Oracle;
use grpo_task::output::{FileInPlace, say};
use grpo_task::task::{CommandGroup, TaskCommand, Tasks};
use grpo_task::training_runs::TrainingRuns;

use results::Results;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo bench-pmo --tasks all --seeds 5 --budget 10000
  grpo bench-pmo own.toml --tasks qed,median1 --budget 1000 -o runs/few
  grpo bench-pmo --score molecules.smi -o scores.csv

The oracles drd2, gsk3b and jnk3 are trained classifiers and not included. The same command resumes an interrupted benchmark.")]
struct BenchPmoArguments {
    /// Configuration of `grpo train` to run with each oracle
    #[arg(
        default_value = "configs/molecules/pmo.toml",
        value_name = "FILE",
        help_heading = "Input"
    )]
    configuration: PathBuf,
    /// Only score the molecules of a file (.smi, .smi.gz, .csv or .csv.gz)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["configuration", "seeds", "budget", "set", "check"],
        help_heading = "Input"
    )]
    score: Option<PathBuf>,
    /// CSV column that contains the SMILES [default: smiles, canonical_smiles or molecule]
    #[arg(
        long,
        value_name = "NAME",
        requires = "score",
        // Clap ignores `requires` if the required argument conflicts with a present one.
        conflicts_with_all = ["configuration", "seeds", "budget", "set", "check"],
        help_heading = "Input"
    )]
    column: Option<String>,
    /// Oracles, separated by commas, or `all`
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "all",
        help_heading = "Runs"
    )]
    tasks: Vec<String>,
    /// Number of seeds, counted from the configuration's seed, or the seeds, separated by commas
    #[arg(long, value_name = "SEEDS", default_value = "5", help_heading = "Runs")]
    seeds: String,
    /// Number of distinct molecules that the oracle may score
    #[arg(long, value_name = "N", default_value_t = results::CALLS as u32, value_parser = clap::value_parser!(u32).range(2..=1_000_000), help_heading = "Runs")]
    budget: u32,
    /// Override a key of the configuration, e.g. --set replay.proposals=0; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Runs")]
    set: Vec<String>,
    /// Check the configuration and list what would run, then exit
    #[arg(long, help_heading = "Runs")]
    check: bool,
    /// Folder for runs and results [default: runs/pmo-benchmark]; with --score, the output file (CSV),
    /// compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace an existing output file of --score
    #[arg(
        long,
        requires = "score",
        conflicts_with_all = ["configuration", "seeds", "budget", "set", "check"],
        help_heading = "Output"
    )]
    force: bool,
    #[arg(from_global)]
    threads: Option<usize>,
    #[arg(from_global)]
    quiet: bool,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Run the PMO benchmark, or score molecules with its oracles",
        "PMO (Gao et al. 2022, \"Sample efficiency matters\") ranks molecule generators by how good their molecules are after few oracle calls. For each oracle and seed, a model is trained until the oracle has scored 10,000 distinct molecules. The result is the area under the curve of the mean of the ten best scores. The oracles are equal to PyTDC 0.4.1.",
        "Writes results.csv, curves.csv and results.md, a table with published results for comparison. With --score, writes a column per oracle instead; the scores of invalid molecules are 0.",
    ];
    TaskCommand::new("bench-pmo", &about, CommandGroup::Evaluate, run)
        .running_stages(|matches| !matches.contains_id("score"))
}

/// Keys of the configuration that the benchmark sets.
const OWN_KEYS: [&str; 6] =
    ["reward", "train.max_reward_calls", "eval", "preflight", "seed", "run"];

/// Returns the oracles with these names.
fn oracles(names: &[String]) -> anyhow::Result<Vec<Oracle>> {
    if names == ["all"] {
        return Ok(Oracle::ALL.to_vec());
    }
    let mut oracles = Vec::new();
    for name in names {
        let oracle = Oracle::from_name(name.trim()).context("--tasks")?;
        ensure!(!oracles.contains(&oracle), "--tasks: {name} occurs twice; remove one");
        oracles.push(oracle);
    }
    Ok(oracles)
}

fn run(tasks: &Tasks, arguments: &BenchPmoArguments) -> anyhow::Result<()> {
    let oracles = oracles(&arguments.tasks)?;
    if let Some(path) = &arguments.score {
        let column = arguments.column.as_deref();
        return score::run(path, column, &oracles, arguments.output.as_deref(), arguments.force);
    }
    let folder = arguments.output.clone().unwrap_or_else(|| "runs/pmo-benchmark".into());
    for pair in &arguments.set {
        let key = pair.split('=').next().unwrap_or_default().trim();
        let is_own = |own: &str| key == own || key.starts_with(&format!("{own}."));
        ensure!(
            !OWN_KEYS.into_iter().any(is_own),
            "--set {pair}: the benchmark sets {key} itself; remove this option"
        );
    }
    let set = |oracle: &Oracle| {
        let own = [
            format!("reward={{ type = \"pmo\", task = \"{}\" }}", oracle.name()),
            format!("train.max_reward_calls={}", arguments.budget),
            // They would call the oracle without being counted.
            "eval={ samples = 0 }".to_owned(),
            "preflight={ samples = 0 }".to_owned(),
        ];
        (oracle.name().to_owned(), arguments.set.iter().cloned().chain(own).collect())
    };
    let runs = TrainingRuns {
        configuration: arguments.configuration.clone(),
        seeds: arguments.seeds.clone(),
        variants: oracles.iter().map(set).collect(),
        output: folder.clone(),
        check: arguments.check,
        threads: arguments.threads,
        quiet: arguments.quiet,
        command: "grpo bench-pmo",
    };
    let runs = tasks.train(runs)?;
    if arguments.check {
        return Ok(());
    }
    let results = Results::of(&runs, arguments.budget as usize)?;
    let (rows, curves, table) = (results.csv(), results.curves(), results.markdown()?);
    for (name, text) in [("results.csv", &rows), ("curves.csv", &curves), ("results.md", &table)] {
        FileInPlace::create(&folder.join(name))?.write_text(text)?;
    }
    say(format_args!("{}", table.trim_end()));
    say(format_args!("results      {}", folder.join("results.md").display()));
    Ok(())
}
