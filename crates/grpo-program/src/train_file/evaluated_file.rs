//! The configuration of `grpo eval --model`: that of a training run, of which only what an evaluation needs
//! is used, for a given model.

use std::path::Path;

use anyhow::Context;
use grpo_task::config;
use grpo_task::output::say_aside;
use grpo_task::run_files::refuse_other_command;
use grpo_task::task::Tasks;
use toml::{Table, Value};

use super::{TrainFile, reward_layers};

/// What takes the place of keys of the configuration.
pub(crate) struct Evaluated<'a> {
    /// The configuration file, or the type of the reward.
    pub(crate) reward: &'a Path,
    pub(crate) model: &'a Path,
    pub(crate) adapter: Option<&'a Path>,
    /// File of prompts, in place of `eval.file`.
    pub(crate) data: Option<&'a Path>,
    /// Other options, with the keys that they set.
    pub(crate) options: Vec<(&'static str, &'static str, Value)>,
    /// `KEY=VALUE` overrides.
    pub(crate) set: &'a [String],
}

/// Default of `sampling.max_new_tokens` if there is no configuration file, as in `grpo sample`.
const MOST_NEW_TOKENS: i64 = 256;

impl TrainFile {
    /// Reads and checks the configuration of an evaluation, whose `data.file` are the prompts to use. Files on the
    /// hub are downloaded.
    pub(crate) fn of_evaluation(of: Evaluated<'_>, tasks: &Tasks) -> anyhow::Result<Self> {
        let Evaluated { reward, model, adapter, data, options, set } = of;
        for (option, key, _) in &options {
            anyhow::ensure!(
                !config::is_set(set, key),
                "{option} and --set {key} set the same value; remove one of them"
            );
        }
        let mut keys: Vec<_> = options.into_iter().map(|(_, key, value)| (key, value)).collect();
        // Completions without a reward are counted, as in files.
        keys.push(("train.max_failed_rewards", 1.0.into()));
        let command = config::Command { name: "grpo eval sets", keys };
        let mut layers = reward_layers(reward, &command, set, tasks)?;
        let table = &mut layers.value;
        if reward.with_file_name("run.json").is_file() {
            config::drop_removed(table);
        }
        refuse_other_command(table, reward, "train")?;
        set_model(table, model, adapter);
        let files = prompt_files(table, data, set)?;
        set_missing(table, "data", &[]);
        if let (Some(Value::Table(section)), Some(files)) = (table.get_mut("data"), files) {
            section.insert("file".to_owned(), files);
        }
        set_missing(table, "train", &[("prompts_per_step", 1), ("group_size", 2), ("steps", 1)]);
        set_missing(table, "sampling", &[("max_new_tokens", MOST_NEW_TOKENS)]);
        table.entry("run").or_insert_with(|| "runs/eval".into());
        let config::Loaded { value: mut file, origin } = Self::parse(layers, tasks)?;
        anyhow::ensure!(
            file.source.is_none(),
            "{}: the prompts of this configuration do not come from a file; sample with `grpo sample -o FILE`, then use `grpo eval FILE --reward {0}`",
            reward.display()
        );
        file.check(&origin)?;
        file.find_on_hub(tasks)?;
        Ok(file)
    }
}

/// Replaces the keys that say what is trained.
fn set_model(table: &mut Table, model: &Path, adapter: Option<&Path>) {
    table.remove("lora");
    table.insert("model".to_owned(), text_of(model));
    match adapter {
        Some(adapter) => drop(table.insert("adapter".to_owned(), text_of(adapter))),
        // Only the base of an adapter can have another precision.
        None => ["adapter", "base_precision"].iter().for_each(|key| drop(table.remove(*key))),
    }
}

/// Returns the file or files of prompts if they take the place of `data.file`, and removes `eval.file`: the prompts of
/// `--data` or of `--set data.file`, otherwise the held-out ones of the configuration, otherwise those that it trains on.
fn prompt_files(
    table: &mut Table,
    data: Option<&Path>,
    set: &[String],
) -> anyhow::Result<Option<Value>> {
    let is_set = config::is_set(set, "data.file");
    anyhow::ensure!(
        data.is_none() || !is_set,
        "--data and --set data.file set the same value; remove one of them"
    );
    let held_out = match table.get_mut("eval") {
        Some(Value::Table(eval)) => eval.remove("file"),
        _ => None,
    };
    match (data, is_set, held_out) {
        (Some(data), ..) => Ok(Some(text_of(data))),
        (None, false, Some(held_out)) => Ok(Some(held_out)),
        (None, ..) => {
            let trained = table.get("data").and_then(|data| data.get("file"));
            let trained = trained.context(
                "missing prompts; add --data FILE with held-out prompts (JSON lines or Parquet)",
            )?;
            if !is_set {
                say_aside(format_args!(
                    "prompts      those that the configuration trains on ({trained}), because it has no eval.file; choose held-out ones with --data"
                ));
            }
            Ok(None)
        }
    }
}

fn text_of(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

/// Adds a section, and those of these keys that it lacks.
fn set_missing(table: &mut Table, section: &str, keys: &[(&str, i64)]) {
    let section = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(section) = section else { return };
    for (key, value) in keys {
        // An epoch is another length of the run.
        if *key != "steps" || !section.contains_key("epochs") {
            section.entry(*key).or_insert((*value).into());
        }
    }
}
