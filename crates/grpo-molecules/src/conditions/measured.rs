//! Properties and scaffolds of molecules, computed or read from a file.

use std::collections::BTreeMap;
use std::path::Path;

use grpo_chem::{Descriptor, InvalidSmiles, Molecule};
use grpo_data::{DataError, decimal_comma_remedy};
use rayon::prelude::*;

use super::{Asked, SCAFFOLD_COLUMN, descriptor};
use crate::{MoleculeReader, MoleculeRecord, ReadOptions};

/// What is measured of each molecule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measures<'a> {
    /// Names of properties.
    pub(crate) properties: &'a [String],
    pub(crate) scaffold: bool,
    /// Whether the values are read from the columns of the file.
    pub(crate) from_columns: bool,
}

/// Properties and scaffolds of the molecules in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// By SMILES as written.
    pub(crate) written: BTreeMap<String, Asked>,
    /// The first row of each molecule that is not written as its canonical SMILES, by the latter.
    canonical: BTreeMap<String, String>,
}

impl Measured {
    /// Measures all molecules in a file. Invalid molecules and rows with missing cells are left
    /// out.
    pub(crate) fn read(
        path: &Path,
        options: &ReadOptions,
        measures: &Measures<'_>,
    ) -> Result<Self, DataError> {
        let records = MoleculeReader::open(path, options)?.collect::<Result<Vec<_>, _>>()?;
        if let (true, Some(first)) = (measures.from_columns, records.first()) {
            let columns = measures.properties.iter().map(String::as_str);
            let columns = columns.chain(measures.scaffold.then_some(SCAFFOLD_COLUMN));
            let missing = columns.filter(|column| !first.conditions.contains_key(*column));
            let missing: Vec<&str> = missing.collect();
            if !missing.is_empty() {
                let (noun, them) =
                    if missing.len() == 1 { ("column", "it") } else { ("columns", "them") };
                return Err(DataError::Invalid(format!(
                    "`{}` has no {noun} {}; add {them}, or set data.conditions.from_columns = false to compute the conditions",
                    path.display(),
                    missing.join(", ")
                )));
            }
        }
        let of = |record: MoleculeRecord| {
            let asked = match measures.from_columns {
                true => measures.of_row(&record, path)?,
                false => measures.of(&record.smiles).ok(),
            };
            let canonical = Molecule::parse(&record.smiles).map(Molecule::into_canonical).ok();
            Ok(asked.map(|asked| (record.smiles, canonical, asked)))
        };
        let found: Vec<Option<(String, Option<String>, Asked)>> =
            records.into_par_iter().map(of).collect::<Result<_, DataError>>()?;
        let mut measured = Self::default();
        for (smiles, canonical, asked) in found.into_iter().flatten() {
            if let Some(canonical) = canonical.filter(|canonical| *canonical != smiles) {
                measured.canonical.entry(canonical).or_insert_with(|| smiles.clone());
            }
            measured.written.insert(smiles, asked);
        }
        Ok(measured)
    }

    /// Returns what was measured of a molecule, by its SMILES as written or its canonical SMILES.
    pub(crate) fn get(&self, smiles: &str) -> Option<&Asked> {
        let of_canonical = || self.written.get(self.canonical.get(smiles)?);
        self.written.get(smiles).or_else(of_canonical)
    }

    /// Returns all values of a property.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        let of = |asked: &Asked| Some(asked.properties.iter().find(|(n, _)| n == name)?.1);
        self.written.values().filter_map(of).collect()
    }
}

impl Measures<'_> {
    /// Measures a molecule.
    pub(crate) fn of(&self, smiles: &str) -> Result<Asked, InvalidSmiles> {
        let molecule = Molecule::parse(smiles)?;
        let of = |name: &String| {
            let descriptor = descriptor(name).unwrap_or(Descriptor::Qed);
            Ok((name.clone(), molecule.descriptor(descriptor)?))
        };
        let properties = self.properties.iter().map(of).collect::<Result<_, InvalidSmiles>>()?;
        let scaffold = match self.scaffold {
            true => Some(molecule.scaffold()?).filter(|scaffold| !scaffold.is_empty()),
            false => None,
        };
        Ok(Asked { properties, scaffold })
    }

    /// Reads the columns of a row. Returns `None` if a cell is empty.
    fn of_row(&self, row: &MoleculeRecord, path: &Path) -> Result<Option<Asked>, DataError> {
        let cell = |name: &str| row.conditions.get(name).cloned().flatten();
        let mut asked = Asked::default();
        for name in self.properties {
            let Some(text) = cell(name) else { return Ok(None) };
            let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
            let number = number.ok_or_else(|| {
                let remedy = decimal_comma_remedy(&text);
                DataError::Invalid(format!("column {name} has '{text}'; expected a number{remedy}"))
                    .at_line(path, row.line)
            })?;
            asked.properties.push((name.clone(), number));
        }
        if self.scaffold {
            let Some(scaffold) = cell(SCAFFOLD_COLUMN) else { return Ok(None) };
            asked = asked.with_scaffold_of(&scaffold).map_err(|fault| {
                DataError::Invalid(format!("column {SCAFFOLD_COLUMN}: {fault}"))
                    .at_line(path, row.line)
            })?;
        }
        Ok(Some(asked))
    }
}
