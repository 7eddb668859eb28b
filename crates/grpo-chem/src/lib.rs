#![doc = include_str!("../README.md")]
//!
//! [`describe`] computes every column of `grpo describe`, [`qed_and_sa`] the two scores of a
//! reward. Both agree with RDKit 2026.09 (`tests/peers/rdkit` contains the comparisons). No input
//! makes them panic: an invalid string, or a molecule on which the toolkit fails, is an
//! [`InvalidSmiles`] with a reason.
//!
//! There are three layers:
//! - [`grammar`] rejects what the toolkit's parser would accept wrongly;
//! - [`Molecule`] wraps the chemistry library;
//! - [`qed`] and [`sa_score`] are formulas over the toolkit's counts.

mod describe;
mod dialect;
mod draw;
mod error;
pub mod grammar;
mod guard;
mod molecule;
mod patterns;
mod qed;
mod rings;
mod sa;
mod sa_table;

pub use describe::{Description, Scores, describe, qed_and_sa};
pub use error::InvalidSmiles;
pub use molecule::Molecule;
pub use qed::{Properties, qed};
pub use sa::{Complexity, sa_score};
