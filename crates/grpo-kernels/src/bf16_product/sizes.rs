//! Sizes of a block, whose sums stay in registers.

/// Number of columns in a strip: four vectors of 16 lanes.
pub(super) const STRIP: usize = 64;
/// Largest number of rows in a block.
pub(super) const ROWS: usize = 6;
