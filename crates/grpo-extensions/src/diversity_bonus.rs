//! Reward bonus for completions that differ from the rest of their group.

use std::path::PathBuf;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_data::{Bonus, ConfigFault, Group, Outcome, Ranges};
use grpo_eval::{Diversity, DiversityMeasure};
use grpo_rewards::EmbedderConfig;
use grpo_train::{
    ExtensionRole, MetricSpec, ScoredStep, StepExtension, TrainError, build_measure, check_measure,
    no_embedder,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::similar_texts::{NewSimilarTexts, mean_distances};
use crate::{
    BuiltExtension, ConfiguredRun, ExtensionConfig, ExtensionKind, ExtensionParts, as_section,
    section,
};

/// The `[diversity_bonus]` section. Advantages are computed from `r_i + weight · d_i`, where `d_i`
/// is the mean distance of completion i to the other completions in its group. The reward itself is left
/// unchanged.
///
/// The bonus is a form of reward shaping and has no gradient of its own. Completions without a
/// reward get no bonus, and neither do invalid ones. Otherwise, the policy would be rewarded for garbage that differs from valid completions.
///
/// If a completion cannot be embedded, the run ends, because the distances in its group are
/// undefined. This only happens if the encoder returns non-finite numbers, so later completions
/// would fail too. No user program is involved, so no time limit is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub struct DiversityBonusConfig {
    /// Bonus for a distance of 1.
    #[schemars(range(min = 0, max = 1e6))]
    pub weight: f64,
    /// Distance of two completions.
    #[serde(default)]
    pub measure: BonusMeasure,
    /// Makes the vectors; required by `semantic`, refused otherwise.
    pub embedder: Option<EmbedderConfig>,
}

/// How the distance of a completion to the others is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BonusMeasure {
    /// 1 − cosine similarity of vectors.
    #[default]
    Semantic,
    /// 1 − BLEU.
    Bleu,
    /// Share of the word bigrams that no other completion has.
    Distinct,
    /// 1 − similarity as defined by the task. Completions that cannot be compared are left out of the mean.
    Tanimoto,
}

impl BonusMeasure {
    /// Returns the measure of texts, or `None` if the task defines the measure.
    fn of_texts(self) -> Option<DiversityMeasure> {
        match self {
            Self::Semantic => Some(DiversityMeasure::Semantic),
            Self::Bleu => Some(DiversityMeasure::Bleu),
            Self::Distinct => Some(DiversityMeasure::Distinct),
            Self::Tanimoto => None,
        }
    }
}

const SECTION: &str = "diversity_bonus";
const REQUIRED: &str = "a [diversity_bonus] section";
static METRICS: [MetricSpec; 2] = [
    MetricSpec::new(
        "diversity_bonus/mean",
        "",
        "mean of the bonus, over the completions that receive it",
    )
    .requires(REQUIRED),
    MetricSpec::new("diversity_bonus/std", "≥ 0", "standard deviation of the bonus")
        .requires(REQUIRED),
];

/// Returns the kind of extension that a `[diversity_bonus]` section asks for.
pub(crate) const fn kind<M>() -> ExtensionKind<M> {
    ExtensionKind {
        name: SECTION,
        keys: &[SECTION],
        schema: Keys::in_section::<DiversityBonusConfig>(SECTION),
        metrics: &METRICS,
        parse: |mut table, _| {
            let config: DiversityBonusConfig = section(&mut table, SECTION)?;
            config.check()?;
            Ok(Some(Arc::new(config)))
        },
    }
}

impl<M> ExtensionConfig<M> for DiversityBonusConfig {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn settings(&self) -> Table {
        as_section(SECTION, self)
    }

    fn roles(&self) -> &'static [ExtensionRole] {
        &[ExtensionRole::Bonus]
    }

    fn check(&self, _run: &ConfiguredRun<'_>) -> Result<(), ConfigFault> {
        Ok(())
    }

    fn files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigFault> {
        self.embedder.as_ref().map_or(Ok(Vec::new()), EmbedderConfig::files)
    }

    fn build(&self, parts: &mut ExtensionParts<'_>) -> BuiltExtension<M> {
        Ok(Box::new(self.build(parts.device, parts.similarity)?))
    }
}

