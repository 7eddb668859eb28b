//! A component's molecules and patterns, read from its list and its file.

use std::fmt::Display;
use std::path::Path;

use grpo_chem::{InvalidSmiles, Molecule, Pattern};
use grpo_data::{ConfigFault, DataError, read_text_file, short_text};
use rayon::prelude::*;

use super::fields::ComponentFields;
use crate::identity::scored_molecule;
use crate::reader::REMOVE_TEXT;
use crate::{KnownMolecules, MoleculeReader, MoleculeRecord, ReadOptions};

/// An entry of a list or file.
struct Entry {
    place: Place,
    text: String,
}

#[derive(Clone, Copy)]
enum Place {
    /// The key of a list and the index in it.
    List(&'static str, usize),
    /// The line number in the file.
    Line(u64),
}

impl ComponentFields {
    /// Parses all molecules and converts them with `of`.
    pub(super) fn molecules<T: Send>(
        &self,
        of: impl Fn(Molecule) -> Result<T, InvalidSmiles> + Sync,
    ) -> Result<Vec<T>, ConfigFault> {
        let mut entries = listed("smiles", self.smiles.as_deref());
        if let Some(file) = self.opened_file() {
            entries.extend(molecules_of(file).map_err(|error| self.of_file(&error))?);
        }
        self.refuse_empty("smiles", entries.is_empty())?;
        let molecule = |entry: &Entry| {
            let molecule = scored_molecule(&entry.text).and_then(&of);
            molecule.map_err(|error| self.invalid(entry, "molecule", &error))
        };
        entries.par_iter().map(molecule).collect()
    }

    /// Returns all molecules. Invalid ones in the file are skipped, because no valid molecule is
    /// equal to them.
    pub(super) fn known_molecules(&self) -> Result<KnownMolecules, ConfigFault> {
        let mut known = match self.opened_file() {
            Some(file) => KnownMolecules::read(file).map_err(|error| self.of_file(&error))?,
            None => KnownMolecules::default(),
        };
        // Without the text after its SMILES, the row would be another molecule.
        if let (Some(file), Some((record, reason))) = (self.opened_file(), &known.first_with_text) {
            let fault = match reason {
                InvalidSmiles::Unsupported { .. } => {
                    "has a CXSMILES extension, which is not supported; remove the row, or the extension"
                        .to_owned()
                }
                _ => format!("has text after the SMILES; {REMOVE_TEXT}"),
            };
            return Err(self.of_file(&format!(
                "{}, line {}: '{}' {fault}",
                file.display(),
                record.line,
                short_text(&record.smiles)
            )));
        }
        for entry in listed("smiles", self.smiles.as_deref()) {
            let molecule = Molecule::parse(&entry.text);
            molecule
                .and_then(|molecule| known.insert(&molecule))
                .map_err(|error| self.invalid(&entry, "molecule", &error))?;
        }
        self.refuse_empty("smiles", known.is_empty())?;
        Ok(known)
    }

    /// Parses all patterns.
    pub(super) fn patterns(&self) -> Result<Vec<Pattern>, ConfigFault> {
        let mut entries = listed("smarts", self.smarts.as_deref());
        if let Some(file) = self.opened_file() {
            entries.extend(patterns_of(file).map_err(|error| self.of_file(&error))?);
        }
        self.refuse_empty("smarts", entries.is_empty())?;
        let pattern = |entry: &Entry| {
            Pattern::parse(&entry.text)
                .map_err(|error| self.invalid(entry, "SMARTS pattern", &error))
        };
        entries.iter().map(pattern).collect()
    }

    /// Parses all patterns, or the default alerts if neither a list nor a file is set.
    pub(super) fn patterns_or_alerts(&self) -> Result<Vec<Pattern>, ConfigFault> {
        if self.smarts.is_some() || self.file.is_some() {
            return self.patterns();
        }
        let alerts = grpo_chem::default_alerts().map(Pattern::parse).collect::<Result<_, _>>();
        alerts.map_err(|error| ConfigFault::from_sentence("smarts", error.to_string()))
    }

    /// Returns the file if it is to be read now.
    fn opened_file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|_| self.reads_file)
    }

    fn invalid(&self, entry: &Entry, what: &str, error: &dyn Display) -> ConfigFault {
        let fault = format!("'{}' is not a valid {what}: {error}", short_text(&entry.text));
        match (entry.place, self.opened_file()) {
            (Place::Line(line), Some(file)) => {
                self.of_file(&format!("{}, line {line}: {fault}", file.display()))
            }
            (Place::List(key, index), _) => ConfigFault::new(format!("{key}[{index}]"), fault, ""),
            (Place::Line(_), None) => self.of_file(&fault),
        }
    }

    /// Creates an error about the file. Files are read when the line of the key is not known
    /// anymore.
    fn of_file(&self, fault: &dyn Display) -> ConfigFault {
        ConfigFault::from_sentence("file", format!("component '{}': {fault}", self.name()))
    }

    fn refuse_empty(&self, key: &str, is_empty: bool) -> Result<(), ConfigFault> {
        // A file that is not read yet may have entries.
        if !is_empty || (self.file.is_some() && !self.reads_file) {
            return Ok(());
        }
        Err(match &self.file {
            Some(file) => self
                .of_file(&format!("{} has no entries; write one entry per line", file.display())),
            None => {
                let message = format!("the list `{key}` of component '{}' is empty", self.name());
                ConfigFault::new(key, message, "add at least one entry")
            }
        })
    }
}

fn listed(key: &'static str, list: Option<&[String]>) -> Vec<Entry> {
    let entry = |(index, text): (usize, &String)| Entry {
        place: Place::List(key, index),
        text: text.clone(),
    };
    list.unwrap_or_default().iter().enumerate().map(entry).collect()
}

fn molecules_of(file: &Path) -> Result<Vec<Entry>, DataError> {
    let entry = |record: Result<MoleculeRecord, DataError>| {
        let record = record?;
        Ok(Entry { place: Place::Line(record.line), text: record.smiles })
    };
    MoleculeReader::open(file, &ReadOptions::default())?.map(entry).collect()
}

/// Reads a pattern from the beginning of each line. Empty lines and lines that start with `#` are
/// skipped.
fn patterns_of(file: &Path) -> Result<Vec<Entry>, DataError> {
    let text = read_text_file(file)?;
    let numbered = (1..).zip(text.lines());
    let first_word =
        numbered.filter_map(|(line, text)| Some((line, text.split_whitespace().next()?)));
    let pattern = first_word.filter(|(_, text)| !text.starts_with('#'));
    let entry =
        |(line, text): (u64, &str)| Entry { place: Place::Line(line), text: text.to_owned() };
    Ok(pattern.map(entry).collect())
}
