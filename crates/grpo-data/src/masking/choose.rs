//! Which places of a passage are chosen.

use super::{Draw, Draws};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Each of `len` places by itself.
pub(super) fn random(len: usize, probability: f64, draws: &Draws) -> Vec<bool> {
    (0..len).map(|at| draws.uniform(Draw::Place, at) < probability).collect()
}

/// The places of spans between places that are drawn, both ends among them.
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

/// How many of `len` places a ratio asks for: at least one.
pub(super) fn target(ratio: f64, len: usize) -> usize {
    // Seven hundredths of 100 are 7.000000000000001 in floating point, and not 8 places.
    let places = (ratio * len as f64 - 1e-9).ceil() as usize;
    places.clamp(1, len)
}

/// `target` places, each drawn with a probability proportional to its weight at that moment: `p2` beside a chosen
/// place, else `p1`.
///
/// It is a race: a place of weight `w` is chosen at a time that is exponentially distributed with rate `w`, and a rate that
/// changes on the way scales the time that is left (Gibson and Bruck 2000, "Efficient exact stochastic simulation", the
/// next-reaction method). So places are drawn exactly one by one, and in `O(n log n)`.
pub(super) fn sticky(len: usize, target: usize, p1: f64, p2: f64, draws: &Draws) -> Vec<bool> {
    let mut race = Race::new(len, p1, draws);
    for order in 0..target {
        let at = race.next().unwrap_or_else(|| {
            // Nothing that is left has a weight.
            let nth = draws.below(Draw::Fallback, order, len - order);
            let left = (0..len).filter(|at| !race.chosen[*at]);
            left.clone().nth(nth).expect("fewer places are chosen than there are")
        });
        race.choose(at, p2);
    }
    race.chosen
}

struct Race {
    chosen: Vec<bool>,
    /// The weight of each place that is not chosen.
    rates: Vec<f64>,
    /// When each place is chosen if nothing changes; infinite without a weight.
    times: Vec<f64>,
    /// Exponentials of rate 1 that places which never had a weight still have before them.
    waits: Vec<f64>,
    /// Times and places, the soonest first. Those that are out of date are passed over.
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

    /// The place that comes next, unless none has a weight.
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

/// A time as what is sorted; never NaN.
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
