//! The `[data]` section for molecules.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::conditions::{Conditions, Measured, Measures, Property, SCAFFOLD_COLUMN, descriptor};
use crate::{MoleculeReader, ReadOptions};
use grpo_chem::{Descriptor, Molecule};
use grpo_data::schema::Keys;
use grpo_data::{
    Codec, ConfigFault, DataError, Example, Examples, FileOrigin, Ranges, TextCodec,
    deserialize_settings,
};
use grpo_model::{ModelConfig, ModelError};
use grpo_task::data::{
    DataFormat, DataReader, NewCodec, NewModel, ReadExamples, ReadFrom, ReadPrompts, SharedKeys,
};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use toml::{Table, Value};

use crate::randomized::randomized;
use crate::{Corpus, CorpusOptions, MolGptConfig, Vocabulary, smiles_tokens};

/// Returns the data format for files of molecules.
pub(crate) fn format() -> DataFormat {
    DataFormat {
        holds: "molecules (.smi, .csv)",
        endings: ENDINGS,
        keys: &["smiles_column", "vocabulary", "min_molecules", "randomize", "conditions"],
        schema: Keys::of::<MoleculeKeys>(),
        has_prompts: false,
        is_selected: is_of_molecules,
        parse: |keys| Ok(Arc::new(deserialize_settings::<MoleculeKeys>(keys)?)),
    }
}

/// Returns whether a `[data]` section refers to a file of molecules, i.e. a `.smi` or `.csv` file,
/// optionally compressed (`.gz`).
fn is_of_molecules(data: &Table) -> bool {
    let file = data.get("file").and_then(Value::as_str).unwrap_or_default();
    let (_, ending) = FileOrigin::new(Path::new(file));
    !data.contains_key("replies") && ENDINGS.contains(&&*ending)
}

/// Endings of the names of files of molecules.
const ENDINGS: &[&str] = &["smi", "csv"];

/// The keys of `[data]` that are specific to molecules.
#[derive(Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoleculeKeys {
    /// Column of a CSV file, ignoring case. Default: first of `smiles`, `canonical_smiles`,
    /// `molecule`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    smiles_column: Option<String>,
    /// JSON object that maps tokens to indices, such as MolGPT's `*_stoi.json`, including the token
    /// `<`, or a [`vocabulary.json`](files.md#model-and-adapter-folders). Default: tokens of the
    /// file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vocabulary: Option<PathBuf>,
    /// Fewer usable training molecules are an error; not for records.
    #[serde(default = "default_min_molecules")]
    min_molecules: usize,
    /// Probability that a training molecule is read as a random SMILES of the same molecule, drawn
    /// again in each epoch. The molecule is read as written if the random SMILES has a token
    /// outside the vocabulary or too many tokens. MolGPT's GRPO data uses 0.1; not for records.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    randomize: f64,
    /// The conditions of a new model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conditions: Option<NewConditions>,
    /// Measured molecules of the file.
    #[serde(skip)]
    measured: Mutex<Option<Arc<Measured>>>,
}

/// The `[data.conditions]` section: the conditions that a new model accepts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct NewConditions {
    /// Properties: `logp`, `tpsa`, `sas` (the SA score), `qed`, or any other
    /// [descriptor](#components).
    properties: Vec<String>,
    /// Whether some of them can be left open. MolGPT's own models require a value for each:
    /// `false`.
    partial: bool,
    /// Whether the model can be asked for a Murcko scaffold.
    scaffold: bool,
    /// Cut and pad scaffolds to this number of tokens, as MolGPT does; 0 for neither.
    #[schemars(range(min = 0, max = 1048576))]
    scaffold_length: usize,
    /// Summarise the scaffold with an LSTM of this many layers, one vector each; 0 for one vector
    /// per token.
    #[schemars(range(min = 0, max = 16))]
    lstm_layers: usize,
    /// Read the values from the CSV columns `scaffold_smiles`, `logp`, … instead of computing them.
    from_columns: bool,
}

impl Default for NewConditions {
    fn default() -> Self {
        Self {
            properties: Vec::new(),
            partial: true,
            scaffold: false,
            scaffold_length: 0,
            lstm_layers: 0,
            from_columns: false,
        }
    }
}

