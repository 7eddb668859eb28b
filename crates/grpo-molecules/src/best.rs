//! `grpo best`: selects the best molecules that a run found and writes them as a table, a structure
//! file and a picture.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use grpo_chem::{Descriptor, Molecule};
use grpo_data::{counted, short_text};
use grpo_run::{BestSample, BestTable, RunError, RunFolder};
use grpo_task::config::nearest;
use grpo_task::output::{CSV, FileInPlace, Formats, SVG, four_decimals, refuse_same, say_aside};
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::visible::data_output;
use rayon::prelude::*;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  grpo best runs/molecules -n 20 --grid best.svg
  grpo best runs/molecules --min qed=0.8 --max mw=350 --max alerts=0 -o best.csv")]
pub(crate) struct BestArguments {
    /// Run folder of `grpo train`
    run: PathBuf,
    /// Maximum number of molecules
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Selection"
    )]
    number: u32,
    /// Omit molecules below a value; `reward`, a descriptor, or a reward component that is not called
    /// like a descriptor; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = limit, help_heading = "Selection")]
    min: Vec<Limit>,
    /// Omit molecules above a value; see --min
    #[arg(long, value_name = "NAME=VALUE", value_parser = limit, help_heading = "Selection")]
    max: Vec<Limit>,
    /// Output file (CSV) [default: standard output]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write structures with 2D coordinates to this file (SDF)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    sdf: Option<PathBuf>,
    /// Draw the molecules to this file (SVG)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    grid: Option<PathBuf>,
    /// Replace existing output files
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// The limit of a property.
#[derive(Clone, Debug)]
struct Limit {
    name: String,
    value: f64,
}

fn limit(text: &str) -> Result<Limit, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value: f64 = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
    match value.is_finite() {
        true => Ok(Limit { name: name.trim().to_owned(), value }),
        false => Err(format!("`{value}` is not finite")),
    }
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "List the best molecules that a run found",
        "Reads the run's `best.csv`, which contains the distinct molecules with the highest rewards over all steps. These rewards do not include diversity bonuses and penalties.",
    ];
    TaskCommand::new("best", &about, CommandGroup::Inspect, |_, arguments| run(arguments))
}

fn run(arguments: &BestArguments) -> anyhow::Result<()> {
    let folder = RunFolder::open(&arguments.run)?;
    let table = folder.read_best()?.with_context(|| {
        format!(
            "{} has no best.csv; it is written at each checkpoint of a molecule run with save.best above 0",
            arguments.run.display()
        )
    })?;
    let source = folder.best_path();
    check_molecules(&table, &source)?;
    let inputs: [&Path; 1] = [&source];
    refuse_same(&[
        ("--output", arguments.output.as_ref()),
        ("--sdf", arguments.sdf.as_ref()),
        ("--grid", arguments.grid.as_ref()),
    ])?;
    let create = |option: &str, path: &PathBuf, formats: Formats| {
        FileInPlace::create_for(option, path, formats, &inputs, arguments.force)
    };
    type Draw = fn(&BestTable) -> String;
    let others = [
        arguments.sdf.as_ref().map(|path| ("--sdf", path, SDF, structure_file as Draw)),
        arguments.grid.as_ref().map(|path| ("--grid", path, SVG, grid as Draw)),
    ];
    let output = arguments.output.as_ref().map(|path| create("-o", path, CSV)).transpose()?;
    let others = others
        .into_iter()
        .flatten()
        .map(|(option, path, formats, of)| Ok((create(option, path, formats)?, of)));
    let others = others.collect::<anyhow::Result<Vec<_>>>()?;
    let table = selected(table, arguments)?;
    let mut files = Vec::new();
    for (mut file, of) in others {
        let written = file.write_all(of(&table).as_bytes());
        written.with_context(|| format!("cannot write {}", file.path().display()))?;
        files.push(file);
    }
    match output {
        Some(mut file) => {
            let written = file.write_all(&table.to_csv());
            written.with_context(|| format!("cannot write {}", file.path().display()))?;
            files.push(file);
        }
        None if arguments.sdf.is_some() || arguments.grid.is_some() => {}
        None => {
            let mut output = data_output();
            let written = output.write_all(&table.to_csv()).and_then(|()| output.flush());
            written.context("cannot write to standard output")?;
        }
    }
    FileInPlace::finish_all(files)?;
    say_aside(format_args!("molecules    {:>8}", table.samples.len()));
    if table.samples.is_empty() {
        say_aside(format_args!(
            "note: no valid molecule of {} has a reward yet, so there is nothing to list",
            arguments.run.display()
        ));
    }
    Ok(())
}

