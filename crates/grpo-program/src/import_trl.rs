//! Converts a configuration from TRL's GRPO trainer to one for `grpo train`.
//!
//! Each TRL key is handled in one place: by a [rule](rules) if it maps directly to one of our keys,
//! in [`steps`], [`loss`], [`places`], [`data`] or
//! [`reward`] if it needs conversion, or in [`elsewhere`] if it has no
//! counterpart. Keys left at TRL's default are written if ours differs, so that the run stays the
//! same.

pub(crate) mod command;
mod data;
mod data_set;
mod defaults;
mod draft;
mod elsewhere;
mod loss;
mod places;
mod reward;
mod rules;
mod source;
mod steps;
mod tables;
#[cfg(test)]
mod tests;
mod writer;
pub(crate) mod yaml;

use std::path::{Path, PathBuf};

use grpo_task::config;
use grpo_task::task::Tasks;

use self::draft::{Draft, Report};
use self::source::Given;
pub(crate) use self::steps::Setting;
use crate::train_file::TrainFile;

/// An imported configuration.
pub(crate) struct Imported {
    /// Text of the configuration.
    pub(crate) toml: String,
    /// The chat template of the file, and where to write it.
    pub(crate) template: Option<(PathBuf, String)>,
    report: Report,
}

/// Keys that are handled in code rather than by a table. They take effect only together with other
/// keys, so they may be missing from the report.
const BY_CODE: &[&str] = &[
    "adam_beta1",
    "adam_beta2",
    "chat_template",
    "chat_template_kwargs",
    "dataset_config",
    "dataset_mixture",
    "dataset_name",
    "dataset_prompt_column",
    "dataset_test_split",
    "dataset_train_split",
    "datasets",
    "delta",
    "dtype",
    "entropy_coef",
    "entropy_coef_delta",
    "entropy_coef_max",
    "entropy_coef_min",
    "entropy_target",
    "epsilon",
    "epsilon_high",
    "eval_steps",
    "eval_strategy",
    "generation_batch_size",
    "gradient_accumulation_steps",
    "importance_sampling_level",
    "load_in_4bit",
    "load_in_8bit",
    "log_completions",
    "lora_alpha",
    "lora_dropout",
    "lora_modules_to_save",
    "lora_r",
    "lora_target_modules",
    "loss_type",
    "lr_scheduler_kwargs",
    "lr_scheduler_type",
    "max_grad_norm",
    "max_steps",
    "model_name_or_path",
    "model_revision",
    "num_generations_eval",
    "num_iterations",
    "num_train_epochs",
    "output_dir",
    "per_device_train_batch_size",
    "ref_model_mixup_alpha",
    "ref_model_sync_steps",
    "reward_funcs",
    "reward_weights",
    "sapo_temperature_neg",
    "sapo_temperature_pos",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "scale_rewards",
    "steps_per_generation",
    "sync_ref_model",
    "system_prompt",
    "use_adaptive_entropy",
    "use_dora",
    "use_peft",
    "use_rslora",
    "vespo_k_neg",
    "vespo_k_pos",
    "vespo_lambda_neg",
    "vespo_lambda_pos",
    "warmup_ratio",
    "warmup_steps",
];

/// Note on keys that are not in any table.
const UNKNOWN: &str = "unknown to TRL up to 1.16 and to open-r1; check the spelling";

/// Imports the file `path`. `output` is the file that the configuration will be written to.
///
/// # Errors
/// Returns an error if the file cannot be read, or if a value has the wrong type.
pub(crate) fn import(
    path: &Path,
    output: &Path,
    setting: &Setting,
    tasks: &Tasks,
) -> anyhow::Result<Imported> {
    let given = Given::read(path)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let mut draft = drafted(&given, &stem, setting)?;
    let template = given.text("chat_template")?;
    let template = template.map(|text| (output.with_extension("chat_template.jinja"), text));
    if let Some((path, _)) = &template {
        let model = draft.text_of("model").unwrap_or_default();
        draft.remind(format!(
            "Give the model the chat template of the file: cp {} {model}/chat_template.jinja",
            path.display()
        ));
    }
    let toml = writer::toml_of(&draft, &path.display().to_string());
    let checked = config::of_text(output, toml.clone())
        .and_then(|layers| TrainFile::parse(layers, tasks))
        .and_then(|loaded| loaded.value.check(&loaded.origin));
    // A value that TRL accepts may be out of range here.
    if let Err(error) = checked {
        draft.remind(format!("Change a value: {error:#}"));
    }
    Ok(Imported { toml, template, report: draft.report })
}

/// Converts all keys.
fn drafted<'a>(given: &'a Given, stem: &str, setting: &Setting) -> anyhow::Result<Draft<'a>> {
    let mut draft = Draft::new(given);
    places::apply(&mut draft, stem)?;
    data::apply(&mut draft)?;
    reward::apply(&mut draft)?;
    let length = steps::apply(&mut draft, setting)?;
    rules::apply(&mut draft)?;
    loss::apply(&mut draft, length)?;
    steps::periods(&mut draft, length)?;
    elsewhere::apply(&mut draft);
    let mut useless = Vec::new();
    for key in given.names() {
        let is_known = BY_CODE.contains(&key) || rules::is_known(key) || elsewhere::is_known(key);
        if !is_known {
            draft.unknown(key, UNKNOWN);
        } else if given.has(key) && !draft.is_mentioned(key) {
            useless.push(key);
        }
    }
    draft.without(&useless, false, "no effect in combination with the other keys");
    Ok(draft)
}

impl Imported {
    /// Returns the report as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(&self.report)?)
    }

    /// Prints the report as tables.
    pub(crate) fn print(&self) {
        tables::print(&self.report);
    }
}
