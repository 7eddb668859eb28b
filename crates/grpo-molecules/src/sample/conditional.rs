//! Samples molecules for conditions.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anyhow::Context;
use grpo_chem::{Descriptor, Molecule};
use grpo_data::statistics::{mean, sample_variance};
use grpo_data::{Group, Prompt};
use grpo_task::generate::{Generation, generate};
use grpo_task::output::{four_decimals, say_aside};
use grpo_task::task::Sampling;
use grpo_task::visible::number_cell;
use rayon::prelude::*;

use crate::conditions::{Accuracy, Asked, Conditions, SAME_SCAFFOLD, prompt};
use crate::identity::identity;
use crate::{KnownMolecules, Vocabulary};

/// Default number of samples per condition.
const NUMBER: u32 = 100;

/// Columns of the CSV file, named as in MolGPT. Only `asked` is ours: it names the properties.
const COLUMNS: &str =
    "molecule,smiles,condition,scaffold_cond,qed,sas,logp,tpsa,validity,unique,novelty,asked";

/// The molecules sampled for a condition.
pub(super) struct Sampled {
    asked: Asked,
    /// As sampled, including invalid ones.
    texts: Vec<String>,
    /// Valid molecules, or only distinct and unknown ones.
    molecules: Vec<Row>,
    accuracy: Accuracy,
    validity: f64,
    unique: f64,
    novelty: Option<f64>,
    same_scaffold: SameScaffold,
}

/// Counts of valid molecules with the requested scaffold.
#[derive(Clone, Copy, Default)]
struct SameScaffold {
    all: usize,
    distinct: usize,
    /// Distinct ones that are not known.
    new: Option<usize>,
}

impl SameScaffold {
    fn of(rows: &[Row], known: Option<&KnownMolecules>) -> Self {
        let is_same =
            |row: &&Row| row.accuracy.similarities.first().is_some_and(|s| *s >= SAME_SCAFFOLD);
        let same: Vec<&str> = rows.iter().filter(is_same).map(|row| &*row.identity).collect();
        let distinct: BTreeSet<&str> = same.iter().copied().collect();
        let new = |known: &KnownMolecules| distinct.iter().filter(|s| !known.contains(s)).count();
        Self { all: same.len(), distinct: distinct.len(), new: known.map(new) }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            distinct: self.distinct + other.distinct,
            new: other.new.map(|new| new + self.new.unwrap_or(0)),
        }
    }
}

/// A valid molecule.
struct Row {
    /// As sampled.
    molecule: String,
    canonical: String,
    identity: String,
    /// QED, SA score, logP and TPSA.
    properties: [f64; 4],
    accuracy: Accuracy,
}

impl Row {
    fn of(text: String, asked: &Asked) -> Option<Self> {
        let molecule = Molecule::parse(&text).ok()?;
        let mut accuracy = Accuracy::default();
        accuracy.add(asked, &molecule).ok()?;
        let columns = [Descriptor::Qed, Descriptor::Sa, Descriptor::LogP, Descriptor::Tpsa];
        let properties = columns.map(|of| molecule.descriptor(of).unwrap_or(f64::NAN));
        let identity = identity(&molecule).ok()?;
        let canonical = molecule.into_canonical();
        Some(Self { molecule: text, canonical, identity, properties, accuracy })
    }
}

