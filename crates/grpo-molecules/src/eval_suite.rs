//! The suite `molecules` of `grpo eval`: the measures of MOSES and GuacaMol.

use std::path::Path;

use anyhow::Context;
use grpo_app::eval::{Columns, Generations, Measured, Suite, SuiteOptions};
use grpo_chem::distribution::{Measures, Record, Role, Sets};
use grpo_data::statistics::{mean, sample_variance};
use serde_json::Value;

use crate::reader::smiles_of_lines;

/// Metrics of molecules.
pub(crate) const SUITE: Suite = Suite {
    name: "molecules",
    about: "validity, diversity, filters, distances to a test set",
    keys: &[],
    of_columns: &["smiles", "SMILES"],
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
    ],
    lower_is_better: &[
        "sa/mean",
        "guacamol/kl/*",
        "test/logp",
        "test/sa",
        "test/qed",
        "test/weight",
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
    measure,
};

fn measure(all: &Generations, options: &SuiteOptions) -> anyhow::Result<Measured> {
    options.refuse_text_options()?;
    let smiles = smiles_of(all);
    let parsed = Record::parse_all(&smiles, Role::Generated);
    let generated: Vec<Record> = parsed.into_iter().flatten().collect();
    let set = |option: &str, path: &Path| -> anyhow::Result<Vec<Record>> {
        let read = Generations::read(path, &Columns::default()).context(option.to_owned())?;
        let records: Vec<Record> =
            Record::parse_all(&smiles_of(&read), Role::Reference).into_iter().flatten().collect();
        anyhow::ensure!(!records.is_empty(), "{option}: {} has no valid molecules", path.display());
        Ok(records)
    };
    let test = options.references.as_deref().map(|path| set("--references", path)).transpose()?;
    let training = options.training.as_deref().map(|path| set("--training", path)).transpose()?;
    let measures = Measures::new(&Sets {
        test: test.as_deref(),
        training: training.as_deref(),
        ..Sets::new(smiles.len(), &generated)
    });
    let mut measured = Measured::default();
    let json = serde_json::to_value(&measures).context("measures are finite")?;
    add("", &json, &mut measured);
    properties(&mut measured, &generated);
    let scores: Option<Vec<f64>> = all.all().map(|generation| generation.score).collect();
    if let Some(scores) = scores {
        measured.add("score/mean", mean(&scores));
        measured.per_text.insert("score/mean".to_owned(), scores);
    }
    Ok(measured)
}

fn smiles_of(all: &Generations) -> Vec<&str> {
    match all.ending.as_str() {
        "smi" => smiles_of_lines(all.texts()),
        _ => all.texts().collect(),
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
