//! Rewards for molecules: drug-likeness, synthetic accessibility, and logP.

use std::sync::Arc;

use burn::tensor::Device;
use grpo_chem::InvalidSmiles;
use grpo_data::{ConfigFault, short_number};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use grpo_rewards::{
    Outcome, PartName, Reward, RewardInput, RewardSpec, Scored, check_mean_weights,
};

use crate::identity::scored_molecule;

/// Settings of the reward `molecule`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoleculeConfig {
    /// Weight of QED.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1), extend("x-basic" = true))]
    qed: f64,
    /// Weight of (10 − SA)/9. RDKit's formula turns round at 8, so that some very hard molecules
    /// get a low SA; in rewards, they have 8. `grpo describe` prints RDKit's value.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1), extend("x-basic" = true))]
    sa: f64,
    /// Weight of the closeness of logP to `logp_centre`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1), extend("x-basic" = true))]
    logp: f64,
    /// LogP with the value 1.
    #[serde(default = "default_logp_centre")]
    logp_centre: f64,
    /// Distance at which the value is 0.
    #[serde(default = "default_logp_half_width")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    logp_half_width: f64,
}

fn default_logp_centre() -> f64 {
    2.5
}
fn default_logp_half_width() -> f64 {
    2.0
}

impl RewardSpec for MoleculeConfig {
    fn check(&self) -> Result<(), ConfigFault> {
        check_mean_weights(&[("qed", self.qed), ("sa", self.sa), ("logp", self.logp)])?;
        let (centre, half_width) = (self.logp_centre, self.logp_half_width);
        if !(half_width > 0.0 && half_width.is_finite() && centre.is_finite()) {
            return ConfigFault::refuse(format!(
                "reward.logp_half_width = {} is out of range; expected a finite number above 0, with a finite reward.logp_centre",
                short_number(half_width)
            ));
        }
        let of_logp = [
            ("logp_centre", centre, default_logp_centre()),
            ("logp_half_width", half_width, default_logp_half_width()),
        ];
        match of_logp.into_iter().find(|(_, value, default)| self.logp == 0.0 && value != default) {
            Some((key, value, _)) => ConfigFault::refuse(format!(
                "reward.{key} = {} has no effect because reward.logp is 0; remove it, or set a weight for reward.logp",
                short_number(value)
            )),
            None => Ok(()),
        }
    }

    fn build(&self, _: &Device) -> Result<Arc<dyn Reward>, ConfigFault> {
        let &Self { qed, sa, logp, logp_centre: centre, logp_half_width: half_width } = self;
        let window = LogpWindow { centre, half_width };
        Ok(Arc::new(MoleculeReward { qed, sa, logp, window }))
    }
}

/// Scores molecules with `w_qed · QED + w_sa · (10 − SA)/9 + w_logp · window(logP)`. Invalid SMILES
/// have a score of 0.
///
/// Of several fragments, only the largest is scored. Isotopes and atom maps are ignored.
///
/// All terms are between 0 and 1, so a valid molecule never scores less than an invalid string. The
/// reported components are `valid` (1 or 0) and, for valid molecules, `qed`, `sa` (the original
/// score, from 1 for easy to 10 for hard) and `logp` if it has a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoleculeReward {
    /// Weight of QED (Bickerton et al. 2012).
    pub qed: f64,
    /// Weight of the inverted SA score (Ertl & Schuffenhauer 2009). Molecules that are easy to
    /// synthesize have a value of 1.
    pub sa: f64,
    /// Weight of the logP window.
    pub logp: f64,
    /// The range of desired logP values.
    pub window: LogpWindow,
}

/// The function `1 − min(|logP − centre|, half_width)/half_width`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogpWindow {
    /// The logP at which the value is 1.
    pub centre: f64,
    /// The distance from the centre at which the value is 0.
    pub half_width: f64,
}

impl LogpWindow {
    /// Returns the value for a logP, between 0 and 1.
    pub fn score(&self, logp: f64) -> f64 {
        1.0 - (logp - self.centre).abs().min(self.half_width) / self.half_width
    }
}

