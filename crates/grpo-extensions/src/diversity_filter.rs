//! Lowers the reward for completions in buckets that already contain many completions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{fmt, mem};

use grpo_core::Aggregation;
use grpo_data::schema::Keys;
use grpo_data::{Bonus, ConfigFault, Group, Outcome, Ranges, Sample};
use grpo_rewards::{Identify, Identity};
use grpo_runtime::{RankError, Ranks};
use grpo_train::{
    ExtensionRole, GrpoConfig, GuardAction, GuardConfig, MetricSpec, ScoredStep, StepExtension,
    TrainError, UpdatedStep,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::Table;

use crate::similar_texts::{NewSimilarTexts, SimilarTexts};
use crate::{
    Bucketing, BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts,
    as_section, section,
};

/// Name of the section and the extension.
const SECTION: &str = "diversity_filter";

/// Returns the kind of extension that a `[diversity_filter]` section asks for.
pub(crate) const fn kind<M>() -> ExtensionKind<M> {
    ExtensionKind {
        name: SECTION,
        keys: &[SECTION],
        schema: Keys::in_section::<DiversityFilterConfig>(SECTION),
        metrics: &METRICS,
        parse: |mut table, bucketings| {
            let config: DiversityFilterConfig = section(&mut table, SECTION)?;
            config.check()?;
            let bucketing = config.bucketing(bucketings)?;
            // Refuses settings that the buckets cannot have.
            config.build(bucketing)?;
            Ok(Some(Arc::new(ConfiguredFilter { config, bucketing })))
        },
    }
}

/// Refuses an aggregation that computes no total reward.
fn refuse_aggregation(config: &GrpoConfig) -> Result<(), ConfigFault> {
    if config.advantage.aggregation == Aggregation::NormalizeThenSum {
        let message = "diversity_filter multiplies the total reward, which aggregation = \"normalize_then_sum\" does not compute; remove one of them";
        return Err(ConfigFault::from_sentence(SECTION, message));
    }
    Ok(())
}

/// A filter whose buckets are known.
#[derive(Debug)]
struct ConfiguredFilter {
    config: DiversityFilterConfig,
    bucketing: Bucketing,
}

impl<M> ExtensionConfig<M> for ConfiguredFilter {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn settings(&self) -> Table {
        as_section(SECTION, &self.config)
    }

    fn check(&self, run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        refuse_aggregation(run.config)
    }

    fn roles(&self) -> &'static [ExtensionRole] {
        &[ExtensionRole::Bonus]
    }

    /// Warns if the policy keeps sampling completions for full buckets.
    fn guards(&self) -> Vec<GuardConfig> {
        let action = GuardAction::Warn;
        vec![GuardConfig::new("diversity_filter/penalized", Some(0.5), None, 5, action)]
    }

    fn build(&self, _parts: &mut ExtensionParts<'_>) -> BuiltExtension<M> {
        Ok(Box::new(self.config.build(self.bucketing)?))
    }
}

/// The `[diversity_filter]` section: memory-assisted reinforcement learning (Blaschke et al. 2020,
/// J. Cheminf. 12:68).
///
/// The run remembers how many rewarded completions each bucket contains. Advantages are computed
/// from `f(n) · r`, where `r` is the reward, `n` the number of earlier completions in the bucket
/// and `f` the `penalty`. Only completions with `r ≥ min_reward` are counted and penalised.
/// The reward itself is left unchanged.
///
/// If a bucket can hold different completions, a copy of a counted one gets 0 and is not counted, as
/// in REINVENT. Otherwise, copies would be paid, and would fill the buckets of other completions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct DiversityFilterConfig {
    /// What completions in a bucket share: the Bemis–Murcko scaffold (molecules without rings share
    /// one bucket), the same with all atoms replaced by carbon and all bonds by single bonds, the
    /// [molecule](#molecules-in-rewards), or the text. Every valid molecule has a bucket.
    #[schemars(extend("x-basic" = true))]
    pub bucket: String,
    /// Molecules that would start a new bucket join the most similar one if its scaffold (or
    /// SMILES) has at least this Tanimoto similarity, by Morgan counts of radius 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.01, max = 1))]
    pub min_similarity: Option<f64>,
    /// Capacity of a bucket.
    #[serde(default = "default_bucket_size")]
    #[schemars(range(min = 1, max = 1e6))]
    pub bucket_size: u32,
    /// Completions with a smaller reward are neither counted nor penalised; 1e6 turns the filter
    /// off.
    #[serde(default = "default_min_reward")]
    #[schemars(range(min = 0, max = 1e6))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        let is_mixed = !bucketing.holds_copies || self.min_similarity.is_some();
        let identify = bucketing.identify.filter(|_| is_mixed);
        let (counts, seen) = (BTreeMap::new(), BTreeSet::new());
        let of_step = Changes::default();
        Ok(DiversityFilter {
            config: self.clone(),
            bucketing,
            counts,
            known,
            identify,
            seen,
            of_step,
        })
    }

    /// Returns the bucketing that it names.
    fn bucketing(&self, known: &[Bucketing]) -> Result<Bucketing, ConfigFault> {
        let found = known.iter().find(|bucketing| bucketing.name == self.bucket);
        found.copied().ok_or_else(|| {
            let known: Vec<String> =
                known.iter().map(|bucketing| format!("\"{}\"", bucketing.name)).collect();
            ConfigFault::from_sentence(
                "diversity_filter.bucket",
                format!(
                    "diversity_filter.bucket = \"{}\" is unknown; expected {}",
                    self.bucket,
                    known.join(", ")
                ),
            )
        })
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    /// Returns an error for the first key that is not.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges(SECTION)
    }
}

