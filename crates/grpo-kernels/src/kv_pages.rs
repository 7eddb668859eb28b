//! Paged storage for keys and values.

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};

use crate::attention_softmax::capped_softmax;
use crate::matmul::batched_matmul;
use crate::{Heads, Scoring, Visible, indices};

#[cfg(feature = "flex")]
mod cpu;
mod heads;
mod plan;

pub use heads::{HeadNorms, HeadPreparation};
#[cfg(feature = "gpu")]
use plan::OnGpu;
use plan::Seen;
pub use plan::{PAGE, PagePlan};

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

    /// Copies the pages of the plan, then writes each row to its position.
    ///
    /// # Shapes
    /// - keys, values: `[n, kv heads · width]`
    ///
    /// # Panics
    /// Panics if the shapes don't match, or if a page does not exist.
    pub fn write(&mut self, keys: Tensor<2>, values: Tensor<2>, plan: &PagePlan) {
        assert_eq!(keys.dims(), [plan.rows(), self.heads.key_columns()], "keys");
        assert_eq!(values.dims(), keys.dims(), "values");
        assert!(plan.fits(self.pages), "a row is written to a page that does not exist");
        match &mut self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => {
                plan.copies().iter().for_each(|copy| host.copy_page(*copy));
                host.write(keys, values, plan.places());
            }
            #[cfg(feature = "gpu")]
            Store::Tensors(tensors) if is_on_gpu(tensors) => {
                let places = copy_on_gpu(tensors, plan);
                crate::gpu::write_rows(tensors, [keys, values], places);
            }
            Store::Tensors(tensors) => {
                let device = tensors[0].device();
                let places = indices(plan.places(), &device);
                for (all, new) in tensors.iter_mut().zip([keys, values]) {
                    for &copy in plan.copies() {
                        let [from, to] = copy.map(|page| page as usize * PAGE);
                        let page = all.clone().narrow(0, from, PAGE);
                        assign(all, &indices(to..to + PAGE, &device), page);
                    }
                    assign(all, &places, new);
                }
            }
        }
    }

    /// Returns whether the pages are in the memory of a GPU.
    pub fn are_on_gpu(&self) -> bool {
        match &self.store {
            #[cfg(feature = "gpu")]
            Store::Tensors(tensors) => is_on_gpu(tensors),
            #[allow(unreachable_patterns, reason = "a build can have no CPU backend")]
            _ => false,
        }
    }

    /// Prepares queries and keys, and writes keys and values like [`Self::write`], all with one launch
    /// on a GPU. Returns the queries, or `None` on other devices, where nothing is written.
    ///
    /// # Shapes
    /// - inputs: `[n, (heads + 2 · kv heads) · width]`, i.e. queries, keys and values
    /// - result: `[n, heads · width]`
    ///
    /// # Panics
    /// Panics if the shapes don't match, or if a page does not exist.
    pub fn write_heads(
        &mut self,
        inputs: &Tensor<2>,
        of: &HeadPreparation,
        plan: &PagePlan,
    ) -> Option<Tensor<2>> {
        let columns = self.heads.query_columns() + 2 * self.heads.key_columns();
        assert_eq!(inputs.dims(), [plan.rows(), columns], "inputs");
        of.check(plan.rows(), self.heads.width);
        assert!(plan.fits(self.pages), "a row is written to a page that does not exist");
        match &mut self.store {
            #[cfg(feature = "gpu")]
            Store::Tensors(tensors) if is_on_gpu(tensors) => {
                let places = copy_on_gpu(tensors, plan);
                Some(crate::gpu::write_heads(tensors, inputs.clone(), of, self.heads, places))
            }
            _ => None,
        }
    }

    /// Computes `softmax(scale · q Kᵀ) V` for each row over its visible positions, see [`Scoring`]. Each
    /// row is independent of the other rows.
    ///
    /// # Shapes
    /// - query: `[n, heads · width]`
    /// - result: same as query
    ///
    /// # Panics
    /// Panics if the shapes don't match, or if a page does not exist.
    pub fn attend(
        &self,
        query: Tensor<2>,
        plan: &PagePlan,
        scoring: impl Into<Scoring>,
    ) -> Tensor<2> {
        let scoring = scoring.into();
        scoring.assert_fits(true);
        assert_eq!(query.dims(), [plan.rows(), self.heads.query_columns()], "queries");
        assert!(plan.fits(self.pages), "a row attends to a page that does not exist");
        match &self.store {
            #[cfg(feature = "flex")]
            Store::Host(host) => {
                let seen: Vec<Seen<'_>> = plan.seen().collect();
                host.attend(query, &seen, &scoring)
            }
            #[cfg(feature = "gpu")]
            Store::Tensors(tensors)
                if is_on_gpu(tensors)
                    && crate::gpu::supports(&self.heads)
                    && scoring.is_plain() =>
            {
                let OnGpu { rows, pages, .. } = plan.on_gpu(&query.device()).clone();
                let [keys, values] = &**tensors;
                let of = self.heads;
                crate::gpu::attention_over_pages(
                    query,
                    [keys, values],
                    [rows, pages],
                    of,
                    scoring.scale as f32,
                )
            }
            Store::Tensors(tensors) => {
                let seen: Vec<Seen<'_>> = plan.seen().collect();
                self.attend_to(tensors, query, &seen, &scoring)
            }
        }
    }

    /// Fallback that uses backend operations. Gathers the pages of each row and pads them to the
    /// longest.
    fn attend_to(
        &self,
        [keys, values]: &[Tensor<2>; 2],
        query: Tensor<2>,
        seen: &[Seen<'_>],
        scoring: &Scoring,
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
        let scores = batched_matmul(query, keys.swap_dims(2, 3)); // [n, kv, g, k]
        // Treat each row as one query with many heads.
        let scores = scores.reshape([rows, heads, 1, columns]);
        let ranges = seen.iter().map(|seen| seen.first(scoring)..seen.positions);
        let visible = Visible::all().within(ranges.collect::<Vec<_>>());
        let weights = capped_softmax(scores, scoring, &visible);
        let weights = weights.reshape([rows, kv_heads, heads / kv_heads, columns]);
        batched_matmul(weights, values).reshape([rows, heads * width])
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

/// Returns whether GPU kernels can use these tensors.
#[cfg(feature = "gpu")]
fn is_on_gpu([keys, values]: &[Tensor<2>; 2]) -> bool {
    crate::gpu::is_fusable(keys) && crate::gpu::is_fusable(values)
}

/// Copies the pages of the plan, and returns the places of its rows.
#[cfg(feature = "gpu")]
fn copy_on_gpu(tensors: &mut [Tensor<2>; 2], plan: &PagePlan) -> Tensor<1, Int> {
    let OnGpu { places, copies, .. } = plan.on_gpu(&tensors[0].device());
    for copies in copies {
        crate::gpu::copy_pages(tensors, copies.clone(), PAGE);
    }
    places.clone()
}

/// Writes rows into `all`. The tensor is moved out first, because a second reference would force a
/// copy.
fn assign(all: &mut Tensor<2>, places: &Tensor<1, Int>, rows: Tensor<2>) {
    all.inplace(|all| all.select_assign(0, places.clone(), rows, IndexingUpdateOp::Assign));
}
