//! `grpo make-molecules`: generates a small data set with MolGPT's columns for quick experiments.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use grpo_data::EpochOrder;
use grpo_task::output::{CSV, FileInPlace, say_aside};
use grpo_task::task::{CommandGroup, TaskCommand};
use grpo_task::visible::number_cell;

/// Groups that are bonded by their last atom. All tokens are in MolGPT's MOSES vocabulary.
const LEFT: [&str; 18] = [
    "Cc1ccc(cc1)",
    "COc1ccc(cc1)",
    "Fc1ccc(cc1)",
    "Clc1ccc(cc1)",
    "Brc1ccc(cc1)",
    "N#Cc1ccc(cc1)",
    "FC(F)(F)c1ccc(cc1)",
    "OC(=O)c1ccc(cc1)",
    "CS(=O)(=O)c1ccc(cc1)",
    "CC(=O)Nc1ccc(cc1)",
    "Cc1nc(cs1)",
    "CN1CCC(CC1)",
    "C1CCCC1",
    "c1ccncc1",
    "c1ccoc1",
    "c1ccsc1",
    "c1ccc2[nH]ccc2c1",
    "c1ccc2ncccc2c1",
];

/// Groups between the others.
const MIDDLE: [&str; 11] =
    ["C", "CC", "OC", "CO", "CCO", "CN", "NC(=O)", "C(=O)N", "CNC(=O)", "C(=O)NC", "S(=O)(=O)N"];

/// Groups that are bonded by their first atom.
const RIGHT: [&str; 20] = [
    "c1ccccc1",
    "c1ccncc1",
    "c1ccc(F)cc1",
    "c1ccc(Cl)cc1",
    "c1ccc(OC)cc1",
    "c1ccc(O)cc1",
    "c1ccc(C#N)cc1",
    "c1cccs1",
    "c1ccco1",
    "c1nccs1",
    "c1c[nH]cn1",
    "c1ccc2ccccc2c1",
    "Cc1ccccc1",
    "C1CC1",
    "C1CCCCC1",
    "C1CCOCC1",
    "C1CCN(C)CC1",
    "C(C)C",
    "CC(C)C",
    "CCN(C)C",
];

#[derive(Debug, Args)]
struct MakeArguments {
    /// Number of molecules
    #[arg(short, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Molecules")]
    number: u32,
    /// Seed of the selection
    #[arg(long, default_value_t = 42, help_heading = "Molecules")]
    seed: u64,
    /// Column with the split: `split` as in MOSES or `source` as in GuacaMol
    #[arg(long, value_enum, default_value_t = SplitColumn::Split, help_heading = "Molecules")]
    column: SplitColumn,
    /// Output file (CSV), compressed if the name ends in .gz
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: PathBuf,
    /// Replace an existing output file
    #[arg(long, help_heading = "Output")]
    force: bool,
}

/// The column that assigns molecules to splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SplitColumn {
    Split,
    Source,
}

impl SplitColumn {
    /// Returns the name of the column, and the values for 80 %, 10 % and 10 % of the molecules.
    fn names(self) -> (&'static str, [&'static str; 3]) {
        match self {
            Self::Split => ("split", ["train", "test", "test_scaffolds"]),
            Self::Source => ("source", ["train", "val", "test"]),
        }
    }
}

/// Returns the subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Generate a small CSV file of molecules for quick experiments",
        "Combines common groups into distinct, drug-like molecules and computes their properties. The columns match MolGPT's data sets: smiles, scaffold_smiles, logp, sas, qed, tpsa and the split (80 % train, 10 %, 10 %). The same seed always gives the same file.",
    ];
    TaskCommand::new("make-molecules", &about, CommandGroup::Prepare, |_, arguments| run(arguments))
        .with_examples(
            "Examples:
  grpo make-molecules -o mock.csv
  grpo make-molecules -n 2000 --column source -o mock.csv.gz",
        )
}

fn run(arguments: &MakeArguments) -> anyhow::Result<()> {
    let mut file = FileInPlace::create_beside(&arguments.output, CSV, &[], arguments.force)?;
    let rows = rows(arguments.number as usize, arguments.seed, arguments.column)?;
    let failed = || format!("cannot write {}", arguments.output.display());
    let mut table = csv::Writer::from_writer(&mut file);
    let (column, _) = arguments.column.names();
    let header = ["smiles", "scaffold_smiles", "logp", "sas", "qed", "tpsa", column];
    table.write_record(header).with_context(failed)?;
    for row in &rows {
        table.write_record(row).with_context(failed)?;
    }
    table.flush().with_context(failed)?;
    drop(table);
    file.finish()?;
    say_aside(format_args!("written      {:>8}", rows.len()));
    Ok(())
}

