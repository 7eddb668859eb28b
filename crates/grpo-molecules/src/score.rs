//! `grpo score`: computes the reward of the molecules in a file and writes its components as CSV.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_app::output::{FileInPlace, refuse_same, say_aside};
use grpo_app::phase::Phase;
use grpo_app::task::{CommandGroup, TaskCommand};
use grpo_app::visible::{data_output, visible};
use grpo_app::{Tasks, load_reward, transform_curves};
use grpo_data::DataError;
use grpo_report::transforms;
use grpo_rewards::{IdentifiedReward, Outcome, Reward, RewardInput};
use grpo_run::column_of_part;

use crate::describe::{as_text, number};
use crate::identity::identities;
use crate::reader::blocks;
use crate::{MoleculeReader, MoleculeRecord, ReadOptions};

/// Number of molecules that are scored at once.
const BLOCK: usize = 1024;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo score configs/molecules/grpo.toml molecules.smi -o scores.csv
  grpo score my.toml known-actives.csv --plot transforms.svg | head")]
pub(crate) struct ScoreArguments {
    /// Configuration file with a [reward] section
    config: PathBuf,
    /// File with molecules (.smi, .smi.gz, .csv or .csv.gz)
    file: PathBuf,
    /// Override a configuration key; repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Input")]
    set: Vec<String>,
    /// CSV column that contains the SMILES [default: smiles, canonical_smiles or molecule]
    #[arg(long, value_name = "NAME", help_heading = "Input")]
    smiles_column: Option<String>,
    /// Output file (CSV), compressed if the name ends in .gz [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Draw the transforms of the components to this file (SVG)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Compute the reward of molecules as a CSV table",
        "Writes one row per input line: the reward and each of its components, before and after its transform, or the reason why there is none. Use it to check a scoring function before training.",
    ];
    TaskCommand::new("score", &about, CommandGroup::Prepare, |tasks, arguments| {
        run(tasks, arguments)
    })
}

fn run(tasks: &Tasks, arguments: &ScoreArguments) -> anyhow::Result<()> {
    let (config, reward) = load_reward(&arguments.config, &arguments.set, tasks)?;
    let reward = IdentifiedReward::wrap(reward, identities);
    let options = ReadOptions {
        smiles_column: arguments.smiles_column.clone(),
        column_setting: Some("--smiles-column"),
        keep_empty: true,
        ..ReadOptions::default()
    };
    let mut reader = MoleculeReader::open(&arguments.file, &options)?.peekable();
    anyhow::ensure!(reader.peek().is_some(), "{} contains no molecules", arguments.file.display());
    let inputs: [&Path; 2] = [&arguments.file, &arguments.config];
    refuse_same(&[("--output", arguments.output.as_ref()), ("--plot", arguments.plot.as_ref())])?;
    let create = |path: &PathBuf| FileInPlace::create_beside(path, &inputs, arguments.force);
    let plot = arguments.plot.as_ref().map(create).transpose()?;
    let output = arguments.output.as_ref().map(create).transpose()?;
    if let Some(mut file) = plot {
        let curves = transform_curves(&config);
        anyhow::ensure!(
            !curves.is_empty(),
            "reward type `{}` has no transforms to plot; remove --plot",
            config.type_name()
        );
        file.write_all(transforms(&curves).as_bytes())
            .with_context(|| format!("cannot write {}", file.path().display()))?;
        file.finish()?;
    }
    let phase = Phase::begin(format!("scoring {}", arguments.file.display()));
    let scored = match output {
        Some(mut file) => {
            let place = file.path().display().to_string();
            let scored = score_all(&*reward, reader, &mut file, &place)?;
            if scored.rows > 0 {
                file.finish()?;
            }
            scored
        }
        None => score_all(&*reward, reader, data_output(), "standard output")?,
    };
    drop(phase);
    scored.summarize()
}

/// Summary of the scores.
#[derive(Default)]
struct Scored {
    /// Number of rows with a score.
    rows: u64,
    /// Number of rows with an empty SMILES.
    empty: u64,
    /// Sum of all scores.
    sum: f64,
    /// Why the first row has no score, or a score of 0.
    first_reason: Option<String>,
}

impl Scored {
    fn summarize(&self) -> anyhow::Result<()> {
        let &Self { rows, empty, sum, ref first_reason } = self;
        say_aside(format_args!("scored       {rows:>8}"));
        if empty > 0 {
            say_aside(format_args!("empty        {empty:>8}, counted as invalid"));
        }
        anyhow::ensure!(
            rows > 0,
            "no molecule has a score; first reason: {}",
            visible(first_reason.as_deref().unwrap_or_default())
        );
        say_aside(format_args!("mean score   {:>8.4}", sum / rows as f64));
        Ok(())
    }
}

fn score_all(
    reward: &dyn Reward,
    reader: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    output: impl Write,
    place: &str,
) -> anyhow::Result<Scored> {
    let failed = || format!("cannot write scores to {place}");
    let mut table = csv::Writer::from_writer(output);
    let parts = reward.parts();
    let own = ["smiles", "score", "reason", "name"];
    let columns = parts.iter().map(|part| column_of_part(part, &own));
    let columns = own[..2].iter().map(|name| (*name).to_owned()).chain(columns);
    let columns = columns.chain(own[2..].iter().map(|name| (*name).to_owned()));
    table.write_record(columns).with_context(failed)?;
    let mut scored = Scored::default();
    for block in blocks(reader, BLOCK) {
        let block = block?;
        let inputs: Vec<RewardInput> =
            block.iter().map(|record| record.smiles.as_str().into()).collect();
        let outcomes = reward.score(&inputs);
        for (record, outcome) in block.iter().zip(&outcomes) {
            let value = |value: Option<f64>| value.map_or_else(String::new, number);
            let name = record.name.as_deref().unwrap_or_default();
            let mut row = vec![as_text(&visible(&record.smiles)), value(outcome.total())];
            row.extend(parts.iter().map(|part| value(outcome.part(part))));
            let reason = reason(&record.smiles, outcome);
            row.push(as_text(&visible(&reason)));
            scored.first_reason.get_or_insert(reason);
            row.push(as_text(&visible(name)));
            table.write_record(row).with_context(failed)?;
            if let Some(total) = outcome.total() {
                (scored.rows, scored.sum) = (scored.rows + 1, scored.sum + total);
            }
            scored.empty += u64::from(record.smiles.is_empty());
        }
    }
    table.flush().with_context(failed)?;
    Ok(scored)
}

/// Returns why a molecule has no score or a score of 0.
fn reason(smiles: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed { reason } => reason.clone(),
        Outcome::Abstained => "the reward abstained".to_owned(),
        Outcome::Scored(scored) if scored.uncounted => "it does not pass a filter".to_owned(),
        Outcome::Scored(_) if outcome.part("valid") == Some(0.0) => {
            let error = grpo_chem::Molecule::parse(smiles).err();
            error.map_or_else(String::new, |error| error.to_string())
        }
        Outcome::Scored(_) => String::new(),
    }
}
