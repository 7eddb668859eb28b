//! Molecules, one SMILES a line.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use grpo_data::{MoleculeReader, ReadOptions};
use grpo_eval::{MoleculeSummary, canonical_forms};
use grpo_rewards::{RewardConfig, Sample};
use grpo_train::unconditional_prompts;

use crate::args::SampleArguments;
use crate::generate::{generate, texts};
use crate::models::Loaded;
use crate::output::FileInPlace;

/// Where the arguments do not say.
const NUMBER: u32 = 1000;

pub(super) fn run(arguments: &SampleArguments, loaded: &Loaded) -> anyhow::Result<()> {
    let codec = &loaded.spec.codec;
    let known = arguments.not_in.as_deref().map(known_molecules).transpose()?;
    // Before the work, so that a place that cannot be written to costs none.
    let inputs: Vec<&Path> = arguments.not_in.as_deref().into_iter().collect();
    let create = |path| FileInPlace::create_beside(path, &inputs);
    let output = arguments.output.as_deref().map(create).transpose()?;
    let begin = codec.begin_id().context("a vocabulary of molecules has a beginning mark")?;
    let prompts = unconditional_prompts(arguments.number.unwrap_or(NUMBER), begin);
    let generation = super::generation(arguments, loaded, &prompts, usize::MAX);
    let drawn = texts(codec, &generate(&loaded.policy, codec, &prompts, 1, &generation)?);
    summarise(&drawn, known.as_ref())?;
    let written = if arguments.distinct { distinct(&drawn, known.as_ref()) } else { drawn };
    if arguments.distinct {
        eprintln!("written      {:>8}", written.len());
    }
    match output {
        Some(mut file) => {
            write_lines(&mut file, &written)
                .with_context(|| format!("cannot write {}", file.path().display()))?;
            file.finish()
        }
        None => write_lines(&mut io::stdout().lock(), &written)
            .context("cannot write to standard output"),
    }
}

/// Canonical forms of the molecules of a file.
fn known_molecules(path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let reader = MoleculeReader::open(path, &ReadOptions::default())?;
    let smiles: Vec<String> =
        reader.map(|record| Ok(record?.smiles)).collect::<Result<_, grpo_data::DataError>>()?;
    Ok(canonical_forms(&smiles).into_iter().flatten().collect())
}

/// Figures on standard error, so that standard output holds only molecules.
fn summarise(drawn: &[String], known: Option<&BTreeSet<String>>) -> anyhow::Result<()> {
    // Only QED and SA are shown, so the weights do not matter.
    let reward = RewardConfig::Molecule {
        qed: 0.7,
        sa: 0.3,
        logp: 0.0,
        logp_centre: 0.0,
        logp_half_width: 1.0,
    };
    let samples: Vec<Sample> = drawn.iter().map(|smiles| smiles.as_str().into()).collect();
    let outcomes = reward.build(&crate::device::device())?.score(&samples);
    let summary = MoleculeSummary::of(drawn, &outcomes, known);
    eprintln!("drawn        {:>8}", summary.samples);
    eprintln!("validity     {:>8.4}", summary.validity);
    eprintln!("uniqueness   {:>8.4}", summary.uniqueness);
    eprintln!("scaffolds    {:>8.4}", summary.scaffold_diversity);
    if let Some(novelty) = summary.novelty {
        eprintln!("novelty      {novelty:>8.4}");
    }
    eprintln!("mean QED     {:>8.4}", summary.qed);
    eprintln!("mean SA      {:>8.4}", summary.sa);
    Ok(())
}

/// Canonical forms of the valid molecules, each once, without the known ones, in the order of drawing.
fn distinct(drawn: &[String], known: Option<&BTreeSet<String>>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    canonical_forms(drawn)
        .into_iter()
        .flatten()
        .filter(|canonical| known.is_none_or(|known| !known.contains(canonical)))
        .filter(|canonical| seen.insert(canonical.clone()))
        .collect()
}

fn write_lines(output: &mut dyn Write, lines: &[String]) -> io::Result<()> {
    for line in lines {
        writeln!(output, "{line}")?;
    }
    output.flush()
}
