//! The task of generating molecules as SMILES.

use std::path::Path;
use std::sync::Arc;

use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::statistics::mean;
use grpo_data::{Codec, CodecKind};
use grpo_extensions::{Bucketing, NewSimilarTexts, Variation};
use grpo_model::FamilyKind;
use grpo_report::Drawing;
use grpo_rewards::{Identify, Outcome, RewardKind};
use grpo_run::BestTable;
use grpo_task::data::DataFormat;
use grpo_task::eval::{RowFormat, Suite};
use grpo_task::source::SourceKind;
use grpo_task::task::{BestFiles, Measures, Task, TaskCommand, TaskSampling};
use rayon::prelude::*;

use crate::best::structure_file;
use crate::components::{ComponentsConfig, Section};
use crate::conditions::{self, ConditionsConfig};
use crate::fingerprints::Fingerprints;
use crate::identity::{identities, identity, scored_molecule};
use crate::pmo_reward::PmoConfig;
use crate::reward::MoleculeConfig;
use crate::sample::MoleculeSampling;
use crate::variation::MoleculeVariation;
use crate::{MOLGPT, MoleculeSummary, Vocabulary};

/// The task of generating molecules as SMILES.
pub struct Molecules;

impl Task for Molecules {
    fn name(&self) -> &'static str {
        "molecules"
    }

    fn rewards(&self) -> Vec<RewardKind> {
        vec![
            RewardKind::from_settings::<MoleculeConfig>("molecule"),
            RewardKind::composed::<ComponentsConfig, Section>("components"),
            RewardKind::from_settings::<ConditionsConfig>("conditions"),
            RewardKind::from_settings::<PmoConfig>("pmo"),
        ]
    }

    fn families(&self) -> Vec<&'static FamilyKind> {
        vec![&MOLGPT]
    }

    fn default_model(&self) -> Option<&'static str> {
        Some("data/molecules/prior")
    }

    fn codecs(&self) -> Vec<CodecKind> {
        vec![Vocabulary::CODEC]
    }

    fn data_formats(&self) -> Vec<DataFormat> {
        vec![crate::data::format()]
    }

    fn sources(&self) -> Vec<SourceKind> {
        vec![conditions::SOURCE]
    }

    fn commands(&self) -> Vec<TaskCommand> {
        vec![
            crate::describe::command(),
            crate::best::command(),
            crate::make_molecules::command(),
            crate::import_molgpt::command(),
            crate::bench_pmo::command(),
        ]
    }

    fn sampling(&self) -> Option<&dyn TaskSampling> {
        Some(&MoleculeSampling)
    }

    fn measures(&self, codec: &Codec) -> Option<Measures> {
        codec.own::<Vocabulary>()?;
        Some(Measures {
            samples: "molecules",
            diversity: &["uniqueness (of valid)", "scaffolds per molecule"],
            measure: measured,
        })
    }

    fn identify(&self, codec: &Codec) -> Option<Identify> {
        codec.own::<Vocabulary>()?;
        Some(identities)
    }

    fn variation(&self, codec: &Codec) -> Option<Arc<dyn Variation>> {
        let vocabulary = codec.own::<Vocabulary>()?.clone();
        Some(Arc::new(MoleculeVariation { vocabulary }))
    }

    fn best_files(&self, codec: &Codec) -> Option<BestFiles> {
        codec.own::<Vocabulary>()?;
        let other = ("best.sdf", structure_file as fn(&BestTable) -> String);
        Some(BestFiles { column: "smiles", identify: identities, other })
    }

    fn suites(&self) -> Vec<Suite> {
        vec![crate::eval_suite::SUITE]
    }

    fn rows(&self, file: Option<&Path>, reward: &str) -> Option<RowFormat> {
        let is_ours = self.rewards().iter().any(|kind| kind.type_name() == reward);
        crate::rows::format(file, is_ours)
    }

    fn bucketings(&self) -> Vec<Bucketing> {
        let bucketing = |name, buckets, holds_copies| Bucketing {
            name,
            buckets,
            similarity: Some(Fingerprints::empty),
            holds_copies,
            identify: Some(identities),
        };
        vec![
            bucketing("scaffold", |texts| buckets(texts, Molecule::scaffold), false),
            bucketing(
                "topological_scaffold",
                |texts| buckets(texts, Molecule::topological_scaffold),
                false,
            ),
            bucketing("smiles", |texts| buckets(texts, identity), true),
        ]
    }

    fn similarity(&self, codec: &Codec) -> Option<NewSimilarTexts> {
        codec.own::<Vocabulary>()?;
        Some(Fingerprints::empty)
    }

    fn drawing(&self, codec: &Codec) -> Option<Drawing> {
        codec.own::<Vocabulary>()?;
        Some(Drawing {
            draw: |smiles| Molecule::parse(smiles).ok()?.draw().ok(),
            canonical: |smiles| identity(&Molecule::parse(smiles).ok()?).ok(),
        })
    }
}

