//! What attention over pages is told.

/// Positions of a page.
pub const PAGE: usize = 16;

/// What a row of queries sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Pages of its sequence, in order.
    pub pages: &'a [u32],
    /// Positions, of the first pages; at least one.
    pub positions: usize,
}
