//! Lowers the reward for completions in buckets that already contain many completions.

use std::collections::BTreeMap;
use std::fmt;

use grpo_core::Aggregation;
use grpo_data::{Bonus, ConfigFault, Group, Outcome, Sample};
use grpo_ranks::{RankError, Ranks};
use serde::{Deserialize, Serialize};

use crate::error::in_range;
use crate::similar_texts::{NewSimilarTexts, SimilarTexts};

/// Returns the bucket of each text, or `None` for texts that belong to no bucket.
pub type BucketFn = fn(&[&str]) -> Vec<Option<String>>;

/// A way to assign completions to buckets.
#[derive(Clone, Copy)]
pub struct Bucketing {
    /// Name in configurations, e.g. `scaffold`.
    pub name: &'static str,
    /// Assigns texts to buckets.
    pub buckets: BucketFn,
    /// Compares buckets, if they can be compared.
    pub similarity: Option<NewSimilarTexts>,
}

impl Bucketing {
    /// One bucket per distinct text.
    pub const TEXT: Self = Self {
        name: "text",
        buckets: |texts| texts.iter().map(|text| Some((*text).to_owned())).collect(),
        similarity: None,
    };
}

impl fmt::Debug for Bucketing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucketing").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The `[diversity_filter]` section: memory-assisted reinforcement learning (Blaschke et al. 2020,
/// J. Cheminf. 12:68).
///
/// The run remembers how many rewarded completions each bucket contains. Advantages are computed
/// from `f(n) · r`, where `r` is the reward, `n` the number of earlier completions in the bucket
/// and `f` the [`BucketPenalty`]. Only completions with `r ≥ min_reward` are counted and penalised.
/// The reward itself is left unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiversityFilterConfig {
    /// Name of a [`Bucketing`].
    pub bucket: String,
    /// Completions that would start a new bucket are added to the most similar bucket if it is at
    /// least this similar. `None` if only equal buckets are merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_similarity: Option<f64>,
    /// Capacity L of a bucket.
    #[serde(default = "default_bucket_size")]
    pub bucket_size: u32,
    /// Minimum reward of completions that are counted.
    #[serde(default = "default_min_reward")]
    pub min_reward: f64,
    /// How the reward decreases as a bucket fills up.
    #[serde(default)]
    pub penalty: BucketPenalty,
}

fn default_bucket_size() -> u32 {
    25
}

fn default_min_reward() -> f64 {
    0.4
}

/// Factor `f(n)` for a completion whose bucket of capacity L contains n earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketPenalty {
    /// 1 for `n < L`, then 0.
    #[default]
    Step,
    /// `max(0, 1 − n/L)`.
    Linear,
    /// `1 − 1/(1 + exp(−(2n/L − 1)/0.15))`.
    Sigmoid,
}

impl BucketPenalty {
    /// Returns the factor, from 0 to 1.
    pub fn factor(self, count: u32, bucket_size: u32) -> f64 {
        let fill = f64::from(count) / f64::from(bucket_size);
        match self {
            Self::Step if count < bucket_size => 1.0,
            Self::Step => 0.0,
            Self::Linear => (1.0 - fill).max(0.0),
            Self::Sigmoid => 1.0 - 1.0 / (1.0 + (-(2.0 * fill - 1.0) / 0.15).exp()),
        }
    }
}

impl DiversityFilterConfig {
    /// Creates an empty filter.
    ///
    /// # Errors
    /// Returns an error if `min_similarity` is set, but the buckets cannot be compared.
    pub fn build(&self, bucketing: Bucketing) -> Result<DiversityFilter, ConfigFault> {
        let known = match (self.min_similarity, bucketing.similarity) {
            (None, _) => None,
            (Some(min_similarity), Some(new)) => {
                Some(KnownBuckets { min_similarity, new, names: Vec::new(), buckets: new() })
            }
            (Some(_), None) => {
                return Err(ConfigFault::new(
                    "diversity_filter.min_similarity",
                    format!(
                        "diversity_filter.min_similarity has no effect: buckets of type \"{}\" cannot be compared",
                        bucketing.name
                    ),
                    "remove it, or use another bucket",
                ));
            }
        };
        Ok(DiversityFilter { config: self.clone(), bucketing, counts: BTreeMap::new(), known })
    }

