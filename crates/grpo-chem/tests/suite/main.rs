//! What does not depend on the time that it takes; that is in `properties.rs`, which runs alone.

mod drawings;
mod rdkit;
mod refused;
mod verdicts;