impl NewConditions {
    /// Returns the names of the columns from which the values are read.
    fn columns(&self) -> Vec<String> {
        if !self.from_columns {
            return Vec::new();
        }
        let scaffold = self.scaffold.then(|| SCAFFOLD_COLUMN.to_owned());
        self.properties.iter().cloned().chain(scaffold).collect()
    }

    fn check(&self) -> Result<(), ConfigFault> {
        let fault = |key: &str, message: String| {
            Err(ConfigFault::from_sentence(format!("data.conditions{key}"), message))
        };
        if self.properties.is_empty() && !self.scaffold {
            return fault(
                "",
                "[data.conditions] is empty; set properties, for example [\"logp\", \"tpsa\"], or scaffold = true"
                    .to_owned(),
            );
        }
        for (index, name) in self.properties.iter().enumerate() {
            if descriptor(name).is_none() {
                let known: Vec<&str> = Descriptor::ALL.iter().map(|known| known.name()).collect();
                let known = known.join(", ");
                return fault(
                    ".properties",
                    format!(
                        "data.conditions.properties: unknown property '{name}'; expected sas, {known}"
                    ),
                );
            }
            if self.properties[..index].iter().any(|other| descriptor(other) == descriptor(name)) {
                return fault(
                    ".properties",
                    format!("data.conditions.properties lists '{name}' twice; remove one"),
                );
            }
        }
        for (key, value) in
            [("scaffold_length", self.scaffold_length), ("lstm_layers", self.lstm_layers)]
        {
            if value > 0 && !self.scaffold {
                return fault(
                    &format!(".{key}"),
                    format!(
                        "data.conditions.{key} has no effect without scaffold = true; remove it"
                    ),
                );
            }
        }
        Ok(())
    }
}

fn default_min_molecules() -> usize {
    1000
}

impl MoleculeKeys {
    fn options(&self) -> ReadOptions {
        ReadOptions {
            smiles_column: self.smiles_column.clone(),
            column_setting: Some("`data.smiles_column`"),
            ..ReadOptions::default()
        }
    }

    /// Returns the measured molecules of a file. They are only computed once.
    fn measured(&self, file: &Path, measures: &Measures<'_>) -> Result<Arc<Measured>, DataError> {
        let mut kept = self.measured.lock().expect("no thread panicked");
        if let Some(measured) = &*kept {
            return Ok(Arc::clone(measured));
        }
        let measured = Arc::new(Measured::read(file, &self.options(), measures)?);
        *kept = Some(Arc::clone(&measured));
        Ok(measured)
    }