    pub(crate) fn check(
        &self,
        aggregation: Aggregation,
        has_bonus: bool,
    ) -> Result<(), ConfigFault> {
        const SECTION: &str = "diversity_filter";
        in_range("diversity_filter.bucket_size", self.bucket_size.into(), 1.0..=1e6)?;
        in_range("diversity_filter.min_reward", self.min_reward, 0.0..=1e6)?;
        if let Some(similarity) = self.min_similarity {
            in_range("diversity_filter.min_similarity", similarity, 0.01..=1.0)?;
        }
        if aggregation == Aggregation::NormalizeThenSum {
            let message = "diversity_filter multiplies the total reward, which aggregation = \"normalize_then_sum\" does not compute; remove one of them";
            return Err(ConfigFault::from_sentence(SECTION, message));
        }
        if has_bonus {
            let message =
                "diversity_filter and diversity_bonus cannot be combined; remove one of them";
            return Err(ConfigFault::from_sentence(SECTION, message));
        }
        Ok(())
    }
}

/// Name of the filter in metrics and in the list of reward terms.
pub(crate) const FILTER: &str = "diversity_filter";

/// Diversity filter configured by [`DiversityFilterConfig`].
#[derive(Debug)]
pub struct DiversityFilter {
    config: DiversityFilterConfig,
    bucketing: Bucketing,
    counts: BTreeMap<String, u32>,
    /// The buckets in `counts`, if similar ones are merged.
    known: Option<KnownBuckets>,
}

/// Buckets that new ones are compared with.
struct KnownBuckets {
    min_similarity: f64,
    new: NewSimilarTexts,
    names: Vec<String>,
    buckets: Box<dyn SimilarTexts>,
}

impl fmt::Debug for KnownBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownBuckets").field("names", &self.names).finish_non_exhaustive()
    }
}

impl KnownBuckets {
    fn push(&mut self, name: &str) {
        self.names.push(name.to_owned());
        self.buckets.extend(&[name]);
    }

    /// Returns the most similar bucket if it is similar enough. Ties are broken by name, because
    /// the order in which buckets were found is not known after resuming.
    fn nearest(&self, bucket: &str) -> Option<&str> {
        let similarities = self.buckets.similarities(bucket);
        let similar = similarities.into_iter().zip(&self.names).filter_map(|(similarity, name)| {
            Some((similarity.filter(|similarity| *similarity >= self.min_similarity)?, name))
        });
        similar
            .max_by(|(a, first), (b, second)| a.total_cmp(b).then_with(|| second.cmp(first)))
            .map(|(_, name)| name.as_str())
    }
}

/// Effect of the filter in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilterReport {
    /// Fraction of the counted completions whose reward was at least halved; 0 if none was counted.
    pub penalized: f64,
    /// Number of buckets in the run so far.
    pub buckets: usize,
    /// Number of full buckets.
    pub full_buckets: usize,
}

impl FilterReport {
    /// Names of the metrics below `diversity_filter/`.
    pub(crate) const METRICS: [&str; 3] = ["penalized", "buckets", "full_buckets"];

    /// Returns the values of [`Self::METRICS`].
    pub(crate) fn values(&self) -> [f64; 3] {
        [self.penalized, self.buckets as f64, self.full_buckets as f64]
    }
}

impl DiversityFilter {
    /// Sets the change of the reward for each counted completion and adds it to its bucket.
    /// Completions are processed in sampling order. Each rank finds the buckets of its share.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    pub(crate) fn apply(
        &mut self,
        groups: &mut [Group],
        ranks: &Ranks,
    ) -> Result<FilterReport, RankError> {
        let DiversityFilterConfig { bucket_size, min_reward, penalty, .. } = self.config;
        let texts: Vec<&str> = samples(groups).map(|sample| &*sample.text).collect();
        let own = (self.bucketing.buckets)(&texts[ranks.share(texts.len())]);
        let buckets = ranks.gather(own)?.concat();
        let (mut counted, mut penalized) = (0, 0);
        let all = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, bucket) in all.zip(buckets) {
            let is_valid = sample.outcome.as_ref().is_some_and(Outcome::is_valid);
            let reward = sample.reward().filter(|reward| is_valid && *reward >= min_reward);
            let (Some(reward), Some(bucket)) = (reward, bucket) else { continue };
            let count = self.count(bucket);
            let factor = penalty.factor(*count, bucket_size);
            *count = count.saturating_add(1);
            counted += 1;
            penalized += u32::from(factor <= 0.5);
            sample.bonus = Some(Bonus { weight: 1.0, value: (factor - 1.0) * reward });
        }
        Ok(FilterReport {
            penalized: f64::from(penalized) / f64::from(counted.max(1)),
            buckets: self.counts.len(),
            full_buckets: self.counts.values().filter(|count| **count >= bucket_size).count(),
        })
    }

    /// Returns the counter of the bucket, or of the bucket it is merged into.
    fn count(&mut self, bucket: String) -> &mut u32 {
        let mut bucket = bucket;
        if let Some(known) = self.known.as_mut().filter(|_| !self.counts.contains_key(&bucket)) {
            match known.nearest(&bucket) {
                Some(nearest) => bucket = nearest.to_owned(),
                None => known.push(&bucket),
            }
        }
        self.counts.entry(bucket).or_default()
    }

    /// Returns the number of counted completions in each bucket.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u32> {
        &self.counts
    }

    /// Replaces the counts by saved ones.
    pub(crate) fn restore(&mut self, counts: BTreeMap<String, u32>) {
        if let Some(known) = &mut self.known {
            known.names.clear();
            known.buckets = (known.new)();
            counts.keys().for_each(|name| known.push(name));
        }
        self.counts = counts;
    }
}

