//! Stratified assignment of groups to the parts of a split.

use std::collections::BTreeMap;

use super::SplitError;
use crate::{CounterRng, Purpose};

/// Grouped splits of records.
const GROUP_SPLIT: Purpose = Purpose::new(11);

/// Splits records into parts and returns the sorted record indices of each part.
///
/// Groups are never split. `groups` and `strata` have one entry per record. Ideally, each part
/// contains `fraction × records` of every stratum. The result comes as close to this as the groups
/// allow.
///
/// Groups are first shuffled with `seed` and sorted by decreasing size. Each group is then assigned
/// to the part with the lowest cost. Finally, groups are moved or swapped between parts, taking the
/// best change first, until no change improves the split. The cost is the sum of
/// `(actual − target)² / target` over all parts, both for each stratum and for all records. Small
/// strata and parts therefore have the same weight as large ones. A part is empty only if its
/// fraction is 0.
///
/// # Errors
/// Returns an error if there are fewer groups than parts.
pub fn split_groups(
    groups: &[usize],
    strata: &[usize],
    fractions: &[f64],
    seed: u64,
) -> Result<Vec<Vec<usize>>, SplitError> {
    let blocks = blocks(groups);
    let used: Vec<usize> = (0..fractions.len()).filter(|part| fractions[*part] > 0.0).collect();
    if blocks.len() < used.len() {
        return Err(SplitError::FewGroups { found: blocks.len(), parts: used.len() });
    }
    let width = strata.iter().max().map_or(1, |most| most + 1);
    let kinds: Vec<Vec<u32>> = blocks.iter().map(|block| kind(block, strata, width)).collect();
    let mut state = State::new(&kinds, width, &used, fractions);
    for block in visited(&kinds, seed) {
        state.put(block);
    }
    state.improve();
    state.fill_empty();
    let mut parts = vec![Vec::new(); fractions.len()];
    for (block, part) in blocks.iter().zip(&state.part) {
        parts[used[*part]].extend(block);
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}

/// Groups records that share a key, directly or through other records.
///
/// Returns the group number of each record, which is the index of the first record in the group.
/// Keys in different columns are never considered equal.
pub fn group_by_keys<'a, const COLUMNS: usize>(
    records: impl IntoIterator<Item = [&'a str; COLUMNS]>,
) -> Vec<usize> {
    let mut seen = [const { BTreeMap::new() }; COLUMNS];
    let mut parent: Vec<usize> = Vec::new();
    for (position, keys) in records.into_iter().enumerate() {
        parent.push(position);
        for (seen, key) in seen.iter_mut().zip(keys) {
            let other = *seen.entry(key).or_insert(position);
            let (a, b) = (root(&mut parent, position), root(&mut parent, other));
            // The first record becomes the root, so the result does not depend on the order of
            // merges.
            parent[a.max(b)] = a.min(b);
        }
    }
    (0..parent.len()).map(|position| root(&mut parent, position)).collect()
}

fn root(parent: &mut [usize], mut position: usize) -> usize {
    while parent[position] != position {
        parent[position] = parent[parent[position]];
        position = parent[position];
    }
    position
}

/// Returns the records of each group.
fn blocks(groups: &[usize]) -> Vec<Vec<usize>> {
    let mut blocks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, group) in groups.iter().enumerate() {
        blocks.entry(*group).or_default().push(position);
    }
    blocks.into_values().collect()
}

/// Returns the number of records of a block in each stratum, followed by the total.
fn kind(block: &[usize], strata: &[usize], width: usize) -> Vec<u32> {
    let mut counts = vec![0; width + 1];
    for &record in block {
        counts[strata[record]] += 1;
        counts[width] += 1;
    }
    counts
}

/// Returns the blocks in random order, sorted by decreasing size.
fn visited(kinds: &[Vec<u32>], seed: u64) -> Vec<usize> {
    let rng = CounterRng::new(seed, GROUP_SPLIT);
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    for last in (1..order.len()).rev() {
        let other = rng.below([last as u32, 0, 0, 0], last as u64 + 1);
        order.swap(last, other as usize);
    }
    order.sort_by_key(|block| std::cmp::Reverse(kinds[*block].last().copied()));
    order
}