impl Reward for MoleculeReward {
    fn score(&self, samples: &[RewardInput]) -> Vec<Outcome> {
        samples
            .par_iter()
            .map(|RewardInput { text: smiles, .. }| match self.score_one(smiles) {
                Ok(scored) => Outcome::Scored(scored),
                // The molecule may be valid but unsupported by the toolkit, so the policy must not
                // be penalized.
                Err(
                    error
                    @ (InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. }),
                ) => Outcome::failed(format!("{smiles}: {error}")),
                Err(_) => Outcome::Scored(Scored::new(
                    self.terms(0.0, 0.0, 0.0),
                    vec![("valid".into(), 0.0)],
                )),
            })
            .collect()
    }

    fn parts(&self) -> Vec<PartName> {
        let logp = (self.logp > 0.0).then_some("logp");
        ["valid", "qed", "sa"].into_iter().chain(logp).map(PartName::from).collect()
    }

    fn term_names(&self) -> Vec<PartName> {
        let all = [(self.qed, "qed"), (self.sa, "sa"), (self.logp, "logp")];
        all.into_iter().filter(|(weight, _)| *weight > 0.0).map(|(_, name)| name.into()).collect()
    }
}

impl MoleculeReward {
    fn score_one(&self, smiles: &str) -> Result<Scored, InvalidSmiles> {
        let molecule = scored_molecule(smiles)?;
        let (qed, sa) = (molecule.qed()?, molecule.monotonic_sa()?);
        let crippen = molecule.properties()?.logp;
        let mut parts = vec![("valid".into(), 1.0), ("qed".into(), qed), ("sa".into(), sa)];
        if self.logp > 0.0 {
            parts.push(("logp".into(), crippen));
        }
        let terms = self.terms(qed, (10.0 - sa) / 9.0, self.window.score(crippen));
        Ok(Scored::new(terms, parts))
    }

