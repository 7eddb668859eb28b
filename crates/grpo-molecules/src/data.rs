//! The `[data]` section for molecules.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{MoleculeReader, ReadOptions};
use grpo_app::data::{DataFormat, DataReader, ReadExamples, ReadFrom, ReadPrompts, SharedKeys};
use grpo_data::{Codec, ConfigFault, DataError, deserialize_settings};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::randomized::randomized;
use crate::{Corpus, CorpusOptions, Vocabulary, smiles_tokens};

/// Returns the data format for files of molecules.
pub(crate) fn format() -> DataFormat {
    DataFormat {
        holds: "molecules (.smi, .csv)",
        keys: &["smiles_column", "vocabulary", "min_molecules", "randomize"],
        is_selected: is_of_molecules,
        parse: |keys| Ok(Arc::new(deserialize_settings::<MoleculeKeys>(keys)?)),
    }
}

/// Returns whether a `[data]` section refers to a file of molecules, i.e. a `.smi` or `.csv` file,
/// optionally compressed (`.gz`).
fn is_of_molecules(data: &Table) -> bool {
    let file = data.get("file").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let plain = file.strip_suffix(".gz").unwrap_or(&file);
    !data.contains_key("replies") && [".smi", ".csv"].iter().any(|end| plain.ends_with(end))
}

/// The keys of `[data]` that are specific to molecules.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MoleculeKeys {
    /// The CSV column that contains the SMILES.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    smiles_column: Option<String>,
    /// A vocabulary file (`*_stoi.json`). By default, the vocabulary consists of all tokens in the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vocabulary: Option<PathBuf>,
    #[serde(default = "default_min_molecules")]
    min_molecules: usize,
    /// Probability that a molecule is trained on as a random SMILES, drawn again in each epoch.
    #[serde(default)]
    randomize: f64,
}

fn default_min_molecules() -> usize {
    1000
}

impl MoleculeKeys {
    fn options(&self) -> ReadOptions {
        ReadOptions {
            smiles_column: self.smiles_column.clone(),
            column_setting: Some("`data.smiles_column`"),
            keep_empty: false,
        }
    }
}

impl DataReader for MoleculeKeys {
    fn nouns(&self) -> [&'static str; 2] {
        ["molecule", "molecules"]
    }

    fn settings(&self) -> Table {
        Table::try_from(self).expect("strings and numbers serialize to TOML")
    }

    fn check(&self, shared: &SharedKeys) -> Result<(), ConfigFault> {
        let of_texts =
            [("max_tokens", shared.has_max_tokens), ("thinking", shared.thinking.is_some())];
        if let Some((key, _)) = of_texts.into_iter().find(|(_, given)| *given) {
            return Err(ConfigFault::from_sentence(
                format!("data.{key}"),
                format!(
                    "data.{key} is only valid for text files, but data.file contains molecules; remove it"
                ),
            ));
        }
        if !(0.0..=1.0).contains(&self.randomize) {
            return Err(ConfigFault::out_of_range("data.randomize", self.randomize, "0 to 1"));
        }
        match shared.has_start && self.vocabulary.is_some() {
            true => Err(ConfigFault::from_sentence(
                "data.vocabulary",
                "data.vocabulary has no effect with `start`, which has its own vocabulary; remove it",
            )),
            false => Ok(()),
        }
    }

    fn prompts(&self, from: &ReadFrom<'_>) -> anyhow::Result<ReadPrompts> {
        anyhow::bail!(
            "data.file = \"{}\" contains molecules, not prompts; use a .jsonl or .parquet file, or remove [data]",
            from.file.display()
        )
    }

    fn examples(
        &self,
        from: &ReadFrom<'_>,
        validation_fraction: f64,
        seed: u64,
    ) -> anyhow::Result<ReadExamples> {
        let file = from.file;
        let Some(vocabulary) = from.codec.own::<Vocabulary>() else {
            anyhow::bail!(
                "data.file = \"{}\" contains molecules, but the model is trained on text; use a .jsonl or .parquet file with `text`, or with `prompt` and `completion`",
                file.display()
            );
        };
        let options = CorpusOptions {
            // Two tokens are reserved for the boundary token at both ends.
            max_tokens: from.longest - 2,
            validation_fraction,
            seed,
            min_molecules: self.min_molecules,
        };
        let corpus = Corpus::read(file, &self.options(), vocabulary, &options)?;
        let mut report = vec![corpus.report.to_string()];
        report.extend(corpus.report.examples.iter().map(|dropped| format!("left out: {dropped}")));
        let mut files = vec![("molecules", file.to_owned())];
        files.extend(self.vocabulary.iter().map(|path| ("vocabulary", path.clone())));
        let examples = corpus.examples(vocabulary);
        let augmentation = (self.randomize > 0.0)
            .then(|| randomized(vocabulary.clone(), self.randomize, options.max_tokens, seed));
        Ok(ReadExamples { examples, augmentation, report, files })
    }

    fn new_codec(&self, file: &Path) -> anyhow::Result<Option<Codec>> {
        if let Some(path) = &self.vocabulary {
            return Ok(Some(Codec::from_text_codec(Vocabulary::from_json_file(path)?)));
        }
        let reader = MoleculeReader::open(file, &self.options())?;
        let smiles: Vec<String> =
            reader.map(|record| Ok(record?.smiles)).collect::<Result<_, DataError>>()?;
        // Invalid SMILES cannot be tokenized. They are counted and reported by the corpus.
        let readable =
            smiles.iter().filter(|smiles| smiles_tokens(smiles).all(|token| token.is_ok()));
        let vocabulary = Vocabulary::from_smiles(readable.map(String::as_str))?;
        Ok(Some(Codec::from_text_codec(vocabulary)))
    }
}
