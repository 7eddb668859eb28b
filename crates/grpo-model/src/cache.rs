//! The KV cache used during sampling.

use burn::tensor::Device;
use grpo_kernels::{Heads, KvPages, PAGE, PagePlan};

use crate::{Recorder, TokenBatch};

/// Keys and values of growing sequences, for every layer.
///
/// The cache allocates memory in pages and writes them in place. A forked sequence shares the full
/// pages of its parent, and the pages of closed sequences are reused. Memory use therefore depends
/// on the largest number of tokens cached at once, not on the length of the run.
#[derive(Debug, Default)]
pub struct KvCache {
    layers: Vec<KvPages>,
    sequences: Vec<Option<Cached>>,
    /// Indices of closed sequences, which can be reused.
    closed: Vec<usize>,
    /// Reference count of each page.
    users: Vec<u32>,
    free: Vec<u32>,
    /// Pages that the next pass copies, source and target.
    copies: Vec<[u32; 2]>,
    /// Records the outputs of linear layers, if they are kept.
    pub(crate) recorder: Option<Recorder>,
}

/// A handle to a sequence in a [`KvCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSlot(usize);

#[derive(Clone, Debug, Default)]
struct Cached {
    pages: Vec<u32>,
    /// Number of cached positions, including the prefix.
    length: usize,
    /// Number of prefix vectors. They have no position.
    prefix: usize,
    /// Row of each token in the recorder, if there is one.
    recorded: Vec<u32>,
}

impl KvCache {
    /// Creates an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty cache. Passes that extend it record the outputs of linear layers.
    pub fn recording(recorder: Option<Recorder>) -> Self {
        Self { recorder, ..Self::default() }
    }

    /// Closes a sequence that training needs. `ids` begin with those that are cached.
    pub fn close_kept(&mut self, slot: CacheSlot, ids: &[u32]) {
        let rows = std::mem::take(&mut self.sequence_mut(slot).recorded);
        if let Some(recorder) = &mut self.recorder {
            recorder.keep(&ids[..rows.len()], rows);
        }
        self.close(slot);
    }

    /// Returns the recorder.
    pub fn into_recorder(self) -> Option<Recorder> {
        self.recorder
    }

    /// Opens an empty sequence.
    pub fn open(&mut self) -> CacheSlot {
        self.enter(Cached::default())
    }

    /// Opens a copy of `slot`. Full pages are shared; only a partially filled last page is copied.
    pub fn fork(&mut self, slot: CacheSlot) -> CacheSlot {
        let mut fork = self.sequence(slot).clone();
        if !fork.length.is_multiple_of(PAGE) {
            let shared = fork.pages.pop().expect("a non-empty sequence has at least one page");
            let own = self.take_page();
            self.copies.push([shared, own]);
            fork.pages.push(own);
            self.users[own as usize] = 0;
        }
        fork.pages.iter().for_each(|&page| self.users[page as usize] += 1);
        self.enter(fork)
    }

    /// Closes a sequence and frees the pages that no other sequence uses.
    pub fn close(&mut self, slot: CacheSlot) {
        let sequence = self.sequences[slot.0].take().expect("the slot is still open");
        self.closed.push(slot.0);
        for page in sequence.pages {
            self.users[page as usize] -= 1;
            if self.users[page as usize] == 0 {
                self.free.push(page);
            }
        }
    }

    /// Returns the number of cached positions of a sequence, including prefix vectors.
    pub fn length(&self, slot: CacheSlot) -> usize {
        self.sequence(slot).length
    }

    /// Returns the number of allocated pages, each with space for [`PAGE`] positions.
    pub fn pages(&self) -> usize {
        self.users.len()
    }

    /// Returns the number of cached tokens of a sequence, excluding prefix vectors.
    pub(crate) fn tokens(&self, slot: CacheSlot) -> usize {
        let sequence = self.sequence(slot);
        sequence.length - sequence.prefix
    }

    /// Reserves space for `tokens`, which extend the sequences in `slots`. `prefixes` contains the
    /// number of vectors that precede each sequence.
    pub(crate) fn plan(
        &mut self,
        tokens: &TokenBatch,
        slots: &[CacheSlot],
        prefixes: &[usize],
    ) -> PagePlan {
        assert_eq!(slots.len(), tokens.sequences(), "expected one slot per sequence");
        assert!(
            !tokens.has_continuations(),
            "cached sequences are forked, not continued in a batch"
        );
        self.note_rows(tokens, slots, prefixes);
        let mut plan = PagePlan::new();
        self.copies.drain(..).for_each(|[from, to]| plan.copy(from, to));
        for ((&slot, length), &prefix) in slots.iter().zip(tokens.lengths()).zip(prefixes) {
            let old = self.length(slot);
            assert!(prefix == 0 || old == 0, "a prefix is only valid at the start of a sequence");
            let new = old + prefix + length;
            while self.sequence(slot).pages.len() * PAGE < new {
                let page = self.take_page();
                self.sequence_mut(slot).pages.push(page);
            }
            let sequence = self.sequence_mut(slot);
            sequence.prefix += prefix;
            sequence.length = new;
            plan.push(&sequence.pages, old..new);
        }
        self.grow_layers();
        plan
    }

