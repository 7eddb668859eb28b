//! Selects positions in a passage.

use super::{Draw, Draws};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Selects each of `len` positions independently.
pub(super) fn random(len: usize, probability: f64, draws: &Draws) -> Vec<bool> {
    (0..len).map(|at| draws.uniform(Draw::Place, at) < probability).collect()
}

/// Selects random spans, including both ends.
pub(super) fn spans(len: usize, spans: u32, draws: &Draws) -> Vec<bool> {
    let mut ends: Vec<usize> =
        (0..2 * spans as usize).map(|i| draws.below(Draw::Place, i, len)).collect();
    ends.sort_unstable();
    let mut chosen = vec![false; len];
    for pair in ends.chunks_exact(2) {
        chosen[pair[0]..=pair[1]].fill(true);
    }
    chosen
}

/// Returns the number of positions to select for a ratio. It is at least 1.
pub(super) fn target(ratio: f64, len: usize) -> usize {
    // 0.07 · 100 is 7.000000000000001 in floating point, which must not be rounded up to 8.
    let places = (ratio * len as f64 - 1e-9).ceil() as usize;
    places.clamp(1, len)
}

/// Selects `target` positions one at a time, with probabilities proportional to their weights. A
/// position has the weight `p2` if it is next to a selected one, and `p1` otherwise.
///
/// The implementation simulates a race. A position with weight `w` is selected at an exponentially
/// distributed time with rate `w`. If the rate changes, the remaining time is rescaled (Gibson and
/// Bruck 2000, "Efficient exact stochastic simulation", the next-reaction method). The result is
/// exact and takes `O(n log n)`.
pub(super) fn sticky(len: usize, target: usize, p1: f64, p2: f64, draws: &Draws) -> Vec<bool> {
    let mut race = Race::new(len, p1, draws);
    for order in 0..target {
        let at = race.next().unwrap_or_else(|| {
            // All remaining positions have weight 0.
            let nth = draws.below(Draw::Fallback, order, len - order);
            let left = (0..len).filter(|at| !race.chosen[*at]);
            left.clone().nth(nth).expect("fewer positions are chosen than exist")
        });
        race.choose(at, p2);
    }
    race.chosen
}

struct Race {
    chosen: Vec<bool>,
    /// Weights of the remaining positions.
    rates: Vec<f64>,
    /// Time at which each position would be selected. It is infinite if the weight is 0.
    times: Vec<f64>,
    /// Remaining times at rate 1, for positions whose weight has always been 0.
    waits: Vec<f64>,
    /// Priority queue of times and positions, earliest first. Outdated entries are skipped.
    soonest: BinaryHeap<Reverse<(OrderedTime, usize)>>,
    now: f64,
}

impl Race {
    fn new(len: usize, rate: f64, draws: &Draws) -> Self {
        let waits: Vec<f64> =
            (0..len).map(|at| -libm::log(1.0 - draws.uniform(Draw::Place, at))).collect();
        let mut race = Self {
            chosen: vec![false; len],
            rates: vec![0.0; len],
            times: vec![f64::INFINITY; len],
            waits,
            soonest: BinaryHeap::new(),
            now: 0.0,
        };
        for at in 0..len {
            race.set_rate(at, rate);
        }
        race
    }

    /// Returns the next position, or `None` if all weights are 0.
    fn next(&mut self) -> Option<usize> {
        while let Some(Reverse((OrderedTime(time), at))) = self.soonest.pop() {
            if !self.chosen[at] && time == self.times[at] {
                self.now = time;
                return Some(at);
            }
        }
        None
    }

    fn choose(&mut self, at: usize, rate_beside: f64) {
        self.chosen[at] = true;
        for beside in [at.checked_sub(1), Some(at + 1)].into_iter().flatten() {
            if beside < self.chosen.len() && !self.chosen[beside] {
                self.set_rate(beside, rate_beside);
            }
        }
    }

