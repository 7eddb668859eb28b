//! The suite `molecules` of `grpo eval`: the measures of MOSES and GuacaMol.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use grpo_chem::distribution::{Measures, Record, Role, Sets};
use grpo_chem::{InvalidSmiles, Molecule};
use grpo_data::short_text;
use grpo_data::statistics::{mean, sample_variance};
use grpo_run::thousands;
use grpo_task::eval::{Columns, Generations, Measured, Suite, SuiteOptions};
use grpo_task::output::say_aside;
use grpo_task::phase::progress;
use grpo_task::visible::visible;
use rayon::prelude::*;
use serde_json::Value;

use crate::reader::{is_header, smiles_and_name};

/// Metrics of molecules.
pub(crate) const SUITE: Suite = Suite {
    name: "molecules",
    about: "validity, diversity, filters, distances to a test set",
    keys: &[],
    of_columns: &["smiles", "canonical_smiles", "molecule"],
    of_text: Some(|text| Molecule::parse(text).is_ok()),
    of_endings: &["smi"],
    of_model_files: &["vocabulary.json"],
    higher_is_better: &[
        "valid",
        "validity",
        "uniqueness",
        "unique_at_*",
        "novelty",
        "internal_diversity*",
        "filters",
        "qed/mean",
        "score/mean",
        "test/snn",
        "test/fragments",
        "test/scaffolds",
        "guacamol/kl_score",
        "guacamol/novelty",
        "guacamol/uniqueness",
    ],
    lower_is_better: &[
        "sa/mean",
        "guacamol/kl/*",
        "test/logp",
        "test/sa",
        "test/qed",
        "test/weight",
    ],
    units: &[
        ("samples", "strings"),
        ("valid", "molecules"),
        ("sa/mean", "1 easy to 10 hard"),
        ("sa/std", "points of SA"),
        ("qed/std", "points of QED"),
        ("logp/*", "log10 octanol/water"),
        ("weight/*", "g/mol"),
        ("score/unscored", "strings"),
        ("score/*", "of the score or reward"),
        ("rewards/*", "of the reward"),
        ("test/logp", "distance, log10 units"),
        ("test/sa", "distance, points of SA"),
        ("test/qed", "distance, points of QED"),
        ("test/weight", "distance, g/mol"),
        ("guacamol/kl/*", "nats"),
        ("*", "0 to 1"),
    ],
    has_prompts: false,
    dynamics: &[
        "validity",
        "uniqueness",
        "internal_diversity",
        "qed/mean",
        "sa/mean",
        "score/mean",
    ],
    prepare: without_names,
    measure,
};

fn measure(all: &Generations, options: &SuiteOptions) -> anyhow::Result<Measured> {
    options.refuse_text_options()?;
    let smiles: Vec<&str> = all.texts().collect();
    let is_compared = options.references.is_some() || options.training.is_some();
    let role = if is_compared { Role::Generated } else { Role::Single };
    let source = Source::new(all, "");
    let Sampled { canonical, records: generated } = sampled(&smiles, role, source, MOST_MEASURED);
    let set = |option: &str, path: &Path| -> anyhow::Result<Vec<Record>> {
        let mut read = Generations::read(path, &Columns::default()).context(option.to_owned())?;
        without_names(&mut read);
        let place = format!("{option} {}: ", path.display());
        let source = Source::new(&read, &place);
        let records = references(&read.texts().collect::<Vec<_>>(), source);
        anyhow::ensure!(!records.is_empty(), "{option}: {} has no valid molecules", path.display());
        Ok(records)
    };
    let test = options.references.as_deref().map(|path| set("--references", path)).transpose()?;
    let training = options.training.as_deref().map(|path| set("--training", path)).transpose()?;
    let measures = Measures::new(&Sets {
        test: test.as_deref(),
        training: training.as_deref(),
        canonical: Some(&canonical),
        ..Sets::new(smiles.len(), &generated)
    });
    let mut measured = Measured::default();
    let json = serde_json::to_value(&measures).context("measures are finite")?;
    add("", &json, &mut measured);
    properties(&mut measured, &generated);
    let scores: Vec<f64> = all.all().filter_map(|generation| generation.score).collect();
    if !scores.is_empty() {
        measured.add_unscored(all.all().count() - scores.len());
        measured.add("score/mean", mean(&scores));
        measured.per_text.insert("score/mean".to_owned(), scores);
    }
    Ok(measured)
}

