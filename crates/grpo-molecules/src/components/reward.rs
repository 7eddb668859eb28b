//! The reward that combines all components.

use std::path::Path;
use std::sync::Arc;

use grpo_chem::InvalidSmiles;
use grpo_rewards::{Desirability, ExternalCalls, Outcome, PartName, Reward, RewardInput, Scored};
use rayon::prelude::*;
use serde_json::{Map, Value};

use super::aggregation::Aggregation;
use super::expression::Expression;
use super::property::Property;
use crate::identity::scored_molecule;

/// Scores molecules by several properties.
///
/// Each component maps a property to a desirability between 0 and 1. The score is the mean of all
/// desirabilities, or 0 if the molecule does not pass a filter. Invalid SMILES have a score of 0.
///
/// The reported components are `valid` (1 or 0) and, for valid molecules, `NAME` (the desirability)
/// and `NAME.raw` (the property).
///
/// External rewards are expensive, so they only score molecules that pass all filters that do not
/// depend on them. External filters precede other external rewards. A molecule that does not pass
/// lacks the components that were not computed.
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

/// What is known of a valid molecule.
struct Partial {
    /// The property of each component, if it has been computed.
    values: Vec<Option<f64>>,
    /// Whether an external reward has scored the molecule.
    is_counted: bool,
    end: Option<End>,
}

/// Why no more components of a molecule are computed.
enum End {
    /// It does not pass a filter.
    Rejected,
    /// An external reward abstained.
    Abstained,
    /// A component has no value.
    Failed(String),
}

impl Reward for ComponentsReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let mut molecules: Vec<Result<Partial, InvalidSmiles>> =
            samples.par_iter().map(|sample| self.computed(&sample.text)).collect();
        for (index, reward) in self.external_by_stage() {
            let mut open: Vec<&mut Partial> = Vec::new();
            let mut inputs: Vec<RewardInput> = Vec::new();
            for (molecule, sample) in molecules.iter_mut().zip(samples) {
                if let Ok(molecule) = molecule
                    && molecule.end.is_none()
                {
                    open.push(molecule);
                    inputs.push(sample.clone());
                }
            }
            if inputs.is_empty() {
                break;
            }
            let mut outcomes = reward.score(&inputs).into_iter();
            for molecule in open {
                molecule.is_counted = true;
                self.answer(molecule, index, outcomes.next());
            }
        }
        let outcome = |(molecule, sample): (Result<Partial, InvalidSmiles>, &RewardInput)| {
            match molecule {
                Ok(molecule) => self.scored(molecule),
                // The molecule may be valid but unsupported by the toolkit, so the policy must not
                // be penalized.
                Err(
                    error
                    @ (InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }),
                ) => Outcome::failed(format!("{}: {error}", sample.text)),
                Err(_) => {
                    let terms = self.aggregation.terms(&self.weighted(|_| 0.0), 1.0);
                    Outcome::Scored(Scored::new(terms, vec![("valid".into(), 0.0)]))
                }
            }
        };
        molecules.into_iter().zip(samples).map(outcome).collect()
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

    fn cancel(&self) {
        self.external().for_each(|(_, reward)| reward.cancel());
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

    /// Returns the indices of the external rewards in the order in which they are asked: filters
    /// first.
    fn external_by_stage(&self) -> Vec<(usize, &Arc<dyn Reward>)> {
        let external = self.components.iter().enumerate().filter_map(|(index, component)| {
            let Source::External(reward) = &component.source else { return None };
            Some((component.role != Role::Filter, index, reward))
        });
        let mut external: Vec<_> = external.collect();
        external.sort_by_key(|(is_last, index, _)| (*is_last, *index));
        external.into_iter().map(|(_, index, reward)| (index, reward)).collect()
    }

    /// Computes everything that does not depend on external rewards.
    fn computed(&self, smiles: &str) -> Result<Partial, InvalidSmiles> {
        let molecule = scored_molecule(smiles)?;
        let value = |component: &Component| match &component.source {
            Source::Property(property) => property.of(&molecule).map(Some),
            Source::External(_) | Source::Expression(_) => Ok(None),
        };
        let values = self.components.iter().map(value).collect::<Result<Vec<_>, _>>()?;
        let mut partial = Partial { values, is_counted: false, end: None };
        self.complete(&mut partial);
        Ok(partial)
    }

    /// Adds the outcome of an external reward.
    fn answer(&self, molecule: &mut Partial, index: usize, outcome: Option<Outcome>) {
        let failed = |reason: &str| Some(End::Failed(self.components[index].failed(reason)));
        match outcome {
            Some(Outcome::Scored(scored)) => {
                molecule.values[index] = Some(scored.total);
                self.complete(molecule);
            }
            Some(Outcome::Abstained { .. }) => molecule.end = Some(End::Abstained),
            Some(Outcome::Failed { reason, .. }) => molecule.end = failed(&reason),
            None => molecule.end = failed("the reward returned too few outcomes"),
        }
    }

    /// Evaluates all expressions whose values are known, and the filters.
    fn complete(&self, molecule: &mut Partial) {
        for (index, component) in self.components.iter().enumerate() {
            if let (Source::Expression(expression), None) =
                (&component.source, molecule.values[index])
                && expression.used().iter().all(|used| molecule.values[*used].is_some())
            {
                let known = molecule.values[..index].iter().map(|value| value.unwrap_or(0.0));
                match expression.of(&known.collect::<Vec<f64>>()) {
                    Ok(value) => molecule.values[index] = Some(value),
                    Err(reason) => {
                        molecule.end = Some(End::Failed(component.failed(&reason)));
                        return;
                    }
                }
            }
            if let Some(value) = molecule.values[index].filter(|value| !value.is_finite()) {
                let reason = component.failed(&format!("its value is {value}"));
                molecule.end = Some(End::Failed(reason));
                return;
            }
        }
        let mut values = self.components.iter().zip(&molecule.values);
        let is_rejected = values.any(|(component, value)| {
            let fails = |value: &f64| component.transform.score(*value) < PASS;
            component.role == Role::Filter && value.as_ref().is_some_and(fails)
        });
        if is_rejected {
            molecule.end = Some(End::Rejected);
        }
    }

    /// Returns the outcome of a valid molecule.
    fn scored(&self, molecule: Partial) -> Outcome {
        let gate = match molecule.end {
            Some(End::Failed(reason)) => return Outcome::failed(reason),
            Some(End::Abstained) => return Outcome::abstained(),
            Some(End::Rejected) => 0.0,
            None => 1.0,
        };
        let components = self.components.iter().zip(&molecule.values);
        let scores: Vec<Option<f64>> = components
            .map(|(component, value)| value.map(|value| component.transform.score(value)))
            .collect();
        let weighted = self.weighted(|index| scores[index].unwrap_or(0.0));
        let terms = self.aggregation.terms(&weighted, gate);
        let mut parts: Vec<(PartName, f64)> = vec![("valid".into(), 1.0)];
        for ((Component { name, .. }, score), value) in
            self.components.iter().zip(&scores).zip(&molecule.values)
        {
            if let Some((score, value)) = score.zip(*value) {
                parts.push((name.clone().into(), score));
                parts.push((raw(name).into(), value));
            }
        }
        let uncounted = gate == 0.0 && !molecule.is_counted;
        Outcome::Scored(Scored { uncounted, ..Scored::new(terms, parts) })
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
    /// Returns the reason for a failure with the name of the component.
    fn failed(&self, reason: &str) -> String {
        format!("component '{}': {reason}", self.name)
    }
}

/// Returns the name under which the property of a component is reported.
fn raw(name: &str) -> String {
    format!("{name}.raw")
}
