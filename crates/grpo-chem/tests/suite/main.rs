//! Tests that do not depend on running time. Timing tests are in `properties.rs`, which runs
//! separately.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod components;
mod distribution;
mod drawings;
mod genetic;
mod hard;
mod patterns;
mod pmo;
mod randomized;
mod rdkit;
mod refused;
mod verdicts;