fn samples(groups: &[Group]) -> impl Iterator<Item = &Sample> {
    groups.iter().flat_map(|group| &group.samples)
}

#[cfg(test)]
mod tests {
    use grpo_data::Scored;
    use proptest::prelude::*;

    use super::*;
    use crate::similar_texts::tests::Numbers;
    use crate::test_groups::group;

    fn apply(filter: &mut DiversityFilter, groups: &mut [Group]) -> FilterReport {
        filter.apply(groups, &Ranks::alone()).unwrap()
    }

    fn config(bucket_size: u32, penalty: BucketPenalty) -> DiversityFilterConfig {
        DiversityFilterConfig {
            bucket: "text".to_owned(),
            min_similarity: None,
            bucket_size,
            min_reward: 0.5,
            penalty,
        }
    }

    fn groups(samples: &[(&str, f64)]) -> Vec<Group> {
        let scored = |reward: f64| Outcome::Scored(Scored::new(vec![(1.0, reward)], vec![]));
        let mut group = group(samples.iter().map(|(_, reward)| scored(*reward)).collect());
        for (sample, (text, _)) in group.samples.iter_mut().zip(samples) {
            sample.text = (*text).to_owned();
        }
        vec![group]
    }

    fn changes(groups: &[Group]) -> Vec<Option<f64>> {
        samples(groups).map(|sample| sample.bonus.map(Bonus::total)).collect()
    }