    /// Returns the weight and value of each term. All values are between 0 and 1.
    fn terms(&self, qed: f64, ease: f64, logp: f64) -> Vec<(f64, f64)> {
        let all = [(self.qed, qed), (self.sa, ease), (self.logp, logp)];
        all.into_iter().filter(|(weight, _)| *weight > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grpo_rewards::{RewardKind, RewardRegistry};

    const WINDOW: LogpWindow = LogpWindow { centre: 2.5, half_width: 2.0 };
    const QED_AND_SA: MoleculeReward =
        MoleculeReward { qed: 0.7, sa: 0.3, logp: 0.0, window: WINDOW };

    fn one(reward: &MoleculeReward, smiles: &str) -> Outcome {
        reward.score(&[smiles.into()]).remove(0)
    }

    #[test]
    fn aspirin_by_hand() {
        // RDKit computes a QED of 0.550122, an SA score of 1.580040 and a logP of 1.3101.
        let expected = 0.7 * 0.550_122 + 0.3 * (10.0 - 1.580_040) / 9.0;
        let got = one(&QED_AND_SA, "CC(=O)Oc1ccccc1C(=O)O");
        assert!((got.total().unwrap() - expected).abs() < 1e-5, "{got:?}");
        assert!((got.part("qed").unwrap() - 0.550_122).abs() < 1e-5);
        assert!((got.part("sa").unwrap() - 1.580_040).abs() < 1e-5);
        assert_eq!(got.part("valid"), Some(1.0));
        let window = 1.0 - (2.5 - 1.3101) / 2.0;
        for (qed, logp, expected) in
            [(0.0, 1.0, window), (0.7, 0.3, 0.7 * 0.550_122 + 0.3 * window)]
        {
            let reward = MoleculeReward { qed, sa: 0.0, logp, window: WINDOW };
            let got = one(&reward, "CC(=O)Oc1ccccc1C(=O)O").total().unwrap();
            assert!((got - expected).abs() < 1e-5, "{got}, expected {expected}");
        }
    }

    #[test]
    fn the_window_is_one_at_its_centre_and_zero_outside() {
        for (logp, expected) in [(2.5, 1.0), (1.5, 0.5), (4.5, 0.0), (-9.0, 0.0), (3.0, 0.75)] {
            assert!((WINDOW.score(logp) - expected).abs() < 1e-12, "logP {logp}");
        }
    }

    /// Acceptance test 8: a valid molecule scores at least as much as any invalid string, and
    /// molecules that are easier to synthesize score more.
    #[test]
    fn signs_of_the_reward() {
        for invalid in ["", "C(", "c1ccccc", "C1CC", "(C)", "<<", "CC)"] {
            let outcome = one(&QED_AND_SA, invalid);
            assert_eq!(outcome.total(), Some(0.0), "{invalid}");
            assert_eq!((outcome.part("valid"), outcome.part("qed")), (Some(0.0), None));
        }
        let worst_looking = "CCCCCCCCCCCCCCCCCCCCCCCCCCCCCC[N+](C)(C)C";
        assert!(one(&QED_AND_SA, worst_looking).total().unwrap() > 0.0);
        let only_sa = MoleculeReward { qed: 0.0, sa: 1.0, logp: 0.0, window: WINDOW };
        let easy = one(&only_sa, "CCO").total().unwrap();
        let hard = one(&only_sa, "C[C@]12CC[C@H]3[C@@H](CCC4=CC(=O)CC[C@@]34C)[C@@H]1CC[C@@H]2O");
        assert!(easy > hard.total().unwrap());
    }

    /// Neither a second fragment nor an isotope changes the reward.
    #[test]
    fn salts_and_labels_score_as_their_molecule() {
        for [molecule, other] in [
            ["CCN", "CCN.Cl"],
            ["CC(=O)Oc1ccccc1C(=O)O", "O.CC(=O)Oc1ccccc1C(=O)O.[Na+]"],
            ["CC", "CC.CC"],
            ["CCCCCCCC", "CCCCCCCC.CCCCCCC.CCCCCC"],
        ] {
            let logp = MoleculeReward { logp: 0.5, ..QED_AND_SA };
            assert_eq!(one(&logp, molecule), one(&logp, other), "{other}");
        }
    }

    #[test]
    fn parts_are_those_that_outcomes_have() {
        for reward in [QED_AND_SA, MoleculeReward { logp: 0.5, ..QED_AND_SA }] {
            let Outcome::Scored(scored) = one(&reward, "CCO") else { panic!("a molecule") };
            let names: Vec<PartName> = scored.parts.into_iter().map(|(name, _)| name).collect();
            assert_eq!(reward.parts(), names);
        }
    }

    #[test]
    fn a_batch_equals_separate_completions() {
        let batch = ["CCO", "C(", "c1ccccc1O", "CCO"];
        let alone = batch.map(|smiles| one(&QED_AND_SA, smiles));
        assert_eq!(QED_AND_SA.score(&batch.map(RewardInput::from)), alone);
    }

    fn build(section: serde_json::Value) -> Arc<dyn Reward> {
        let kinds = [RewardKind::from_settings::<MoleculeConfig>("molecule")];
        let registry = RewardRegistry::default().with(kinds);
        let config = registry.parse(serde_json::from_value(section).unwrap()).unwrap();
        config.build(&Device::flex()).unwrap()
    }

    #[test]
    fn they_may_be_components_of_another_reward() {
        let reward = build(serde_json::json!({"type": "composite", "parts": [
            {"name": "looks", "weight": 0.7, "reward": {"type": "molecule", "qed": 1.0}},
            {"name": "ease", "weight": 0.3, "reward": {"type": "molecule", "sa": 1.0}},
        ]}));
        let plain = build(serde_json::json!({"type": "molecule", "qed": 0.7, "sa": 0.3}));
        assert_eq!(reward.parts().iter().filter(|name| *name == "valid").count(), 1);
        for smiles in ["CC(=O)Oc1ccccc1C(=O)O", "CCO", "C("] {
            let (got, expect) = (reward.score(&[smiles.into()]), plain.score(&[smiles.into()]));
            let difference = got[0].total().unwrap() - expect[0].total().unwrap();
            assert!(difference.abs() < 1e-12, "{smiles}: {got:?}");
            // The components used by guards, criteria and metrics.
            let Outcome::Scored(scored) = &got[0] else { panic!("{smiles}: {got:?}") };
            let valid =
                scored.parts.iter().find(|(name, _)| name == "valid").map(|(_, value)| *value);
            assert_eq!(valid, expect[0].part("valid"), "{smiles}");
            // The components used in tables of molecules.
            for part in ["valid", "qed", "sa"] {
                assert_eq!(got[0].part(part), expect[0].part(part), "{smiles}: {part}");
            }
        }
    }
}
