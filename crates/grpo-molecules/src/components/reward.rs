//! The reward that combines all components.

use std::path::Path;
use std::sync::Arc;

use grpo_chem::{InvalidSmiles, Molecule};
use grpo_rewards::{Desirability, ExternalCalls, Outcome, PartName, Reward, RewardInput, Scored};
use rayon::prelude::*;
use serde_json::{Map, Value};

use super::aggregation::Aggregation;
use super::expression::Expression;
use super::property::Property;

/// Scores molecules by several properties.
///
/// Each component maps a property to a desirability between 0 and 1. The score is the mean of all
/// desirabilities, or 0 if the molecule does not pass a filter. Invalid SMILES have a score of 0.
///
/// The reported components are `valid` (1 or 0) and, for valid molecules, `NAME` (the desirability)
/// and `NAME.raw` (the property).
pub(super) struct ComponentsReward {
    pub(super) components: Vec<Component>,
    pub(super) aggregation: Aggregation,
}

/// A property and its desirability.
pub(super) struct Component {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) transform: Desirability,
    pub(super) role: Role,
}

/// Where the value of a component comes from.
pub(super) enum Source {
    /// A property of the molecule.
    Property(Property),
    /// The total of another reward, which is only computed for valid molecules.
    External(Arc<dyn Reward>),
    /// A function of the properties of preceding components.
    Expression(Expression),
}

/// How a component affects the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// It is part of the mean with this weight. The weights sum to 1.
    Score(f64),
    /// The score is 0 if the desirability is less than [`PASS`].
    Filter,
}

/// Lowest desirability that passes a filter.
const PASS: f64 = 0.5;

/// The property of each component. `None` for values that are not computed from the molecule.
type Properties = Vec<Option<f64>>;

impl Reward for ComponentsReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let properties: Vec<Result<Properties, InvalidSmiles>> =
            samples.par_iter().map(|sample| self.properties(&sample.text)).collect();
        let valid = properties.iter().zip(samples).filter(|(properties, _)| properties.is_ok());
        let valid: Vec<RewardInput> = match self.external().next() {
            Some(_) => valid.map(|(_, sample)| sample.clone()).collect(),
            None => Vec::new(),
        };
        let mut external: Vec<_> =
            self.external().map(|(_, reward)| reward.score(&valid).into_iter()).collect();
        let outcome = |(properties, sample): (Result<Properties, InvalidSmiles>, &RewardInput)| {
            match properties {
                Ok(properties) => {
                    let answers = external.iter_mut().map(Iterator::next);
                    self.scored(properties, answers.collect())
                }
                // The molecule may be valid but unsupported by the toolkit, so the policy must not
                // be penalized.
                Err(
                    error
                    @ (InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }),
                ) => Outcome::Failed { reason: format!("{}: {error}", sample.text) },
                Err(_) => {
                    let terms = self.aggregation.terms(&self.weighted(|_| 0.0), 1.0);
                    Outcome::Scored(Scored::new(terms, vec![("valid".into(), 0.0)]))
                }
            }
        };
        properties.into_iter().zip(samples).map(outcome).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        let of_components =
            self.components.iter().flat_map(|Component { name, .. }| [name.clone(), raw(name)]);
        ["valid".to_owned()].into_iter().chain(of_components).map(PartName::from).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        let scores = self.components.iter().filter(|component| component.role != Role::Filter);
        self.aggregation.term_names(scores.map(|component| component.name.clone()))
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        self.external().try_for_each(|(component, reward)| {
            reward.check(fields).map_err(|fault| format!("component '{}': {fault}", component.name))
        })
    }

    fn is_deterministic(&self) -> bool {
        self.external().all(|(_, reward)| reward.is_deterministic())
    }

    fn fails_as_a_whole(&self) -> bool {
        self.external().any(|(_, reward)| reward.fails_as_a_whole())
    }

    fn uses_identity(&self) -> bool {
        self.external().any(|(_, reward)| reward.uses_identity())
    }

    fn take_calls(&self) -> Option<ExternalCalls> {
        ExternalCalls::merged(self.external().filter_map(|(_, reward)| reward.take_calls()))
    }

    fn keep_output_in(&self, folder: &Path) {
        self.external().for_each(|(_, reward)| reward.keep_output_in(folder));
    }
}

impl ComponentsReward {
    /// Returns the components with an external reward.
    fn external(&self) -> impl Iterator<Item = (&Component, &Arc<dyn Reward>)> {
        self.components.iter().filter_map(|component| match &component.source {
            Source::External(reward) => Some((component, reward)),
            Source::Property(_) | Source::Expression(_) => None,
        })
    }

    /// Computes all properties of a molecule.
    fn properties(&self, smiles: &str) -> Result<Properties, InvalidSmiles> {
        let molecule = Molecule::parse(smiles)?;
        let value = |component: &Component| match &component.source {
            Source::Property(property) => property.of(&molecule).map(Some),
            Source::External(_) | Source::Expression(_) => Ok(None),
        };
        self.components.iter().map(value).collect()
    }

    /// Returns the outcome of a valid molecule. `answers` has one outcome per external reward.
    fn scored(&self, properties: Properties, answers: Vec<Option<Outcome>>) -> Outcome {
        let mut answers = answers.into_iter();
        let mut raws: Vec<f64> = Vec::with_capacity(properties.len());
        let mut abstained = false;
        for (component, property) in self.components.iter().zip(properties) {
            let raw = match &component.source {
                Source::Property(_) => Ok(property.unwrap_or(f64::NAN)),
                Source::Expression(expression) => expression.of(&raws),
                Source::External(_) => match answers.next().flatten() {
                    Some(Outcome::Scored(scored)) => Ok(scored.total),
                    Some(Outcome::Abstained) => {
                        abstained = true;
                        Ok(0.0)
                    }
                    Some(Outcome::Failed { reason }) => Err(reason),
                    None => Err("the reward returned too few outcomes".to_owned()),
                },
            };
            match raw {
                Ok(raw) if raw.is_finite() => raws.push(raw),
                Ok(raw) => return component.failed(&format!("its value is {raw}")),
                Err(reason) => return component.failed(&reason),
            }
        }
        if abstained {
            return Outcome::Abstained;
        }
        let scores: Vec<f64> = self
            .components
            .iter()
            .zip(&raws)
            .map(|(component, raw)| component.transform.score(*raw))
            .collect();
        let passes = |(component, score): (&Component, &f64)| {
            component.role != Role::Filter || *score >= PASS
        };
        let gate = f64::from(self.components.iter().zip(&scores).all(passes));
        let terms = self.aggregation.terms(&self.weighted(|index| scores[index]), gate);
        let values = self.components.iter().zip(scores.iter().zip(&raws));
        let parts = values.flat_map(|(Component { name, .. }, (score, value))| {
            [(PartName::from(name.clone()), *score), (raw(name).into(), *value)]
        });
        let parts = [("valid".into(), 1.0)].into_iter().chain(parts).collect();
        Outcome::Scored(Scored::new(terms, parts))
    }

    /// Returns the weight and score of each component that is part of the mean.
    fn weighted(&self, score: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        let weights = self.components.iter().enumerate();
        weights
            .filter_map(|(index, component)| match component.role {
                Role::Score(weight) => Some((weight, score(index))),
                Role::Filter => None,
            })
            .collect()
    }
}

impl Component {
    fn failed(&self, reason: &str) -> Outcome {
        Outcome::Failed { reason: format!("component '{}': {reason}", self.name) }
    }
}

/// Returns the name under which the property of a component is reported.
fn raw(name: &str) -> String {
    format!("{name}.raw")
}
