//! Masks for a tile, i.e. for a range of positions and a range of ids.

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

/// Flags for a tile, `[positions, ids]` in row-major order. A flag vector is `None` if the flag is
/// not set for any position.
pub(crate) struct Tile {
    /// True for ids with a repetition penalty.
    pub(crate) seen: Option<Vec<bool>>,
    /// True for ids that could not have been sampled.
    pub(crate) excluded: Option<Vec<bool>>,
}

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

    /// Returns the flags for the next tile. Ranges must be contiguous.
    pub(crate) fn next_tile(&mut self, ids: Range<usize>) -> Tile {
        let width = ids.len();
        let forbidden = self.forbidden(&ids);
        let is_truncated = self.rows.iter().any(|row| row.kept.is_some());
        let is_penalised = self.rows.iter().any(|row| row.seen.is_some());
        let mut excluded =
            vec![
                false;
                if is_truncated || !forbidden.is_empty() { self.rows.len() * width } else { 0 }
            ];
        let mut seen = vec![false; if is_penalised { self.rows.len() * width } else { 0 }];
        for (row, flags) in self.rows.iter_mut().zip(excluded.chunks_mut(width)) {
            if row.is_truncated() {
                flags.fill(true);
                row.kept_in(&ids).for_each(|id| flags[id] = false);
            }
            forbidden.iter().for_each(|&id| flags[id] = true);
        }
        for (row, flags) in self.rows.iter_mut().zip(seen.chunks_mut(width)) {
            row.seen_in(&ids).for_each(|id| flags[id] = true);
        }
        let some = |flags: Vec<bool>| (!flags.is_empty()).then_some(flags);
        Tile { seen: some(seen), excluded: some(excluded) }
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