impl DiversityBonusConfig {
    /// Builds the bonus. If an embedder is configured, its model is loaded on `device`.
    /// `similarity` is the task's similarity measure, if it defines one.
    ///
    /// # Errors
    /// Returns an error if the embedder cannot be built, or if the measure requires a similarity
    /// that the task does not define.
    pub fn build(
        &self,
        device: &Device,
        similarity: Option<NewSimilarTexts>,
    ) -> Result<DiversityBonus, TrainError> {
        let distances = match self.measure.of_texts() {
            Some(measure) => {
                Distances::OfTexts(build_measure(SECTION, measure, self.embedder.as_ref(), device)?)
            }
            None => Distances::OfTask(similarity.ok_or_else(|| {
                ConfigFault::new(
                    "diversity_bonus.measure",
                    "diversity_bonus.measure = \"tanimoto\" requires a molecule model",
                    "use \"semantic\", \"bleu\" or \"distinct\"",
                )
            })?),
        };
        Ok(DiversityBonus { weight: self.weight, distances })
    }

    /// Checks that all values are in range.
    ///
    /// # Errors
    /// Returns an error for the first key that is not.
    pub fn check(&self) -> Result<(), ConfigFault> {
        self.check_ranges(SECTION)?;
        match self.measure.of_texts() {
            Some(measure) => check_measure(SECTION, measure, self.embedder.as_ref()),
            None => no_embedder(SECTION, self.embedder.as_ref()),
        }
    }
}

/// Diversity bonus configured by [`DiversityBonusConfig`].
#[derive(Clone, Debug)]
pub struct DiversityBonus {
    weight: f64,
    distances: Distances,
}

#[derive(Clone, Debug)]
enum Distances {
    OfTexts(Diversity),
    OfTask(NewSimilarTexts),
}

impl<M> StepExtension<M> for DiversityBonus {
    fn name(&self) -> &'static str {
        SECTION
    }

    fn sets_bonus(&self) -> bool {
        true
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn after_rewards(&mut self, step: &mut ScoredStep<'_>) -> Result<(), TrainError> {
        self.add(step.groups)
    }
}

impl DiversityBonus {
    /// Creates a bonus with the given weight.
    pub fn new(weight: f64, diversity: Diversity) -> Self {
        Self { weight, distances: Distances::OfTexts(diversity) }
    }