    /// Notes the rows of a pass in the recorder.
    fn note_rows(&mut self, tokens: &TokenBatch, slots: &[CacheSlot], prefixes: &[usize]) {
        if prefixes.iter().any(|prefix| *prefix > 0) {
            // The vectors of conditions have rows too, which training would have to find.
            self.recorder = None;
        }
        let Some(recorder) = &self.recorder else { return };
        let first = recorder.rows();
        for (sequence, &slot) in slots.iter().enumerate() {
            let rows = tokens
                .rows(sequence)
                .map(|row| u32::try_from(first + row).expect("a rollout has fewer than 2³² rows"));
            self.sequences[slot.0].as_mut().expect("the slot is open").recorded.extend(rows);
        }
    }

    /// Allocates the layers on first use, and grows them to the current number of pages.
    pub(crate) fn prepare(&mut self, layers: usize, heads: Heads, device: &Device) {
        if self.layers.is_empty() {
            self.layers = (0..layers).map(|_| KvPages::new(heads, device)).collect();
        }
        self.grow_layers();
    }

    /// Returns the pages of a layer.
    pub(crate) fn layer(&mut self, layer: usize) -> &mut KvPages {
        &mut self.layers[layer]
    }

    fn enter(&mut self, sequence: Cached) -> CacheSlot {
        match self.closed.pop() {
            Some(place) => {
                self.sequences[place] = Some(sequence);
                CacheSlot(place)
            }
            None => {
                self.sequences.push(Some(sequence));
                CacheSlot(self.sequences.len() - 1)
            }
        }
    }

    /// Takes a free page or adds a new one. The layers don't contain a new page until
    /// [`Self::grow_layers`] is called, which happens once for many pages.
    fn take_page(&mut self) -> u32 {
        let page = self.free.pop().unwrap_or_else(|| {
            self.users.push(0);
            (self.users.len() - 1) as u32
        });
        self.users[page as usize] = 1;
        page
    }

    fn grow_layers(&mut self) {
        let pages = self.users.len();
        self.layers.iter_mut().for_each(|layer| layer.grow_to(pages));
    }

    fn sequence(&self, slot: CacheSlot) -> &Cached {
        self.sequences[slot.0].as_ref().expect("the slot is open")
    }

    fn sequence_mut(&mut self, slot: CacheSlot) -> &mut Cached {
        self.sequences[slot.0].as_mut().expect("the slot is open")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(length: usize) -> TokenBatch {
        TokenBatch::from_iter([vec![0; length].as_slice()])
    }

    #[test]
    fn forks_share_full_pages_and_closed_ones_are_used_again() {
        let mut cache = KvCache::new();
        let prompt = cache.open();
        cache.plan(&batch(2 * PAGE + 3), &[prompt], &[0]);
        assert_eq!(cache.pages(), 3);
        let forks = [cache.fork(prompt), cache.fork(prompt)];
        assert_eq!(cache.pages(), 5);
        cache.close(prompt);
        assert_eq!(cache.free.len(), 1);
        let plan = cache.plan(&batch(PAGE), &forks[..1], &[0]);
        assert_eq!(cache.pages(), 5);
        assert_eq!(cache.length(forks[0]), 3 * PAGE + 3);
        assert_eq!(plan.rows(), PAGE);
        cache.close(forks[0]);
        cache.close(forks[1]);
        assert_eq!(cache.free.len(), 5);
        assert!(cache.users.iter().all(|&users| users == 0));
        let again = cache.open();
        cache.plan(&batch(5 * PAGE), &[again], &[0]);
        assert_eq!(cache.pages(), 5);
    }

    #[test]
    fn a_fork_of_full_pages_copies_none() {
        let mut cache = KvCache::new();
        let prompt = cache.open();
        cache.plan(&batch(PAGE), &[prompt], &[0]);
        let fork = cache.fork(prompt);
        assert_eq!(cache.pages(), 1);
        cache.plan(&batch(1), &[fork], &[0]);
        assert_eq!((cache.pages(), cache.length(prompt), cache.length(fork)), (2, PAGE, PAGE + 1));
    }
}