/// Returns the rows of the table.
fn rows(count: usize, seed: u64, column: SplitColumn) -> anyhow::Result<Vec<[String; 7]>> {
    let (_, splits) = column.names();
    let combinations = LEFT.len() * MIDDLE.len() * RIGHT.len();
    let mut order = EpochOrder::new(seed, combinations);
    let (mut seen, mut rows) = (BTreeSet::new(), Vec::new());
    for _ in 0..combinations {
        if rows.len() == count {
            break;
        }
        let molecule = grpo_chem::describe(&combination(order.next_item()))
            .context("a combination of groups is a molecule")?;
        if !seen.insert(molecule.canonical.clone()) {
            continue;
        }
        // The rows are shuffled, so every tenth one is a random one.
        let split = match rows.len() % 10 {
            8 => splits[1],
            9 => splits[2],
            _ => splits[0],
        };
        let properties = &molecule.properties;
        let numbers =
            [properties.logp, molecule.sa, molecule.qed, properties.tpsa].map(number_cell);
        let [logp, sas, qed, tpsa] = numbers;
        let (smiles, scaffold) = (molecule.canonical, molecule.scaffold);
        rows.push([smiles, scaffold, logp, sas, qed, tpsa, split.to_owned()]);
    }
    anyhow::ensure!(
        rows.len() == count,
        "--number {count} is too large: the groups yield at most {} distinct molecules",
        rows.len()
    );
    Ok(rows)
}

/// Returns a combination of groups.
fn combination(index: usize) -> String {
    let (left, rest) = (index % LEFT.len(), index / LEFT.len());
    let (middle, right) = (rest % MIDDLE.len(), rest / MIDDLE.len());
    [LEFT[left], MIDDLE[middle], RIGHT[right]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Vocabulary;
    use std::path::Path;

    #[test]
    fn rows_are_distinct_molecules_with_their_properties() {
        let rows = rows(100, 42, SplitColumn::Split).unwrap();
        let distinct: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(distinct.len(), 100);
        for row in &rows {
            let molecule = grpo_chem::describe(&row[0]).unwrap();
            assert_eq!((&molecule.canonical, &molecule.scaffold), (&row[0], &row[1]));
            assert!(!row[1].is_empty(), "{}", row[0]);
            assert_eq!(row[2], format!("{:.6}", molecule.properties.logp));
            assert_eq!(row[3], format!("{:.6}", molecule.sa));
            assert_eq!(row[4], format!("{:.6}", molecule.qed));
            assert_eq!(row[5], format!("{:.6}", molecule.properties.tpsa));
        }
        let count = |split: &str| rows.iter().filter(|row| row[6] == split).count();
        assert_eq!([count("train"), count("test"), count("test_scaffolds")], [80, 10, 10]);
    }

    #[test]
    fn the_seed_decides_the_rows() {
        let of = |seed| rows(50, seed, SplitColumn::Source).unwrap();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(of(1)[8][6], "val");
    }

    /// So that the file can be used with MolGPT's own vocabulary.
    #[test]
    fn all_tokens_are_in_the_vocabulary_of_moses() {
        let tokens = "# ( ) - 1 2 3 4 5 6 < = Br C Cl F N O S [H] [SH] [nH] c n o s";
        let json: serde_json::Map<String, serde_json::Value> =
            tokens.split(' ').zip(0..).map(|(token, id)| (token.to_owned(), id.into())).collect();
        let json = serde_json::Value::Object(json).to_string();
        let vocabulary = Vocabulary::from_json(&json, Path::new("moses2_stoi.json")).unwrap();
        // Each group occurs, because the numbers of groups are not multiples of the step.
        for index in (0..LEFT.len() * MIDDLE.len() * RIGHT.len()).step_by(13) {
            let smiles = combination(index);
            let canonical = grpo_chem::describe(&smiles).unwrap().canonical;
            assert!(vocabulary.encode(&canonical).is_ok(), "{smiles}: {canonical}");
        }
    }

    #[test]
    fn too_many_molecules_are_an_error() {
        let combinations = LEFT.len() * MIDDLE.len() * RIGHT.len();
        for count in [3700, combinations, combinations + 1, u32::MAX as usize] {
            let error = rows(count, 42, SplitColumn::Split).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "--number {count} is too large: the groups yield at most 3699 distinct molecules"
                )
            );
        }
    }
}
