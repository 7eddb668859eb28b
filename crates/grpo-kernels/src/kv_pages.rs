//! Paged storage for keys and values.

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};

use crate::{Heads, Visible, indices};

#[cfg(feature = "flex")]
mod cpu;
mod seen;

pub use seen::{PAGE, Seen};

/// Keys and values of one attention layer, stored in pages of [`PAGE`] positions. Pages are written
/// in place (Kwon et al. 2023, "PagedAttention"; docs/decisions/0015).
///
/// Page allocation is up to the caller. Several sequences can share a page.
#[derive(Clone, Debug)]
pub struct KvPages {
    heads: Heads,
    pages: usize,
    store: Store,
}

#[derive(Clone, Debug)]
enum Store {
    /// CPU memory, in the order in which attention reads it.
    #[cfg(feature = "flex")]
    Host(cpu::HostPages),
    /// Tensors of keys and values. Each has shape `[at least pages · PAGE, kv heads · width]`.
    Tensors(Box<[Tensor<2>; 2]>),
}

impl KvPages {
    /// Creates an empty cache.
    pub fn new(heads: Heads, device: &Device) -> Self {
        Self { heads, pages: 0, store: Store::new(heads, device) }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Grows the cache to at least `pages` pages.
    pub fn grow_to(&mut self, pages: usize) {
        if pages <= self.pages {
            return;
        }
        match &mut self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => host.grow(pages - self.pages),
            Store::Tensors(tensors) => {
                let [positions, columns] = tensors[0].dims();
                if pages * PAGE > positions {
                    // Existing pages have to be copied, so at least double the capacity.
                    let added = (pages * PAGE).max(2 * positions) - positions;
                    for tensor in tensors.iter_mut() {
                        let more = Tensor::zeros([added, columns], &tensor.device());
                        tensor.inplace(|old| Tensor::cat(vec![old, more], 0));
                    }
                }
            }
        }
        self.pages = pages;
    }

    /// Writes each row to its position, given as `page · PAGE` + offset within the page.
    ///
    /// # Shapes
    /// - keys, values: `[n, kv heads · width]`
    ///
    /// # Panics
    /// Panics if the shapes don't match, or if a position is out of bounds.
    pub fn write(&mut self, keys: Tensor<2>, values: Tensor<2>, places: &[usize]) {
        assert_eq!(keys.dims(), [places.len(), self.heads.key_columns()], "keys");
        assert_eq!(values.dims(), keys.dims(), "values");
        assert!(
            places.iter().all(|&place| place < self.pages * PAGE),
            "position outside the allocated pages"
        );
        match &mut self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => host.write(keys, values, places),
            Store::Tensors(tensors) => {
                let places = indices(places.iter().copied(), &tensors[0].device());
                for (all, new) in tensors.iter_mut().zip([keys, values]) {
                    assign(all, &places, new);
                }
            }
        }
    }

    /// Copies the contents of page `from` to page `to`.
    pub fn copy_page(&mut self, from: usize, to: usize) {
        match &mut self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => host.copy_page(from, to),
            Store::Tensors(tensors) => {
                let device = tensors[0].device();
                let from = indices(from * PAGE..(from + 1) * PAGE, &device);
                let to = indices(to * PAGE..(to + 1) * PAGE, &device);
                for tensor in tensors.iter_mut() {
                    let page = tensor.clone().select(0, from.clone());
                    assign(tensor, &to, page);
                }
            }
        }
    }

    /// Computes `softmax(scale · q Kᵀ) V` for each row over its visible positions. Each row is
    /// independent of the other rows.
    ///
    /// # Shapes
    /// - query: `[n, heads · width]`
    /// - result: same as query
    ///
    /// # Panics
    /// Panics if the shapes don't match, or if the number of visible positions of a row is zero or
    /// exceeds its pages.
    pub fn attend(&self, query: Tensor<2>, seen: &[Seen<'_>], scale: f64) -> Tensor<2> {
        assert_eq!(query.dims(), [seen.len(), self.heads.query_columns()], "queries");
        for (row, seen) in seen.iter().enumerate() {
            let fits = (1..=seen.pages.len() * PAGE).contains(&seen.positions);
            assert!(
                fits,
                "row {row} attends to {} positions of {} pages",
                seen.positions,
                seen.pages.len()
            );
            let is_there = seen.pages.iter().all(|&page| (page as usize) < self.pages);
            assert!(is_there, "row {row} attends to a page that does not exist");
        }
        match &self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => host.attend(query, seen, scale as f32),
            Store::Tensors(tensors) => self.attend_to(tensors, query, seen, scale),
        }
    }

    /// Fallback that uses backend operations. Gathers the pages of each row and pads them to the
    /// longest.
    fn attend_to(
        &self,
        [keys, values]: &[Tensor<2>; 2],
        query: Tensor<2>,
        seen: &[Seen<'_>],
        scale: f64,
    ) -> Tensor<2> {
        let Heads { heads, kv_heads, width } = self.heads;
        let rows = seen.len();
        let columns = seen.iter().map(|seen| seen.positions).max().unwrap_or(0);
        let places = seen.iter().flat_map(|seen| {
            let place = |at: usize| seen.pages[at / PAGE] as usize * PAGE + at % PAGE;
            // Clamp, because any position will do as padding.
            (0..columns).map(move |at| place(at.min(seen.positions - 1)))
        });
        let places = indices(places, &keys.device());
        let gathered = |all: &Tensor<2>| -> Tensor<4> {
            let taken = all.clone().select(0, places.clone());
            taken.reshape([rows, columns, kv_heads, width]).swap_dims(1, 2)
        };
        let (keys, values) = (gathered(keys), gathered(values)); // [n, kv, k, w]
        let query: Tensor<4> = query.reshape([rows, kv_heads, heads / kv_heads, width]);
        let scores = query.matmul(keys.swap_dims(2, 3)); // [n, kv, g, k]
        // Treat each row as one query with many heads.
        let scores = scores.reshape([rows, heads, 1, columns]);
        let ranges: Vec<_> = seen.iter().map(|seen| 0..seen.positions).collect();
        let weights = crate::attention_softmax(scores, scale, &Visible::all().within(ranges));
        let weights = weights.reshape([rows, kv_heads, heads / kv_heads, columns]);
        weights.matmul(values).reshape([rows, heads * width])
    }

    /// Creates a cache that uses backend operations on every device. For tests.
    #[doc(hidden)]
    pub fn plain(heads: Heads, device: &Device) -> Self {
        Self { heads, pages: 0, store: Store::tensors(heads, device) }
    }
}

impl Store {
    fn new(heads: Heads, device: &Device) -> Self {
        #[cfg(feature = "flex")]
        if crate::backend::is_cpu(device) {
            return Self::Host(cpu::HostPages::new(heads));
        }
        Self::tensors(heads, device)
    }

    fn tensors(heads: Heads, device: &Device) -> Self {
        let empty = || Tensor::zeros([0, heads.key_columns()], device);
        Self::Tensors(Box::new([empty(), empty()]))
    }
}

/// Writes rows into `all`. The tensor is moved out first, because a second reference would force a
/// copy.
fn assign(all: &mut Tensor<2>, places: &Tensor<1, Int>, rows: Tensor<2>) {
    all.inplace(|all| all.select_assign(0, places.clone(), rows, IndexingUpdateOp::Assign));
}