    /// Sets the bonus for each valid completion. Completions without a reward are still included in
    /// the distances.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    fn add(&self, groups: &mut [Group]) -> Result<(), TrainError> {
        for group in groups {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            let distances = match &self.distances {
                Distances::OfTexts(diversity) => diversity.of_each(&texts)?,
                Distances::OfTask(new) => mean_distances(*new, &texts),
            };
            for (sample, value) in group.samples.iter_mut().zip(distances) {
                let is_valid = sample.outcome.as_ref().is_some_and(Outcome::is_valid);
                sample.bonus = is_valid.then_some(Bonus { weight: self.weight, value });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grpo_data::Scored;
    use grpo_eval::{Embedder, HashedNgrams, cosine};

    use super::*;
    use crate::similar_texts::tests::Numbers;

    fn bonus(weight: f64) -> DiversityBonus {
        let embedder: Arc<dyn Embedder> = Arc::new(HashedNgrams::new(64));
        let measure = DiversityMeasure::Semantic;
        DiversityBonus::new(weight, Diversity::new(measure, Some(embedder)).unwrap())
    }

    fn scored(total: f64) -> Outcome {
        Outcome::Scored(Scored::new(vec![(1.0, total)], vec![("own".into(), total)]))
    }

    fn group(samples: &[(&str, Outcome)]) -> Group {
        let outcomes = samples.iter().map(|(_, outcome)| outcome.clone()).collect();
        let mut group = crate::test_groups::group(outcomes);
        let texts = samples.iter().map(|(text, _)| (*text).to_owned());
        group.samples.iter_mut().zip(texts).for_each(|(sample, text)| sample.text = text);
        group
    }

    /// Compares the bonus with `w · mean_j (1 − cos_ij)` computed in loops. Rewards must not
    /// change.
    #[test]
    fn what_is_unlike_its_group_has_a_larger_bonus() {
        let texts = ["red wine", "red vine", "a train", "a train", "no idea", "red"];
        let rewards = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
        let samples: Vec<(&str, Outcome)> = texts.into_iter().zip(rewards.map(scored)).collect();
        let mut groups = [group(&samples[..3]), group(&samples[3..])];
        bonus(0.5).add(&mut groups).unwrap();
        let vectors = HashedNgrams::new(64).embed(&texts).unwrap();
        let found = groups.iter().flat_map(|group| &group.samples);
        for (place, sample) in found.enumerate() {
            let group = place / 3 * 3..place / 3 * 3 + 3;
            let mut distance = 0.0;
            for other in group.filter(|other| *other != place) {
                distance += (1.0 - cosine(&vectors[place], &vectors[other])) / 2.0;
            }
            let bonus = sample.bonus.unwrap();
            assert!((bonus.value - distance).abs() < 1e-12, "{place}: {bonus:?}, {distance}");
            assert!((bonus.total() - 0.5 * distance).abs() < 1e-12, "{place}: {bonus:?}");
            assert_eq!(sample.reward(), Some(rewards[place]));
        }
    }

    #[test]
    fn equal_completions_have_a_bonus_of_0_and_only_valid_ones_have_one() {
        let mut equal = [group(&[("the same", scored(0.5)), ("the same", scored(0.5))])];
        bonus(1.0).add(&mut equal).unwrap();
        assert!(equal[0].samples[0].bonus.unwrap().value.abs() < 1e-6);

        let failed = Outcome::failed("no".to_owned());
        let validity = |valid: f64| {
            let parts = vec![("looks.valid".into(), valid)];
            Outcome::Scored(Scored::new(vec![(1.0, valid)], parts))
        };
        let outcomes = [scored(0.5), validity(1.0), validity(0.0), failed, Outcome::abstained()];
        let texts = ["the same", "the same", "C(", "other", "the same"];
        let samples: Vec<(&str, Outcome)> = texts.into_iter().zip(outcomes).collect();
        let mut groups = [group(&samples)];
        bonus(1.0).add(&mut groups).unwrap();
        let has = groups[0].samples.iter().map(|sample| sample.bonus.is_some());
        assert_eq!(has.collect::<Vec<_>>(), [true, true, false, false, false]);
        assert!(
            groups[0].samples[0].bonus.unwrap().value > 0.1,
            "it is unlike the one that failed"
        );
    }

    #[test]
    fn a_measure_has_the_embedder_that_it_needs_and_no_other() {
        let config = |measure, embedder| DiversityBonusConfig { weight: 0.1, measure, embedder };
        let hashed = || Some(EmbedderConfig::HashedNgrams { width: 64 });
        config(BonusMeasure::Semantic, hashed()).check().unwrap();
        config(BonusMeasure::Bleu, None).check().unwrap();
        config(BonusMeasure::Tanimoto, None).check().unwrap();
        for (config, expected) in [
            (
                config(BonusMeasure::Semantic, None),
                "diversity_bonus.measure = \"semantic\" requires an embedder; set for example diversity_bonus.embedder = { type = \"hashed_ngrams\" }, or use another measure",
            ),
            (
                config(BonusMeasure::Tanimoto, hashed()),
                "diversity_bonus.embedder is only valid for the measure \"semantic\"; remove it",
            ),
            (
                config(BonusMeasure::Distinct, hashed()),
                "diversity_bonus.embedder is only valid for the measure \"semantic\"; remove it",
            ),
        ] {
            assert_eq!(config.check().unwrap_err().to_string(), expected);
        }
        let negative = DiversityBonusConfig { weight: -0.1, ..config(BonusMeasure::Bleu, None) };
        assert!(negative.check().is_err());
    }

    #[test]
    fn the_task_can_define_the_distance() {
        let config =
            DiversityBonusConfig { weight: 0.5, measure: BonusMeasure::Tanimoto, embedder: None };
        let build = |similarity| config.build(&Device::flex(), similarity);
        let samples = [("0", scored(0.1)), ("0.5", scored(0.2)), ("x", Outcome::abstained())];
        let mut groups = [group(&samples)];
        build(Some(Numbers::empty)).unwrap().add(&mut groups).unwrap();
        let bonus = |index: usize| groups[0].samples[index].bonus;
        assert_eq!(bonus(0), Some(Bonus { weight: 0.5, value: 0.5 }));
        assert_eq!((bonus(1), bonus(2)), (bonus(0), None));
        assert_eq!(
            build(None).unwrap_err().to_string(),
            "diversity_bonus.measure = \"tanimoto\" requires a molecule model; use \"semantic\", \"bleu\" or \"distinct\""
        );
    }
}
