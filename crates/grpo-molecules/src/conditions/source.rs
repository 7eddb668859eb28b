//! The `[conditions]` section of `grpo train`, which determines the conditions for each group.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use grpo_chem::Descriptor;
use grpo_data::schema::Keys;
use grpo_data::{
    ConfigFault, CounterRng, EpochOrder, OrderPosition, Prompt, Purpose, deserialize_settings,
};
use grpo_model::Families;
use grpo_rewards::Reward;
use grpo_task::models::{Loaded, check_causal};
use grpo_task::source::{Opened, PromptStream, Source, SourceKind};
use grpo_train::{GrpoConfig, TrainError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::{Asked, Conditions, Measured, Measures, descriptor, prompt};
use crate::{ReadOptions, Vocabulary};

/// Conditions for GRPO prompts.
const CONDITIONS: Purpose = Purpose::new(14);

pub(crate) const SOURCE: SourceKind = SourceKind {
    sections: &["conditions"],
    schema: Keys::in_section::<ConditionsSection>("conditions"),
    parse: |mut sections| {
        let Some(toml::Value::Table(section)) = sections.remove("conditions") else {
            return Err(ConfigFault::from_sentence("conditions", "conditions must be a section"));
        };
        let parsed = deserialize_settings::<ConditionsSection>(section);
        Ok(Arc::new(parsed.map_err(|fault| fault.below("conditions"))?))
    },
};

/// The `[conditions]` section.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConditionsSection {
    /// Conditions, one per row: a CSV file with a column per property and `scaffold_smiles` (empty
    /// cells are left open), or a `.smi` file of molecules whose scaffolds are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// Molecules; a group is asked for the properties and the scaffold of one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    molecules: Option<PathBuf>,
    /// Draw the scaffold of one of these molecules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scaffolds: Vec<String>,
    /// Ask for at most this many of the properties, a random number and selection per group.
    /// Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<usize>,
    /// Properties to draw, by name: a list, of which one value is drawn, or a range, in which the
    /// value is uniform.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, Draw>,
}

/// How the value of a property is drawn.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Draw {
    /// One of these values.
    Values(Vec<f64>),
    /// A uniform value.
    Range(Range),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Range {
    /// Lowest value.
    low: f64,
    /// Highest value.
    high: f64,
}

impl ConditionsSection {
    fn fault<T>(key: &str, message: String) -> Result<T, ConfigFault> {
        let key =
            if key.is_empty() { "conditions".to_owned() } else { format!("conditions.{key}") };
        Err(ConfigFault::from_sentence(key, message))
    }

    fn check_draws(&self) -> Result<(), ConfigFault> {
        for (name, draw) in &self.properties {
            let key = format!("properties.{name}");
            if descriptor(name).is_none() {
                let known: Vec<&str> = Descriptor::ALL.iter().map(|known| known.name()).collect();
                let known = known.join(", ");
                let fault = format!(
                    "conditions.properties: unknown property '{name}'; expected one of sas, {known}"
                );
                return Self::fault(&key, fault);
            }
            let is_usable = match draw {
                Draw::Values(values) => !values.is_empty() && values.iter().all(|v| v.is_finite()),
                Draw::Range(Range { low, high }) => low <= high && (high - low).is_finite(),
            };
            if !is_usable {
                return Self::fault(
                    &key,
                    format!(
                        "conditions.{key} must be a list of numbers, or {{ low = …, high = … }} with low at most high"
                    ),
                );
            }
        }
        Ok(())
    }
}

