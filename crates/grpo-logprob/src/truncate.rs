//! Truncates a distribution by top-k, top-p and min-p, in this order.

use std::cmp::Ordering;

use crate::SamplingDistribution;

/// An id that can be sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    /// Scaled logit. Always finite.
    pub(crate) scaled: f64,
}

impl Candidate {
    /// Returns the probability relative to the most probable id.
    pub(crate) fn weight(&self, largest: f64) -> f64 {
        (self.scaled - largest).exp()
    }

    fn most_probable_first(&self, other: &Self) -> Ordering {
        // `total_cmp` treats 0 as greater than −0.
        let by_scaled = other.scaled.partial_cmp(&self.scaled).expect("scaled logits are finite");
        by_scaled.then(self.id.cmp(&other.id))
    }
}

/// Removes the ids that `distribution` excludes by truncation. The order of the remaining ids is
/// unchanged. `largest` is the largest scaled logit.
///
/// `candidates` may lack improbable ids that would be removed anyway. Then `total` is the weight of
/// all ids.
pub(crate) fn truncate(
    candidates: &mut Vec<Candidate>,
    largest: f64,
    total: Option<f64>,
    distribution: &SamplingDistribution,
) {
    if let Some(k) = distribution.top_k().filter(|&k| k < candidates.len()) {
        let mut order = candidates.clone();
        let (_, &mut last, _) = order.select_nth_unstable_by(k - 1, Candidate::most_probable_first);
        keep_down_to(&last, candidates);
    }
    if let Some(p) = distribution.top_p() {
        // The softmax is computed over the ids kept by top-k, relative to `largest`.
        let total = match (total, distribution.top_k()) {
            (Some(total), None) => total,
            _ => candidates.iter().map(|candidate| candidate.weight(largest)).sum(),
        };
        let last = last_of_nucleus(candidates.clone(), f64::from(p) * total, largest);
        keep_down_to(&last, candidates);
    }
    if let Some(min_p) = distribution.min_p().map(f64::from) {
        candidates.retain(|candidate| candidate.weight(largest) >= min_p);
    }
}

/// Adds up weights, starting with the most probable candidate, and returns the candidate at which
/// the sum reaches `wanted`.
///
/// A nucleus is usually much smaller than the vocabulary, so candidates are selected and sorted in
/// chunks of increasing size. The order of summation does not depend on the chunks.
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
    // The total was summed in a different order, so due to rounding the sum may never reach
    // `wanted`.
    last.expect("the distribution has at least one candidate")
}

fn keep_down_to(last: &Candidate, candidates: &mut Vec<Candidate>) {
    candidates.retain(|candidate| candidate.most_probable_first(last).is_le());
}