/// Checks that the completions of a table are molecules.
///
/// # Errors
/// Returns an error with the line of the first cell that is not a SMILES, or the missing column.
fn check_molecules(table: &BestTable, path: &Path) -> Result<(), RunError> {
    let damaged = |line: usize, reason: String| {
        Err(RunError::BadLine { path: path.to_owned(), line: line as u64, reason })
    };
    if table.column != SMILES {
        return damaged(1, format!("column `{SMILES}` is missing"));
    }
    let fault = |sample: &BestSample| Molecule::parse(&sample.text).err();
    match table.samples.par_iter().map(fault).enumerate().find_first(|(_, fault)| fault.is_some()) {
        Some((index, Some(fault))) => {
            let cell = short_text(&table.samples[index].text);
            damaged(index + 2, format!("`{cell}` is not a molecule: {fault}"))
        }
        _ => Ok(()),
    }
}

/// Name of the column with the molecules.
const SMILES: &str = "smiles";

/// Structures with data items.
const SDF: Formats = Formats { written: "an SDF file", endings: &["sdf"] };

/// Returns the rows that meet all limits.
///
/// # Errors
/// Returns an error if a property is unknown, or if no row meets the limits.
fn selected(table: BestTable, arguments: &BestArguments) -> anyhow::Result<BestTable> {
    let limits = || {
        let min = arguments.min.iter().map(|limit| (limit, true));
        min.chain(arguments.max.iter().map(|limit| (limit, false)))
    };
    for (Limit { name, .. }, _) in limits() {
        let is_known = name == "reward" || table.parts.contains(name);
        let near = || {
            let descriptors = Descriptor::ALL.map(|descriptor| descriptor.name().to_owned());
            let all = table.parts.iter().cloned().chain(descriptors).chain(["reward".to_owned()]);
            let near = nearest(&all.collect::<Vec<_>>(), name).cloned();
            near.map(|near| format!("did you mean `{near}`? Otherwise, ")).unwrap_or_default()
        };
        anyhow::ensure!(
            is_known || Descriptor::parse(name).is_some(),
            "unknown property `{}`; {}expected reward, a reward component ({}) or a descriptor ({})",
            name.escape_debug(),
            near(),
            table.parts.join(", "),
            Descriptor::ALL.map(Descriptor::name).join(", ")
        );
    }
    let meets = |sample: &BestSample| {
        limits().all(|(Limit { name, value }, is_min)| {
            value_of(sample, name).is_some_and(|found| match is_min {
                true => found >= *value,
                false => found <= *value,
            })
        })
    };
    let BestTable { column, parts, samples } = table;
    let (samples, others): (Vec<BestSample>, Vec<BestSample>) =
        samples.into_par_iter().partition(meets);
    anyhow::ensure!(
        !samples.is_empty() || others.is_empty(),
        "none of the {} passes: {}; change the limits",
        counted(others.len(), "molecule"),
        limits()
            .map(|(limit, is_min)| limit.missed(is_min, &others))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let samples = samples.into_iter().take(arguments.number as usize).collect();
    Ok(BestTable { column, parts, samples })
}

impl Limit {
    /// Describes how far molecules are from the limit, e.g. `the highest qed is 0.9312 (--min qed=2)`.
    fn missed(&self, is_min: bool, samples: &[BestSample]) -> String {
        let Self { name, value } = self;
        let values = samples.par_iter().filter_map(|sample| value_of(sample, name));
        let (option, which, best) = match is_min {
            true => ("--min", "highest", values.reduce_with(f64::max)),
            false => ("--max", "lowest", values.reduce_with(f64::min)),
        };
        match best {
            Some(best) => {
                format!("the {which} {name} is {} ({option} {name}={value})", four_decimals(best))
            }
            None => format!("none has a {name} ({option} {name}={value})"),
        }
    }
}

/// Returns the reward, a descriptor or a reward component of a molecule. A component that is called
/// like a descriptor can be its score from 0 to 1, which nobody means by `logp=2`.
fn value_of(sample: &BestSample, name: &str) -> Option<f64> {
    if name == "reward" {
        return Some(sample.reward);
    }
    match Descriptor::parse(name) {
        Some(descriptor) => Molecule::parse(&sample.text).ok()?.descriptor(descriptor).ok(),
        None => sample.parts.get(name).copied(),
    }
}

/// Returns an SDF file with one record per molecule. Rewards and components are data items.
/// Molecules that cannot be drawn have an empty structure.
pub(crate) fn structure_file(table: &BestTable) -> String {
    let record = |(rank, sample): (usize, &BestSample)| {
        let title = format!("{}", rank + 1);
        let block = Molecule::parse(&sample.text).and_then(|molecule| molecule.mol_block(&title));
        let mut record = block.unwrap_or_else(|_| empty_block(&title));
        let mut item = |name: &str, value: &dyn std::fmt::Display| {
            writeln!(record, "> <{name}>\n{value}\n").expect("writing to a string cannot fail");
        };
        item(&table.column, &sample.text);
        item("reward", &sample.reward);
        item("step", &sample.step);
        for name in &table.parts {
            if let Some(value) = sample.parts.get(name) {
                item(name, value);
            }
        }
        record + "$$$$\n"
    };
    let records: Vec<String> = table.samples.par_iter().enumerate().map(record).collect();
    records.concat()
}

fn empty_block(title: &str) -> String {
    format!("{title}\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n")
}

/// Number of molecules in a row of the picture.
const COLUMNS: usize = 5;
/// Size of a cell in pixels. The caption has its own space below the drawing.
const CELL: (usize, usize) = (240, 200);
const CAPTION: usize = 28;

/// Returns a picture of all molecules with their rewards.
fn grid(table: &BestTable) -> String {
    let columns = COLUMNS.min(table.samples.len().max(1));
    let rows = table.samples.len().div_ceil(columns);
    let (width, height) = (CELL.0 * columns, (CELL.1 + CAPTION) * rows);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" color=\"#222\" fill=\"#222\" font-family=\"sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let drawings: Vec<Option<String>> = table
        .samples
        .par_iter()
        .map(|sample| Molecule::parse(&sample.text).ok()?.draw().ok())
        .collect();
    for (place, (sample, drawing)) in table.samples.iter().zip(drawings).enumerate() {
        let (x, y) = (place % columns * CELL.0, place / columns * (CELL.1 + CAPTION));
        if let Some(drawing) = drawing {
            svg.push_str(&placed(&drawing, x + 10, y + 10, CELL.0 - 20, CELL.1 - 20));
        }
        writeln!(
            svg,
            "\n<text x=\"{}\" y=\"{}\" font-size=\"13\" text-anchor=\"middle\">{}. {:.3}, step {}</text>",
            x + CELL.0 / 2,
            y + CELL.1 + 14,
            place + 1,
            sample.reward,
            sample.step
        )
        .expect("writing to a string cannot fail");
    }
    svg + "</svg>\n"
}

/// Returns a drawing with the given position and size instead of its own size.
fn placed(drawing: &str, x: usize, y: usize, width: usize, height: usize) -> String {
    let (head, body) = drawing.split_once('>').unwrap_or((drawing, ""));
    let own = head.find(" width=").map_or(head, |end| &head[..end]);
    format!("{own} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\">{body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> BestTable {
        let sample = |text: &str, reward: f64| BestSample {
            text: text.to_owned(),
            step: 3,
            reward,
            parts: [("qed".to_owned(), reward)].into(),
        };
        let samples = vec![sample("CC(=O)Oc1ccccc1C(=O)O", 0.9), sample("CCO", 0.4)];
        BestTable { column: "smiles".to_owned(), parts: vec!["qed".to_owned()], samples }
    }

    #[test]
    fn cells_that_are_not_molecules_are_damage() {
        let fault = |change: &dyn Fn(&mut BestTable)| {
            let mut table = table();
            change(&mut table);
            check_molecules(&table, Path::new("best.csv")).err().map(|error| error.to_string())
        };
        assert_eq!(fault(&|_| {}), None);
        for text in ["not_a_molecule", "", "C1CC"] {
            let said = fault(&|table| text.clone_into(&mut table.samples[1].text)).unwrap();
            let expected = format!("line 3 of `best.csv` is damaged: `{text}` is not a molecule: ");
            assert!(said.starts_with(&expected), "{said}");
        }
        let said = fault(&|table| "xsmiles".clone_into(&mut table.column)).unwrap();
        assert!(
            said.starts_with("line 1 of `best.csv` is damaged: column `smiles` is missing; "),
            "{said}"
        );
    }

    #[test]
    fn a_structure_file_has_a_record_per_molecule() {
        let file = structure_file(&table());
        assert_eq!(file.matches("$$$$\n").count(), 2);
        assert!(file.starts_with("1\n"), "{file}");
        assert!(file.contains(" 13 13  0"), "{file}");
        assert!(file.contains("M  END\n> <smiles>\nCCO\n\n> <reward>\n0.4\n"), "{file}");
    }

    #[test]
    fn a_picture_has_a_cell_per_molecule() {
        let svg = grid(&table());
        assert_eq!(svg.matches("class=\"molecule\"").count(), 2);
        assert!(svg.contains("width=\"480\" height=\"228\""), "{svg}");
        assert!(svg.contains("1. 0.900, step 3"), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn limits_are_read_from_names_and_values() {
        assert!(limit("qed").is_err() && limit("qed=x").is_err() && limit("qed=inf").is_err());
        let found = limit("qed=0.5").unwrap();
        assert_eq!((found.name.as_str(), found.value), ("qed", 0.5));
        let sample = &table().samples[1];
        let mut sample = sample.clone();
        sample.parts.extend([("logp".to_owned(), 1.0), ("my_score".to_owned(), 0.7)]);
        let sample = &sample;
        assert_eq!(value_of(sample, "my_score"), Some(0.7));
        // The score of a component with this name is 1, the descriptor is that of ethanol.
        assert_eq!(value_of(sample, "logp").map(|logp| (1e4 * logp).round()), Some(-14.0));
        assert_eq!(value_of(sample, "heavy_atoms"), Some(3.0));
        assert_eq!(value_of(sample, "reward"), Some(0.4));
    }
}
