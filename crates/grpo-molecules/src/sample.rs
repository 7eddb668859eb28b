//! Samples molecules and prints one SMILES per line.

mod conditional;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args, FromArgMatches};
use grpo_chem::Molecule;
use grpo_data::{Codec, FileOrigin};
use grpo_rewards::Outcome;
use grpo_train::unconditional_prompts;
use rayon::prelude::*;
use serde_json::{Map, Value};

use crate::conditions::{Asked, Conditions, Grid};
use crate::identity::identity;
use crate::{KnownMolecules, MoleculeSummary, Vocabulary};

use grpo_task::generate::{Generation, generate, texts};
use grpo_task::output::{FileInPlace, Formats, four_decimals, say_aside};
use grpo_task::phase::Phase;
use grpo_task::task::{Sampler, Sampling, TaskSampling};
use grpo_task::visible::{data_output, visible};

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
    /// Property values to condition on, e.g. logp=3,tpsa=60; repeatable
    #[arg(long, value_name = "PROPERTIES", help_heading = "Conditions")]
    condition: Vec<String>,
    /// Molecule whose scaffold to condition on; repeatable
    #[arg(long, value_name = "SMILES", help_heading = "Conditions")]
    scaffold: Vec<String>,
    /// File of conditions: a CSV file with a column per property and `scaffold_smiles`, or a .smi
    /// file of scaffolds
    #[arg(long, value_name = "FILE", help_heading = "Conditions")]
    conditions: Option<PathBuf>,
    /// Predefined conditions from MolGPT's generation scripts; repeatable
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Conditions")]
    grid: Vec<Grid>,
}

impl MoleculeOptions {
    fn of(options: &ArgMatches) -> Self {
        Self::from_arg_matches(options).unwrap_or_else(|error| error.exit())
    }

    /// Returns the model's conditions and the requested values. Without any option, the model is
    /// sampled unconditionally.
    fn asked(
        &self,
        config: &Map<String, Value>,
    ) -> anyhow::Result<(Option<Conditions>, Vec<Asked>)> {
        let is_asked =
            !self.condition.is_empty() || !self.scaffold.is_empty() || !self.grid.is_empty();
        if !is_asked && self.conditions.is_none() {
            return Ok((None, Vec::new()));
        }
        let conditions = Conditions::of_model(config).map_err(anyhow::Error::msg)?.context(
            "the model takes no conditions; train one with [data.conditions], or remove --condition, --scaffold, --conditions and --grid",
        )?;
        let mut asked: Vec<Asked> = match &self.conditions {
            Some(file) => Asked::read(file).context("--conditions")?,
            None => Vec::new(),
        };
        for text in &self.condition {
            asked.push(Asked::parse(text).map_err(anyhow::Error::msg).context("--condition")?);
        }
        let names: Vec<&str> = conditions.properties.iter().map(|p| &*p.name).collect();
        let of_grid: Vec<Asked> = self.grid.iter().flat_map(|grid| grid.asked(&names)).collect();
        anyhow::ensure!(
            self.grid.is_empty() || !of_grid.is_empty(),
            "--grid: the model takes none of the grid's properties; use --condition or --scaffold with what it takes ({})",
            match names.is_empty() {
                true => "a scaffold".to_owned(),
                false => names.join(", "),
            }
        );
        asked.extend(of_grid);
        if !self.scaffold.is_empty() {
            if asked.is_empty() {
                asked.push(Asked::default());
            }
            let with = |(asked, smiles): (&Asked, &String)| {
                asked.clone().with_scaffold_of(smiles).map_err(anyhow::Error::msg)
            };
            let all = asked.iter().flat_map(|asked| self.scaffold.iter().map(move |s| (asked, s)));
            asked = all.map(with).collect::<anyhow::Result<_>>().context("--scaffold")?;
        }
        Ok((Some(conditions), asked))
    }
}

const LINES: Formats = Formats { written: "one molecule per line", endings: &["smi", "txt"] };

/// With conditions.
const LINES_OR_TABLE: Formats =
    Formats { written: "one molecule per line, or a table", endings: &["smi", "csv", "txt"] };

fn is_csv(path: &Path) -> bool {
    FileOrigin::new(path).1 == "csv"
}

/// Sampling support for molecules.
pub(crate) struct MoleculeSampling;

impl TaskSampling for MoleculeSampling {
    fn options(&self, command: clap::Command) -> clap::Command {
        MoleculeOptions::augment_args(command)
    }

