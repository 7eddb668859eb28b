#![doc = include_str!("../README.md")]
//!
//! [`describe`] computes all columns of `grpo describe`, and [`qed_and_sa`] computes the scores
//! used for rewards. Both agree with RDKit 2026.09 (see `tests/peers/rdkit` for the comparison).
//! They never panic. Invalid strings and molecules for which the toolkit fails result in an
//! [`InvalidSmiles`] error with a reason.
//!
//! The crate has three layers:
//! - [`grammar`] rejects invalid strings that the toolkit's parser would accept.
//! - [`Molecule`] wraps the chemistry toolkit.
//! - [`qed`] and [`sa_score`] compute scores from the toolkit's counts.

mod describe;
mod descriptor;
mod dialect;
pub mod distribution;
mod draw;
mod error;
mod fingerprint;
mod framework;
pub mod genetic;
pub mod grammar;
mod guard;
mod identity;
mod molblock;
mod molecule;
mod patterns;
pub mod pmo;
mod qed;
mod query;
mod query_hydrogens;
mod rings;
mod sa;
mod sa_table;
mod screen;
mod search;
mod smarts;

pub use describe::{Description, Scores, describe, qed_and_sa};
pub use descriptor::Descriptor;
pub use error::{InvalidSmarts, InvalidSmiles};
pub use fingerprint::{Fingerprint, Morgan, MorganRadius, PathFingerprint};
pub use molecule::Molecule;
pub use qed::{Properties, qed};
pub use query::{Pattern, default_alerts};
pub use sa::{Complexity, sa_score};
