//! Options of the self-test.

use std::path::PathBuf;

use burn::tensor::Device;
use grpo_model::Families;

/// Self-test options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Optional folder to test with. It may contain `advantages.json` or `losses.json`, which
    /// replace the built-in files, or model folders with an `expected.json`.
    pub golden: Option<PathBuf>,
    /// Device to test.
    pub device: Device,
    /// Families that the models of the folder can belong to.
    pub families: Families,
}
