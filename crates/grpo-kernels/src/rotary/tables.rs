//! Rotation tables for rotary position embeddings.

use burn::tensor::Tensor;

/// Cosines and sines of the rotation angles. Each table has shape `[n, width / 2]`, where `width`
/// is the head width.
#[derive(Clone, Debug)]
pub struct RotaryTables {
    /// Cosines, without autodiff.
    pub cos: Tensor<2>,
    /// Sines, without autodiff.
    pub sin: Tensor<2>,
}
