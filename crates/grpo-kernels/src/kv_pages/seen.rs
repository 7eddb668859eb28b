//! The visible part of paged keys and values.

/// Positions of a page.
pub const PAGE: usize = 16;

/// Visible positions of a query row.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Pages of its sequence, in order.
    pub pages: &'a [u32],
    /// Number of visible positions, at least one.
    pub positions: usize,
}
