//! The angles of rotary positions.

use burn::tensor::Tensor;

/// Cosines and sines of the angles of each row, `[n, width / 2]` each, with the width of a head.
#[derive(Clone, Debug)]
pub struct RotaryTables {
    /// Without autodiff.
    pub cos: Tensor<2>,
    /// Without autodiff.
    pub sin: Tensor<2>,
}
