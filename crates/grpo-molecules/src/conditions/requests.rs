//! Conditions given on the command line or in a file.

use std::collections::BTreeSet;
use std::path::Path;

use grpo_chem::Descriptor;
use grpo_data::{DataError, short_text};

use super::{Asked, SCAFFOLD_COLUMN, descriptor, is_condition_column};
use crate::{MoleculeReader, ReadOptions};

/// A named set of conditions from MolGPT's generation scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Grid {
    /// Values typical of MOSES: single properties, and combinations of two and three
    Moses,
    /// Values typical of GuacaMol: single properties, and combinations of two and three
    Guacamol,
    /// Five scaffolds
    Scaffolds,
}

/// The five scaffolds from MolGPT's generation scripts.
const SCAFFOLDS: [&str; 5] = [
    "O=C(Cc1ccccc1)NCc1ccccc1",
    "c1cnc2[nH]ccc2c1",
    "c1ccc(-c2ccnnc2)cc1",
    "c1ccc(-n2cnc3ccccc32)cc1",
    "O=C(c1cc[nH]c1)N1CCN(c2ccccc2)CC1",
];

/// The values of one property.
type Values = (Descriptor, &'static [f64]);

const MOSES: [&[Values]; 8] = [
    &[(Descriptor::Qed, &[0.6, 0.725, 0.85])],
    &[(Descriptor::Sa, &[2.0, 2.75, 3.5])],
    &[(Descriptor::LogP, &[1.0, 2.0, 3.0])],
    &[(Descriptor::Tpsa, &[30.0, 60.0, 90.0])],
    &[(Descriptor::Tpsa, &[40.0, 80.0]), (Descriptor::LogP, &[2.0, 4.0])],
    &[(Descriptor::Sa, &[2.0, 3.5]), (Descriptor::LogP, &[1.0, 3.0])],
    &[(Descriptor::Tpsa, &[40.0, 80.0]), (Descriptor::Sa, &[2.0, 3.5])],
    &[
        (Descriptor::Tpsa, &[40.0, 80.0]),
        (Descriptor::LogP, &[1.0, 3.0]),
        (Descriptor::Sa, &[2.0, 3.5]),
    ],
];

const GUACAMOL: [&[Values]; 8] = [
    &[(Descriptor::Qed, &[0.3, 0.5, 0.7])],
    &[(Descriptor::Sa, &[2.0, 3.0, 4.0])],
    &[(Descriptor::LogP, &[2.0, 4.0, 6.0])],
    &[(Descriptor::Tpsa, &[40.0, 80.0, 120.0])],
    &[(Descriptor::Tpsa, &[40.0, 80.0, 120.0]), (Descriptor::LogP, &[2.0, 4.0, 6.0])],
    &[(Descriptor::Sa, &[2.0, 3.0, 4.0]), (Descriptor::LogP, &[2.0, 4.0, 6.0])],
    &[(Descriptor::Tpsa, &[40.0, 80.0, 120.0]), (Descriptor::Sa, &[2.0, 3.0, 4.0])],
    &[
        (Descriptor::Tpsa, &[40.0, 80.0]),
        (Descriptor::LogP, &[2.0, 6.0]),
        (Descriptor::Sa, &[2.0, 4.0]),
    ],
];

impl Grid {
    /// Returns the conditions for properties with the given names. Combinations that contain any
    /// other property are omitted.
    pub(crate) fn asked(self, names: &[&str]) -> Vec<Asked> {
        let combinations = match self {
            Self::Moses => MOSES,
            Self::Guacamol => GUACAMOL,
            Self::Scaffolds => {
                let asked = |smiles: &&str| Asked::default().with_scaffold_of(smiles);
                let asked = SCAFFOLDS.iter().map(asked).collect::<Result<_, _>>();
                return asked.expect("the scaffolds are valid");
            }
        };
        let name = |of: Descriptor| names.iter().find(|name| descriptor(name) == Some(of));
        let mut all = Vec::new();
        for combination in combinations {
            let mut product = vec![Asked::default()];
            for (of, values) in combination {
                let with = |asked: &Asked| -> Vec<Asked> {
                    let name = name(*of).into_iter();
                    let pairs = name.flat_map(|name| values.iter().map(move |&v| (name, v)));
                    pairs.map(|(name, value)| asked.with(name, value)).collect()
                };
                product = product.iter().flat_map(with).collect();
            }
            all.extend(product);
        }
        all
    }
}

impl Asked {
    /// Returns a copy with one more property.
    pub(crate) fn with(&self, name: &str, value: f64) -> Self {
        let mut asked = self.clone();
        asked.properties.push((name.to_owned(), value));
        asked
    }

    /// Parses properties such as `logp=3,tpsa=60`.
    ///
    /// # Errors
    /// Returns an error that quotes the part that cannot be parsed.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for part in text.split(',') {
            let pair =
                part.split_once('=').and_then(|(name, text)| Some((name.trim(), number(text)?)));
            let Some((name, value)) = pair else {
                return Err(format!(
                    "'{}' is not of the form PROPERTY=NUMBER; write, for example, logp=3,tpsa=60",
                    part.escape_debug()
                ));
            };
            if asked.properties.iter().any(|(other, _)| descriptor(other) == descriptor(name)) {
                return Err(format!("'{}' occurs twice; remove one", name.escape_debug()));
            }
            asked = asked.with(&name.to_ascii_lowercase(), value);
        }
        Ok(asked)
    }

    /// Reads conditions from a CSV file with a column named after each property and a column
    /// `scaffold_smiles`. An empty cell leaves a property or the scaffold open. Lines of a `.smi`
    /// file, and rows without any condition, are molecules whose scaffold is the condition.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or contains no condition.
    pub(crate) fn read(path: &Path) -> Result<Vec<Self>, DataError> {
        let options =
            ReadOptions { keep_empty: true, rows_without_smiles: true, ..ReadOptions::default() };
        let mut all = Vec::new();
        let reader = MoleculeReader::open(path, &options)?;
        check_columns(reader.header().unwrap_or_default(), path)?;
        for row in reader {
            let row = row?;
            let fault = |fault: String| DataError::Invalid(fault).at_line(path, row.line);
            let mut asked = Self::default();
            for (name, text) in &row.conditions {
                match text {
                    Some(text) if name == SCAFFOLD_COLUMN => {
                        asked = asked.with_scaffold_of(text).map_err(fault)?;
                    }
                    Some(text) => {
                        let value = number(text).ok_or_else(|| {
                            let text = short_text(text);
                            fault(format!("column {name} has '{text}'; expected a number"))
                        })?;
                        asked = asked.with(&name.to_ascii_lowercase(), value);
                    }
                    None => {}
                }
            }
            if row.conditions.is_empty() && !row.smiles.is_empty() {
                asked = asked.with_scaffold_of(&row.smiles).map_err(fault)?;
            }
            if asked == Self::default() {
                return Err(fault(
                    "the row has no condition; fill in a property or a scaffold".to_owned(),
                ));
            }
            all.push(asked);
        }
        match all.is_empty() {
            true => Err(DataError::Invalid(format!(
                "`{}` has no conditions; add a row with a value",
                path.display()
            ))),
            false => Ok(all),
        }
    }
}

