//! The best completions of a run.

use grpo_data::Group;
use grpo_rewards::{Identify, Identity};
use grpo_run::BestSample;

/// Collects the highest-reward distinct completions of a run.
///
/// Completions are distinct if their canonical forms differ. Only the first occurrence of a
/// completion is kept. Among equal rewards, earlier completions rank higher.
pub struct BestSamples {
    most: usize,
    identify: Identify,
    /// Sorted from best to worst.
    samples: Vec<BestSample>,
}

impl BestSamples {
    /// Creates an empty collection of at most `most` completions.
    pub fn new(most: usize, identify: Identify) -> Self {
        Self { most, identify, samples: Vec::new() }
    }

    /// Returns the completions from best to worst.
    pub fn samples(&self) -> &[BestSample] {
        &self.samples
    }

    /// Replaces the completions with saved ones.
    pub(crate) fn restore(&mut self, samples: Vec<BestSample>) {
        self.samples = samples;
        self.samples.truncate(self.most);
    }

    /// Adds the scored completions of a step.
    pub(crate) fn observe(&mut self, groups: &[Group], step: u32) {
        // Only completions that can enter a full collection are identified.
        let least = match self.samples.last() {
            Some(last) if self.samples.len() >= self.most => last.reward,
            _ => f64::NEG_INFINITY,
        };
        let scored = groups.iter().flat_map(|group| &group.samples).filter_map(|sample| {
            let scored = sample.scored()?;
            (scored.total > least).then_some((sample.text.as_str(), scored))
        });
        let (texts, scored): (Vec<&str>, Vec<_>) = scored.unzip();
        for (identity, scored) in (self.identify)(&texts).into_iter().zip(scored) {
            let Identity::Canonical(text) = identity else { continue };
            if self.samples.iter().any(|known| known.text == text) {
                continue;
            }
            let parts = scored.parts.iter().map(|(name, value)| (name.to_string(), *value));
            let (reward, parts) = (scored.total, parts.collect());
            self.samples.push(BestSample { text, step, reward, parts });
        }
        // A stable sort, so that earlier completions stay ahead.
        self.samples.sort_by(|a, b| b.reward.total_cmp(&a.reward));
        self.samples.truncate(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_data::{Outcome, Scored};
    use proptest::prelude::*;

    /// Texts with the same letters are equivalent; texts that contain `x` are invalid.
    fn identities(texts: &[&str]) -> Vec<Identity> {
        let identity = |text: &&str| {
            let mut letters: Vec<char> = text.chars().collect();
            letters.sort_unstable();
            match text.contains('x') {
                true => Identity::Invalid,
                false => Identity::Canonical(letters.into_iter().collect()),
            }
        };
        texts.iter().map(identity).collect()
    }

    fn group(samples: &[(String, f64)]) -> Group {
        let scored = |reward: f64| {
            let parts = vec![("part".into(), 2.0 * reward)];
            Outcome::Scored(Scored::new(vec![(1.0, reward)], parts))
        };
        let outcomes = samples.iter().map(|(_, reward)| scored(*reward)).collect();
        let mut group = crate::test_groups::group(outcomes);
        for (sample, (text, _)) in group.samples.iter_mut().zip(samples) {
            sample.text.clone_from(text);
        }
        group
    }

    proptest! {
        /// A plain search over all samples of the run.
        #[test]
        fn the_best_distinct_samples_are_kept(
            steps in prop::collection::vec(
                prop::collection::vec(("[abx]{1,3}", 0u8..6), 1..6), 1..6),
            most in 1usize..6,
        ) {
            let mut best = BestSamples::new(most, identities);
            let mut all: Vec<(String, u32, f64)> = Vec::new();
            for (step, samples) in (1u32..).zip(&steps) {
                // The reward is a function of the identity.
                let samples: Vec<(String, f64)> = samples
                    .iter()
                    .map(|(text, _)| (text.clone(), text.matches('a').count() as f64))
                    .collect();
                best.observe(&[group(&samples)], step);
                for (text, reward) in samples {
                    let Identity::Canonical(text) = identities(&[&text]).remove(0) else { continue };
                    if all.iter().all(|(known, ..)| *known != text) {
                        all.push((text, step, reward));
                    }
                }
            }
            all.sort_by(|a, b| b.2.total_cmp(&a.2));
            all.truncate(most);
            let got: Vec<(String, u32, f64)> = best
                .samples()
                .iter()
                .map(|sample| (sample.text.clone(), sample.step, sample.reward))
                .collect();
            prop_assert_eq!(&got, &all);
            for sample in best.samples() {
                prop_assert_eq!(sample.parts["part"], 2.0 * sample.reward);
            }
        }
    }
}
