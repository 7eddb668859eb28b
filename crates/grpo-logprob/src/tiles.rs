//! IdSets of ids for a tile, i.e. for a range of positions and a range of ids.

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

/// IdSets of ids for a tile.
pub(crate) struct Tile {
    /// Ids with a repetition penalty.
    pub(crate) seen: Option<IdSets>,
    /// Ids that could not have been sampled. There is a single row if they are the same for all
    /// positions.
    pub(crate) excluded: Option<IdSets>,
}

/// A set of ids per row, relative to the start of the tile.
pub(crate) struct IdSets {
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
            let mut sets = IdSets::empty(rows, ids.len());
            for (row, set) in self.rows.iter_mut().zip(sets.rows_mut()) {
                if row.is_truncated() {
                    set.fill(u32::MAX);
                    row.kept_in(&ids).for_each(|id| set[id / WORD] &= !bit(id));
                }
                forbidden.iter().for_each(|&id| set[id / WORD] |= bit(id));
            }
            sets
        });
        let seen = is_penalised.then(|| {
            let mut sets = IdSets::empty(self.rows.len(), ids.len());
            for (row, set) in self.rows.iter_mut().zip(sets.rows_mut()) {
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

impl IdSets {
    fn empty(rows: usize, ids: usize) -> Self {
        Self { rows, ids, words: vec![0; rows * ids.div_ceil(WORD)] }
    }

    /// Returns the words of each row.
    fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u32]> {
        self.words.chunks_mut(self.ids.div_ceil(WORD).max(1))
    }

    /// Returns the words and their shape, `[rows, words]`.
    pub(crate) fn words(&self) -> (&[u32], [usize; 2]) {
        (&self.words, [self.rows, self.ids.div_ceil(WORD)])
    }

    /// Returns a flag per position and id, `[positions, ids]`.
    pub(crate) fn flags(&self, positions: usize) -> Vec<bool> {
        let (words, [rows, per_row]) = self.words();
        let of_row = |position: usize| {
            let set = &words[position % rows * per_row..][..per_row];
            (0..self.ids).map(move |id| set[id / WORD] & bit(id) != 0)
        };
        (0..positions).flat_map(of_row).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The second tile begins in the middle of a word of the vocabulary.
    #[test]
    fn sets_of_a_tile_are_relative_to_its_start() {
        let vocabulary = 120;
        let kept: [&[u32]; 2] = [&[0, 36, 37, 68, 69, 119], &[40]];
        let seen: [&[u32]; 2] = [&[36, 37, 100], &[]];
        let sets = |ids: [&[u32]; 2]| {
            ids.map(|ids| TokenSet::from_sorted(ids, vocabulary).unwrap()).to_vec()
        };
        let all = Targets::new(vec![0, 40], vocabulary).without(&[37, 41]);
        let all = all.with_repetition_penalty(1.5, sets(seen));
        for truncated in [false, true] {
            let targets = if truncated { all.clone().within(sets(kept)) } else { all.clone() };
            let mut tiles = Tiles::new(&targets, 0..2);
            for ids in [0..37, 37..120] {
                let tile = tiles.next_tile(ids.clone());
                let excluded = tile.excluded.map(|sets| {
                    assert_eq!(sets.words().1[0], if truncated { 2 } else { 1 });
                    sets.flags(2)
                });
                let is_excluded = |row: usize, id: u32| {
                    [37, 41].contains(&id) || truncated && !kept[row].contains(&id)
                };
                let flags = |flag: &dyn Fn(usize, u32) -> bool| -> Vec<bool> {
                    let ids = ids.clone();
                    (0..2).flat_map(|row| ids.clone().map(move |id| flag(row, id as u32))).collect()
                };
                // If no id is excluded, there is no mask.
                let is_any = truncated || ids.contains(&37);
                assert_eq!(excluded, is_any.then(|| flags(&is_excluded)));
                let is_seen = |row: usize, id: u32| seen[row].contains(&id);
                assert_eq!(tile.seen.map(|sets| sets.flags(2)), Some(flags(&is_seen)));
            }
        }
    }
}