    #[test]
    fn ranks_share_the_buckets() {
        let texts = ["a", "b", "a", "a", "c", "b", "a"];
        let all = groups(&texts.map(|text| (text, 0.9)));
        let build = || config(2, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
        let apply = |ranks: Ranks| {
            let (mut filter, mut all) = (build(), all.clone());
            let report = filter.apply(&mut all, &ranks).unwrap();
            (changes(&all), filter.counts().clone(), report)
        };
        let alone = apply(Ranks::alone());
        std::thread::scope(|scope| {
            let ranks = Ranks::in_process(3).into_iter();
            let threads: Vec<_> = ranks.map(|ranks| scope.spawn(|| apply(ranks))).collect();
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), alone));
        });
    }

    #[test]
    fn full_buckets_lose_their_reward() {
        let mut filter = config(2, BucketPenalty::Step).build(Bucketing::TEXT).unwrap();
        let mut first = groups(&[("a", 0.9), ("a", 0.8), ("b", 0.4), ("a", 0.7)]);
        let report = apply(&mut filter, &mut first);
        // The reward of `b` is too small to be counted.
        assert_eq!(changes(&first), [Some(0.0), Some(0.0), None, Some(-0.7)]);
        assert_eq!(report, FilterReport { penalized: 1.0 / 3.0, buckets: 1, full_buckets: 1 });
        assert_eq!(first[0].samples[3].reward(), Some(0.7));
        let mut second = groups(&[("a", 0.6), ("b", 0.5)]);
        apply(&mut filter, &mut second);
        assert_eq!(changes(&second), [Some(-0.6), Some(0.0)]);
        assert_eq!(
            filter.counts().clone().into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), 4), ("b".to_owned(), 1)]
        );
    }

    #[test]
    fn restored_counts_continue() {
        let mut whole = config(3, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
        let steps = [groups(&[("a", 1.0), ("b", 1.0)]), groups(&[("a", 1.0), ("a", 1.0)])];
        let [mut one, mut two] = steps.clone();
        apply(&mut whole, &mut one);
        let mut resumed = config(3, BucketPenalty::Linear).build(Bucketing::TEXT).unwrap();
        resumed.restore(whole.counts().clone());
        apply(&mut whole, &mut two);
        let [_, mut again] = steps;
        apply(&mut resumed, &mut again);
        assert_eq!(changes(&again), changes(&two));
        assert_eq!(changes(&two), [Some(1.0 - 1.0 / 3.0 - 1.0), Some(1.0 - 2.0 / 3.0 - 1.0)]);
        assert_eq!(resumed.counts(), whole.counts());
    }

    #[test]
    fn completions_without_a_bucket_or_score_are_kept() {
        let buckets: BucketFn = |texts| vec![None; texts.len()];
        let none = Bucketing { name: "none", buckets, similarity: None };
        let mut filter = config(1, BucketPenalty::Step).build(none).unwrap();
        let mut all = groups(&[("a", 1.0), ("a", 1.0)]);
        assert_eq!(apply(&mut filter, &mut all).penalized, 0.0);
        assert_eq!(changes(&all), [None, None]);
        let mut filter = config(1, BucketPenalty::Step).build(Bucketing::TEXT).unwrap();
        let mut all = groups(&[("a", 1.0), ("a", 1.0)]);
        all[0].samples[0].outcome = Some(Outcome::Abstained);
        apply(&mut filter, &mut all);
        assert_eq!(changes(&all), [None, Some(0.0)]);
    }

    #[test]
    fn similar_buckets_are_merged() {
        let numbers = Bucketing { similarity: Some(Numbers::empty), ..Bucketing::TEXT };
        let merging = |min_similarity| DiversityFilterConfig {
            min_similarity: Some(min_similarity),
            ..config(2, BucketPenalty::Step)
        };
        let mut filter = merging(0.75).build(numbers).unwrap();
        // 0.5 is equally similar to 0.25 and 0.75. `x` cannot be compared.
        let mut first = groups(&[("0.75", 1.0), ("0.25", 1.0), ("0.5", 1.0), ("x", 1.0)]);
        apply(&mut filter, &mut first);
        let counts = [("0.25", 2), ("0.75", 1), ("x", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(filter.counts(), &BTreeMap::from(counts));

        let mut resumed = merging(0.75).build(numbers).unwrap();
        resumed.restore(filter.counts().clone());
        let last = groups(&[("0.5", 1.0), ("0.7", 1.0), ("2", 1.0), ("x", 1.0)]);
        let found = [&mut filter, &mut resumed].map(|filter| {
            let mut last = last.clone();
            apply(filter, &mut last);
            (changes(&last), filter.counts().clone())
        });
        assert_eq!(found[0].0, [Some(-1.0), Some(0.0), Some(0.0), Some(0.0)]);
        assert_eq!(found[0], found[1]);

        let fault = merging(0.75).build(Bucketing::TEXT).unwrap_err().to_string();
        assert_eq!(
            fault,
            "diversity_filter.min_similarity has no effect: buckets of type \"text\" cannot be compared; remove it, or use another bucket"
        );
        assert!(merging(0.0).check(Aggregation::SumThenNormalize, false).is_err());
    }

    /// Values of `1 − 1/(1 + e^(−(2n/L − 1)/0.15))`, computed with another program.
    #[test]
    fn penalties_have_their_published_values() {
        for (count, expected) in
            [(0, 0.998_728_983_7), (5, 0.965_554_804_3), (10, 0.5), (20, 0.001_271_016_3)]
        {
            let found = BucketPenalty::Sigmoid.factor(count, 20);
            assert!((found - expected).abs() < 1e-9, "{count}: {found}");
        }
        assert_eq!(BucketPenalty::Linear.factor(5, 20), 0.75);
        assert_eq!(BucketPenalty::Linear.factor(21, 20), 0.0);
    }

    proptest! {
        #[test]
        fn penalties_never_increase(count in 0u32..2000, bucket_size in 1u32..1000) {
            for penalty in [BucketPenalty::Step, BucketPenalty::Linear, BucketPenalty::Sigmoid] {
                let [now, next] = [count, count + 1].map(|n| penalty.factor(n, bucket_size));
                prop_assert!((0.0..=1.0).contains(&now) && next <= now);
            }
        }
    }
}