impl Source for ConditionsSection {
    fn settings(&self) -> Table {
        let section = Table::try_from(self).expect("parsed settings can be written as TOML");
        Table::from_iter([("conditions".to_owned(), section.into())])
    }

    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        let file = self.file.iter().map(|file| ("conditions", file.clone()));
        file.chain(self.molecules.iter().map(|file| ("molecules", file.clone()))).collect()
    }

    fn check(&self, trainer: &GrpoConfig, has_data: bool) -> Result<(), ConfigFault> {
        let drawn = !self.properties.is_empty() || !self.scaffolds.is_empty();
        let given = [self.file.is_some(), self.molecules.is_some(), drawn];
        if given.iter().filter(|is_given| **is_given).count() != 1 {
            return Self::fault(
                "",
                "[conditions] requires one of `file`, `molecules`, or values to draw (`properties`, `scaffolds`)".to_owned(),
            );
        }
        if self.most == Some(0) {
            return Self::fault(
                "most",
                "conditions.most = 0 is out of range; expected 1 or more".to_owned(),
            );
        }
        if has_data {
            return Self::fault(
                "",
                "a run has either [conditions] or [data]; remove one".to_owned(),
            );
        }
        if trainer.eval.file.is_some() {
            return Self::fault(
                "",
                "eval.file contains prompts, which [conditions] replaces; remove it".to_owned(),
            );
        }
        self.check_draws()
    }

    fn check_model(&self, folder: &Path, families: &Families) -> anyhow::Result<()> {
        check_causal(folder, families)
    }

    fn max_new_tokens(&self) -> Option<usize> {
        None
    }

    fn has_epochs(&self) -> bool {
        self.file.is_some() || self.molecules.is_some()
    }

    fn try_out(&self, model: &[String], prompt: &Prompt) -> Option<Vec<String>> {
        let Asked { properties, scaffold } = Asked::of_fields(&prompt.fields);
        let mut words = vec!["sample".to_owned()];
        words.extend(model.iter().cloned());
        if !properties.is_empty() {
            let values = properties.iter().map(|(name, value)| format!("{name}={value}"));
            words.push(format!("--condition={}", values.collect::<Vec<_>>().join(",")));
        }
        let scaffold = scaffold.filter(|scaffold| !scaffold.is_empty());
        words.extend(scaffold.map(|scaffold| format!("--scaffold={scaffold}")));
        Some(words)
    }

    fn open(&self, loaded: &Loaded, reward: &dyn Reward, seed: u64) -> anyhow::Result<Opened> {
        let codec = &loaded.spec.codec;
        let conditions = Conditions::of_model(loaded.spec.config.json());
        let conditions = conditions.map_err(anyhow::Error::msg)?;
        let (Some(conditions), Some(vocabulary)) = (conditions, codec.own::<Vocabulary>()) else {
            anyhow::bail!(
                "[conditions] requires a model that takes conditions, such as one trained with [data.conditions]"
            );
        };
        let rows = self.rows(&conditions)?;
        let scaffold = |smiles: &String| Asked::default().with_scaffold_of(smiles);
        let scaffolds = self.scaffolds.iter().map(scaffold).collect::<Result<Vec<_>, _>>();
        let scaffolds = scaffolds.map_err(anyhow::Error::msg).context("conditions.scaffolds")?;
        let report = match (&self.file, &self.molecules) {
            (Some(file), _) => format!("{}: {} conditions", file.display(), rows.len()),
            (_, Some(file)) => {
                format!("{}: conditions of {} molecules", file.display(), rows.len())
            }
            _ => format!(
                "conditions drawn from {} properties and {} scaffolds",
                self.properties.len(),
                scaffolds.len()
            ),
        };
        let section = self.clone();
        let vocabulary = vocabulary.clone();
        let stream = Stream { section, rows, scaffolds, conditions, vocabulary, seed };
        stream.check(reward)?;
        Ok(Opened { stream: Box::new(stream), report })
    }
}

impl ConditionsSection {
    /// Reads the conditions of the file, if there is one.
    fn rows(&self, conditions: &Conditions) -> anyhow::Result<Vec<Asked>> {
        if let Some(file) = &self.file {
            return Asked::read(file).context("conditions.file");
        }
        let Some(file) = &self.molecules else { return Ok(Vec::new()) };
        let properties: Vec<String> =
            conditions.properties.iter().map(|property| property.name.clone()).collect();
        let scaffold = conditions.scaffold;
        let measures = Measures { properties: &properties, scaffold, from_columns: false };
        let measured = Measured::read(file, &ReadOptions::default(), &measures);
        let measured: Vec<Asked> =
            measured.context("conditions.molecules")?.written.into_values().collect();
        anyhow::ensure!(
            !measured.is_empty(),
            "conditions.molecules: {} has no valid molecules",
            file.display()
        );
        Ok(measured)
    }
}

/// An endless stream of conditions.
struct Stream {
    section: ConditionsSection,
    rows: Vec<Asked>,
    scaffolds: Vec<Asked>,
    conditions: Conditions,
    vocabulary: Vocabulary,
    seed: u64,
}

/// Which prompts are drawn. Evaluation and training share no random numbers.
#[derive(Clone, Copy)]
enum Part {
    Training = 0,
    NoStep = 1,
    Evaluation = 2,
}

