//! Composite rewards, which combine weighted and transformed components.

mod config;
mod transform;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use self::config::{Composite, reserved_for};
pub use self::config::{CompositeConfig, CompositePart, check_part_names};
pub use self::transform::Transform;
use crate::identity::VALID;
use crate::{ExternalCalls, Outcome, PartName, Reward, RewardInput, Scored, Votes};

/// A weighted sum of rewards: `Σ weight · transform(score)`.
///
/// If the reward of a component fails for a completion, the composite reward also fails, and its
/// reason begins with the name of the component. If a component abstains, the composite reward
/// abstains. Treating the missing score as 0 or averaging the remaining components would change the
/// objective. `train.max_failed_rewards` limits the number of failures in a run.
///
/// Each component reports its weighted value under its `name`, the untransformed score as
/// `name.raw` if there is a transform, and the components of its reward as `name.part` if there are
/// several. If the rewards of some components report `valid`, the composite reward also reports
/// `valid`, which is their minimum. Guards and criteria can therefore always look up validity under
/// the same name.
pub struct CompositeReward {
    parts: Vec<Part>,
}

pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) weight: f64,
    pub(crate) transform: Transform,
    pub(crate) reward: Arc<dyn Reward>,
}

impl fmt::Debug for CompositeReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.parts.iter().map(|part| &part.name);
        f.debug_list().entries(names).finish()
    }
}

impl CompositeReward {
    /// Creates a reward from components with validated names and weights.
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self { parts }
    }
}

impl Reward for CompositeReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        self.scored(samples, |reward| reward.score(samples))
    }

    fn score_group(&self, group: &[RewardInput]) -> Vec<Outcome> {
        self.scored(group, |reward| reward.score_group(group))
    }

    fn is_relative(&self) -> bool {
        self.parts.iter().any(|part| part.reward.is_relative())
    }

    fn parts(&self) -> Vec<PartName> {
        let names = self.parts.iter().flat_map(Part::part_names);
        names.chain(self.shows_validity().then(|| VALID.into())).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        self.parts.iter().map(|part| part.name.clone().into()).collect()
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        self.parts.iter().try_for_each(|part| {
            part.reward.check(fields).map_err(|fault| format!("part '{}': {fault}", part.name))
        })
    }

    fn doubt(&self, fields: &Map<String, Value>) -> Option<String> {
        self.parts.iter().find_map(|part| {
            part.reward.doubt(fields).map(|why| format!("part '{}': {why}", part.name))
        })
    }

    fn answer(&self) -> Option<&dyn Votes> {
        self.parts.iter().find_map(|part| part.reward.answer())
    }

    fn is_deterministic(&self) -> bool {
        self.parts.iter().all(|part| part.reward.is_deterministic())
    }

    fn keep_output_in(&self, folder: &Path) {
        self.parts.iter().for_each(|part| part.reward.keep_output_in(folder));
    }

    fn fails_as_a_whole(&self) -> bool {
        self.parts.iter().any(|part| part.reward.fails_as_a_whole())
    }

    fn uses_identity(&self) -> bool {
        self.parts.iter().any(|part| part.reward.uses_identity())
    }

    fn scores_invalid(&self) -> bool {
        self.parts.iter().any(|part| part.reward.scores_invalid())
    }

    fn cancel(&self) {
        self.parts.iter().for_each(|part| part.reward.cancel());
    }

    fn take_calls(&self) -> Option<ExternalCalls> {
        ExternalCalls::merged(self.parts.iter().filter_map(|part| part.reward.take_calls()))
    }
}

impl CompositeReward {
    /// Combines the outcomes that `score` returns for each component.
    fn scored(
        &self,
        samples: &[RewardInput],
        score: impl Fn(&dyn Reward) -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        let of_parts: Vec<Vec<Outcome>> =
            self.parts.iter().map(|part| score(&*part.reward)).collect();
        // If a component returns the wrong number of outcomes, all completions fail.
        let wrong = self.parts.iter().zip(&of_parts).find(|(_, own)| own.len() != samples.len());
        if let Some((part, own)) = wrong {
            let reason = format!(
                "part '{}': the reward returned {} outcomes for {} completions",
                part.name,
                own.len(),
                samples.len()
            );
            return vec![Outcome::failed(reason); samples.len()];
        }
        let outcome = |index: usize| {
            let of_sample = of_parts.iter().map(|outcomes| &outcomes[index]);
            self.combined(&of_sample.collect::<Vec<&Outcome>>())
        };
        (0..samples.len()).map(outcome).collect()
    }

    /// Returns whether a component's reward reports [`VALID`] and no component of this reward has
    /// that name.
    fn shows_validity(&self) -> bool {
        let has_validity = |part: &Part| part.reward.parts().iter().any(|name| name == VALID);
        !self.parts.iter().any(|part| part.name == VALID) && self.parts.iter().any(has_validity)
    }

    /// Combines the outcomes of all components for a single completion.
    fn combined(&self, outcomes: &[&Outcome]) -> Outcome {
        let (mut terms, mut parts, mut abstained) = (Vec::new(), Vec::new(), false);
        let mut validity: Option<f64> = None;
        for (part, outcome) in self.parts.iter().zip(outcomes) {
            match outcome {
                Outcome::Failed { reason, .. } => return part.failed(reason),
                Outcome::Abstained { .. } => abstained = true,
                Outcome::Scored(scored) => match part.transform.of(scored.total) {
                    Ok(value) => {
                        terms.push((part.weight, value));
                        parts.extend(part.shown(value, scored));
                        let own = scored.parts.iter().filter(|(name, _)| name == VALID);
                        let own = own.map(|(_, value)| *value);
                        validity = own.chain(validity).reduce(f64::min);
                    }
                    Err(reason) => return part.failed(&reason),
                },
            }
        }
        if self.shows_validity() {
            parts.extend(validity.map(|valid| (VALID.into(), valid)));
        }
        if abstained { Outcome::abstained() } else { Outcome::Scored(Scored::new(terms, parts)) }
    }
}

impl Part {
    fn failed(&self, reason: &str) -> Outcome {
        Outcome::failed(format!("part '{}': {reason}", self.name))
    }

    fn part_names(&self) -> Vec<PartName> {
        let raw = (!self.transform.is_identity()).then(|| format!("{}.raw", self.name));
        let own = [self.name.clone()].into_iter().chain(raw);
        let inner = self.inner_names();
        let inner = inner.iter().map(|inner| format!("{}.{inner}", self.name));
        own.chain(inner).map(PartName::from).collect()
    }

    /// Returns the names of the inner reward's components if it has several.
    fn inner_names(&self) -> Vec<PartName> {
        let names = self.reward.parts();
        if names.len() > 1 { names } else { Vec::new() }
    }

    fn shown(&self, value: f64, scored: &Scored) -> Vec<(PartName, f64)> {
        let mut parts = vec![(self.name.clone().into(), value)];
        if !self.transform.is_identity() {
            parts.push((format!("{}.raw", self.name).into(), scored.total));
        }
        let inner = self.inner_names();
        let inner = scored.parts.iter().filter(|(name, _)| inner.contains(name));
        parts.extend(inner.map(|(name, value)| (format!("{}.{name}", self.name).into(), *value)));
        parts
    }
}

#[cfg(test)]
mod tests;
