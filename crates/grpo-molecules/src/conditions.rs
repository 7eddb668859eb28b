//! Conditions that a molecule model accepts: properties and a scaffold.

mod accuracy;
mod measured;
mod requests;
mod reward;
mod source;

use std::fmt::Write;

use grpo_chem::{Descriptor, Molecule};
use grpo_data::{Prefix, Prompt, json_reason, statistics};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use self::accuracy::{Accuracy, SAME_SCAFFOLD};
pub(crate) use self::measured::{Measured, Measures};
pub(crate) use self::requests::Grid;
pub(crate) use self::reward::ConditionsConfig;
pub(crate) use self::source::SOURCE;
use crate::Vocabulary;

/// Distance from the mean of the training molecules, in standard deviations, from which a requested
/// value is unusual.
const UNUSUAL: f64 = 5.0;

/// Name of the CSV column with scaffolds.
pub(crate) const SCAFFOLD_COLUMN: &str = "scaffold_smiles";

/// Returns the descriptor with this name, in upper or lower case. `sas` is MolGPT's name of the SA
/// score.
pub(crate) fn descriptor(name: &str) -> Option<Descriptor> {
    let name = name.to_ascii_lowercase();
    if name == "sas" { Some(Descriptor::Sa) } else { Descriptor::parse(&name) }
}

/// Returns whether a CSV column with this lower-case name contains a condition.
pub(crate) fn is_condition_column(name: &str) -> bool {
    name == SCAFFOLD_COLUMN || descriptor(name).is_some()
}

/// Returns the prompt for a condition.
///
/// # Errors
/// Returns an error if the model does not accept it.
pub(crate) fn prompt(
    conditions: &Conditions,
    asked: &Asked,
    vocabulary: &Vocabulary,
    index: u32,
) -> Result<Prompt, String> {
    let mut prompt = Prompt::of_ids(index, vec![vocabulary.start()]);
    prompt.prefix = conditions.prefix(asked, vocabulary)?;
    prompt.prefix_text = asked.text();
    prompt.fields = asked.fields();
    Ok(prompt)
}

/// A property that a model accepts as a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Property {
    /// Name of a descriptor, or `sas`.
    pub(crate) name: String,
    /// Mean over the training molecules.
    pub(crate) mean: f64,
    /// Standard deviation over the training molecules.
    pub(crate) deviation: f64,
}

/// The conditions of a model, as stored in its `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditions {
    pub(crate) properties: Vec<Property>,
    /// Whether some of the properties can be left open.
    pub(crate) partial: bool,
    /// Whether the model accepts a scaffold.
    pub(crate) scaffold: bool,
    /// Number of tokens of a scaffold, or 0 for any number.
    pub(crate) scaffold_length: usize,
}

/// A condition in natural units.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asked {
    /// Names and values of properties.
    pub(crate) properties: Vec<(String, f64)>,
    /// Canonical SMILES of a scaffold.
    pub(crate) scaffold: Option<String>,
}

/// The `conditions` key of `config.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    properties: Vec<Property>,
}

impl Property {
    /// Creates a property from its values for the training molecules.
    pub(crate) fn of(name: &str, values: &[f64]) -> Self {
        let mean = statistics::mean(values);
        let deviation = statistics::population_variance(values).sqrt();
        // A constant property carries no information.
        let deviation = if deviation > 0.0 { deviation } else { 1.0 };
        Self { name: name.to_owned(), mean, deviation }
    }
}

impl Conditions {
    /// Reads the conditions from the keys of a model's `config.json`. Returns `None` for a model
    /// without conditions.
    ///
    /// # Errors
    /// Returns an error if the properties are not described.
    pub(crate) fn of_model(config: &Map<String, Value>) -> Result<Option<Self>, String> {
        let number = |key: &str| config.get(key).and_then(Value::as_u64).unwrap_or(0) as usize;
        let is_set = |key: &str| config.get(key).and_then(Value::as_bool).unwrap_or(false);
        let (count, scaffold) = (number("num_props"), is_set("scaffold"));
        if count == 0 && !scaffold {
            return Ok(None);
        }
        let properties = match config.get("conditions") {
            Some(stored) => {
                let stored: Stored = serde_json::from_value(stored.clone()).map_err(|error| {
                    format!("conditions in config.json: {}", json_reason(&error))
                })?;
                stored.properties
            }
            None => Vec::new(),
        };
        if properties.len() != count {
            return Err(format!(
                "config.json has num_props = {count}, but describes {} properties in conditions.properties; add the name, mean and deviation of each",
                properties.len()
            ));
        }
        if let Some(unknown) = properties.iter().find(|p| descriptor(&p.name).is_none()) {
            return Err(format!("config.json: unknown property '{}' in conditions", unknown.name));
        }
        let partial = is_set("partial_props");
        let scaffold_length = number("scaffold_maxlen");
        Ok(Some(Self { properties, partial, scaffold, scaffold_length }))
    }

