//! The oracles of the PMO benchmark as rewards.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_chem::pmo::Oracle;
use grpo_data::ConfigFault;
use grpo_rewards::{Outcome, PartName, Reward, RewardInput, RewardSpec, Scored};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::identity::scored_molecule;

/// Configuration of the reward type `pmo`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PmoConfig {
    /// Name of the oracle, e.g. `celecoxib_rediscovery`; `grpo bench-pmo --help` names those that
    /// are not included.
    task: String,
}

impl PmoConfig {
    fn oracle(&self) -> Result<Oracle, ConfigFault> {
        let oracle = Oracle::from_name(&self.task);
        oracle.or_else(|error| ConfigFault::refuse(format!("reward.task: {error}")))
    }
}

impl RewardSpec for PmoConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        self.oracle().map(|_| ())
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        Ok(Arc::new(PmoReward { oracle: self.oracle()? }))
    }
}

/// Scores molecules with an oracle, from 0 to 1. Like all rewards, it reads the largest fragment
/// without isotopes, which identifies the molecule in budgets and archives. Invalid SMILES have a score of 0. The reported
/// component is `valid` (1 or 0).
struct PmoReward {
    oracle: Oracle,
}

impl Reward for PmoReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        let score = |sample: &RewardInput| {
            let (valid, score) = match scored_molecule(&sample.text) {
                Ok(molecule) => (1.0, self.oracle.score(&molecule)),
                Err(_) => (0.0, 0.0),
            };
            Outcome::Scored(Scored::new(vec![(1.0, score)], vec![("valid".into(), valid)]))
        };
        samples.par_iter().map(score).collect()
    }

    fn parts(&self) -> Vec<PartName> {
        vec!["valid".into()]
    }

    fn term_names(&self) -> Vec<PartName> {
        vec![self.oracle.name().into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn molecules_have_the_score_of_the_oracle() {
        let config = PmoConfig { task: "celecoxib_rediscovery".to_owned() };
        let reward = config.build(&Device::default()).unwrap();
        let input = |text: &str| RewardInput { text: text.to_owned(), ..RewardInput::default() };
        let celecoxib = "CC1=CC=C(C=C1)C1=CC(=NN1C1=CC=C(C=C1)S(N)(=O)=O)C(F)(F)F";
        let scores: Vec<f64> = reward
            .score(&[input(celecoxib), input("CC"), input("C1CC")])
            .iter()
            .map(|outcome| outcome.total().unwrap())
            .collect();
        assert_eq!(scores[0], 1.0);
        assert!(scores[1] < 0.1);
        assert_eq!(scores[2], 0.0);
        let wrong = PmoConfig { task: "celecoxib".to_owned() };
        let fault = wrong.check().unwrap_err().to_string();
        assert!(fault.contains("celecoxib_rediscovery"), "{fault}");
    }
}