    fn set_rate(&mut self, at: usize, rate: f64) {
        if self.rates[at] > 0.0 {
            self.waits[at] = (self.times[at] - self.now) * self.rates[at];
        }
        self.rates[at] = rate;
        self.times[at] = if rate > 0.0 { self.now + self.waits[at] / rate } else { f64::INFINITY };
        if rate > 0.0 {
            self.soonest.push(Reverse((OrderedTime(self.times[at]), at)));
        }
    }
}

/// A time with a total order. It is never NaN.
#[derive(PartialEq)]
struct OrderedTime(f64);

impl Eq for OrderedTime {}

impl PartialOrd for OrderedTime {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedTime {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MASKING;
    use grpo_data::CounterRng;
    use std::collections::BTreeMap;

    /// Computes the exact probability of each set of `target` positions, summed over all orders.
    fn exact(
        chosen: &[bool],
        target: usize,
        p1: f64,
        p2: f64,
        part: f64,
        sets: &mut BTreeMap<Vec<bool>, f64>,
    ) {
        if target == 0 {
            *sets.entry(chosen.to_vec()).or_insert(0.0) += part;
            return;
        }
        let is = |at: Option<usize>| at.and_then(|at| chosen.get(at)) == Some(&true);
        let weight = |at: usize| match chosen[at] {
            true => 0.0,
            false if is(at.checked_sub(1)) || is(Some(at + 1)) => p2,
            false => p1,
        };
        let mut weights: Vec<f64> = (0..chosen.len()).map(weight).collect();
        if weights.iter().sum::<f64>() == 0.0 {
            weights = chosen.iter().map(|one| f64::from(u8::from(!one))).collect();
        }
        let all: f64 = weights.iter().sum();
        for (at, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            let mut next = chosen.to_vec();
            next[at] = true;
            exact(&next, target - 1, p1, p2, part * weight / all, sets);
        }
    }

    /// Compares 20,000 draws per case with the exact probabilities, within five standard errors.
    #[test]
    fn sticky_places_are_drawn_one_by_one_by_their_weights() {
        let rng = CounterRng::new(9, MASKING);
        for (len, target, p1, p2) in [
            (5, 3, 0.1, 0.5),
            (5, 2, 0.3, 0.1),
            (5, 4, 0.3, 0.0),
            (4, 3, 0.0, 0.7),
            (4, 2, 0.2, 0.2),
            (4, 2, 0.0, 0.0),
            (3, 3, 0.1, 0.9),
            (1, 1, 0.0, 0.0),
        ] {
            let mut expect = BTreeMap::new();
            exact(&vec![false; len], target, p1, p2, 1.0, &mut expect);
            let mut found = BTreeMap::new();
            for attempt in 0..20_000 {
                let places = sticky(len, target, p1, p2, &Draws { rng, attempt });
                *found.entry(places).or_insert(0.0) += 1.0;
            }
            for (places, part) in &expect {
                let found = found.remove(places).unwrap_or(0.0);
                let error = (20_000.0 * part * (1.0 - part)).sqrt();
                let off = (found - 20_000.0 * part).abs();
                assert!(
                    off <= 5.0 * error + 1e-6,
                    "{places:?}: {found}, expected {part} of 20,000"
                );
            }
            assert!(found.is_empty(), "{found:?} cannot be");
        }
    }

    #[test]
    fn a_ratio_asks_for_its_part_rounded_up_and_at_least_one() {
        let check = |ratio, len, expect| assert_eq!(target(ratio, len), expect, "{ratio} of {len}");
        check(0.4, 10, 4);
        check(0.41, 10, 5);
        check(0.001, 10, 1);
        check(1e-12, 10, 1);
        check(0.07, 100, 7);
        check(0.55, 20, 11);
        check(1.0, 7, 7);
        check(0.9, 2, 2);
    }

    /// Extreme weights that lead to infinite times still select enough positions.
    #[test]
    fn odd_weights_still_choose() {
        let rng = CounterRng::new(9, MASKING);
        for (p1, p2) in [(5e-324, 1.0), (1.0, 5e-324), (f64::MAX, 5e-324), (5e-324, f64::MAX)] {
            let places = sticky(9, 6, p1, p2, &Draws { rng, attempt: 0 });
            assert_eq!(places.iter().filter(|one| **one).count(), 6);
        }
    }
}
