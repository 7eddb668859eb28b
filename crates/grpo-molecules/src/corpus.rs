//! Converts a file of molecules to training sequences.

use crate::identity::identity;
use crate::reader::{blocks, record_fault};
use crate::smiles_tokens::is_aromatic;
use crate::{MoleculeReader, MoleculeRecord, ReadOptions, Vocabulary, smiles_tokens};
use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::{DataError, Example, Examples, split_draw, split_limit};
use rayon::prelude::*;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Options for creating a corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusOptions {
    /// Maximum number of tokens, not counting the boundary tokens. Longer molecules are dropped,
    /// never truncated.
    pub max_tokens: usize,
    /// Fraction of molecules held out for validation, in `0..1`. Ignored if the file defines a
    /// split.
    pub validation_fraction: f64,
    /// Seed for the split.
    pub seed: u64,
    /// Minimum number of training molecules, at least 1. This detects files that only contain a
    /// sample of the data set.
    pub min_molecules: usize,
    /// Names of the columns, with a scaffold or a property, in which each row needs a value. Other rows are
    /// left out.
    pub needed_columns: Vec<String>,
}

/// The token sequences of distinct molecules in file order, without boundary tokens.
///
/// A molecule is learned as the file writes it, if that fits. Otherwise, its canonical SMILES is used:
/// if the row has a token that is not in the vocabulary, if it has too many tokens, or if it is a
/// Kekulé structure of an aromatic molecule although the vocabulary has aromatic atoms.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// Training molecules.
    pub train: Vec<Vec<u32>>,
    /// Validation molecules. In a random split, none of them is a training molecule with another SMILES.
    pub validation: Vec<Vec<u32>>,
    /// Statistics about the file.
    pub report: CorpusReport,
}

/// How the validation molecules were selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// A random split based on a hash of the molecule and the seed. If the file marks training rows,
    /// only these are used.
    #[default]
    Hash,
    /// The column `split` or `source` contains both training and validation rows.
    Column,
}

/// Statistics about the rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorpusReport {
    /// Total number of rows, including rows without a SMILES.
    pub rows: u64,
    /// Number of rows without a SMILES.
    pub empty: u64,
    /// Number of rows with an empty cell in [a needed column](CorpusOptions::needed_columns).
    pub incomplete: u64,
    /// Number of tokens in the longest molecule in the file, even if it was dropped as too long or a
    /// duplicate.
    pub longest: usize,
    /// Number of molecules with a token that is not in the vocabulary.
    pub unknown_token: u64,
    /// Number of molecules with too many tokens.
    pub too_long: u64,
    /// Number of rows whose SMILES is invalid or not supported.
    pub invalid: u64,
    /// Number of molecules that are learned as their canonical SMILES, because the row does not fit.
    pub rewritten: u64,
    /// Number of molecules whose SMILES occurred in an earlier row.
    pub duplicates: u64,
    /// Number of molecules that the split column assigns to neither training nor validation.
    pub held_out: u64,
    /// Number of molecules in [`Corpus::train`].
    pub train: u64,
    /// Number of molecules in [`Corpus::validation`].
    pub validation: u64,
    /// How the validation molecules were selected.
    pub split_by: SplitBy,
    /// The first few dropped molecules for each reason.
    pub examples: Vec<DroppedMolecule>,
}

/// A molecule that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedMolecule {
    /// Line number, starting at 1.
    pub line: u64,
    /// The SMILES of the molecule.
    pub smiles: String,
    /// Why the molecule was dropped.
    pub reason: DropReason,
}

/// The reason why a molecule was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// This token is not in the vocabulary.
    UnknownToken(String),
    /// The molecule has this many tokens.
    TooLong(usize),
    /// The SMILES is invalid, which a model would learn from it, or not supported, so that no reward
    /// could be computed for it.
    Invalid(InvalidSmiles),
    /// The same SMILES occurred on an earlier line.
    Duplicate,
}

impl fmt::Display for DroppedMolecule {
    /// For example, `line 7: C[Xx]C has the token [Xx], which is not in the vocabulary`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} ", self.line, self.smiles)?;
        match &self.reason {
            DropReason::UnknownToken(token) => {
                write!(f, "has token {token}, which is not in the vocabulary")
            }
            DropReason::TooLong(tokens) => write!(f, "is too long ({tokens} tokens)"),
            DropReason::Invalid(error) => {
                write!(f, "is invalid or not supported: {}", record_fault(error))
            }
            DropReason::Duplicate => write!(f, "duplicates an earlier line"),
        }
    }
}

impl Corpus {
    /// Returns the training sequences, with their begin and end tokens.
    pub fn examples(&self, vocabulary: &Vocabulary) -> Examples {
        let example = |ids: &Vec<u32>| Example::of_all(vocabulary.sequence(ids));
        let all = |part: &[Vec<u32>]| part.iter().map(example).collect();
        Examples::new(all(&self.train), all(&self.validation))
    }