/// Diversity filter configured by [`DiversityFilterConfig`].
#[derive(Debug)]
pub struct DiversityFilter {
    config: DiversityFilterConfig,
    bucketing: Bucketing,
    counts: BTreeMap<String, u32>,
    /// The buckets in `counts`, if similar ones are merged.
    known: Option<KnownBuckets>,
    /// Recognizes copies, if they are not rewarded.
    identify: Option<Identify>,
    /// The counted completions, if copies are not rewarded.
    seen: BTreeSet<String>,
    /// What the step in progress has added.
    of_step: Changes,
}

/// What a step adds to the memory of the filter.
#[derive(Debug, Default)]
struct Changes {
    /// The bucket of each counted completion.
    buckets: Vec<String>,
    /// The counted completions that are new, if copies are not rewarded.
    identities: Vec<String>,
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

/// What the filter measures in a step.
static METRICS: [MetricSpec; 5] = [
    MetricSpec::new("diversity_filter/mean", "≤ 0", "mean change of the reward by the filter, over the counted completions").requires(REQUIRED),
    MetricSpec::new("diversity_filter/std", "≥ 0", "standard deviation of the same change").requires(REQUIRED),
    MetricSpec::new("diversity_filter/penalized", "0 to 1", "fraction whose reward was at least halved, of the completions that were counted or copies of counted ones; 0 if there are none")
        .requires(REQUIRED)
        .above("mode collapse: most rewarded completions fall into diversity filter buckets that are filling up"),
    MetricSpec::new("diversity_filter/buckets", "≥ 0", "number of buckets in the run so far").requires(REQUIRED),
    MetricSpec::new("diversity_filter/full_buckets", "≥ 0", "number of those that are full").requires(REQUIRED),
];
const REQUIRED: &str = "a [diversity_filter] section";

/// The memory of the filter.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Number of counted completions in each bucket.
    buckets: BTreeMap<String, u32>,
    /// The counted completions, if copies are not rewarded.
    rewarded: BTreeSet<String>,
}

impl<M> StepExtension<M> for DiversityFilter {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn check(&self, config: &GrpoConfig, _extensions: &[&'static str]) -> Result<(), ConfigFault> {
        refuse_aggregation(config)
    }

    fn sets_bonus(&self) -> bool {
        true
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        let values = self.apply(step.groups, step.ranks)?;
        // The mean and the deviation are those of the bonus.
        step.added.metrics.extend(METRICS[2..].iter().map(|metric| metric.name).zip(values));
        Ok(())
    }

    fn after_updates(&mut self, _step: &mut UpdatedStep<'_, M>) -> Result<(), TrainError> {
        self.of_step = Changes::default();
        Ok(())
    }

    /// What a step changed is kept until the policy is updated, because the whole memory can be large.
    fn mark(&self) -> Value {
        Value::Null
    }

    fn undo(&mut self, _mark: Value) {
        let Changes { buckets, identities } = mem::take(&mut self.of_step);
        for identity in identities {
            self.seen.remove(&identity);
        }
        for bucket in buckets {
            let count = self.counts.get_mut(&bucket).expect("it was counted in this step");
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&bucket);
            }
        }
        self.compare_with_counted();
    }

    fn state(&self) -> Value {
        let state = State { buckets: self.counts.clone(), rewarded: self.seen.clone() };
        serde_json::to_value(state).expect("names and numbers are JSON")
    }

    fn restore(&mut self, state: Value) -> Result<(), String> {
        let State { buckets, rewarded } = match state {
            Value::Null => State::default(),
            state => serde_json::from_value(state).map_err(|error| error.to_string())?,
        };
        self.seen = rewarded;
        self.counts = buckets;
        self.of_step = Changes::default();
        self.compare_with_counted();
        Ok(())
    }
}

