//! Adds identities to the inputs of a reward, and validity to its outcomes.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::identity::VALID;
use crate::{ExternalCalls, Identify, Identity, Outcome, PartName, Reward, RewardInput, Votes};

/// A reward whose inputs have identities, and whose outcomes have the component `valid`.
pub struct IdentifiedReward {
    reward: Arc<dyn Reward>,
    identify: Identify,
    /// Whether `reward` does not report `valid` itself.
    adds_validity: bool,
    /// Whether each completion is identified, and not only those without a score.
    identifies_all: bool,
}

impl fmt::Debug for IdentifiedReward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifiedReward").field("adds_validity", &self.adds_validity).finish()
    }
}

impl IdentifiedReward {
    /// Adds identities to the inputs of a reward, `valid` to its components, and validity to outcomes
    /// without a score. What the reward does not need is only computed for the latter.
    pub fn wrap(reward: Arc<dyn Reward>, identify: Identify) -> Arc<dyn Reward> {
        let adds_validity = !reward.parts().iter().any(|name| name == VALID);
        let identifies_all = adds_validity || reward.uses_identity();
        Arc::new(Self { reward, identify, adds_validity, identifies_all })
    }

    /// Scores completions with their identities.
    fn scored_with_identities(
        &self,
        samples: &[RewardInput],
        score: impl Fn(&[RewardInput]) -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        let texts: Vec<&str> = samples.iter().map(|sample| sample.text.as_str()).collect();
        let identities = (self.identify)(&texts);
        let mut inputs = samples.to_vec();
        for (input, identity) in inputs.iter_mut().zip(identities) {
            input.identity = identity;
        }
        let mut outcomes = score(&inputs);
        for (outcome, input) in outcomes.iter_mut().zip(&inputs) {
            let Some(is_valid) = input.identity.is_valid() else { continue };
            match outcome {
                Outcome::Scored(scored) if self.adds_validity => {
                    scored.parts.push((VALID.into(), f64::from(u8::from(is_valid))));
                }
                outcome => outcome.set_validity(is_valid),
            }
        }
        outcomes
    }

    /// Adds identities to the inputs of `score` and validity to its outcomes, as far as they are needed.
    fn scored(
        &self,
        samples: &[RewardInput],
        score: impl Fn(&[RewardInput]) -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        if self.identifies_all {
            return self.scored_with_identities(samples, score);
        }
        let mut outcomes = score(samples);
        let unscored = outcomes.iter_mut().zip(samples).filter(|(of, _)| of.total().is_none());
        let (unscored, texts): (Vec<&mut Outcome>, Vec<&str>) =
            unscored.map(|(outcome, sample)| (outcome, sample.text.as_str())).unzip();
        for (outcome, identity) in unscored.into_iter().zip((self.identify)(&texts)) {
            identity.is_valid().into_iter().for_each(|is_valid| outcome.set_validity(is_valid));
        }
        outcomes
    }
}

impl Reward for IdentifiedReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        self.scored(samples, |inputs| self.reward.score(inputs))
    }

    fn score_group(&self, group: &[RewardInput]) -> Vec<Outcome> {
        self.scored(group, |inputs| self.reward.score_group(inputs))
    }

    fn is_relative(&self) -> bool {
        self.reward.is_relative()
    }

    fn parts(&self) -> Vec<PartName> {
        let valid = self.adds_validity.then(|| VALID.into());
        self.reward.parts().into_iter().chain(valid).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        self.reward.term_names()
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        self.reward.check(fields)
    }

    fn doubt(&self, fields: &Map<String, Value>) -> Option<String> {
        self.reward.doubt(fields)
    }

    fn answer(&self) -> Option<&dyn Votes> {
        self.reward.answer()
    }

    fn is_deterministic(&self) -> bool {
        self.reward.is_deterministic()
    }

    fn fails_as_a_whole(&self) -> bool {
        self.reward.fails_as_a_whole()
    }

    fn uses_identity(&self) -> bool {
        self.reward.uses_identity()
    }

    fn identities(&self, texts: &[&str]) -> Vec<Identity> {
        (self.identify)(texts)
    }

    fn scores_invalid(&self) -> bool {
        self.reward.scores_invalid()
    }

    fn cancel(&self) {
        self.reward.cancel();
    }

    fn keep_output_in(&self, folder: &Path) {
        self.reward.keep_output_in(folder);
    }

    fn take_calls(&self) -> Option<ExternalCalls> {
        self.reward.take_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scored;

    /// Texts in upper case are valid. Their lower-case form identifies them.
    fn identities(texts: &[&str]) -> Vec<Identity> {
        let identity = |text: &&str| match text.chars().next() {
            Some(first) if first.is_uppercase() => Identity::Canonical(text.to_lowercase()),
            Some(_) => Identity::Invalid,
            None => Identity::Unknown,
        };
        texts.iter().map(identity).collect()
    }

    struct Given {
        parts: &'static [&'static str],
        uses_identity: bool,
    }

    impl Reward for Given {
        fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
            let of = |sample: &RewardInput| {
                let is_valid = matches!(sample.identity, Identity::Canonical(_));
                let parts = self.parts.iter().map(|name| ((*name).into(), 7.0)).collect();
                Outcome::Scored(Scored::new(vec![(1.0, f64::from(u8::from(is_valid)))], parts))
            };
            samples.iter().map(of).collect()
        }

        fn parts(&self) -> Vec<PartName> {
            self.parts.iter().map(|name| (*name).into()).collect()
        }

        fn uses_identity(&self) -> bool {
            self.uses_identity
        }
    }

    fn wrapped(parts: &'static [&'static str], uses_identity: bool) -> Arc<dyn Reward> {
        IdentifiedReward::wrap(Arc::new(Given { parts, uses_identity }), identities)
    }

    #[test]
    fn validity_is_added_where_it_is_known_and_missing() {
        let inputs = ["A", "b", ""].map(RewardInput::from);
        let reward = wrapped(&["dock"], true);
        assert_eq!(reward.parts(), ["dock", "valid"]);
        let outcomes = reward.score(&inputs);
        let validity: Vec<_> = outcomes.iter().map(|outcome| outcome.part("valid")).collect();
        assert_eq!(validity, [Some(1.0), Some(0.0), None]);
        let totals: Vec<_> = outcomes.iter().map(Outcome::total).collect();
        assert_eq!(totals, [Some(1.0), Some(0.0), Some(0.0)], "the reward sees the identities");
        let own = wrapped(&["valid"], true);
        assert_eq!(own.parts(), ["valid"]);
        assert_eq!(own.score(&inputs)[1].part("valid"), Some(7.0), "its own validity counts");
        let neither = wrapped(&["valid"], false);
        assert_eq!(neither.score(&inputs)[0].total(), Some(0.0), "texts are not parsed in vain");
    }
}
