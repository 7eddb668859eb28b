//! Settings that depend on the size of the model or the number of prompts, and are therefore only known
//! when both are loaded.

use std::path::Path;

use grpo_data::{ConfigFault, regular_file};
use grpo_model::{LanguageModel, Policy, gguf_parameters, is_gguf_file, weights_file};
use toml::{Table, Value};

use super::TrainFile;
use crate::train_file::prompts::Prompts;

/// What a configuration leaves open. [`TrainFile::settle`] replaces it by values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenSettings {
    /// `train.epochs`, in place of `train.steps`.
    epochs: Option<f64>,
    /// Whether `optimizer.learning_rate` is missing.
    has_no_learning_rate: bool,
}

/// Keys of `[train]` that [`OpenSettings`] holds.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "describes the keys")]
pub(crate) struct OpenKeys {
    /// Length of the run as passes over the prompts or conditions, instead of `steps`: ⌈`epochs` ×
    /// prompts / `prompts_per_step`⌉ steps. `config.toml` of the run has the number of steps. In one
    /// file, only one of the two may be set; `--set` and a file that extends another replace both.
    #[schemars(range(max = 1e6), extend("exclusiveMinimum" = 0, "x-basic" = true))]
    epochs: Option<f64>,
}

/// Stands in for `train.steps` until the prompts are counted: the largest value, so that no other setting
/// is refused for exceeding it.
const ANY_STEPS: i64 = 1_000_000_000;

impl OpenSettings {
    /// Removes the settings that are open from the configuration and replaces them by placeholders.
    pub(super) fn take(table: &mut Table) -> Result<Self, ConfigFault> {
        let epochs = match table.get_mut("train") {
            Some(Value::Table(train)) => take_epochs(train)?,
            _ => None,
        };
        let optimizer = table.entry("optimizer").or_insert_with(|| Value::Table(Table::new()));
        let has_no_learning_rate = match optimizer {
            Value::Table(optimizer) if !optimizer.contains_key("learning_rate") => {
                optimizer.insert("learning_rate".to_owned(), 0.0.into());
                true
            }
            _ => false,
        };
        Ok(Self { epochs, has_no_learning_rate })
    }
}

/// Replaces `epochs` by a placeholder for `steps`.
fn take_epochs(train: &mut Table) -> Result<Option<f64>, ConfigFault> {
    let Some(epochs) = train.remove("epochs") else { return Ok(None) };
    let key = "train.epochs";
    let number = epochs.as_float().or(epochs.as_integer().map(|epochs| epochs as f64));
    match number {
        _ if train.contains_key("steps") => {
            let fault = "train.epochs and train.steps both set the length of the run".to_owned();
            Err(ConfigFault::new(key, fault, "remove one of them"))
        }
        Some(epochs) if epochs > 0.0 && epochs <= 1e6 => {
            train.insert("steps".to_owned(), ANY_STEPS.into());
            Ok(Some(epochs))
        }
        Some(epochs) => {
            Err(ConfigFault::out_of_range(key, epochs, "a number above 0, at most 1000000"))
        }
        None => {
            let fault = format!("train.epochs = {epochs} is not a number");
            Err(ConfigFault::new(key, fault, "set it to the number of passes over the prompts"))
        }
    }
}

impl TrainFile {
    /// Describes a learning rate that is unusual for the size of the model, or the one that a run would
    /// use if the configuration has none. Reads no weights.
    pub(crate) fn learning_rate_note(&self) -> Option<String> {
        if !self.open.has_no_learning_rate && self.trainer.optimizer.learning_rate == 0.0 {
            return Some(
                "optimizer.learning_rate = 0, so training does not change the policy".to_owned(),
            );
        }
        let is_adapter = self.settings.lora.is_some() || self.settings.adapter.is_some();
        let size = ModelSize::of_folder(&self.settings.model, is_adapter)?;
        match self.open.has_no_learning_rate {
            true => Some(format!(
                "optimizer.learning_rate follows from the size of the model: about {:e}",
                size.usual_learning_rate()
            )),
            false => size
                .unusual_learning_rate(self.trainer.optimizer.learning_rate)
                .map(|unusual| format!("unusual: {unusual}")),
        }
    }

    /// Sets what the configuration leaves open: the number of steps from `train.epochs` and the number of
    /// prompts, and the learning rate from the size of the model. Checks the settings that depend on them.
    ///
    /// # Errors
    /// Returns an error if an epoch is not defined because there are no prompts, or if another setting
    /// does not fit the number of steps.
    pub(crate) fn settle(&mut self, policy: &Policy, prompts: &Prompts) -> anyhow::Result<()> {
        let OpenSettings { epochs, has_no_learning_rate } = std::mem::take(&mut self.open);
        if let Some(epochs) = epochs {
            let Some(count) = prompts.epoch() else {
                anyhow::bail!(
                    "train.epochs requires a file of prompts or conditions, because an epoch is one pass over that file; add one, or use train.steps"
                )
            };
            self.trainer.train.steps = steps(epochs, count, self.trainer.train.prompts_per_step);
        }
        if has_no_learning_rate {
            self.trainer.optimizer.learning_rate = ModelSize::of(policy).usual_learning_rate();
        }
        if epochs.is_some() {
            self.check_extensions()?;
        }
        Ok(())
    }
}

/// Returns the number of steps in which each prompt is used `epochs` times. A last step that is not full
/// counts.
fn steps(epochs: f64, prompts: usize, prompts_per_step: u32) -> u32 {
    let steps = (epochs * prompts as f64 / f64::from(prompts_per_step)).ceil();
    steps.clamp(1.0, ANY_STEPS as f64) as u32
}

