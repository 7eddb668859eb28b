//! Which ids can be drawn: top-k, top-p and min-p, in this order.

use std::cmp::Ordering;

use crate::SamplingDistribution;

/// An id that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    /// What the softmax is taken of; finite.
    pub(crate) scaled: f64,
}

impl Candidate {
    /// Its probability as a part of the largest one's.
    pub(crate) fn weight(&self, largest: f64) -> f64 {
        (self.scaled - largest).exp()
    }

    fn most_probable_first(&self, other: &Self) -> Ordering {
        // Not `total_cmp`, which takes 0 for more than −0.
        let by_scaled = other.scaled.partial_cmp(&self.scaled).expect("scaled logits are finite");
        by_scaled.then(self.id.cmp(&other.id))
    }
}

/// Takes the ids out that `distribution` cuts; the others stay in the order of ids. `largest` is the largest
/// of their scaled logits.
pub(crate) fn truncate(
    candidates: &mut Vec<Candidate>,
    largest: f64,
    distribution: &SamplingDistribution,
) {
    if let Some(k) = distribution.top_k().filter(|&k| k < candidates.len()) {
        let mut order = candidates.clone();
        let (_, &mut last, _) = order.select_nth_unstable_by(k - 1, Candidate::most_probable_first);
        keep_down_to(&last, candidates);
    }
    if let Some(p) = distribution.top_p() {
        // Of the softmax over what top-k left, with `largest` for a unit.
        let total: f64 = candidates.iter().map(|candidate| candidate.weight(largest)).sum();
        let last = last_of_nucleus(candidates.clone(), f64::from(p) * total, largest);
        keep_down_to(&last, candidates);
    }
    if let Some(min_p) = distribution.min_p().map(f64::from) {
        candidates.retain(|candidate| candidate.weight(largest) >= min_p);
    }
}

/// The first candidate, from the most probable down, with which the weights reach `wanted`.
///
/// A nucleus is mostly small against the vocabulary, so ever larger pieces of it are selected and sorted. The
/// weights are added in that order whatever the pieces are.
fn last_of_nucleus(mut candidates: Vec<Candidate>, wanted: f64, largest: f64) -> Candidate {
    let mut rest = candidates.as_mut_slice();
    let mut sum = 0.0;
    let mut last = None;
    let mut piece = 64;
    while !rest.is_empty() {
        if piece < rest.len() {
            rest.select_nth_unstable_by(piece, Candidate::most_probable_first);
        }
        let (head, tail) = rest.split_at_mut(piece.min(rest.len()));
        head.sort_unstable_by(Candidate::most_probable_first);
        for candidate in head {
            sum += candidate.weight(largest);
            last = Some(*candidate);
            if sum >= wanted {
                return *candidate;
            }
        }
        rest = tail;
        piece *= 4;
    }
    // Rounding may leave the sum of all below p of their sum in another order.
    last.expect("a distribution has a candidate")
}

fn keep_down_to(last: &Candidate, candidates: &mut Vec<Candidate>) {
    candidates.retain(|candidate| candidate.most_probable_first(last).is_le());
}