/// Number of molecules of which everything is computed, at most. The standard error of a mean over as
/// many is 0.3 % of the standard deviation.
const MOST_MEASURED: usize = 100_000;

/// The valid molecules of a file.
struct Sampled {
    /// Canonical SMILES of all of them.
    canonical: Vec<String>,
    /// Records of evenly spaced ones.
    records: Vec<Record>,
}

/// Parses all strings, and computes records of the molecules at `most` evenly spaced places. Equal
/// strings are computed once.
fn sampled(smiles: &[&str], role: Role, source: Source<'_>, most: usize) -> Sampled {
    let count = smiles.len().min(most);
    let is_sampled = |place: usize| {
        let before = |place: usize| place * count / smiles.len().max(1);
        before(place) < before(place + 1)
    };
    let mut places = HashMap::new();
    let mut distinct: Vec<(&str, bool)> = Vec::new();
    for (place, text) in smiles.iter().enumerate() {
        let index = *places.entry(*text).or_insert(distinct.len());
        if index == distinct.len() {
            distinct.push((text, false));
        }
        distinct[index].1 |= is_sampled(place);
    }
    let done = AtomicUsize::new(0);
    type Parsed = Result<(String, Option<Record>), InvalidSmiles>;
    let parse = |(text, is_whole): &(&str, bool)| -> Parsed {
        progress(done.fetch_add(1, Ordering::Relaxed), distinct.len());
        let molecule = Molecule::parse(text)?;
        let record = is_whole.then(|| Record::new(&molecule, role)).transpose()?;
        Ok((molecule.into_canonical(), record))
    };
    let parsed: Vec<Parsed> = distinct.par_iter().map(parse).collect();
    let all = || smiles.iter().map(|text| (*text, &parsed[places[text]]));
    source.warn(all().map(|(text, parsed)| (text, parsed.as_ref().err())));
    let canonical = all().filter_map(|(_, parsed)| Some(parsed.as_ref().ok()?.0.clone()));
    let records = all().enumerate().filter(|(place, _)| is_sampled(*place));
    let records = records.filter_map(|(_, (_, parsed))| parsed.as_ref().ok()?.1.clone());
    let (canonical, records): (Vec<String>, Vec<Record>) = (canonical.collect(), records.collect());
    if records.len() < canonical.len() {
        say_aside(format_args!(
            "properties, filters and similarities are those of {} evenly spaced molecules",
            thousands(records.len())
        ));
    }
    Sampled { canonical, records }
}

/// Returns a record of each valid molecule of a set.
fn references(smiles: &[&str], source: Source<'_>) -> Vec<Record> {
    let records = Record::parse_all_with(smiles, Role::Reference, &progress);
    let errors = smiles.iter().zip(&records).map(|(text, record)| (*text, record.as_ref().err()));
    source.warn_left_out(errors);
    records.into_iter().flatten().collect()
}

/// Where strings come from.
#[derive(Clone, Copy)]
struct Source<'a> {
    /// The start of a warning.
    place: &'a str,
    /// Whether they are cells of a table.
    is_table: bool,
}

impl<'a> Source<'a> {
    fn new(all: &Generations, place: &'a str) -> Self {
        Self { place, is_table: ["csv", "parquet"].contains(&all.ending.as_str()) }
    }

    /// Says how many strings of a set that is compared with are not molecules.
    fn warn_left_out<'b>(self, errors: impl Iterator<Item = (&'b str, Option<&'b InvalidSmiles>)>) {
        let errors: Vec<(&str, Option<&InvalidSmiles>)> = errors.collect();
        self.warn(errors.iter().copied());
        let is_other = |error: &InvalidSmiles| {
            let is_text = self.is_table && matches!(error, InvalidSmiles::TextAfter { .. });
            !is_text && !is_unsupported(error)
        };
        let mut invalid = errors
            .iter()
            .filter_map(|(text, error)| Some((*text, error.filter(|error| is_other(error))?)));
        if let Some((text, error)) = invalid.next() {
            say_aside(format_args!(
                "warning: {}{} of {} strings are invalid and left out; the first is {}",
                self.place,
                1 + invalid.count(),
                errors.len(),
                visible(&format!("`{}`: {error}", short_text(text)))
            ));
        }
    }

    /// Says how many strings are not supported, and how many cells have text after the SMILES. In
    /// completions of a model, that is an error like any other.
    fn warn<'b>(self, errors: impl Iterator<Item = (&'b str, Option<&'b InvalidSmiles>)>) {
        let errors: Vec<(&str, Option<&InvalidSmiles>)> = errors.collect();
        let warn = |is_meant: fn(&InvalidSmiles) -> bool, fault: &str| {
            let meant = |(text, error): &(&'b str, Option<&'b InvalidSmiles>)| {
                Some((*text, error.filter(|error| is_meant(error))?))
            };
            let mut meant = errors.iter().filter_map(meant);
            if let Some((text, error)) = meant.next() {
                say_aside(format_args!(
                    "warning: {}{} of {} {fault}; the first is {}",
                    self.place,
                    1 + meant.count(),
                    errors.len(),
                    visible(&format!("`{}`: {error}", short_text(text)))
                ));
            }
        };
        warn(is_unsupported, "strings are not supported and count as invalid");
        if self.is_table {
            warn(
                |error| matches!(error, InvalidSmiles::TextAfter { .. }),
                "cells have text after the SMILES and count as invalid; write names into a column of their own",
            );
        }
    }
}

