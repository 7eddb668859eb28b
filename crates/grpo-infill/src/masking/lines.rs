//! Lines that are replaced by lines from elsewhere.

use super::{Draw, Draws, part_of};
use crate::PassageOptions;
use crate::passages::Lines;

/// `passage` with a part of its lines replaced, at least one, and where what is not its own stands.
///
/// A line is never replaced by one that says the same. A passage that gets too long loses its tail.
pub(super) fn replace(
    passage: &[u32],
    part: f64,
    split: &Lines,
    options: &PassageOptions,
    draws: &Draws,
) -> (Vec<u32>, Vec<bool>) {
    // Every line of a passage ends as its last one does.
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

/// `count` of `len` things, each set of them equally likely (Floyd's algorithm).
fn some_of(len: usize, count: usize, draws: &Draws) -> Vec<bool> {
    let mut chosen = vec![false; len];
    for last in len - count..len {
        let one = draws.below(Draw::Line, last, last + 1);
        let new = if chosen[one] { last } else { one };
        chosen[new] = true;
    }
    chosen
}

/// A line that is not `line`, from a random one on; `None` where all are the same.
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
