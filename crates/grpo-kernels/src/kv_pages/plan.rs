//! Which positions of a paged cache a forward pass writes and reads.

use std::ops::Range;

#[cfg(feature = "gpu")]
use std::sync::OnceLock;

/// Number of positions per page.
pub const PAGE: usize = 16;

/// The positions that the rows of a forward pass are written to, and the positions that they see.
/// All layers share it.
#[derive(Clone, Debug, Default)]
pub struct PagePlan {
    /// Pages of the sequences, one sequence after the other.
    pages: Vec<u32>,
    rows: Vec<Row>,
    #[cfg(feature = "gpu")]
    on_gpu: OnceLock<OnGpu>,
}

/// A row of a forward pass.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// First page of its sequence in `pages`.
    first: usize,
    /// Its position in the sequence.
    at: usize,
}

/// The plan in the memory of a GPU.
#[cfg(feature = "gpu")]
#[derive(Clone, Debug)]
pub(super) struct OnGpu {
    pub(super) places: burn::tensor::Tensor<1, burn::tensor::Int>,
    /// First page and number of visible positions of each row.
    pub(super) rows: burn::tensor::Tensor<1, burn::tensor::Int>,
    pub(super) pages: burn::tensor::Tensor<1, burn::tensor::Int>,
}

/// The positions visible to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// Pages of the sequence, in order. There may be more after those of the row.
    pub(super) pages: &'a [u32],
    /// Number of visible positions, at least 1.
    pub(super) positions: usize,
}

impl PagePlan {
    /// Creates an empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row for each of `positions` of a sequence that is stored in `pages`. It is written to
    /// its position, and sees this position and all before.
    ///
    /// # Panics
    /// Panics if the sequence has too few pages.
    pub fn push(&mut self, pages: &[u32], positions: Range<usize>) {
        assert!(
            positions.end <= pages.len() * PAGE,
            "{} positions exceed {} pages",
            positions.end,
            pages.len()
        );
        let first = self.pages.len();
        self.pages.extend_from_slice(pages);
        self.rows.extend(positions.map(|at| Row { first, at }));
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the place of each row, i.e. `page · PAGE` + offset within the page.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        let place = |row: &Row| self.pages[row.first + row.at / PAGE] as usize * PAGE;
        self.rows.iter().map(move |row| place(row) + row.at % PAGE)
    }

    /// Returns the positions that each row sees.
    pub(super) fn seen(&self) -> impl Iterator<Item = Seen<'_>> {
        let seen = |row: &Row| Seen { pages: &self.pages[row.first..], positions: row.at + 1 };
        self.rows.iter().map(seen)
    }

    /// Returns whether all pages exist.
    pub(super) fn fits(&self, pages: usize) -> bool {
        self.pages.iter().all(|&page| (page as usize) < pages)
    }

    /// Returns the plan in the memory of `device`, to which it is copied once.
    #[cfg(feature = "gpu")]
    pub(super) fn on_gpu(&self, device: &burn::tensor::Device) -> &OnGpu {
        self.on_gpu.get_or_init(|| OnGpu {
            places: crate::indices(self.places(), device),
            rows: crate::indices(self.rows.iter().flat_map(|row| [row.first, row.at + 1]), device),
            pages: crate::indices(self.pages.iter().map(|&page| page as usize), device),
        })
    }
}