/// The state of the search. Blocks with the same counts are interchangeable and form a kind.
struct State<'a> {
    /// The counts of each kind.
    counts: Vec<&'a [u32]>,
    /// The kind of each block.
    kind: Vec<usize>,
    /// The part of each block, as an index into the non-empty parts.
    part: Vec<usize>,
    /// The blocks in each part, by kind.
    held: Vec<Vec<Vec<usize>>>,
    /// Counts of each part minus the target counts.
    excess: Vec<Vec<f64>>,
    /// Target counts, the denominators of the cost.
    wanted: Vec<Vec<f64>>,
}

/// Minimum improvement for a change to be applied.
const LEAST: f64 = 1e-9;
/// Maximum number of kind pairs for which swaps are tried. With more pairs, blocks are only moved.
const MOST_EXCHANGES: usize = 1 << 18;

impl<'a> State<'a> {
    fn new(kinds: &'a [Vec<u32>], width: usize, used: &[usize], fractions: &[f64]) -> Self {
        let mut numbers: BTreeMap<&[u32], usize> = BTreeMap::new();
        let mut counts = Vec::new();
        let kind = kinds.iter().map(|one| {
            *numbers.entry(one).or_insert_with(|| {
                counts.push(one.as_slice());
                counts.len() - 1
            })
        });
        let kind: Vec<usize> = kind.collect();
        let total = |at: usize| kinds.iter().map(|one| f64::from(one[at])).sum::<f64>();
        let totals: Vec<f64> = (0..=width).map(total).collect();
        let wanted: Vec<Vec<f64>> = used
            .iter()
            .map(|part| totals.iter().map(|total| fractions[*part] * total).collect())
            .collect();
        Self {
            held: vec![vec![Vec::new(); counts.len()]; used.len()],
            excess: wanted.iter().map(|part| part.iter().map(|wanted| -wanted).collect()).collect(),
            part: vec![0; kind.len()],
            wanted,
            counts,
            kind,
        }
    }

    /// Returns the difference in cost if `change` is added to the counts of a part.
    fn cost(&self, part: usize, change: impl Fn(usize) -> f64) -> f64 {
        let (excess, wanted) = (&self.excess[part], &self.wanted[part]);
        let places = excess.iter().zip(wanted).enumerate();
        let one = |(at, (excess, wanted)): (usize, (&f64, &f64))| {
            let change = change(at);
            // Empty strata have a target of 0 and no cost.
            if *wanted > 0.0 { change * (2.0 * excess + change) / wanted } else { 0.0 }
        };
        places.map(one).sum()
    }

