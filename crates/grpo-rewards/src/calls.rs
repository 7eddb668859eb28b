//! What external rewards report in addition to the outcomes of a batch.

use grpo_data::statistics::percentile_of_sorted;
use serde::{Deserialize, Serialize};

/// Calls of external programs and servers since the last query.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExternalCalls {
    /// The time of each completion that was sent, in the order of the replies.
    pub times: Vec<ItemTime>,
    /// Number of completions whose outcome was already known.
    pub cache_hits: usize,
    /// Number of failed completions that are left out of their groups instead.
    pub left_out: usize,
    /// The reason of the first one.
    pub reason: Option<String>,
    /// Notes on individual completions, by group and sample.
    pub info: Vec<((u32, u32), String)>,
}

/// The time needed to score a completion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemTime {
    /// The time reported in the reply, or an equal share of the request's duration.
    pub seconds: f64,
    /// Index of the prompt in the step.
    pub group: u32,
    /// Index of the completion in the group.
    pub sample: u32,
}

impl ExternalCalls {
    /// Combines the calls of several rewards.
    pub fn merged(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|mut merged, calls| {
            merged.times.extend(calls.times);
            merged.cache_hits += calls.cache_hits;
            merged.left_out += calls.left_out;
            merged.reason = merged.reason.or(calls.reason);
            merged.info.extend(calls.info);
            merged
        })
    }

    /// Returns the slowest completion, or the first of several that are equally slow.
    pub fn slowest(&self) -> Option<ItemTime> {
        self.times
            .iter()
            .copied()
            .reduce(|slowest, item| if item.seconds > slowest.seconds { item } else { slowest })
    }

    /// Returns the quantile `share` of the times in seconds, with linear interpolation.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let mut seconds: Vec<f64> = self.times.iter().map(|item| item.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        (!seconds.is_empty()).then(|| percentile_of_sorted(&seconds, share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_the_slowest() {
        let times = [4.0, 1.0, 3.0, 2.0, 5.0, 5.0].iter().zip(0..);
        let times = times.map(|(&seconds, sample)| ItemTime { seconds, group: 1, sample });
        let calls = ExternalCalls { times: times.collect(), ..ExternalCalls::default() };
        assert_eq!([0.0, 0.5, 1.0].map(|share| calls.quantile(share)), [1.0, 3.5, 5.0].map(Some));
        // numpy.quantile([1, 2, 3, 4, 5, 5], 0.3)
        assert_eq!(calls.quantile(0.3), Some(2.5));
        assert_eq!(calls.slowest().map(|item| item.sample), Some(4));
        assert_eq!(ExternalCalls::default().quantile(0.5), None);
        let merged = ExternalCalls::merged([calls.clone(), calls]).unwrap();
        assert_eq!(merged.times.len(), 12);
    }
}
