//! Samples molecules and prints one SMILES per line.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args, FromArgMatches};
use grpo_data::Codec;
use grpo_rewards::Outcome;
use grpo_train::unconditional_prompts;

use crate::summary::known_molecules;
use crate::{MoleculeSummary, Vocabulary, canonical_forms};

use grpo_app::generate::{Generation, generate, texts};
use grpo_app::output::{FileInPlace, four_decimals, say_aside};
use grpo_app::phase::Phase;
use grpo_app::task::{Sampler, Sampling, TaskSampling};
use grpo_app::visible::data_output;

/// Default number of samples.
const NUMBER: u32 = 1000;

/// Command-line options for molecules.
#[derive(Debug, Args)]
struct MoleculeOptions {
    /// Print only valid and distinct molecules as canonical SMILES
    #[arg(long, help_heading = "Molecules")]
    distinct: bool,
    /// File with known molecules for measuring novelty; --distinct omits them from the output
    #[arg(long, value_name = "FILE", help_heading = "Molecules")]
    not_in: Option<PathBuf>,
}

impl MoleculeOptions {
    fn of(options: &ArgMatches) -> Self {
        Self::from_arg_matches(options).unwrap_or_else(|error| error.exit())
    }
}

/// Sampling support for molecules.
pub(crate) struct MoleculeSampling;

impl TaskSampling for MoleculeSampling {
    fn options(&self, command: clap::Command) -> clap::Command {
        MoleculeOptions::augment_args(command)
    }

    fn check_unused(&self, options: &ArgMatches) -> anyhow::Result<()> {
        let MoleculeOptions { distinct, not_in } = MoleculeOptions::of(options);
        for (given, argument) in [(distinct, "--distinct"), (not_in.is_some(), "--not-in")] {
            anyhow::ensure!(
                !given,
                "{argument} is only valid for molecules, but this samples completions of prompts"
            );
        }
        Ok(())
    }

    fn sampler(&self, codec: &Codec) -> Option<Sampler> {
        codec.own::<Vocabulary>().map(|_| Self::sample as Sampler)
    }
}

impl MoleculeSampling {
    fn sample(sampling: &Sampling<'_>) -> anyhow::Result<()> {
        let &Sampling { arguments, options, loaded } = sampling;
        let MoleculeOptions { distinct, not_in } = MoleculeOptions::of(options);
        let codec = &loaded.spec.codec;
        let known = not_in.as_deref().map(excluded_molecules).transpose()?;
        // Check the output file before the expensive computation.
        let inputs: Vec<&Path> = not_in.as_deref().into_iter().collect();
        let create = |path| FileInPlace::create_beside(path, &inputs, arguments.force);
        let output = arguments.output.as_deref().map(create).transpose()?;
        let begin = codec.begin_id().context("the molecule vocabulary has a begin token")?;
        let prompts = unconditional_prompts(arguments.number.unwrap_or(NUMBER), begin);
        let generation = Generation::from_options(arguments, loaded, &prompts, usize::MAX);
        let drawn = texts(codec, &generate(&loaded.policy, codec, &prompts, 1, &generation)?);
        summarise(&drawn, known.as_ref());
        let written = if distinct { distinct_molecules(&drawn, known.as_ref()) } else { drawn };
        if distinct {
            say_aside(format_args!("written      {:>8}", written.len()));
        }
        match output {
            Some(mut file) => {
                write_lines(&mut file, &written)
                    .with_context(|| format!("cannot write {}", file.path().display()))?;
                file.finish()
            }
            None => {
                write_lines(&mut data_output(), &written).context("cannot write to standard output")
            }
        }
    }
}

/// Returns the canonical SMILES of all molecules in the file of `--not-in`.
fn excluded_molecules(path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let _phase = Phase::begin(format!("reading {}", path.display()));
    let known = known_molecules(path)?;
    anyhow::ensure!(
        !known.is_empty(),
        "--not-in {} contains no valid molecules; use a file with molecules, or remove --not-in",
        path.display()
    );
    Ok(known)
}

/// Prints statistics to standard error. Standard output only contains molecules.
fn summarise(drawn: &[String], known: Option<&BTreeSet<String>>) {
    // `sample` has no reward.
    let outcomes = vec![Outcome::Abstained; drawn.len()];
    let summary = MoleculeSummary::of(drawn, &outcomes, known);
    say_aside(format_args!("drawn        {:>8}", summary.samples));
    say_aside(format_args!("validity     {:>8.4}", summary.validity));
    say_aside(format_args!("uniqueness   {:>8}", four_decimals(summary.uniqueness)));
    say_aside(format_args!("scaffolds    {:>8}", four_decimals(summary.scaffold_diversity)));
    if let Some(novelty) = summary.novelty {
        say_aside(format_args!("novelty      {:>8}", four_decimals(novelty)));
    }
    say_aside(format_args!("mean QED     {:>8}", four_decimals(summary.qed)));
    say_aside(format_args!("mean SA      {:>8}", four_decimals(summary.sa)));
}

/// Returns the canonical SMILES of all distinct valid molecules that are not known, in sampling
/// order.
fn distinct_molecules(drawn: &[String], known: Option<&BTreeSet<String>>) -> Vec<String> {
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