/// Returns whether RDKit might accept the string.
fn is_unsupported(error: &InvalidSmiles) -> bool {
    matches!(error, InvalidSmiles::Unsupported { .. } | InvalidSmiles::ToolkitPanic { .. })
}

/// Removes the names and the header from the lines of a `.smi` file, as
/// [`MoleculeReader`](crate::MoleculeReader) does.
fn without_names(all: &mut Generations) {
    if all.ending != "smi" {
        return;
    }
    for prompt in &mut all.prompts {
        for generation in &mut prompt.generations {
            generation.text = smiles_and_name(&generation.text).0.to_owned();
        }
        let first = prompt.generations.first();
        if first.is_some_and(|first| is_header(&first.text)) {
            prompt.generations.remove(0);
        }
    }
}

/// Adds all numbers of an object. Nested ones are named `outer/inner`.
fn add(prefix: &str, value: &Value, measured: &mut Measured) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let separator = if prefix.is_empty() { "" } else { "/" };
                add(&format!("{prefix}{separator}{name}"), value, measured);
            }
        }
        Value::Number(number) => measured.add(prefix, number.as_f64()),
        // Undefined measures, and the reasons for them.
        _ => {}
    }
}

/// Adds mean and standard deviation of the properties of the valid molecules.
fn properties(measured: &mut Measured, generated: &[Record]) {
    type Column = (&'static str, fn(&Record) -> f64);
    let columns: [Column; 4] =
        [("qed", |of| of.qed), ("sa", |of| of.sa), ("logp", |of| of.logp), ("weight", |of| of.mw)];
    for (name, value) in columns {
        let values: Vec<f64> = generated.iter().map(value).collect();
        if !values.is_empty() {
            measured.add(&format!("{name}/mean"), mean(&values));
        }
        if values.len() > 1 {
            measured.add(&format!("{name}/std"), sample_variance(&values).sqrt());
            measured.per_text.insert(format!("{name}/mean"), values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All molecules are parsed, and the properties are those of evenly spaced ones.
    #[test]
    fn large_files_are_sampled() {
        let smiles = ["C", "CC", "C(", "CCC", "CCO", "C", "OCC", "CN"];
        let source = Source { place: "", is_table: false };
        let sampled = |smiles: &[&str], most| super::sampled(smiles, Role::Single, source, most);
        let whole = sampled(&smiles, 8);
        assert_eq!(whole.records.len(), 7);
        for most in 1..8 {
            let part = sampled(&smiles, most);
            assert_eq!(part.canonical, whole.canonical, "{most}");
            assert!((most - 1..=most).contains(&part.records.len()), "{most}");
            let sets = |of: &Sampled| {
                Measures::new(&Sets {
                    canonical: Some(&of.canonical),
                    ..Sets::new(smiles.len(), &of.records)
                })
            };
            let (part, whole) = (sets(&part), sets(&whole));
            assert_eq!((part.validity, part.uniqueness), (whole.validity, whole.uniqueness));
        }
        let texts: Vec<String> = (1..=40).map(|atoms| "C".repeat(atoms)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let found = sampled(&texts, 4).records;
        let atoms: Vec<usize> = found.iter().map(|record| record.canonical.len()).collect();
        assert_eq!(atoms, [10, 20, 30, 40]);
        assert_eq!(sampled(&[], 4).records.len(), 0);
    }
}