impl Stream {
    /// Checks that the model accepts all conditions and that the reward can score them.
    fn check(&self, reward: &dyn Reward) -> anyhow::Result<()> {
        let drawn: Vec<Asked> = match self.rows.is_empty() {
            true => (0..64).map(|index| self.asked(Part::NoStep, 0, index, None)).collect(),
            false => Vec::new(),
        };
        let scaffolds = self.scaffolds.iter().cloned();
        for asked in self.rows.iter().cloned().chain(scaffolds).chain(drawn) {
            let is_complete = asked.properties.len() == self.conditions.properties.len();
            let checked = match self.section.most {
                // A subset is drawn later, which only partial models support.
                Some(_) if is_complete && !self.conditions.partial => {
                    anyhow::bail!(
                        "conditions.most requires a model that allows some properties to be left open"
                    )
                }
                _ => self.conditions.prefix(&asked, &self.vocabulary),
            };
            // Unusual scaffolds of molecules are left out when they are drawn.
            if self.section.molecules.is_none() {
                checked
                    .map_err(anyhow::Error::msg)
                    .with_context(|| format!("condition {}", asked.text()))?;
                let fields = asked.fields();
                reward.check(&fields).map_err(|fault| anyhow::anyhow!("reward: {fault}"))?;
            }
        }
        Ok(())
    }

    /// Returns the rows of a training step, so that each epoch visits every row once.
    fn rows_of_step(&self, step: u32, count: u32) -> Vec<usize> {
        let position = OrderPosition::after(u64::from(step) * u64::from(count), self.rows.len());
        let mut order = EpochOrder::resume(self.seed, self.rows.len(), position)
            .expect("the remainder is less than the number of rows");
        (0..count).map(|_| order.next_item()).collect()
    }

    /// Returns the conditions of a prompt. `row` is that of a training step; other rows are drawn.
    fn asked(&self, part: Part, step: u32, index: u32, row: Option<usize>) -> Asked {
        let rng = CounterRng::new(self.seed, CONDITIONS);
        let counter = |draw: u32| [draw, index, step, part as u32];
        let mut draw = 0;
        let mut below = |bound: usize| {
            draw += 1;
            rng.below(counter(draw), bound as u64) as usize
        };
        let mut asked = if self.rows.is_empty() {
            let mut asked = match self.scaffolds.len() {
                0 => Asked::default(),
                count => self.scaffolds[below(count)].clone(),
            };
            for (name, values) in &self.section.properties {
                let value = match values {
                    Draw::Values(values) => values[below(values.len())],
                    Draw::Range(Range { low, high }) => {
                        low + (high - low) * (below(1 << 24) as f64 / f64::from(1 << 24))
                    }
                };
                asked = asked.with(name, value);
            }
            asked
        } else {
            self.rows[row.unwrap_or_else(|| below(self.rows.len()))].clone()
        };
        if let Some(most) = self.section.most {
            let size = 1 + below(most.min(asked.properties.len()).max(1));
            while asked.properties.len() > size {
                asked.properties.remove(below(asked.properties.len()));
            }
        }
        if self.section.molecules.is_some()
            && self.conditions.prefix(&asked, &self.vocabulary).is_err()
        {
            asked.scaffold = None;
        }
        asked
    }

    fn prompts(&self, part: Part, step: u32, count: u32) -> Result<Vec<Prompt>, TrainError> {
        let rows = match part {
            Part::Training if !self.rows.is_empty() => self.rows_of_step(step, count),
            _ => Vec::new(),
        };
        let prompt = |index: u32| {
            let asked = self.asked(part, step, index, rows.get(index as usize).copied());
            let prompt = prompt(&self.conditions, &asked, &self.vocabulary, index);
            prompt.map_err(|fault| ConfigFault::from_sentence("conditions", fault).into())
        };
        (0..count).map(prompt).collect()
    }
}

impl PromptStream for Stream {
    fn of_step(&self, step: u64, count: u32) -> Result<Vec<Prompt>, TrainError> {
        self.prompts(Part::Training, step as u32, count)
    }

    fn of_no_step(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        self.prompts(Part::NoStep, 0, count)
    }

    fn of_evaluation(&self, count: u32) -> Result<Vec<Prompt>, TrainError> {
        self.prompts(Part::Evaluation, 0, count)
    }

    fn longest(&self) -> usize {
        1
    }

    fn epoch(&self) -> Option<usize> {
        Some(self.rows.len()).filter(|&rows| rows > 0)
    }
}
