//! `grpo sample`: molecules out of a model.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use grpo_data::{MoleculeReader, ReadOptions};
use grpo_eval::{MoleculeSummary, canonical_forms};
use grpo_model::CausalLm;
use grpo_rewards::RewardConfig;
use grpo_sampling::SamplingSettings;

use crate::args::SampleArguments;
use crate::device;
use crate::generate::{Generation, generate, load_model};
use crate::output::FileInPlace;

/// All that are drawn are held in memory at once.
const MOST_MOLECULES: u32 = 10_000_000;

pub(crate) fn run(arguments: &SampleArguments) -> anyhow::Result<()> {
    anyhow::ensure!(arguments.number > 0, "-n 0 would draw nothing; use 1 or more");
    anyhow::ensure!(
        arguments.number <= MOST_MOLECULES,
        "-n {} is out of range; expected 1 to {MOST_MOLECULES}",
        arguments.number
    );
    let folder = load_model(&arguments.model, &device::device())?;
    let known = arguments.not_in.as_deref().map(known_molecules).transpose()?;
    let generation = Generation {
        seed: arguments.seed,
        sampling: SamplingSettings {
            temperature: arguments.temperature,
            top_k: arguments.top_k,
            top_p: arguments.top_p,
            min_p: arguments.min_p,
            repetition_penalty: arguments.repetition_penalty,
            forbidden: Vec::new(),
        },
        max_new_tokens: arguments.max_new_tokens.unwrap_or(folder.model.context_length()),
        batch_size: arguments.batch_size,
    };
    // Before the work, so that a place that cannot be written to costs none.
    let output = arguments.output.as_deref().map(FileInPlace::create).transpose()?;
    let drawn = generate(&folder.model, &folder.vocabulary, arguments.number, &generation)?;
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
    let outcomes = reward.build()?.score(drawn);
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