    /// Reads all molecules in a file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or if too few training molecules remain.
    ///
    /// # Panics
    /// Panics if [`CorpusOptions::validation_fraction`] is not in `0..1`.
    pub fn read(
        path: &Path,
        read: &ReadOptions,
        vocabulary: &Vocabulary,
        options: &CorpusOptions,
    ) -> Result<Self, DataError> {
        let mut reader = MoleculeReader::open(path, read)?;
        let mut sorter = Sorter::new(vocabulary, options);
        sorter.extend(&mut reader)?;
        sorter.report.empty += reader.empty_lines();
        sorter.report.rows += reader.empty_lines();
        sorter.finish(&format!("`{}`", path.display()))
    }

    /// Creates a corpus from molecule records.
    ///
    /// # Errors
    /// Returns an error if too few training molecules remain.
    ///
    /// # Panics
    /// Panics if [`CorpusOptions::validation_fraction`] is not in `0..1`.
    pub fn from_records(
        records: impl IntoIterator<Item = MoleculeRecord>,
        vocabulary: &Vocabulary,
        options: &CorpusOptions,
    ) -> Result<Self, DataError> {
        let mut sorter = Sorter::new(vocabulary, options);
        sorter.extend(records.into_iter().map(Ok))?;
        sorter.finish("the file")
    }
}

impl fmt::Display for CorpusReport {
    /// Writes a sentence with all counts that are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rows: {} for training, {} for validation",
            self.rows, self.train, self.validation
        )?;
        for (count, what) in [
            (self.rewritten, "rewritten as canonical SMILES to fit the vocabulary"),
            (self.unknown_token, "with a token outside the vocabulary"),
            (self.too_long, "too long"),
            (self.invalid, "invalid or not supported"),
            (self.duplicates, "duplicate"),
            (self.held_out, "held out by the split column"),
            (self.empty, "empty"),
            (self.incomplete, "with a missing scaffold or property"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Maximum number of dropped molecules listed per reason.
const EXAMPLES: u64 = 3;

/// Number of molecules parsed in parallel.
const BLOCK: usize = 4096;

/// Collects molecules and splits them after the last one.
struct Sorter<'a> {
    vocabulary: &'a Vocabulary,
    options: &'a CorpusOptions,
    /// Whether the vocabulary has aromatic atoms.
    is_aromatic: bool,
    seen: BTreeSet<String>,
    molecules: Vec<Accepted>,
    report: CorpusReport,
}

struct Usable {
    ids: Vec<u32>,
    /// The canonical SMILES, if it is used instead of the row's.
    rewritten: Option<String>,
    /// Determines the random split.
    identity: String,
}

struct Accepted {
    ids: Vec<u32>,
    /// Determines the random split. Only depends on the molecule and the seed.
    draw: [u32; 4],
    part: Part,
}

/// The value of the split column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Unsaid,
    Train,
    Validation,
    Test,
    Other,
}

impl<'a> Sorter<'a> {
    fn new(vocabulary: &'a Vocabulary, options: &'a CorpusOptions) -> Self {
        assert!(
            (0.0..1.0).contains(&options.validation_fraction),
            "the validation fraction {} is outside 0..1",
            options.validation_fraction
        );
        Self {
            vocabulary,
            options,
            is_aromatic: (0..vocabulary.len() as u32).any(|id| is_aromatic(vocabulary.token(id))),
            seen: BTreeSet::new(),
            molecules: Vec::new(),
            report: CorpusReport::default(),
        }
    }

    fn extend(
        &mut self,
        records: impl Iterator<Item = Result<MoleculeRecord, DataError>>,
    ) -> Result<(), DataError> {
        for block in blocks(records, BLOCK) {
            let block = block?;
            let usable: Vec<_> = block.par_iter().map(|record| self.usable(record)).collect();
            for (record, usable) in block.into_iter().zip(usable) {
                self.push(record, usable);
            }
        }
        Ok(())
    }

    /// Checks whether the model can learn the molecule, apart from duplicates.
    fn usable(&self, record: &MoleculeRecord) -> Result<Usable, DropReason> {
        let written = self.ids(&record.smiles);
        let molecule = match (Molecule::parse(&record.smiles), &written) {
            (Ok(molecule), _) => molecule,
            // The blank after the SMILES would not explain the reason.
            (Err(_), Err(reason)) if !record.has_text_after() => return Err(reason.clone()),
            (Err(error), _) => return Err(DropReason::Invalid(error)),
        };
        let identity = identity(&molecule).map_err(DropReason::Invalid)?;
        let canonical = molecule.into_canonical();
        let usable = |ids, rewritten| Ok(Usable { ids, rewritten, identity });
        match written {
            Ok(ids) if !self.is_kekule(&record.smiles, &canonical) => usable(ids, None),
            written => match self.ids(&canonical) {
                Ok(ids) => usable(ids, Some(canonical)),
                Err(_) => usable(written?, None),
            },
        }
    }

    /// Returns the tokens of a SMILES that fits.
    fn ids(&self, smiles: &str) -> Result<Vec<u32>, DropReason> {
        let ids = self.vocabulary.encode(smiles);
        let ids = ids.map_err(|error| DropReason::UnknownToken(error.token))?;
        match ids.len() > self.options.max_tokens {
            true => Err(DropReason::TooLong(ids.len())),
            false => Ok(ids),
        }
    }

