#![doc = include_str!("../README.md")]
//!
//! - [`Molecules`] registers the task with the program.
//! - [`MoleculeReader`] streams a `.smi` or CSV file, [`Vocabulary`] converts SMILES to token ids, [`Corpus`] combines both and reports
//!   dropped molecules.
//! - [`MoleculeReward`] scores SMILES by QED, ease of synthesis and logP; [`MoleculeSummary`] measures a set of them.

mod corpus;
mod data;
mod describe;
mod reader;
mod reward;
mod sample;
mod smiles_tokens;
mod summary;
mod task;
mod vocabulary;

pub use corpus::{Corpus, CorpusOptions, CorpusReport, DropReason, DroppedMolecule, SplitBy};
pub use reader::{MoleculeFormat, MoleculeReader, MoleculeRecord, ReadOptions};
pub use reward::{LogpWindow, MoleculeReward};
pub use smiles_tokens::{SmilesTokens, UnknownToken, smiles_tokens};
pub use summary::{MoleculeSummary, canonical_forms};
pub use task::Molecules;
pub use vocabulary::{BOUNDARY, Vocabulary};