/// Returns a bucket for each valid molecule. A molecule whose scaffold cannot be generalized is in
/// the bucket of its scaffold, so that none escapes the filter.
fn buckets(
    texts: &[&str],
    bucket: fn(&Molecule) -> Result<String, InvalidSmiles>,
) -> Vec<Option<String>> {
    let of = |smiles: &&str| {
        let molecule = scored_molecule(smiles).ok()?;
        bucket(&molecule).or_else(|_| molecule.scaffold()).or_else(|_| identity(&molecule)).ok()
    };
    texts.par_iter().map(of).collect()
}

/// Rows of the table for runs with conditions, each with a component of their reward.
const OF_CONDITIONS: [(&str, &str); 5] = [
    ("|asked − measured| logP", "logp_error"),
    ("|asked − measured| TPSA", "tpsa_error"),
    ("|asked − measured| SA", "sas_error"),
    ("|asked − measured| QED", "qed_error"),
    ("scaffold similarity", "scaffold_similarity"),
];

/// Returns the metrics that are shown in a table before and after training.
fn measured(texts: &[String], outcomes: &[Outcome]) -> Vec<(&'static str, f64)> {
    let summary = MoleculeSummary::of(texts, outcomes, None);
    let mut rows = vec![
        ("validity", summary.validity),
        ("uniqueness (of valid)", summary.uniqueness),
        ("scaffolds per molecule", summary.scaffold_diversity),
        ("mean reward, all", summary.reward),
        ("  its standard error", summary.reward_error),
        ("mean reward, valid", summary.reward_valid),
        ("mean QED, valid", summary.qed),
        ("mean SA, valid (1 easy, 10 hard)", summary.sa),
    ];
    for (row, part) in OF_CONDITIONS {
        let values: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.part(part)).collect();
        if !values.is_empty() {
            rows.push((row, mean(&values)));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucketing(name: &str) -> Bucketing {
        Molecules.bucketings().into_iter().find(|it| it.name == name).unwrap()
    }

    /// Neither a hypervalent center, nor several fragments, nor labels escape the filter.
    #[test]
    fn every_valid_molecule_has_a_bucket() {
        let molecules = [
            "c1ccc(S(c2ccccc2)(c2ccccc2)(c2ccccc2)(c2ccccc2)c2ccccc2)cc1",
            "Cc1ccc(P(c2ccccc2)(c2ccccc2)(c2ccccc2)c2ccccc2)cc1",
            "Cc1ccc2c(c1)OP1(O2)(Oc2ccccc2O1)c1ccccc1",
            "C1CCS2(CC1)(CCCC2)C1CC1",
            "CCO",
            "C",
            "[Na+].[Cl-]",
            "F[Si-2]1(F)(F)(F)CCCC1",
        ];
        for name in ["scaffold", "topological_scaffold", "smiles"] {
            let found = (bucketing(name).buckets)(&molecules);
            assert!(found.iter().all(Option::is_some), "{name}: {found:?}");
            assert_eq!((bucketing(name).buckets)(&["C(", ""]), [None, None]);
        }
    }

    #[test]
    fn salts_and_labels_are_in_the_bucket_of_their_molecule() {
        for name in ["scaffold", "topological_scaffold", "smiles"] {
            let bucketing = bucketing(name);
            let texts = ["Cc1ccccc1", "CC1=CC=CC=C1", "Cc1ccccc1.C1CCCC1", "Cl.Cc1ccccc1"];
            let found = (bucketing.buckets)(&texts);
            assert!(found.iter().all(|bucket| bucket == &found[0]), "{name}: {found:?}");
            let identities = bucketing.identify.unwrap()(&texts);
            assert!(identities.iter().all(|it| it == &identities[0]), "{identities:?}");
        }
    }
}