    /// Returns whether a SMILES writes an aromatic molecule without aromatic atoms, which the
    /// vocabulary has.
    fn is_kekule(&self, smiles: &str, canonical: &str) -> bool {
        let has_aromatic = |smiles: &str| smiles_tokens(smiles).flatten().any(is_aromatic);
        self.is_aromatic && has_aromatic(canonical) && !has_aromatic(smiles)
    }

    fn push(&mut self, record: MoleculeRecord, usable: Result<Usable, DropReason>) {
        self.report.rows += 1;
        if record.smiles.is_empty() {
            self.report.empty += 1;
            return;
        }
        let is_missing = |column: &String| matches!(record.conditions.get(column), Some(None));
        if self.options.needed_columns.iter().any(is_missing) {
            self.report.incomplete += 1;
            return;
        }
        let tokens = match &usable {
            Ok(usable) => usable.ids.len(),
            Err(DropReason::TooLong(tokens)) => *tokens,
            Err(_) => 0,
        };
        self.report.longest = self.report.longest.max(tokens);
        match usable {
            Err(reason) => self.drop(record, reason),
            Ok(Usable { ids, rewritten, identity }) => {
                let is_rewritten = rewritten.is_some();
                if !self.seen.insert(rewritten.unwrap_or_else(|| record.smiles.clone())) {
                    self.drop(record, DropReason::Duplicate);
                    return;
                }
                self.report.rewritten += u64::from(is_rewritten);
                // Two SMILES of the same molecule are on the same side of the split.
                let draw = split_draw(self.options.seed, identity.as_bytes());
                let part = part(record.split.as_deref());
                self.molecules.push(Accepted { ids, draw, part });
            }
        }
    }

    fn drop(&mut self, record: MoleculeRecord, reason: DropReason) {
        let count = match reason {
            DropReason::UnknownToken(_) => &mut self.report.unknown_token,
            DropReason::TooLong(_) => &mut self.report.too_long,
            DropReason::Invalid(_) => &mut self.report.invalid,
            DropReason::Duplicate => &mut self.report.duplicates,
        };
        *count += 1;
        if *count <= EXAMPLES {
            self.report.examples.push(DroppedMolecule {
                line: record.line,
                smiles: record.smiles,
                reason,
            });
        }
    }

    /// Splits the molecules. `file` names the file in errors.
    fn finish(mut self, file: &str) -> Result<Corpus, DataError> {
        let has = |part| self.molecules.iter().any(|molecule| molecule.part == part);
        // MOSES uses its `test` rows for validation. If there are validation rows, as in GuacaMol,
        // the `test` rows are reserved for the final test.
        let validation = if has(Part::Validation) { Part::Validation } else { Part::Test };
        let by_column = has(Part::Train) && has(validation);
        // Without training rows, the column has a different meaning, e.g. the origin of each row.
        if has(Part::Train) {
            let before = self.molecules.len();
            let ours = [Part::Train, validation];
            self.molecules.retain(|molecule| ours.contains(&molecule.part));
            self.report.held_out = (before - self.molecules.len()) as u64;
        }
        let draws = self.molecules.iter().map(|molecule| molecule.draw);
        let limit = split_limit(draws, self.options.validation_fraction);
        let (mut train, mut held) = (Vec::new(), Vec::new());
        for molecule in self.molecules {
            let hold = if by_column { molecule.part == validation } else { molecule.draw < limit };
            if hold { &mut held } else { &mut train }.push(molecule.ids);
        }
        if by_column {
            self.report.split_by = SplitBy::Column;
        }
        self.report.train = train.len() as u64;
        self.report.validation = held.len() as u64;
        let least = self.options.min_molecules.max(1);
        if train.len() < least {
            let CorpusReport { train, validation, rows, empty, .. } = self.report;
            if rows == empty {
                return Err(DataError::Invalid(format!(
                    "{file} has no molecules; write one SMILES per line, or a CSV table with a column `smiles`"
                )));
            }
            let remedy = match !by_column && train + validation >= least as u64 {
                true => format!(
                    "lower `data.validation_fraction` (now {}), which holds out the others",
                    self.options.validation_fraction
                ),
                false => "use a larger file, lower `data.min_molecules`, or use a vocabulary and a length limit that fit the file".to_owned(),
            };
            return Err(DataError::Invalid(format!(
                "only {train} of {rows} rows of {file} are usable training molecules, but at least {least} are required ({}); {remedy}",
                self.report
            )));
        }
        Ok(Corpus { train, validation: held, report: self.report })
    }
}

fn part(split: Option<&str>) -> Part {
    match split.map(str::to_ascii_lowercase).as_deref() {
        None => Part::Unsaid,
        Some("train" | "training") => Part::Train,
        Some("val" | "valid" | "validation") => Part::Validation,
        Some("test") => Part::Test,
        Some(_) => Part::Other,
    }
}
