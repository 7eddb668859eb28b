//! A bonus for completions that are unlike the others of their group.

use burn::tensor::Device;
use grpo_data::ConfigFault;
use grpo_rewards::{EmbedderConfig, Outcome};
use grpo_text::{Diversity, DiversityMeasure};
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::diversity_measure::{build, check};
use crate::error::in_range;

/// The section `[diversity_bonus]`: `r_i += weight · d_i`, with d_i the mean distance of completion i to the others of its
/// group ([`Diversity::of_each`]).
///
/// It is reward shaping, before rewards become advantages: what is added to the loss as a number has no gradient.
///
/// Where no vector can be made of a completion, the run ends, and it is not that completion alone that has no score: the
/// distances of all of its group are not known then. Only an encoder whose numbers are not finite comes to that, so that
/// the next completion would be no better. No program of the user's is asked, so that there is no time limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiversityBonusConfig {
    /// What a distance of 1 is worth.
    pub weight: f64,
    /// Which distance.
    #[serde(default = "default_measure")]
    pub measure: DiversityMeasure,
    /// What makes vectors of texts, for the measure `semantic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedder: Option<EmbedderConfig>,
}

const SECTION: &str = "diversity_bonus";

fn default_measure() -> DiversityMeasure {
    DiversityMeasure::Semantic
}

impl DiversityBonusConfig {
    /// The bonus; the model of an embedder is read, and lives on `device`.
    ///
    /// # Errors
    /// An embedder that cannot be built.
    pub fn build(&self, device: &Device) -> Result<DiversityBonus, TrainError> {
        let diversity = build(SECTION, self.measure, self.embedder.as_ref(), device)?;
        Ok(DiversityBonus::new(self.weight, diversity))
    }

    pub(crate) fn check(&self) -> Result<(), ConfigFault> {
        in_range("diversity_bonus.weight", self.weight, 0.0..=1e6)?;
        check(SECTION, self.measure, self.embedder.as_ref())
    }
}

/// The name of the bonus among the parts of a reward.
pub(crate) const PART: &str = "diversity_bonus";

/// See [`DiversityBonusConfig`].
#[derive(Clone, Debug)]
pub struct DiversityBonus {
    weight: f64,
    diversity: Diversity,
}

impl DiversityBonus {
    /// `weight` as in the section, by `diversity`'s measure.
    pub fn new(weight: f64, diversity: Diversity) -> Self {
        Self { weight, diversity }
    }

    /// Adds its part to every outcome that is a score. `texts` are those of `outcomes`, and both are group by group, each
    /// of `group_size`. A completion without a score is still one that others can be unlike.
    ///
    /// # Errors
    /// A text that no vector can be made of.
    pub(crate) fn add(
        &self,
        outcomes: &mut [Outcome],
        texts: &[String],
        group_size: usize,
    ) -> Result<(), TrainError> {
        for (outcomes, texts) in outcomes.chunks_mut(group_size).zip(texts.chunks(group_size)) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let distances = self.diversity.of_each(&texts)?;
            for (outcome, distance) in outcomes.iter_mut().zip(distances) {
                if let Outcome::Scored(scored) = outcome {
                    scored.terms.push((self.weight, distance));
                    scored.parts.push((PART.into(), distance));
                    scored.total += self.weight * distance;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grpo_rewards::Scored;
    use grpo_text::{Embedder, HashedNgrams, cosine};

    use super::*;

    fn bonus(weight: f64) -> DiversityBonus {
        let embedder: Arc<dyn Embedder> = Arc::new(HashedNgrams::new(64));
        let measure = DiversityMeasure::Semantic;
        DiversityBonus::new(weight, Diversity::new(measure, Some(embedder)).unwrap())
    }

    fn scored(total: f64) -> Outcome {
        Outcome::Scored(Scored::new(vec![(1.0, total)], vec![("own".into(), total)]))
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// `r_i + w · mean_j (1 − cos_ij)` in loops, each group by itself.
    #[test]
    fn what_is_unlike_its_group_is_worth_more() {
        let texts = strings(&["red wine", "red vine", "a train", "a train", "no idea", "red"]);
        let rewards = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
        let mut outcomes = rewards.map(scored);
        bonus(0.5).add(&mut outcomes, &texts, 3).unwrap();
        let vectors = HashedNgrams::new(64)
            .embed(&texts.iter().map(String::as_str).collect::<Vec<_>>())
            .unwrap();
        for (place, outcome) in outcomes.iter().enumerate() {
            let group = place / 3 * 3..place / 3 * 3 + 3;
            let mut distance = 0.0;
            for other in group.filter(|other| *other != place) {
                distance += (1.0 - cosine(&vectors[place], &vectors[other])) / 2.0;
            }
            let part = outcome.part(PART).unwrap();
            assert!((part - distance).abs() < 1e-12, "{place}: {part}, expected {distance}");
            let total = outcome.total().unwrap();
            assert!((total - rewards[place] - 0.5 * distance).abs() < 1e-12, "{place}: {total}");
        }
        let Outcome::Scored(first) = &outcomes[0] else { panic!("it was scored") };
        let of_terms: f64 = first.terms.iter().map(|(weight, value)| weight * value).sum();
        assert!((first.total - of_terms).abs() < 1e-12);
    }

    #[test]
    fn equal_completions_have_none_and_failures_stay_failures() {
        let failed = Outcome::Failed { reason: "no".to_owned() };
        let mut outcomes = [scored(0.5), scored(0.5), failed.clone(), Outcome::Abstained];
        let texts = strings(&["the same", "the same", "other", "the same"]);
        bonus(1.0).add(&mut outcomes[..2], &texts[..2], 2).unwrap();
        assert_eq!(outcomes[0].part(PART).map(|part| part.abs() < 1e-6), Some(true));
        bonus(1.0).add(&mut outcomes, &texts, 4).unwrap();
        assert_eq!(outcomes[2..], [failed, Outcome::Abstained]);
        assert!(outcomes[0].total().unwrap() > 0.6, "it is unlike the one that failed");
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
                "diversity_bonus.measure = \"semantic\" compares vectors of texts: name what makes them, for example diversity_bonus.embedder = { type = \"hashed_ngrams\" }, or use another measure",
            ),
            (
                config(DiversityMeasure::Distinct, hashed()),
                "diversity_bonus.embedder is for the measure \"semantic\" alone; leave it out",
            ),
        ] {
            assert_eq!(config.check().unwrap_err().to_string(), expected);
        }
        let negative =
            DiversityBonusConfig { weight: -0.1, ..config(DiversityMeasure::Bleu, None) };
        assert!(negative.check().is_err());
    }
}
