#![doc = include_str!("../README.md")]
//!
//! - [`Molecules`] registers all of it with the program.
//! - [`Vocabulary`] turns SMILES into token ids; [`Corpus`] reads a user's file with it and reports what it left out.
//! - [`MoleculeReward`] scores SMILES by QED, ease of synthesis and logP; [`MoleculeSummary`] measures a set of them.

#![expect(clippy::print_stderr, reason = "figures of sampled molecules go to standard error")]

mod corpus;
mod data;
mod describe;
mod error;
mod reward;
mod sample;
mod smiles_tokens;
mod summary;
mod task;
mod vocabulary;

pub use corpus::{Corpus, CorpusOptions, CorpusReport, DropReason, DroppedMolecule, SplitBy};
pub use error::{MoleculeError, UnknownToken};
pub use reward::{LogpWindow, MoleculeReward};
pub use smiles_tokens::{SmilesTokens, smiles_tokens};
pub use summary::{MoleculeSummary, canonical_forms};
pub use task::Molecules;
pub use vocabulary::{BOUNDARY, Vocabulary};
