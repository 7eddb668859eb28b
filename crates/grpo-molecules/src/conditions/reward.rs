//! A reward for molecules that meet the requested conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::Device;
use grpo_chem::InvalidSmiles;
use grpo_data::{ConfigFault, short_number};
use grpo_rewards::{Outcome, PartName, Reward, RewardInput, RewardSpec, Scored};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::accuracy::{errors, scaffold_similarity};
use super::{Asked, descriptor};
use crate::identity::scored_molecule;

/// The `[reward]` section with `type = "conditions"`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConditionsConfig {
    /// Weight of the scaffold.
    #[schemars(range(min = 0, max = 1e6))]
    scaffold: f64,
    /// For each property, the difference at which its score is 1/e. Required for properties other
    /// than `logp` (0.5), `tpsa` (8), `sas` (0.35) and `qed` (0.08).
    scales: BTreeMap<String, f64>,
}

/// Scales for the properties that MolGPT's models accept.
const SCALES: [(&str, f64); 4] = [("logp", 0.5), ("tpsa", 8.0), ("sas", 0.35), ("qed", 0.08)];

impl Default for ConditionsConfig {
    fn default() -> Self {
        Self { scaffold: 1.0, scales: BTreeMap::new() }
    }
}

impl ConditionsConfig {
    /// Returns all scales, including defaults.
    fn all_scales(&self) -> BTreeMap<String, f64> {
        let mut scales = self.scales.clone();
        for (name, scale) in SCALES {
            if !scales.keys().any(|other| descriptor(other) == descriptor(name)) {
                scales.insert(name.to_owned(), scale);
            }
        }
        scales
    }
}

impl RewardSpec for ConditionsConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        if !(0.0..=1e6).contains(&self.scaffold) {
            let expected = "0 to 1e6";
            return Err(ConfigFault::out_of_range("reward.scaffold", self.scaffold, expected));
        }
        for (name, scale) in &self.scales {
            let key = format!("reward.scales.{name}");
            if descriptor(name).is_none() {
                let message = format!("reward.scales has the unknown property '{name}'; remove it");
                return Err(ConfigFault::from_sentence(key, message));
            }
            if !(*scale > 0.0 && scale.is_finite()) {
                return ConfigFault::refuse(format!(
                    "{key} = {} is out of range; expected a finite number above 0",
                    short_number(*scale)
                ));
            }
        }
        Ok(())
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(ConditionsReward { scaffold: self.scaffold, scales: self.all_scales() }))
    }
}

/// Scores molecules by how closely they meet the conditions in their prompt. The score is the
/// weighted mean of `exp(−|asked − measured| / scale)` for each property and the similarity of the
/// scaffold. Invalid SMILES have a score of 0.
///
/// The reported components are `valid` (1 or 0) and, for valid molecules, `NAME_error`
/// (|asked − measured|) and `scaffold_similarity`, if they were requested.
pub(crate) struct ConditionsReward {
    scaffold: f64,
    scales: BTreeMap<String, f64>,
}

impl ConditionsReward {
    fn score_one(&self, input: &RewardInput) -> Result<Scored, InvalidSmiles> {
        let asked = Asked::of_fields(&input.fields);
        let molecule = scored_molecule(&input.text)?;
        let mut parts: Vec<(PartName, f64)> = vec![("valid".into(), 1.0)];
        let mut scores = Vec::new();
        for (name, error) in errors(&asked, &molecule)? {
            let Some((name, scale)) = self.scale(&name) else { continue };
            scores.push((1.0, (-error / scale).exp()));
            parts.push((format!("{name}_error").into(), error));
        }
        if let Some(scaffold) = &asked.scaffold {
            let similarity = scaffold_similarity(scaffold, &molecule)?;
            scores.push((self.scaffold, similarity));
            parts.push(("scaffold_similarity".into(), similarity));
        }
        let weights: f64 = scores.iter().map(|(weight, _)| weight).sum();
        let sum: f64 = scores.iter().map(|(weight, score)| weight * score).sum();
        let score = if weights > 0.0 { sum / weights } else { 0.0 };
        Ok(Scored::new(vec![(1.0, score)], parts))
    }

    fn scale(&self, name: &str) -> Option<(&str, f64)> {
        let scale = self.scales.iter().find(|(other, _)| descriptor(other) == descriptor(name))?;
        Some((scale.0, *scale.1))
    }
}

impl Reward for ConditionsReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let outcome = |input: &RewardInput| {
            if let Err(reason) = self.check(&input.fields) {
                return Outcome::failed(reason);
            }
            match self.score_one(input) {
                Ok(scored) => Outcome::Scored(scored),
                // The molecule may be valid but unsupported by the toolkit.
                Err(
                    error
                    @ (InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }),
                ) => Outcome::failed(format!("{}: {error}", input.text)),
                Err(_) => {
                    Outcome::Scored(Scored::new(vec![(1.0, 0.0)], vec![("valid".into(), 0.0)]))
                }
            }
        };
        samples.par_iter().map(outcome).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        let errors = self.scales.keys().map(|name| format!("{name}_error").into());
        [PartName::from("valid")]
            .into_iter()
            .chain(errors)
            .chain(["scaffold_similarity".into()])
            .collect()
    }

    fn check(&self, fields: &Map<String, Value>) -> Result<(), String> {
        let asked = Asked::of_fields(fields);
        if asked == Asked::default() {
            return Err("the prompt has no conditions, so reward.type = \"conditions\" cannot score it; add a [conditions] section".to_owned());
        }
        match asked.properties.iter().find(|(name, _)| self.scale(name).is_none()) {
            Some((name, _)) => {
                Err(format!("property {name} has no scale; set reward.scales.{name}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pays_for_what_was_asked() {
        let scales = BTreeMap::from([("tpsa".to_owned(), 10.0)]);
        let config = ConditionsConfig { scaffold: 3.0, scales };
        config.check().unwrap();
        let reward = config.build(&Device::flex()).unwrap();
        let asked = Asked::parse("tpsa=25.23,logp=1.3922").unwrap();
        let asked = asked.with_scaffold_of("c1ccccc1").unwrap();
        let input = |text: &str, asked: &Asked| RewardInput {
            fields: asked.fields(),
            ..RewardInput::from(text)
        };
        let inputs = [
            input("Oc1ccccc1", &asked),
            input("Oc1ccccc", &asked),
            input("Oc1ccccc1", &Asked::parse("logp=1.3922").unwrap()),
            input("Oc1ccccc1", &Asked::default()),
        ];
        let outcomes = reward.score(&inputs);
        // Phenol: TPSA 20.23, logP 1.3922. The scaffold has a weight of 3.
        let expected = ((-0.5_f64).exp() + 1.0 + 3.0) / 5.0;
        assert!((outcomes[0].total().unwrap() - expected).abs() < 1e-4, "{:?}", outcomes[0]);
        assert!((outcomes[0].part("tpsa_error").unwrap() - 5.0).abs() < 1e-6);
        assert_eq!(outcomes[0].part("scaffold_similarity"), Some(1.0));
        assert_eq!((outcomes[1].total(), outcomes[1].part("valid")), (Some(0.0), Some(0.0)));
        assert!((outcomes[2].total().unwrap() - 1.0).abs() < 1e-3);
        assert!(outcomes[3].failure().unwrap().contains("has no conditions"));
        let mass = Asked::parse("mw=100").unwrap();
        assert!(reward.check(&mass.fields()).unwrap_err().contains("reward.scales.mw"));
    }
}
