//! The oracles of the benchmark "practical molecular optimization" (PMO) and its measure of sample
//! efficiency.
//!
//! Gao, Fu, Sun, Coley, "Sample efficiency matters: a benchmark for practical molecular
//! optimization", NeurIPS 2022. Most tasks come from GuacaMol (Brown, Fiscato, Segler, Vaucher,
//! Journal of Chemical Information and Modeling 59 (2019) 1096–1108). Scores equal those of PyTDC
//! 0.4.1 with RDKit 2026.09 (see `tests/peers/pmo` for the comparison). The oracles `drd2`, `gsk3b`
//! and `jnk3` are not available, because they are trained classifiers.
//!
//! ```
//! use grpo_chem::Molecule;
//! use grpo_chem::pmo::{Budget, Oracle};
//!
//! let oracle = Oracle::from_name("celecoxib_rediscovery")?;
//! let mut budget = Budget::new(10_000);
//! for smiles in ["Cc1ccc(cc1)-c1ccnn1-c1ccccc1", "c1c(C)ccc(c1)-c1ccnn1-c1ccccc1"] {
//!     let molecule = Molecule::parse(smiles)?;
//!     if budget.score_of(molecule.canonical_smiles()).is_none() {
//!         budget.record(molecule.canonical_smiles(), oracle.score(&molecule))?;
//!     }
//! }
//! assert_eq!(budget.calls(), 1);
//! assert!(budget.auc() < budget.mean_of_best());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
mod component;
mod feature_morgan;
mod measured;
mod oracle;
mod pharmacophore;
mod score;
mod tasks;

pub use budget::{Budget, BudgetExhausted};
pub use oracle::{Oracle, UnknownOracle};
