//! Replaces lines with other lines.

use super::{Draw, Draws, part_of};
use crate::PassageOptions;
use crate::passages::Lines;

/// Replaces a fraction of the lines in `passage`, but at least one. Returns the new text, along
/// with a flag for each character that tells whether it was replaced.
///
/// A line is never replaced by an identical one. If the result is too long, it is truncated.
pub(super) fn replace(
    passage: &[u32],
    part: f64,
    split: &Lines,
    options: &PassageOptions,
    draws: &Draws,
) -> (Vec<u32>, Vec<bool>) {
    // All lines of a passage end in the same character.
    let end = passage[passage.len() - 1];
    let lines: Vec<&[u32]> = passage.split_inclusive(|id| *id == end).collect();
    let count = part_of(lines.len(), part).max(1);
    let replaced = some_of(lines.len(), count, draws);
    let (mut ids, mut is_foreign) = (Vec::new(), Vec::new());
    for (at, line) in lines.into_iter().enumerate() {
        let foreign = if replaced[at] { another(line, split, options, at, draws) } else { None };
        ids.extend_from_slice(foreign.unwrap_or(line));
        is_foreign.resize(ids.len(), foreign.is_some());
    }
    ids.truncate(options.length);
    is_foreign.truncate(options.length);
    (ids, is_foreign)
}

/// Selects `count` of `len` items using Floyd's algorithm. All subsets are equally likely.
fn some_of(len: usize, count: usize, draws: &Draws) -> Vec<bool> {
    let mut chosen = vec![false; len];
    for last in len - count..len {
        let one = draws.below(Draw::Line, last, last + 1);
        let new = if chosen[one] { last } else { one };
        chosen[new] = true;
    }
    chosen
}

/// Searches for a line that differs from `line`, starting at a random position. Returns `None` if
/// all lines are equal.
fn another<'a>(
    line: &[u32],
    split: &'a Lines,
    options: &PassageOptions,
    at: usize,
    draws: &Draws,
) -> Option<&'a [u32]> {
    let places = split.places(options);
    let first = draws.below(Draw::ForeignLine, at, places);
    (0..places).map(|i| split.line((first + i) % places)).find(|other| *other != line)
}
