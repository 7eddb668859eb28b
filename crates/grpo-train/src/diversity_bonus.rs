//! Reward bonus for completions that differ from the rest of their group.

use burn::tensor::Device;
use grpo_data::{Bonus, ConfigFault, Group, Outcome};
use grpo_eval::{Diversity, DiversityMeasure};
use grpo_rewards::EmbedderConfig;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::diversity_measure::{build, check};
use crate::error::in_range;

/// The `[diversity_bonus]` section. Advantages are computed from `r_i + weight · d_i`, where `d_i`
/// is the mean distance of completion i to the other completions in its group
/// ([`Diversity::of_each`]). The reward itself is left unchanged.
///
/// The bonus is a form of reward shaping and has no gradient of its own. Completions without a
/// reward get no bonus, and neither do invalid ones ([`Outcome::is_valid`]). Otherwise it would pay
/// to produce garbage that differs from valid completions.
///
/// If a completion cannot be embedded, the run ends, because the distances in its group are
/// undefined. This only happens if the encoder returns non-finite numbers, so later completions
/// would fail too. No user program is involved, so no time limit is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiversityBonusConfig {
    /// Bonus added for a distance of 1.
    pub weight: f64,
    /// Distance measure.
    #[serde(default)]
    pub measure: DiversityMeasure,
    /// Text embedder, required by the `semantic` measure.
    pub embedder: Option<EmbedderConfig>,
}

const SECTION: &str = "diversity_bonus";

impl DiversityBonusConfig {
    /// Builds the bonus. If an embedder is configured, its model is loaded on `device`.
    ///
    /// # Errors
    /// Returns an error if the embedder cannot be built.
    pub fn build(&self, device: &Device) -> Result<DiversityBonus, TrainError> {
        let diversity = build(SECTION, self.measure, self.embedder.as_ref(), device)?;
        Ok(DiversityBonus::new(self.weight, diversity))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        in_range("diversity_bonus.weight", self.weight, 0.0..=1e6)?;
        check(SECTION, self.measure, self.embedder.as_ref())
    }
}

/// Name of the bonus in metrics and in the list of reward terms.
pub(crate) const BONUS: &str = "diversity_bonus";

/// Diversity bonus configured by [`DiversityBonusConfig`].
#[derive(Clone, Debug)]
pub struct DiversityBonus {
    weight: f64,
    diversity: Diversity,
}

impl DiversityBonus {
    /// Creates a bonus with the given weight.
    pub fn new(weight: f64, diversity: Diversity) -> Self {
        Self { weight, diversity }
    }

    /// Sets the bonus for each valid completion. Completions without a reward are still included in
    /// the distances.
    ///
    /// # Errors
    /// Returns an error if a text cannot be embedded.
    pub(crate) fn add(&self, groups: &mut [Group]) -> Result<(), TrainError> {
        for group in groups {
            let texts: Vec<&str> = group.samples.iter().map(|sample| &*sample.text).collect();
            let distances = self.diversity.of_each(&texts)?;
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

        let failed = Outcome::Failed { reason: "no".to_owned() };
        let validity = |valid: f64| {
            let parts = vec![("looks.valid".into(), valid)];
            Outcome::Scored(Scored::new(vec![(1.0, valid)], parts))
        };
        let outcomes = [scored(0.5), validity(1.0), validity(0.0), failed, Outcome::Abstained];
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
        config(DiversityMeasure::Semantic, hashed()).check().unwrap();
        config(DiversityMeasure::Bleu, None).check().unwrap();
        for (config, expected) in [
            (
                config(DiversityMeasure::Semantic, None),
                "diversity_bonus.measure = \"semantic\" requires an embedder; set for example diversity_bonus.embedder = { type = \"hashed_ngrams\" }, or use another measure",
            ),
            (
                config(DiversityMeasure::Distinct, hashed()),
                "diversity_bonus.embedder is only valid for the measure \"semantic\"; remove it",
            ),
        ] {
            assert_eq!(config.check().unwrap_err().to_string(), expected);
        }
        let negative =
            DiversityBonusConfig { weight: -0.1, ..config(DiversityMeasure::Bleu, None) };
        assert!(negative.check().is_err());
    }
}