/// Smallest model whose learning rate is judged. Smaller ones are often trained from scratch for one task,
/// and learn at very different rates.
const LEAST_JUDGED: f64 = 5e7;

/// Number of parameters of a model, and whether only an adapter is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModelSize {
    parameters: f64,
    is_adapter: bool,
}

impl ModelSize {
    pub(crate) fn of(policy: &Policy) -> Self {
        let is_adapter = matches!(policy, Policy::Adapted(_));
        Self { parameters: policy.parameters() as f64, is_adapter }
    }

    /// Estimates the size of a model from its files, without reading the weights. Returns `None` if there
    /// are no weights in a GGUF file or in files of safetensors or PyTorch.
    pub(crate) fn of_folder(folder: &Path, is_adapter: bool) -> Option<Self> {
        if is_gguf_file(folder) {
            let parameters = gguf_parameters(folder).ok()? as f64;
            return Some(Self { parameters, is_adapter });
        }
        let files = folder.read_dir().ok()?.filter_map(Result::ok);
        // If there are both, safetensors are read.
        let first = weights_file(folder)?;
        let of_torch =
            first.file_name().is_some_and(|name| name.to_string_lossy().contains(".bin"));
        let ending = if of_torch { "bin" } else { "safetensors" };
        let weights =
            files.filter(|file| file.path().extension().is_some_and(|found| found == ending));
        let bytes: u64 = weights.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        let config = regular_file::read(&folder.join("config.json")).ok()?;
        let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
        let dtype = ["dtype", "torch_dtype"].iter().find_map(|key| config.get(*key)?.as_str());
        let width = if matches!(dtype, Some("bfloat16" | "float16")) { 2.0 } else { 4.0 };
        (bytes > 0).then_some(Self { parameters: bytes as f64 / width, is_adapter })
    }

    /// Describes a learning rate that is unusual for a model of this size: more than three times or less
    /// than a twentieth of [`Self::usual_learning_rate`]. Small models are not judged.
    pub(crate) fn unusual_learning_rate(self, rate: f64) -> Option<String> {
        if self.parameters < LEAST_JUDGED {
            return None;
        }
        let usual = self.usual_learning_rate();
        let kind = if self.is_adapter { "an adapter of a model" } else { "a whole model" };
        let usual_range = usual / 20.0..=3.0 * usual;
        (!usual_range.contains(&rate)).then(|| {
            format!(
                "optimizer.learning_rate = {rate:e} (usual for {kind} with {:.1} million parameters: about {usual:e})",
                self.parameters / 1e6,
            )
        })
    }

    /// Returns a learning rate at which models of this size learn, with two significant digits.
    ///
    /// A whole model of 1.7 billion parameters gets 1e-6, TRL's default. Smaller models get more: the
    /// ratio of sizes to the power of 0.75, which fits the rates that the bundled models learn at.
    /// Adapters get ten times as much (Schulman et al. 2025, "LoRA Without Regret"). docs/LOG.md has the
    /// runs with which it was tried.
    pub(crate) fn usual_learning_rate(self) -> f64 {
        let whole = 1e-6 * (1.7e9 / self.parameters.max(1.0)).powf(0.75);
        let rate = if self.is_adapter { 10.0 * whole } else { whole };
        format!("{:.1e}", rate.min(1e-3)).parse().expect("a formatted number is one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_step_that_is_not_full_counts() {
        for (epochs, prompts, per_step, expected) in
            [(1.0, 8, 4, 2), (1.0, 9, 4, 3), (0.5, 8, 4, 1), (2.5, 10, 4, 7), (1e-9, 8, 4, 1)]
        {
            assert_eq!(steps(epochs, prompts, per_step), expected, "{epochs} of {prompts}");
        }
    }

    #[test]
    fn smaller_models_and_adapters_learn_at_higher_rates() {
        let rate = |parameters: f64, is_adapter: bool| {
            format!("{:e}", ModelSize { parameters, is_adapter }.usual_learning_rate())
        };
        assert_eq!([rate(1.7e9, false), rate(1.7e9, true)], ["1e-6", "1e-5"]);
        assert_eq!([rate(1.345e8, false), rate(1.345e8, true)], ["6.7e-6", "6.7e-5"]);
        assert_eq!(rate(0.0, true), "1e-3");
        let unusual =
            |rate| ModelSize { parameters: 1.345e8, is_adapter: false }.unusual_learning_rate(rate);
        assert_eq!([unusual(1e-6), unusual(6.7e-6), unusual(2e-5)], [None, None, None]);
        assert_eq!(
            unusual(1e-4).unwrap(),
            "optimizer.learning_rate = 1e-4 (usual for a whole model with 134.5 million parameters: about 6.7e-6)"
        );
        assert!(unusual(1e-7).is_some());
    }

    #[track_caller]
    fn check(train: &str, expected: &str) {
        let mut table: Table = toml::from_str(train).unwrap();
        let taken = OpenSettings::take(&mut table);
        let found = taken.map_or_else(|fault| fault.to_string(), |open| format!("{open:?}"));
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_open() {
        check(
            "train.steps = 3\noptimizer.learning_rate = 1e-4",
            "OpenSettings { epochs: None, has_no_learning_rate: false }",
        );
        check("train.epochs = 2", "OpenSettings { epochs: Some(2.0), has_no_learning_rate: true }");
        check(
            "train.epochs = 0.0",
            "train.epochs = 0 is out of range; expected a number above 0, at most 1000000",
        );
        check(
            "train.epochs = \"two\"",
            "train.epochs = \"two\" is not a number; set it to the number of passes over the prompts",
        );
        check(
            "[train]\nsteps = 3\nepochs = 2",
            "train.epochs and train.steps both set the length of the run; remove one of them",
        );
    }
}