    fn inputs(&self, options: &ArgMatches) -> Vec<PathBuf> {
        let MoleculeOptions { not_in, conditions, .. } = MoleculeOptions::of(options);
        not_in.into_iter().chain(conditions).collect()
    }

    fn outputs(&self, options: &ArgMatches, model: &Path) -> Option<Formats> {
        let MoleculeOptions { condition, scaffold, conditions, grid, .. } =
            MoleculeOptions::of(options);
        let is_asked = !condition.is_empty()
            || !scaffold.is_empty()
            || conditions.is_some()
            || !grid.is_empty();
        let formats = if is_asked { LINES_OR_TABLE } else { LINES };
        model.join(Vocabulary::CODEC.file).exists().then_some(formats)
    }

    fn check_unused(&self, options: &ArgMatches) -> anyhow::Result<()> {
        let options = MoleculeOptions::of(options);
        let MoleculeOptions { distinct, not_in, condition, scaffold, conditions, grid } = options;
        for (given, argument) in [
            (distinct, "--distinct"),
            (not_in.is_some(), "--not-in"),
            (!condition.is_empty(), "--condition"),
            (!scaffold.is_empty(), "--scaffold"),
            (conditions.is_some(), "--conditions"),
            (!grid.is_empty(), "--grid"),
        ] {
            anyhow::ensure!(
                !given,
                "{argument} is only valid for molecules, but this model completes prompts"
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
        let options = MoleculeOptions::of(options);
        let (conditions, asked) = options.asked(loaded.spec.config.json())?;
        let MoleculeOptions { distinct, not_in, .. } = options;
        let codec = &loaded.spec.codec;
        let formats = if conditions.is_some() { LINES_OR_TABLE } else { LINES };
        // Check the output file before anything is computed.
        let inputs: Vec<&Path> = not_in.as_deref().into_iter().collect();
        let create = |path| FileInPlace::create_beside(path, formats, &inputs, arguments.force);
        let output = arguments.output.as_deref().map(create).transpose()?;
        let known = not_in.as_deref().map(excluded_molecules).transpose()?;
        if let Some(conditions) = conditions {
            let sampled =
                conditional::sample(sampling, &conditions, asked, known.as_ref(), distinct)?;
            conditional::summarise(&sampled);
            return match output {
                Some(mut file) => {
                    let written = match is_csv(file.path()) {
                        true => conditional::write_csv(&mut file, &sampled),
                        false => conditional::write_lines(&mut file, &sampled, distinct),
                    };
                    written.with_context(|| format!("cannot write {}", file.path().display()))?;
                    file.finish()
                }
                None => conditional::write_lines(&mut data_output(), &sampled, distinct)
                    .context("cannot write to standard output"),
            };
        }
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

/// Reads the molecules in the file of `--not-in`.
fn excluded_molecules(path: &Path) -> anyhow::Result<KnownMolecules> {
    let phase = Phase::begin(format!("reading {}", path.display()));
    let known = KnownMolecules::read(path)?;
    drop(phase);
    anyhow::ensure!(
        !known.is_empty(),
        "--not-in {} contains no valid molecules; use a file with molecules, or remove --not-in",
        path.display()
    );
    if let Some(fault) = known.fault() {
        say_aside(format_args!("warning: --not-in {}: {}", path.display(), visible(&fault)));
    }
    Ok(known)
}

/// Prints statistics to standard error. Standard output only contains molecules.
fn summarise(drawn: &[String], known: Option<&KnownMolecules>) {
    // `sample` has no reward.
    let outcomes = vec![Outcome::abstained(); drawn.len()];
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
fn distinct_molecules(drawn: &[String], known: Option<&KnownMolecules>) -> Vec<String> {
    let molecule = |smiles: &String| {
        let molecule = Molecule::parse(smiles).ok()?;
        Some((identity(&molecule).ok()?, molecule.into_canonical()))
    };
    let molecules: Vec<Option<(String, String)>> = drawn.par_iter().map(molecule).collect();
    let mut seen = BTreeSet::new();
    molecules
        .into_iter()
        .flatten()
        .filter(|(identity, _)| known.is_none_or(|known| !known.contains(identity)))
        .filter_map(|(identity, canonical)| seen.insert(identity).then_some(canonical))
        .collect()
}

fn write_lines(output: &mut dyn Write, lines: &[String]) -> io::Result<()> {
    for line in lines {
        writeln!(output, "{line}")?;
    }
    output.flush()
}