/// Samples molecules for each condition.
pub(super) fn sample(
    sampling: &Sampling<'_>,
    conditions: &Conditions,
    asked: Vec<Asked>,
    known: Option<&KnownMolecules>,
    distinct: bool,
) -> anyhow::Result<Vec<Sampled>> {
    let &Sampling { arguments, loaded, .. } = sampling;
    let codec = &loaded.spec.codec;
    let vocabulary = codec.own::<Vocabulary>().context("the model has a molecule vocabulary")?;
    let prompts =
        (0..).zip(&asked).map(|(index, asked)| prompt(conditions, asked, vocabulary, index));
    let prompts: Vec<Prompt> = prompts.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    let unusual: BTreeSet<String> = asked.iter().flat_map(|of| conditions.unusual(of)).collect();
    for sentence in unusual {
        say_aside(format_args!("warning: {sentence}"));
    }
    let generation = Generation::from_options(arguments, loaded, &prompts, usize::MAX);
    let number = arguments.number.unwrap_or(NUMBER);
    let groups = generate(&loaded.policy, codec, &prompts, number, &generation)?;
    let sampled = |(asked, group): (Asked, &Group)| {
        let texts: Vec<String> =
            group.completions().map(|c| codec.decode_completion(&c.text_ids())).collect();
        Sampled::new(asked, texts, known, distinct)
    };
    Ok(asked.into_iter().zip(&groups).map(sampled).collect())
}

impl Sampled {
    fn new(
        asked: Asked,
        texts: Vec<String>,
        known: Option<&KnownMolecules>,
        distinct: bool,
    ) -> Self {
        let rows: Vec<Option<Row>> =
            texts.par_iter().map(|text| Row::of(text.clone(), &asked)).collect();
        let mut molecules: Vec<Row> = rows.into_iter().flatten().collect();
        let valid = molecules.len() as f64;
        let mut accuracy = Accuracy::default();
        molecules.iter().for_each(|row| accuracy.extend(row.accuracy.clone()));
        let different: BTreeSet<String> =
            molecules.iter().map(|row| row.identity.clone()).collect();
        let is_new = |identity: &String| known.is_none_or(|known| !known.contains(identity));
        let new = different.iter().filter(|identity| is_new(identity)).count() as f64;
        let same_scaffold = SameScaffold::of(&molecules, known);
        if distinct {
            let mut seen = BTreeSet::new();
            molecules.retain(|row| is_new(&row.identity) && seen.insert(row.identity.clone()));
        }
        Self {
            asked,
            molecules,
            accuracy,
            validity: valid / texts.len() as f64,
            texts,
            unique: different.len() as f64 / valid,
            novelty: known.map(|_| new / different.len() as f64),
            same_scaffold,
        }
    }
}

/// Prints a summary to standard error: one line per condition, then all of them together.
pub(super) fn summarise(all: &[Sampled]) {
    for sampled in all {
        let Accuracy { errors, similarities } = &sampled.accuracy;
        let errors = errors
            .iter()
            .map(|(name, errors)| format!("; |Δ{name}| {}", four_decimals(mean(errors))));
        let scaffold = (!similarities.is_empty())
            .then(|| format!("; scaffold similarity {:.4}", sampled.accuracy.similarity()));
        say_aside(format_args!(
            "{}: {} drawn, validity {:.4}, unique {}{}",
            sampled.asked.text(),
            sampled.texts.len(),
            sampled.validity,
            // There is none without a valid molecule.
            four_decimals(sampled.unique),
            errors.chain(scaffold).collect::<String>()
        ));
    }
    let mut accuracy = Accuracy::default();
    all.iter().for_each(|sampled| accuracy.extend(sampled.accuracy.clone()));
    let samples: usize = all.iter().map(|sampled| sampled.texts.len()).sum();
    let weighted = |of: fn(&Sampled) -> f64| {
        all.iter().map(|s| of(s) * s.texts.len() as f64).sum::<f64>() / samples as f64
    };
    say_aside(format_args!("conditions   {:>8}", all.len()));
    say_aside(format_args!("drawn        {samples:>8}"));
    say_aside(format_args!("validity     {:>8.4}", weighted(|sampled| sampled.validity)));
    let unique: Vec<f64> = all.iter().map(|s| s.unique).filter(|unique| !unique.is_nan()).collect();
    say_aside(format_args!("uniqueness   {:>8}", four_decimals(mean(&unique))));
    for (name, errors) in &accuracy.errors {
        say_aside(format_args!(
            "|asked − measured| {name}: mean {}, standard deviation {}",
            four_decimals(mean(errors)),
            // One molecule has none.
            four_decimals(sample_variance(errors).sqrt())
        ));
    }
    if !accuracy.similarities.is_empty() {
        say_aside(format_args!(
            "scaffold     mean similarity {:.4}; {:.4} of the valid molecules have 0.8 or more",
            accuracy.similarity(),
            accuracy.same_scaffold()
        ));
        say_aside(format_args!(
            "equal        {:>8.4} of the valid molecules match the scaffold exactly; with 0.8 or more: {}",
            accuracy.equal_scaffold(),
            shares_of_same_scaffold(all)
        ));
    }
}

