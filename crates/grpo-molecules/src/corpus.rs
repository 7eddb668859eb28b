//! Converts a file of molecules to training sequences.

use crate::{MoleculeReader, MoleculeRecord, ReadOptions, Vocabulary};
use grpo_data::{DataError, Example, Examples, split_draw, split_limit};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// Options of a corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusOptions {
    /// Largest number of tokens without end marks. Longer molecules are dropped, never truncated.
    pub max_tokens: usize,
    /// Fraction held out for validation, in `0..1`, if the file has no split of its own.
    pub validation_fraction: f64,
    /// Seed of the split.
    pub seed: u64,
    /// Smallest number of training molecules, at least 1; guards against samples mistaken for the
    /// whole data set.
    pub min_molecules: usize,
}

/// Token sequences of distinct molecules without end marks, in file order.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// Training molecules.
    pub train: Vec<Vec<u32>>,
    /// Validation molecules; none (as written) is in [`Self::train`].
    pub validation: Vec<Vec<u32>>,
    /// Report on the file.
    pub report: CorpusReport,
}

/// Source of the split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// Random: molecules with the lowest hashes of text and seed, among training rows if the file
    /// marks them.
    #[default]
    Hash,
    /// The column `split` or `source`, which has training and validation rows.
    Column,
}

/// Report on the rows of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorpusReport {
    /// Number of rows, including those without a SMILES.
    pub rows: u64,
    /// Rows without a SMILES.
    pub empty: u64,
    /// Molecules with a token outside the vocabulary.
    pub unknown_token: u64,
    /// Molecules with too many tokens.
    pub too_long: u64,
    /// Molecules repeated in the file with the same text.
    pub duplicates: u64,
    /// Molecules that the split column assigns to neither training nor validation.
    pub held_out: u64,
    /// Molecules in [`Corpus::train`].
    pub train: u64,
    /// Molecules in [`Corpus::validation`].
    pub validation: u64,
    /// How validation molecules were chosen.
    pub split_by: SplitBy,
    /// The first molecules dropped for each reason.
    pub examples: Vec<DroppedMolecule>,
}

/// A dropped molecule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedMolecule {
    /// Its line in the file, counted from 1.
    pub line: u64,
    /// Its SMILES.
    pub smiles: String,
    /// The reason.
    pub reason: DropReason,
}

/// Reason to drop a molecule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It has this token, which is not in the vocabulary.
    UnknownToken(String),
    /// It has this many tokens.
    TooLong(usize),
    /// The same text occurred on an earlier line.
    Duplicate,
}

impl fmt::Display for DroppedMolecule {
    /// `line 7: C[Xx]C has token [Xx], which is not in the vocabulary`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} ", self.line, self.smiles)?;
        match &self.reason {
            DropReason::UnknownToken(token) => {
                write!(f, "has token {token}, which is not in the vocabulary")
            }
            DropReason::TooLong(tokens) => write!(f, "is too long ({tokens} tokens)"),
            DropReason::Duplicate => write!(f, "duplicates an earlier line"),
        }
    }
}

impl Corpus {
    /// Returns training sequences; `boundary` begins and ends each.
    pub fn examples(&self, boundary: u32) -> Examples {
        let example =
            |ids: &Vec<u32>| Example::of_all([&[boundary], ids.as_slice(), &[boundary]].concat());
        Examples {
            train: self.train.iter().map(example).collect(),
            validation: self.validation.iter().map(example).collect(),
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or too few training molecules are left.
    ///
    /// # Panics
    /// Panics if [`CorpusOptions::validation_fraction`] is outside of `0..1`.
    pub fn read(
        path: &Path,
        read: &ReadOptions,
        vocabulary: &Vocabulary,
        options: &CorpusOptions,
    ) -> Result<Self, DataError> {
        let mut reader = MoleculeReader::open(path, read)?;
        let mut sorter = Sorter::new(vocabulary, options);
        for record in &mut reader {
            sorter.push(record?);
        }
        sorter.report.empty += reader.empty_lines();
        sorter.report.rows += reader.empty_lines();
        sorter.finish()
    }

    /// Creates a corpus from records.
    ///
    /// # Errors
    /// Returns an error if too few training molecules are left.
    ///
    /// # Panics
    /// As [`Self::read`].
    pub fn from_records(
        records: impl IntoIterator<Item = MoleculeRecord>,
        vocabulary: &Vocabulary,
        options: &CorpusOptions,
    ) -> Result<Self, DataError> {
        let mut sorter = Sorter::new(vocabulary, options);
        for record in records {
            sorter.push(record);
        }
        sorter.finish()
    }
}

impl fmt::Display for CorpusReport {
    /// Writes a sentence of counts, without those that are 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rows: {} for training, {} for validation",
            self.rows, self.train, self.validation
        )?;
        for (count, what) in [
            (self.unknown_token, "with a token outside the vocabulary"),
            (self.too_long, "too long"),
            (self.duplicates, "written twice"),
            (self.held_out, "held out by the split column"),
            (self.empty, "empty"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Number of examples per reason.
const EXAMPLES: u64 = 3;

/// Collects records and splits them at the end.
struct Sorter<'a> {
    vocabulary: &'a Vocabulary,
    options: &'a CorpusOptions,
    seen: BTreeSet<String>,
    molecules: Vec<Molecule>,
    report: CorpusReport,
}

struct Molecule {
    ids: Vec<u32>,
    /// Decides a split by hash; depends only on text and seed.
    draw: [u32; 4],
    part: Part,
}

/// The assignment by a split column.
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
            seen: BTreeSet::new(),
            molecules: Vec::new(),
            report: CorpusReport::default(),
        }
    }

    fn push(&mut self, record: MoleculeRecord) {
        self.report.rows += 1;
        if record.smiles.is_empty() {
            self.report.empty += 1;
            return;
        }
        let ids = match self.vocabulary.encode(&record.smiles) {
            Ok(ids) => ids,
            Err(error) => return self.drop(record, DropReason::UnknownToken(error.token)),
        };
        if ids.len() > self.options.max_tokens {
            return self.drop(record, DropReason::TooLong(ids.len()));
        }
        if self.seen.contains(&record.smiles) {
            return self.drop(record, DropReason::Duplicate);
        }
        self.molecules.push(Molecule {
            ids,
            draw: split_draw(self.options.seed, record.smiles.as_bytes()),
            part: part(record.split.as_deref()),
        });
        self.seen.insert(record.smiles);
    }

    fn drop(&mut self, record: MoleculeRecord, reason: DropReason) {
        let count = match reason {
            DropReason::UnknownToken(_) => &mut self.report.unknown_token,
            DropReason::TooLong(_) => &mut self.report.too_long,
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

    fn finish(mut self) -> Result<Corpus, DataError> {
        let has = |part| self.molecules.iter().any(|molecule| molecule.part == part);
        // MOSES validates on its `test` rows. With separate validation rows, as in GuacaMol, `test`
        // rows are left for the final test.
        let validation = if has(Part::Validation) { Part::Validation } else { Part::Test };
        let by_column = has(Part::Train) && has(validation);
        // A column without training rows has another meaning, such as the source of a row.
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
            let CorpusReport { train, rows, .. } = self.report;
            return Err(DataError::Invalid(format!(
                "only {train} of {rows} rows are usable training molecules, but at least {least} are required ({}); use a larger file, lower `data.min_molecules`, or use a vocabulary and a length limit that fit the file",
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
