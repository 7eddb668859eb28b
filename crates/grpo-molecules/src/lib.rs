#![doc = include_str!("../README.md")]
//!
//! - [`Molecules`] registers the task.
//! - [`MoleculeReader`] streams molecules from SMILES or CSV files, [`Vocabulary`] converts SMILES
//!   to token ids, and [`Corpus`] combines both and reports dropped molecules.
//! - [`MoleculeReward`] scores molecules by QED, synthetic accessibility and logP.
//!   [`MoleculeSummary`] evaluates a set of generated molecules.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

mod bench_pmo;
mod best;
mod components;
mod conditions;
mod corpus;
mod data;
mod describe;
mod eval_suite;
mod fingerprints;
mod identity;
mod import_molgpt;
mod make_molecules;
mod molgpt;
mod molgpt_import;
mod molgpt_weights;
mod pmo_reward;
mod randomized;
mod reader;
mod reward;
mod rows;
mod sample;
mod smiles_tokens;
mod summary;
mod task;
mod variation;
mod vocabulary;

pub use corpus::{Corpus, CorpusOptions, CorpusReport, DropReason, DroppedMolecule, SplitBy};
pub use molgpt::{MOLGPT, MolGptConfig};
pub use molgpt_import::{ImportedMolGpt, MolGptImport};
pub use reader::{MoleculeFormat, MoleculeReader, MoleculeRecord, REMOVE_TEXT, ReadOptions};
pub use reward::{LogpWindow, MoleculeReward};
pub use smiles_tokens::{SmilesTokens, UnknownToken, smiles_tokens};
pub use summary::{KnownMolecules, MoleculeSummary};
pub use task::Molecules;
pub use vocabulary::{BOUNDARY, Vocabulary};
