//! From a file of molecules to token sequences to train on.

use crate::{MoleculeReader, MoleculeRecord, ReadOptions, Vocabulary};
use grpo_data::{DataError, Example, Examples, split_draw, split_limit};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// What of a file becomes training data.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusOptions {
    /// The longest molecule, in tokens without marks at its ends. Longer ones are left out, never
    /// cut: half a molecule is no molecule.
    pub max_tokens: usize,
    /// The part that is held out for validation, in `0..1`, where the file has no split of its own.
    pub validation_fraction: f64,
    /// Decides which molecules are held out.
    pub seed: u64,
    /// Fewer training molecules than this are an error; at least 1. It catches samples of a few
    /// rows that were taken for the whole data set.
    pub min_molecules: usize,
}

/// Token sequences of distinct molecules, without marks at their ends, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// To train on.
    pub train: Vec<Vec<u32>>,
    /// To measure the loss on; no molecule (as written) of it is in [`Self::train`].
    pub validation: Vec<Vec<u32>>,
    /// What was read, kept and left out.
    pub report: CorpusReport,
}

/// Where the validation molecules came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitBy {
    /// A random part: the molecules with the lowest hashes of their text and the seed. Where the
    /// file marks training rows, of those only.
    #[default]
    Hash,
    /// The file's column `split` or `source`, which has both training and validation rows.
    Column,
}

/// The fate of every row of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorpusReport {
    /// All rows, those without a SMILES among them.
    pub rows: u64,
    /// Rows without a SMILES.
    pub empty: u64,
    /// Molecules with a token outside the vocabulary.
    pub unknown_token: u64,
    /// Molecules of more tokens than allowed.
    pub too_long: u64,
    /// Molecules written before in the same file with the same letters.
    pub duplicates: u64,
    /// Molecules that a split column with training rows gives neither to training nor to
    /// validation.
    pub held_out: u64,
    /// Molecules in [`Corpus::train`].
    pub train: u64,
    /// Molecules in [`Corpus::validation`].
    pub validation: u64,
    /// How validation molecules were chosen.
    pub split_by: SplitBy,
    /// The first few molecules of each reason for leaving out.
    pub examples: Vec<DroppedMolecule>,
}

/// A molecule that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedMolecule {
    /// Its line in the file, counted from 1.
    pub line: u64,
    /// Its SMILES.
    pub smiles: String,
    /// Why.
    pub reason: DropReason,
}

/// Why a molecule was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// This token is not in the vocabulary.
    UnknownToken(String),
    /// It has this many tokens.
    TooLong(usize),
    /// The same text stood on an earlier line.
    Duplicate,
}

impl fmt::Display for DroppedMolecule {
    /// `line 7: C[Xx]C has the token [Xx], which is not in the vocabulary`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} ", self.line, self.smiles)?;
        match &self.reason {
            DropReason::UnknownToken(token) => {
                write!(f, "has the token {token}, which is not in the vocabulary")
            }
            DropReason::TooLong(tokens) => write!(f, "is too long, with {tokens} tokens"),
            DropReason::Duplicate => write!(f, "stands on an earlier line too"),
        }
    }
}

impl Corpus {
    /// The molecules as sequences to train on; `boundary` begins and ends each.
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
    /// The file cannot be read to its end, or too few training molecules are left.
    ///
    /// # Panics
    /// If [`CorpusOptions::validation_fraction`] is outside `0..1`.
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

    /// Makes a corpus from records in memory.
    ///
    /// # Errors
    /// Too few training molecules are left.
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
    /// One sentence of counts; those that are 0 are left out.
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

/// How many molecules of each reason are kept as examples.
const EXAMPLES: u64 = 3;

/// Takes records one by one, and splits them once all are there.
struct Sorter<'a> {
    vocabulary: &'a Vocabulary,
    options: &'a CorpusOptions,
    seen: BTreeSet<String>,
    molecules: Vec<Molecule>,
    report: CorpusReport,
}

struct Molecule {
    ids: Vec<u32>,
    /// Decides a split by hash: a number that depends on the text and the seed only.
    draw: [u32; 4],
    part: Part,
}

/// What the split column says.
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
            "the validation fraction is {}, outside 0..1",
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
        // MOSES validates on its `test` rows; where there are validation rows proper, as in
        // GuacaMol, `test` rows are for the very end and stay out.
        let validation = if has(Part::Validation) { Part::Validation } else { Part::Test };
        let by_column = has(Part::Train) && has(validation);
        // A column without training rows is about something else, such as where rows come from.
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
                "{train} usable training molecules are left of {rows} rows and at least {least} are needed ({}); give a larger file, lower `data.min_molecules`, or give a vocabulary and a length limit that fit the file",
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