/// Parses a finite number.
fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// Columns that may accompany conditions.
const OTHER_COLUMNS: [&str; 6] = ["smiles", "canonical_smiles", "molecule", "name", "id", "split"];

/// Refuses columns that are not conditions. A misspelled property would otherwise not be asked for.
fn check_columns(header: &str, path: &Path) -> Result<(), DataError> {
    let names = header.split([',', ';', '\t']).map(|name| name.trim().trim_matches('"'));
    let mut names = names.filter(|name| !name.is_empty());
    let is_known = |name: &str| {
        let name = name.to_lowercase();
        is_condition_column(&name) || OTHER_COLUMNS.contains(&name.as_str())
    };
    // The header of a file of scaffolds begins with `smiles` and can have anything behind it.
    let of_scaffolds = header.trim_start().to_lowercase().starts_with("smiles")
        && !header.contains([',', ';', '\t']);
    let mut seen = BTreeSet::new();
    let mut is_new = |name: &str| {
        let name = name.to_lowercase();
        let condition = descriptor(&name).map_or(SCAFFOLD_COLUMN, Descriptor::name);
        !is_condition_column(&name) || seen.insert(condition)
    };
    if let Some(twice) = names.clone().find(|name| !is_new(name)) {
        return Err(DataError::Invalid(format!(
            "{}: the condition of the column `{twice}` occurs twice; remove one column",
            path.display()
        )));
    }
    match names.find(|name| !of_scaffolds && !is_known(name)) {
        None => Ok(()),
        Some(unknown) => {
            let known: Vec<&str> = Descriptor::ALL.iter().map(|known| known.name()).collect();
            Err(DataError::Invalid(format!(
                "{}: the column `{}` is not a condition; rename it or remove it (conditions: {SCAFFOLD_COLUMN}, sas, {})",
                path.display(),
                short_text(unknown),
                known.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_have_all_combinations_of_the_properties_of_a_model() {
        let all = Grid::Moses.asked(&["logp", "tpsa", "sas", "qed"]);
        assert_eq!(all.len(), 4 * 3 + 3 * 4 + 8);
        assert_eq!(all[0].text(), "qed=0.6");
        assert_eq!(all[31].text(), "tpsa=80 logp=3 sas=3.5");
        assert_eq!(Grid::Guacamol.asked(&["logp", "tpsa", "sas", "qed"]).len(), 12 + 27 + 8);
        assert_eq!(Grid::Moses.asked(&["logp", "tpsa"]).len(), 6 + 4);
        assert_eq!(Grid::Scaffolds.asked(&[]).len(), 5);
    }

    fn texts(asked: &[Asked]) -> Vec<String> {
        asked.iter().map(Asked::text).collect()
    }

    /// Compares a grid with combinations of properties and their values.
    #[track_caller]
    fn check(grid: Grid, combinations: &[&[(&str, &str)]]) {
        let product = |combination: &&[(&str, &str)]| {
            combination.iter().fold(vec![String::new()], |all, (name, values)| {
                let with = |text: &String| -> Vec<String> {
                    values.split(' ').map(|value| format!("{text} {name}={value}")).collect()
                };
                all.iter().flat_map(with).collect()
            })
        };
        let all: Vec<String> = combinations.iter().flat_map(product).collect();
        let expected: Vec<&str> = all.iter().map(|text| text.trim_start()).collect();
        assert_eq!(texts(&grid.asked(&["logp", "tpsa", "sas", "qed"])), expected);
    }

    /// The values of MolGPT's `generate.py`.
    #[test]
    fn grids_have_the_published_values() {
        check(
            Grid::Moses,
            &[
                &[("qed", "0.6 0.725 0.85")],
                &[("sas", "2 2.75 3.5")],
                &[("logp", "1 2 3")],
                &[("tpsa", "30 60 90")],
                &[("tpsa", "40 80"), ("logp", "2 4")],
                &[("sas", "2 3.5"), ("logp", "1 3")],
                &[("tpsa", "40 80"), ("sas", "2 3.5")],
                &[("tpsa", "40 80"), ("logp", "1 3"), ("sas", "2 3.5")],
            ],
        );
        check(
            Grid::Guacamol,
            &[
                &[("qed", "0.3 0.5 0.7")],
                &[("sas", "2 3 4")],
                &[("logp", "2 4 6")],
                &[("tpsa", "40 80 120")],
                &[("tpsa", "40 80 120"), ("logp", "2 4 6")],
                &[("sas", "2 3 4"), ("logp", "2 4 6")],
                &[("tpsa", "40 80 120"), ("sas", "2 3 4")],
                &[("tpsa", "40 80"), ("logp", "2 6"), ("sas", "2 4")],
            ],
        );
        assert_eq!(
            texts(&Grid::Scaffolds.asked(&[])),
            [
                "scaffold=O=C(Cc1ccccc1)NCc1ccccc1",
                "scaffold=c1cnc2[nH]ccc2c1",
                "scaffold=c1ccc(-c2ccnnc2)cc1",
                "scaffold=c1ccc(-n2cnc3ccccc32)cc1",
                "scaffold=O=C(c1cc[nH]c1)N1CCN(c2ccccc2)CC1",
            ]
        );
    }

    #[test]
    fn columns_that_would_be_ignored_are_refused() {
        let fault = |header: &str| check_columns(header, Path::new("a.csv")).err();
        for header in ["logp,tpsa", "Name;LogP;scaffold_smiles", "smiles name of it", "", "\"sas\""]
        {
            assert!(fault(header).is_none(), "{header}");
        }
        for header in ["logp,logp", "LogP;tpsa;logp", "sa,sas", "scaffold_smiles,scaffold_smiles"] {
            let message = fault(header).unwrap().to_string();
            assert!(message.contains("occurs twice; remove one column"), "{message}");
        }
        let message = fault("lopg,tpsa").unwrap().to_string();
        assert!(
            message
                .starts_with("a.csv: the column `lopg` is not a condition; rename it or remove it"),
            "{message}"
        );
    }

    /// A cell is one number, whatever would be valid in `--condition`.
    #[test]
    fn cells_are_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        for (cell, words) in [
            ("\"1,tpsa=60\"", "column logp has '1,tpsa=60'; expected a number"),
            ("\"1,5\"", "column logp has '1,5'; expected a number"),
            ("inf", "column logp has 'inf'; expected a number"),
            ("3 %", "column logp has '3 %'; expected a number"),
        ] {
            std::fs::write(&file, format!("logp\n2\n{cell}\n")).unwrap();
            let error = Asked::read(&file).unwrap_err().to_string();
            assert!(error.contains("line 3") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn conditions_are_read_from_text() {
        assert_eq!(Asked::parse("logp=3, tpsa=60").unwrap().text(), "logp=3 tpsa=60");
        assert_eq!(Asked::parse("QED=0.7256,logP=-10").unwrap().text(), "qed=0.726 logp=-10");
        for (text, reason) in [("logp", "'logp' is not of the form"), ("sa=1,sas=2", "twice")] {
            assert!(Asked::parse(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