    /// Returns the `config.json` keys for these conditions.
    pub(crate) fn keys(&self, lstm_layers: usize) -> Map<String, Value> {
        let stored = Stored { properties: self.properties.clone() };
        let stored = serde_json::to_value(stored).expect("names and numbers are JSON");
        let mut keys = Map::new();
        let mut set = |key: &str, value: Value| keys.insert(key.to_owned(), value);
        if !self.properties.is_empty() {
            set("num_props", self.properties.len().into());
            set("partial_props", self.partial.into());
            set("conditions", stored);
        }
        if self.scaffold {
            set("scaffold", true.into());
            set("scaffold_maxlen", self.scaffold_length.into());
        }
        if lstm_layers > 0 {
            set("lstm", true.into());
            set("lstm_layers", lstm_layers.into());
        }
        keys
    }

    /// Returns a sentence for each requested value that is far from those of the training molecules.
    pub(crate) fn unusual(&self, asked: &Asked) -> Vec<String> {
        let described = |(name, value): &(String, f64)| {
            let of = self.properties.iter().find(|p| descriptor(&p.name) == descriptor(name))?;
            let deviations = (value - of.mean).abs() / of.deviation;
            (deviations > UNUSUAL).then(|| {
                format!(
                    "{name}={value} is {deviations:.1} standard deviations from the mean of the training molecules ({:.2} ± {:.2}); expect molecules with other values",
                    of.mean, of.deviation
                )
            })
        };
        asked.properties.iter().filter_map(described).collect()
    }

    /// Returns the names of the properties, separated by commas.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.properties.iter().map(|property| &*property.name).collect();
        names.join(", ")
    }

    /// Returns the model input for a condition.
    ///
    /// # Errors
    /// Returns an error if the model does not accept it.
    pub(crate) fn prefix(&self, asked: &Asked, vocabulary: &Vocabulary) -> Result<Prefix, String> {
        let mut values = vec![None; self.properties.len()];
        for (name, value) in &asked.properties {
            let Some(place) =
                self.properties.iter().position(|p| descriptor(&p.name) == descriptor(name))
            else {
                return Err(match self.properties.is_empty() {
                    true => format!("the model does not accept {name}, only a scaffold"),
                    false => {
                        format!("the model does not accept {name}, only {}", self.names())
                    }
                });
            };
            let Property { mean, deviation, .. } = self.properties[place];
            values[place] = Some(((value - mean) / deviation) as f32);
        }
        let open = self.properties.iter().zip(&values).find(|(_, value)| value.is_none());
        if asked.properties.is_empty() {
            values.clear();
        } else if let (Some((property, _)), false) = (open, self.partial) {
            return Err(format!(
                "the model requires a value for each of its properties ({}), but {} is missing",
                self.names(),
                property.name
            ));
        }
        let mut ids = Vec::new();
        if let Some(scaffold) = asked.scaffold.as_ref().filter(|scaffold| !scaffold.is_empty()) {
            if !self.scaffold {
                return Err("the model does not accept a scaffold as a condition".to_owned());
            }
            ids = vocabulary.encode(scaffold).map_err(|error| format!("scaffold: {error}"))?;
            if self.scaffold_length > 0 {
                ids.resize(self.scaffold_length, vocabulary.boundary());
            }
        }
        Ok(Prefix { ids, values })
    }
}

impl Asked {
    /// Adds the scaffold of a molecule. A scaffold is its own scaffold.
    ///
    /// # Errors
    /// Returns an error if the SMILES is invalid or has no rings.
    pub(crate) fn with_scaffold_of(self, smiles: &str) -> Result<Self, String> {
        let shown = smiles.escape_debug();
        let scaffold = Molecule::parse(smiles).and_then(|molecule| molecule.scaffold());
        match scaffold {
            Ok(scaffold) if scaffold.is_empty() => Err(format!(
                "'{shown}' has no rings, so it has no scaffold; use a molecule with a ring"
            )),
            Ok(scaffold) => Ok(Self { scaffold: Some(scaffold), ..self }),
            Err(error) => Err(format!("'{shown}' is not a valid molecule: {error}")),
        }
    }

    /// Returns the condition as text, e.g. `logp=3 tpsa=60.5 scaffold=c1ccccc1`, with at most three
    /// decimals.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.properties {
            let rounded = format!("{value:.3}");
            let shortest = rounded.trim_end_matches('0').trim_end_matches('.');
            let _infallible = write!(text, "{name}={shortest} ");
        }
        match &self.scaffold {
            Some(scaffold) => text + "scaffold=" + scaffold,
            None => text.trim_end().to_owned(),
        }
    }

    /// Returns the fields of a prompt's record, which rewards read.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let mut asked = Map::new();
        for (name, value) in &self.properties {
            asked.insert(name.clone(), (*value).into());
        }
        let mut fields = Map::from_iter([("asked".to_owned(), Value::Object(asked))]);
        if let Some(scaffold) = &self.scaffold {
            fields.insert("scaffold".to_owned(), scaffold.clone().into());
        }
        fields
    }

    /// Reads the condition from the fields of a prompt's record.
    pub(crate) fn of_fields(fields: &Map<String, Value>) -> Self {
        let asked = fields.get("asked").and_then(Value::as_object);
        let value = |(name, value): (&String, &Value)| Some((name.clone(), value.as_f64()?));
        let properties = asked.into_iter().flatten().filter_map(value).collect();
        let scaffold = fields.get("scaffold").and_then(Value::as_str).map(str::to_owned);
        Self { properties, scaffold }
    }
}