/// Describes the molecules with the requested scaffold. Those that were asked for no scaffold do not
/// count.
fn shares_of_same_scaffold(all: &[Sampled]) -> String {
    let asked = all.iter().filter(|sampled| sampled.asked.scaffold.is_some());
    let (mut drawn, mut same) = (0, SameScaffold::default());
    for sampled in asked {
        drawn += sampled.texts.len();
        same = same.plus(sampled.same_scaffold);
    }
    let share = |count: usize, of: usize| four_decimals(count as f64 / of as f64);
    let novelty = same.new.map(|new| format!(", novelty {}", share(new, same.distinct)));
    format!(
        "validity {}, uniqueness {}{}",
        share(same.all, drawn),
        share(same.distinct, same.all),
        novelty.unwrap_or_default()
    )
}

/// Writes one SMILES per line, as sampled or only the distinct valid ones, with its condition as the
/// name.
pub(super) fn write_lines(
    output: &mut dyn Write,
    all: &[Sampled],
    distinct: bool,
) -> io::Result<()> {
    for sampled in all {
        let name = sampled.asked.text();
        let canonical = sampled.molecules.iter().map(|row| &row.canonical);
        let smiles: Vec<&String> =
            if distinct { canonical.collect() } else { sampled.texts.iter().collect() };
        for smiles in smiles {
            writeln!(output, "{smiles} asked {name}")?;
        }
    }
    output.flush()
}

/// Writes a CSV file with MolGPT's columns and one row per valid molecule, like MolGPT.
pub(super) fn write_csv(output: &mut dyn Write, all: &[Sampled]) -> io::Result<()> {
    writeln!(output, "{COLUMNS}")?;
    for sampled in all {
        let values: Vec<String> =
            sampled.asked.properties.iter().map(|(_, value)| format!("{value:?}")).collect();
        let condition = match &values[..] {
            [] => String::new(),
            [value] => value.clone(),
            values => format!("\"({})\"", values.join(", ")),
        };
        let scaffold = sampled.asked.scaffold.as_deref().unwrap_or_default();
        let novelty = sampled.novelty.map(number_cell).unwrap_or_default();
        for Row { molecule, canonical, properties, .. } in &sampled.molecules {
            let properties: Vec<String> =
                properties.iter().map(|value| number_cell(*value)).collect();
            writeln!(
                output,
                "{molecule},{canonical},{condition},{scaffold},{},{},{},{novelty},{}",
                properties.join(","),
                number_cell(sampled.validity),
                number_cell(sampled.unique),
                sampled.asked.text()
            )?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_a_requested_scaffold_do_not_count() {
        let sampled = |scaffold: Option<&str>, texts: &[&str]| {
            let asked = Asked { properties: Vec::new(), scaffold: scaffold.map(str::to_owned) };
            Sampled::new(asked, texts.iter().map(|&text| text.to_owned()).collect(), None, false)
        };
        let phenyl = ["Cc1ccccc1", "c1ccccc1C", "CCc1ccccc1", "C1CCCCC1", "C("];
        let all = [sampled(Some("c1ccccc1"), &phenyl), sampled(None, &["Cc1ccccc1"; 95])];
        // Three of five, of which two are the same molecule.
        assert_eq!(shares_of_same_scaffold(&all), "validity 0.6000, uniqueness 0.6667");
    }
}
