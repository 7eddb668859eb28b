//! What happens to queries and keys before attention.

use burn::tensor::Tensor;

use crate::RotaryTables;

/// Optional norms and rotary angles of queries and keys, applied in this order.
#[derive(Clone, Debug, Default)]
pub struct HeadPreparation {
    /// RMS norms of each head.
    pub norms: Option<HeadNorms>,
    /// Rotary angles of each row.
    pub rotary: Option<RotaryTables>,
}

/// RMS norms of queries and keys (see [`crate::rms_norm`]).
#[derive(Clone, Debug)]
pub struct HeadNorms {
    /// Scales of queries and of keys, `[width]` each.
    pub scales: [Tensor<1>; 2],
    /// ε of both norms.
    pub epsilon: f64,
}

impl HeadPreparation {
    /// # Panics
    /// Panics if the shapes don't fit that many rows and the width of a head.
    pub(super) fn check(&self, rows: usize, width: usize) {
        if let Some(norms) = &self.norms {
            let widths = norms.scales.each_ref().map(|scale| scale.dims());
            assert_eq!(widths, [[width]; 2], "scales of the norms of queries and keys");
        }
        if let Some(tables) = &self.rotary {
            let shapes = [&tables.cos, &tables.sin].map(|table| table.dims());
            assert!(width.is_multiple_of(2), "a head of {width} columns cannot be rotated");
            assert_eq!(shapes, [[rows, width / 2]; 2], "tables of rotary angles");
        }
    }
}
