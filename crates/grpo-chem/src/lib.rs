#![doc = include_str!("../README.md")]
//!
//! [`describe`] gives every column of `grpo describe`, [`qed_and_sa`] the two scores that a reward needs. Both agree
//! with RDKit 2026.09 (`tests/peers/rdkit` holds the programs that compare), and no input makes them panic: what is
//! not a molecule is an [`InvalidSmiles`] with its reason, and so is a molecule on which the toolkit itself fails.
//!
//! Three layers, each replaceable alone:
//! - [`grammar`] refuses what the toolkit's parser would let through;
//! - [`Molecule`] is all that this crate asks of a chemistry library;
//! - [`qed`] and [`sa_score`] are plain formulas over what a toolkit counts.

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