    fn put(&mut self, block: usize) {
        let counts = self.counts[self.kind[block]];
        let cost = |part: &usize| self.cost(*part, |at| f64::from(counts[at]));
        let best = (0..self.held.len()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        self.add(block, best.expect("the split has at least one part"));
    }

    fn add(&mut self, block: usize, part: usize) {
        let kind = self.kind[block];
        for (excess, count) in self.excess[part].iter_mut().zip(self.counts[kind]) {
            *excess += f64::from(*count);
        }
        self.held[part][kind].push(block);
        self.part[block] = part;
    }

    fn shift(&mut self, kind: usize, from: usize, to: usize) {
        let block = self.held[from][kind].pop().expect("the part is not empty");
        for (excess, count) in self.excess[from].iter_mut().zip(self.counts[kind]) {
            *excess -= f64::from(*count);
        }
        self.add(block, to);
    }

    /// Applies the best move or swap until no change improves the split. The loop terminates
    /// because each change decreases the cost, which can only take a finite number of values.
    fn improve(&mut self) {
        while let Some(Change { kind, from, to, back }) = self.best_change() {
            self.shift(kind, from, to);
            if let Some(back) = back {
                self.shift(back, to, from);
            }
        }
    }

    /// Returns the best move of a block.
    fn best_change(&self) -> Option<Change> {
        let kinds = self.counts.len();
        let exchange = kinds * kinds <= MOST_EXCHANGES;
        let mut best = (-LEAST, None);
        for from in 0..self.held.len() {
            for kind in (0..kinds).filter(|kind| !self.held[from][*kind].is_empty()) {
                for to in (0..self.held.len()).filter(|to| *to != from) {
                    let back = (0..kinds).filter(|other| {
                        exchange && from < to && *other != kind && !self.held[to][*other].is_empty()
                    });
                    for back in back.map(Some).chain([None]) {
                        let change = |at: usize| {
                            let came = back.map_or(0, |other| self.counts[other][at]);
                            f64::from(self.counts[kind][at]) - f64::from(came)
                        };
                        let cost = self.cost(to, change) + self.cost(from, |at| -change(at));
                        if cost < best.0 {
                            best = (cost, Some(Change { kind, from, to, back }));
                        }
                    }
                }
            }
        }
        best.1
    }

    /// Moves the smallest block of the part with the most blocks to an empty part.
    fn fill_empty(&mut self) {
        let blocks =
            |state: &Self, part: usize| state.held[part].iter().map(Vec::len).sum::<usize>();
        while let Some(empty) = (0..self.held.len()).find(|part| blocks(self, *part) == 0) {
            let from = (0..self.held.len()).max_by_key(|part| blocks(self, *part));
            let from = from.expect("the split has at least one part");
            let held = (0..self.counts.len()).filter(|kind| !self.held[from][*kind].is_empty());
            let smallest = held.min_by_key(|kind| self.counts[*kind].last());
            self.shift(smallest.expect("it has blocks"), from, empty);
        }
    }
}

/// A move of a block between two parts.
struct Change {
    kind: usize,
    from: usize,
    to: usize,
    /// The kind of the block that is moved back in exchange.
    back: Option<usize>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A simple reference implementation of the cost.
    fn cost(parts: &[usize], strata: &[usize], fractions: &[f64]) -> f64 {
        let mut cost = 0.0;
        for (part, fraction) in fractions.iter().enumerate() {
            for stratum in [None, Some(0), Some(1), Some(2)] {
                let is_in = |at: &usize| stratum.is_none_or(|stratum| strata[*at] == stratum);
                let all: Vec<usize> = (0..parts.len()).filter(is_in).collect();
                let found = all.iter().filter(|at| parts[**at] == part).count() as f64;
                let wanted = fraction * all.len() as f64;
                cost += if wanted > 0.0 { (found - wanted).powi(2) / wanted } else { 0.0 };
            }
        }
        cost
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn no_move_and_no_exchange_of_groups_is_better(
            sizes in prop::collection::vec(prop::collection::vec(0_usize..3, 1..5), 8..16),
            seed: u64, first in 0.3..0.7,
        ) {
            let records = sizes.iter().enumerate();
            let records = records.flat_map(|(group, strata)| strata.iter().map(move |one| (group, *one)));
            let (groups, strata): (Vec<usize>, Vec<usize>) = records.unzip();
            let fractions = [first, 1.0 - first];
            let split = split_groups(&groups, &strata, &fractions, seed).unwrap();
            let parts: Vec<usize> = (0..groups.len()).map(|at| usize::from(split[1].contains(&at))).collect();
            let found = cost(&parts, &strata, &fractions);
            let other = |moved: &[usize]| -> f64 {
                let part = |at: usize| if moved.contains(&groups[at]) { 1 - parts[at] } else { parts[at] };
                cost(&(0..parts.len()).map(part).collect::<Vec<_>>(), &strata, &fractions)
            };
            let part_of = |group: usize| parts[groups.iter().position(|one| *one == group).unwrap()];
            for one in 0..sizes.len() {
                prop_assert!(other(&[one]) > found - 1e-6);
                for two in (0..one).filter(|two| part_of(*two) != part_of(one)) {
                    prop_assert!(other(&[one, two]) > found - 1e-6);
                }
            }
        }
    }

    #[test]
    fn records_that_share_a_key_are_one_group() {
        let records = [["a", "x"], ["b", "y"], ["c", "y"], ["x", "z"], ["c", "x"], ["d", "b"]];
        assert_eq!(group_by_keys(records), [0, 0, 0, 3, 0, 5]);
    }
}
