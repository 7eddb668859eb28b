//! The task of generating molecules as SMILES.

use std::sync::Arc;

use grpo_app::data::DataFormat;
use grpo_app::eval::Suite;
use grpo_app::source::SourceKind;
use grpo_app::task::{BestFiles, Measures, Task, TaskCommand, TaskSampling, TrialLimits};
use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::statistics::mean;
use grpo_data::{Codec, CodecKind};
use grpo_report::Drawing;
use grpo_rewards::{Identify, Outcome, RewardKind};
use grpo_run::BestTable;
use grpo_train::{Bucketing, NewSimilarTexts, Variation};
use rayon::prelude::*;

use crate::best::structure_file;
use crate::components::ComponentsConfig;
use crate::conditions::{self, ConditionsConfig};
use crate::fingerprints::Fingerprints;
use crate::identity::identities;
use crate::pmo_reward::PmoConfig;
use crate::reward::MoleculeConfig;
use crate::sample::MoleculeSampling;
use crate::variation::MoleculeVariation;
use crate::{MoleculeSummary, Vocabulary};

/// The reward types that only score molecules.
const REWARDS: [&str; 4] = ["molecule", "components", "conditions", "pmo"];

/// The task of generating molecules as SMILES.
pub struct Molecules;

impl Task for Molecules {
    fn name(&self) -> &'static str {
        "molecules"
    }

    fn rewards(&self) -> Vec<RewardKind> {
        vec![
            RewardKind::from_settings::<MoleculeConfig>("molecule"),
            RewardKind::composed::<ComponentsConfig>("components"),
            RewardKind::from_settings::<ConditionsConfig>("conditions"),
            RewardKind::from_settings::<PmoConfig>("pmo"),
        ]
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
            crate::score::command(),
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

    fn bucketings(&self) -> Vec<Bucketing> {
        let bucketing =
            |name, buckets| Bucketing { name, buckets, similarity: Some(Fingerprints::empty) };
        vec![
            bucketing("scaffold", |texts| buckets(texts, Molecule::scaffold)),
            bucketing("topological_scaffold", |texts| {
                buckets(texts, Molecule::topological_scaffold)
            }),
            bucketing("smiles", |texts| {
                buckets(texts, |molecule| Ok(molecule.canonical_smiles().to_owned()))
            }),
        ]
    }

    fn similarity(&self, codec: &Codec) -> Option<NewSimilarTexts> {
        codec.own::<Vocabulary>()?;
        Some(Fingerprints::empty)
    }

    fn drawing(&self, codec: &Codec) -> Option<Drawing> {
        codec.own::<Vocabulary>()?;
        Some(|smiles| Molecule::parse(smiles).ok()?.draw().ok())
    }

    fn trial_limits(&self, reward_type: &str) -> Option<TrialLimits> {
        REWARDS.contains(&reward_type).then(|| TrialLimits {
            max_distance: ("success.max_kl", 0.05),
            guards: vec![
                TrialLimits::stop_guard("kl", Some(0.1), None, 1),
                // The guard requires three steps in a row. Each step has 8 completions, so even
                // with 80% valid completions, the validity is below one half in one of a hundred
                // steps.
                TrialLimits::stop_guard("rewards/valid/mean", None, Some(0.5), 3),
            ],
        })
    }
}

/// Returns a bucket for each valid molecule.
fn buckets(
    texts: &[&str],
    bucket: fn(&Molecule) -> Result<String, InvalidSmiles>,
) -> Vec<Option<String>> {
    texts.par_iter().map(|smiles| bucket(&Molecule::parse(smiles).ok()?).ok()).collect()
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
