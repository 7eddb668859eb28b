//! Sets of ids for a tile, i.e. for a range of positions and a range of ids.

use std::iter::Peekable;
use std::ops::Range;

use grpo_data::{TokenSet, TokenSetIter};

use crate::Targets;

/// Scaled logit of an id that could not have been sampled.
pub(crate) const EXCLUDED: f64 = -1e30;

/// Iterates over the vocabulary for a range of positions. Tiles are in ascending order.
pub(crate) struct Tiles<'a> {
    pub(crate) rows: Vec<RowSets<'a>>,
    forbidden: &'a [u32],
}

/// Sets of ids for a tile.
pub(crate) struct Tile {
    /// Ids with a repetition penalty.
    pub(crate) seen: Option<Sets>,
    /// Ids that could not have been sampled. There is a single row if they are the same for all
    /// positions.
    pub(crate) excluded: Option<Sets>,
}

/// A set of ids per row, relative to the start of the tile.
pub(crate) struct Sets {
    rows: usize,
    /// Number of ids in the tile.
    ids: usize,
    /// Shape `[rows, words]`. The lowest bit of a word is the first of its [`WORD`] ids.
    words: Vec<u32>,
}

/// Number of ids per word of a set.
const WORD: usize = u32::BITS as usize;

/// Iterators over the id sets of one position.
pub(crate) struct RowSets<'a> {
    kept: Option<Peekable<TokenSetIter<'a>>>,
    seen: Option<Peekable<TokenSetIter<'a>>>,
}

impl<'a> Tiles<'a> {
    pub(crate) fn new(targets: &'a Targets, positions: Range<usize>) -> Self {
        let walk = |sets: Option<&'a [TokenSet]>, position: usize| {
            sets.map(|sets| sets[position].iter().peekable())
        };
        let seen = targets.penalty().map(|penalty| &penalty.seen[..]);
        let row =
            |position| RowSets { kept: walk(targets.kept(), position), seen: walk(seen, position) };
        Self { rows: positions.map(row).collect(), forbidden: targets.forbidden() }
    }

    /// Returns the forbidden ids in a range, relative to its start.
    pub(crate) fn forbidden(&self, ids: &Range<usize>) -> Vec<usize> {
        let from = self.forbidden.partition_point(|&id| (id as usize) < ids.start);
        let to = self.forbidden.partition_point(|&id| (id as usize) < ids.end);
        self.forbidden[from..to].iter().map(|&id| id as usize - ids.start).collect()
    }

    /// Returns the sets of the next tile. Ranges must be contiguous.
    pub(crate) fn next_tile(&mut self, ids: Range<usize>) -> Tile {
        let forbidden = self.forbidden(&ids);
        let is_truncated = self.rows.iter().any(RowSets::is_truncated);
        let is_penalised = self.rows.iter().any(|row| row.seen.is_some());
        let excluded = is_truncated || !forbidden.is_empty();
        let excluded = excluded.then(|| {
            let rows = if is_truncated { self.rows.len() } else { 1 };
            let mut sets = Sets::empty(rows, ids.len());
            for (row, set) in self.rows.iter_mut().zip(sets.each()) {
                if row.is_truncated() {
                    set.fill(u32::MAX);
                    row.kept_in(&ids).for_each(|id| set[id / WORD] &= !bit(id));
                }
                forbidden.iter().for_each(|&id| set[id / WORD] |= bit(id));
            }
            sets
        });
        let seen = is_penalised.then(|| {
            let mut sets = Sets::empty(self.rows.len(), ids.len());
            for (row, set) in self.rows.iter_mut().zip(sets.each()) {
                row.seen_in(&ids).for_each(|id| set[id / WORD] |= bit(id));
            }
            sets
        });
        Tile { seen, excluded }
    }
}

/// Returns the bit of an id in its word.
fn bit(id: usize) -> u32 {
    1 << (id % WORD)
}

impl Sets {
    fn empty(rows: usize, ids: usize) -> Self {
        Self { rows, ids, words: vec![0; rows * ids.div_ceil(WORD)] }
    }

    /// Returns the words of each row.
    fn each(&mut self) -> impl Iterator<Item = &mut [u32]> {
        self.words.chunks_mut(self.ids.div_ceil(WORD).max(1))
    }

    /// Returns a flag per position and id, `[positions, ids]`.
    pub(crate) fn flags(&self, positions: usize) -> Vec<bool> {
        let words = self.ids.div_ceil(WORD);
        let flag =
            |row: usize, id: usize| self.words[row % self.rows * words + id / WORD] & bit(id) != 0;
        (0..positions)
            .flat_map(|row| (0..self.ids).map(move |id| (row, id)))
            .map(|(row, id)| flag(row, id))
            .collect()
    }

    /// Returns the words, `[rows, words]`.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn words(&self) -> (&[u32], [usize; 2]) {
        (&self.words, [self.rows, self.ids.div_ceil(WORD)])
    }
}

impl RowSets<'_> {
    pub(crate) fn is_truncated(&self) -> bool {
        self.kept.is_some()
    }

    /// Returns the kept ids in the next range, relative to its start.
    pub(crate) fn kept_in(&mut self, ids: &Range<usize>) -> impl Iterator<Item = usize> {
        next_in(&mut self.kept, ids.clone())
    }

    /// Returns the penalised ids in the next range, relative to its start.
    pub(crate) fn seen_in(&mut self, ids: &Range<usize>) -> impl Iterator<Item = usize> {
        next_in(&mut self.seen, ids.clone())
    }
}

fn next_in(
    set: &mut Option<Peekable<TokenSetIter<'_>>>,
    ids: Range<usize>,
) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = set.as_mut()?.next_if(|&id| (id as usize) < ids.end)?;
        Some(next as usize - ids.start)
    })
}