    /// Adds conditions to the examples. Examples whose conditions are unknown are dropped and
    /// counted.
    fn condition(
        &self,
        examples: Examples,
        conditions: &Conditions,
        file: &Path,
        vocabulary: &Vocabulary,
    ) -> anyhow::Result<(Examples, u64)> {
        let properties: Vec<String> =
            conditions.properties.iter().map(|property| property.name.clone()).collect();
        let measures = Measures {
            properties: &properties,
            scaffold: conditions.scaffold,
            from_columns: self.conditions.as_ref().is_some_and(|new| new.from_columns),
        };
        let measured = self.measured(file, &measures)?;
        let with_prefix = |example: Example| {
            let smiles = vocabulary.decode(&example.ids);
            let prefix = conditions.prefix(measured.get(&smiles)?, vocabulary).ok()?;
            Some(Example { prefix, ..example })
        };
        let all = |part: Vec<Example>| -> Vec<Example> {
            part.into_par_iter().filter_map(with_prefix).collect()
        };
        let before = examples.train.len() + examples.validation.len();
        let examples = Examples::new(all(examples.train), all(examples.validation));
        let after = examples.train.len() + examples.validation.len();
        Ok((examples, (before - after) as u64))
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
                    "data.{key} is only valid for a model of text, whose data.file is JSON lines or Parquet, but a `.smi` or `.csv` file is read as molecules; convert the file (`.jsonl`), or remove data.{key} if the model is one of molecules"
                ),
            ));
        }
        self.check_ranges("data")?;
        self.conditions.iter().try_for_each(NewConditions::check)?;
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
            "data.file = \"{}\" is read as molecules because of its name, not as prompts; convert it to JSON lines (.jsonl) with `prompt` or `messages`, or remove [data]",
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
                "data.file = \"{}\" is read as molecules because of its name, but the model is trained on text; convert it to JSON lines (.jsonl) with `text`, or with `prompt` and `completion`",
                file.display()
            );
        };
        let options = CorpusOptions {
            // Two tokens are reserved for the boundary token at both ends.
            max_tokens: from.longest - 2,
            validation_fraction,
            seed,
            min_molecules: self.min_molecules,
            needed_columns: self.conditions.as_ref().map_or_else(Vec::new, NewConditions::columns),
        };
        let corpus = Corpus::read(file, &self.options(), vocabulary, &options)?;
        let longest = corpus.report.longest;
        let longest = format!("longest molecule: {longest} tokens (limit: {})", from.longest - 2);
        let mut report = vec![corpus.report.to_string(), longest];
        report.extend(corpus.report.examples.iter().map(|dropped| format!("left out: {dropped}")));
        let mut files = vec![("molecules", file.to_owned())];
        files.extend(self.vocabulary.iter().map(|path| ("vocabulary", path.clone())));
        let mut examples = corpus.examples(vocabulary);
        if let Some(conditions) = Conditions::of_model(from.config).map_err(anyhow::Error::msg)? {
            let (conditional, dropped) = self.condition(examples, &conditions, file, vocabulary)?;
            examples = conditional;
            if dropped > 0 {
                report.push(format!(
                    "left out: {dropped} molecules that are invalid or whose scaffold has a token outside the vocabulary"
                ));
            }
        }
        let augmentation = (self.randomize > 0.0)
            .then(|| randomized(vocabulary.clone(), self.randomize, options.max_tokens, seed));
        Ok(ReadExamples { examples, augmentation, report, files })
    }

    fn new_model(&self, sizes: &NewModel) -> Result<ModelConfig, ModelError> {
        let &NewModel { vocabulary, context, layers, heads, width } = sizes;
        MolGptConfig::new(vocabulary, context, layers, heads, width).to_config()
    }

    fn new_config(&self, file: &Path) -> anyhow::Result<Map<String, serde_json::Value>> {
        let Some(new) = &self.conditions else { return Ok(Map::new()) };
        let NewConditions { properties, scaffold, from_columns, .. } = new;
        let (&scaffold, &from_columns) = (scaffold, from_columns);
        let measured = self.measured(file, &Measures { properties, scaffold, from_columns })?;
        anyhow::ensure!(
            !measured.written.is_empty(),
            "{} contains no valid molecules",
            file.display()
        );
        let property = |name: &String| Property::of(name, &measured.values(name));
        let conditions = Conditions {
            properties: properties.iter().map(property).collect(),
            partial: new.partial,
            scaffold,
            scaffold_length: new.scaffold_length,
        };
        Ok(conditions.keys(new.lstm_layers))
    }

    fn new_codec(&self) -> Option<NewCodec<'_>> {
        Some(Box::new(|file| self.codec(file)))
    }
}

impl MoleculeKeys {
    /// Returns the codec with the vocabulary of the section, or with that of the molecules.
    fn codec(&self, file: &Path) -> anyhow::Result<Codec> {
        if let Some(path) = &self.vocabulary {
            return Ok(Codec::from_text_codec(Vocabulary::from_json_file(path)?));
        }
        let reader = MoleculeReader::open(file, &self.options())?;
        let smiles: Vec<String> =
            reader.map(|record| Ok(record?.smiles)).collect::<Result<_, DataError>>()?;
        // The corpus counts and reports the others. A token that only they have could not be learned.
        let is_usable = |smiles: &String| {
            smiles_tokens(smiles).all(|token| token.is_ok()) && Molecule::parse(smiles).is_ok()
        };
        let usable: Vec<String> = smiles.into_par_iter().filter(is_usable).collect();
        let scaffolds = match &self.conditions {
            Some(NewConditions { properties, scaffold: true, from_columns, .. }) => {
                let from_columns = *from_columns;
                self.measured(file, &Measures { properties, scaffold: true, from_columns })?
            }
            _ => Arc::default(),
        };
        let scaffolds = scaffolds.written.values().filter_map(|asked| asked.scaffold.as_deref());
        let scaffolds =
            scaffolds.filter(|scaffold| smiles_tokens(scaffold).all(|token| token.is_ok()));
        let vocabulary =
            Vocabulary::from_smiles(usable.iter().map(String::as_str).chain(scaffolds))?;
        Ok(Codec::from_text_codec(vocabulary))
    }
}
