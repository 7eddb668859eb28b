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
    /// Pages to copy before, source and target.
    copies: Vec<[u32; 2]>,
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
    /// Sources and targets of copies that do not depend on each other.
    pub(super) copies: Vec<burn::tensor::Tensor<1, burn::tensor::Int>>,
}

/// The positions visible to a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    /// Pages of the sequence, in order. There may be more after those of the row.
    pub(super) pages: &'a [u32],
    /// Number of positions up to the row's own, at least 1. They are visible, as far as a window reaches.
    pub(super) positions: usize,
}

impl Seen<'_> {
    /// Returns the first visible position.
    pub(super) fn first(&self, scoring: &crate::Scoring) -> usize {
        scoring.first_visible(self.positions - 1)
    }
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

    /// Copies page `from` to page `to` before anything is written. Copies are made in order.
    pub fn copy(&mut self, from: u32, to: u32) {
        self.copies.push([from, to]);
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

    /// Returns the pages to copy.
    pub(super) fn copies(&self) -> &[[u32; 2]] {
        &self.copies
    }

    /// Returns whether all pages exist.
    pub(super) fn fits(&self, pages: usize) -> bool {
        let used = self.pages.iter().chain(self.copies.as_flattened());
        used.into_iter().all(|&page| (page as usize) < pages)
    }

    /// Returns the plan in the memory of `device`, to which it is copied once.
    #[cfg(feature = "gpu")]
    pub(super) fn on_gpu(&self, device: &burn::tensor::Device) -> &OnGpu {
        self.on_gpu.get_or_init(|| OnGpu {
            places: crate::indices(self.places(), device),
            rows: crate::indices(self.rows.iter().flat_map(|row| [row.first, row.at + 1]), device),
            pages: crate::indices(self.pages.iter().map(|&page| page as usize), device),
            copies: independent(&self.copies)
                .map(|copies| {
                    crate::indices(copies.as_flattened().iter().map(|&p| p as usize), device)
                })
                .collect(),
        })
    }
}

/// Divides copies into parts in which no page that was copied to or from is copied to, and no page
/// that was copied to is copied from.
#[cfg(feature = "gpu")]
fn independent(mut copies: &[[u32; 2]]) -> impl Iterator<Item = &[[u32; 2]]> {
    std::iter::from_fn(move || {
        let depends = |index: usize| {
            let [from, to] = copies[index];
            let before = &copies[..index];
            before.iter().any(|&[source, target]| from == target || to == target || to == source)
        };
        let length = (0..copies.len()).find(|&index| depends(index)).unwrap_or(copies.len());
        let (part, rest) = copies.split_at(length);
        copies = rest;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(all(test, feature = "gpu"))]
mod tests {
    use super::*;

    #[test]
    fn copies_that_depend_on_others_come_after_them() {
        let parts =
            |copies: &[[u32; 2]]| -> Vec<usize> { independent(copies).map(<[_]>::len).collect() };
        assert_eq!(parts(&[]), Vec::<usize>::new());
        assert_eq!(parts(&[[0, 1], [0, 2], [3, 4]]), [3]);
        // A page is copied again, written twice, and overwritten after it was copied.
        assert_eq!(parts(&[[0, 1], [1, 2]]), [1, 1]);
        assert_eq!(parts(&[[0, 1], [2, 1], [2, 3]]), [1, 2]);
        assert_eq!(parts(&[[0, 1], [2, 0], [0, 3], [4, 0]]), [1, 1, 2]);
    }
}