impl DiversityFilter {
    /// Sets the change of the reward for each counted completion and adds it to its bucket.
    /// Completions are processed in sampling order. Copies of counted completions lose their whole
    /// reward. Each rank finds the buckets of its share. Returns the values of [`METRICS`].
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    fn apply(&mut self, groups: &mut [Group], ranks: &Ranks) -> Result<[f64; 3], RankError> {
        let DiversityFilterConfig { bucket_size, min_reward, penalty, .. } = self.config;
        let texts: Vec<&str> = samples(groups).map(|sample| &*sample.text).collect();
        let share = &texts[ranks.share(texts.len())];
        let identities = self.identify.map_or(vec![None; share.len()], |of| known_of(of, share));
        let own: Vec<(Option<String>, Option<String>)> =
            (self.bucketing.buckets)(share).into_iter().zip(identities).collect();
        let buckets = ranks.gather(own)?.concat();
        let (mut counted, mut penalized) = (0, 0);
        let all = groups.iter_mut().flat_map(|group| &mut group.samples);
        for (sample, (bucket, identity)) in all.zip(buckets) {
            let is_valid = sample.outcome.as_ref().is_some_and(Outcome::is_valid);
            let reward = sample.reward().filter(|reward| is_valid && *reward >= min_reward);
            let (Some(reward), Some(bucket)) = (reward, bucket) else { continue };
            let factor = match self.is_copy(identity) {
                true => 0.0,
                false => penalty.factor(self.count(bucket), bucket_size),
            };
            counted += 1;
            penalized += u32::from(factor <= 0.5);
            sample.bonus = Some(Bonus { weight: 1.0, value: (factor - 1.0) * reward });
        }
        let full_buckets = self.counts.values().filter(|count| **count >= bucket_size).count();
        let penalized = f64::from(penalized) / f64::from(counted.max(1));
        Ok([penalized, self.counts.len() as f64, full_buckets as f64])
    }

    /// Returns whether a completion is a copy of a counted one, and remembers it otherwise.
    fn is_copy(&mut self, identity: Option<String>) -> bool {
        let Some(identity) = identity else { return false };
        if self.seen.contains(&identity) {
            return true;
        }
        self.seen.insert(identity.clone());
        self.of_step.identities.push(identity);
        false
    }

    /// Adds a completion to its bucket, or to the bucket that this one is merged into. Returns the number
    /// of earlier completions there.
    fn count(&mut self, bucket: String) -> u32 {
        let mut bucket = bucket;
        if let Some(known) = self.known.as_mut().filter(|_| !self.counts.contains_key(&bucket)) {
            match known.nearest(&bucket) {
                Some(nearest) => bucket = nearest.to_owned(),
                None => known.push(&bucket),
            }
        }
        self.of_step.buckets.push(bucket.clone());
        let count = self.counts.entry(bucket).or_default();
        let before = *count;
        *count += 1;
        before
    }

    /// Lets new buckets be compared with exactly those that have been counted.
    fn compare_with_counted(&mut self) {
        if let Some(known) = &mut self.known {
            known.names.clear();
            known.buckets = (known.new)();
            self.counts.keys().for_each(|name| known.push(name));
        }
    }
}

/// Returns the canonical form of each text that has one.
fn known_of(identify: Identify, texts: &[&str]) -> Vec<Option<String>> {
    let canonical = |identity| match identity {
        Identity::Canonical(canonical) => Some(canonical),
        Identity::Invalid | Identity::Unknown => None,
    };
    identify(texts).into_iter().map(canonical).collect()
}

fn samples(groups: &[Group]) -> impl Iterator<Item = &Sample> {
    groups.iter().flat_map(|group| &group.samples)
}

#[cfg(test)]
mod tests;
