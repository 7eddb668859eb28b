//! The visible positions of a paged cache.

/// Number of positions per page.
pub const PAGE: usize = 16;

/// The positions visible to a query.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Pages of the sequence, in order.
    pub pages: &'a [u32],
    /// Number of visible positions. Must be at least 1.
    pub positions: usize,
}
