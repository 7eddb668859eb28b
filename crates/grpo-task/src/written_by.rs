//! Names the command that writes a missing input, from the configurations next to the one that needs
//! it.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use grpo_report::{command_of, resume_command};
use toml::{Table, Value};

use crate::config;
use crate::output::{command_line, sentence};

/// Maximum number of configurations that are read. More are not examples of one task.
const MOST_FILES: usize = 200;

/// Folder of a project's configurations, and the maximum number of folders in it that are read.
const CONFIGS: &str = "configs";
const MOST_FOLDERS: usize = 50;

/// What an error says about a missing file or folder.
const MISSING: &str = " does not exist";

/// Returns the configuration file that a command was given.
pub fn configuration_of(options: &ArgMatches) -> Option<PathBuf> {
    let values = options.try_get_raw("config").ok().flatten();
    values.and_then(|mut values| values.next()).map(PathBuf::from)
}

/// Replaces the general advice of an error about a missing input by the command that writes it, if a
/// configuration in the same folder says which one that is. Without a configuration, all those in
/// `configs` are read.
pub fn with_writer(error: anyhow::Error, configuration: Option<&Path>) -> anyhow::Error {
    let said = sentence(&error);
    let Some(at) = said.find(MISSING) else { return error };
    let end = at + MISSING.len();
    let is_end = |c: char| c.is_whitespace() || "`\"'".contains(c);
    let missing = said[..at].trim_end_matches(is_end).rsplit(is_end).next().unwrap_or_default();
    let missing = Path::new(missing);
    let found = match configuration {
        Some(configuration) => writer(configuration, missing),
        None => folders().iter().find_map(|folder| writer_in(folder, None, missing)),
    };
    match found {
        Some(writer) => anyhow::anyhow!("{}; {writer}", &said[..end]),
        None => error,
    }
}

/// Returns `configs` and the folders in it, in the order of their names.
fn folders() -> Vec<PathBuf> {
    let configs = PathBuf::from(CONFIGS);
    let entries = configs.read_dir().into_iter().flatten().flatten();
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.filter(is_folder).map(|entry| configs.join(entry.file_name()));
    let mut folders: Vec<PathBuf> = folders.take(MOST_FOLDERS).collect();
    folders.sort();
    folders.insert(0, configs);
    folders
}

/// Describes which command writes `missing`, and which pipeline runs it together with the
/// configuration that needs it.
pub fn writer(configuration: &Path, missing: &Path) -> Option<String> {
    let folder = configuration.parent().unwrap_or(Path::new(""));
    writer_in(folder, Some(configuration), missing)
}

/// Like [`writer`], from the configurations of a folder. `configuration` is the one that needs the input,
/// if there is one.
fn writer_in(folder: &Path, configuration: Option<&Path>, missing: &Path) -> Option<String> {
    if missing.as_os_str().is_empty() || missing.exists() {
        return None;
    }
    let others = configurations_in(folder, configuration);
    let (mut of_run, mut of_stage, mut pipeline) = (None, None, None);
    for (path, keys) in &others {
        let stages = keys.get("stages").and_then(Value::as_array);
        let stages = stages.into_iter().flatten().filter_map(Value::as_table);
        for stage in stages {
            of_stage = of_stage.or_else(|| words_of_stage(stage, missing));
            let is_own = texts(stage, "config").any(|of| Some(Path::new(of)) == configuration);
            let is_repeated = texts(stage, "name").any(|name| name.contains("{seed}"));
            if pipeline.is_none() && is_own && !is_repeated {
                pipeline = Some(command_line(["grpo", "run", &path.display().to_string()]));
            }
        }
        let run = keys.get("run").and_then(Value::as_str).map(Path::new);
        let longest = of_run.map_or(0, |(run, ..): (&Path, _, _)| run.components().count());
        if let Some(run) = run.filter(|run| run.components().count() > longest)
            && missing.starts_with(run.join(result_of(keys)))
        {
            of_run = Some((run, path, keys));
        }
    }
    let of_run = of_run.map(|(run, path, keys)| words_of_run(run, path, keys));
    let command = of_run.or(of_stage)?;
    Some(match pipeline {
        Some(all) => format!("`{command}` writes it, and `{all}` runs all stages"),
        None => format!("`{command}` writes it"),
    })
}

/// Returns the name of the folder in a run that contains the trained model or adapter.
pub fn result_of(keys: &Table) -> &'static str {
    let is_adapter = keys.contains_key("lora") || keys.contains_key("adapter");
    if is_adapter { "adapter" } else { "model" }
}

/// Returns the command line that starts the run of a configuration, or continues it if it exists.
fn words_of_run(run: &Path, configuration: &Path, keys: &Table) -> String {
    match run.join("run.json").is_file() {
        true => format!("grpo {}", resume_command(keys, run)),
        false => command_line(["grpo", command_of(keys), &configuration.display().to_string()]),
    }
}

/// Returns the command line of a stage without a configuration if it writes `missing`: one of its
/// outputs, or a file in the folder that it is told to write them to.
fn words_of_stage(stage: &Table, missing: &Path) -> Option<String> {
    if stage.contains_key("config") || texts(stage, "arguments").any(|word| word.contains("{seed}"))
    {
        return None;
    }
    let is_written = texts(stage, "outputs").any(|output| {
        let folder = texts(stage, "arguments")
            .map(|word| word.split_once('=').map_or(word, |(_, value)| value))
            .find(|word| !word.is_empty() && Path::new(output).starts_with(word));
        missing == Path::new(output) || folder.is_some_and(|folder| missing.starts_with(folder))
    });
    let words = ["grpo"].into_iter().chain(texts(stage, "command"));
    is_written.then(|| command_line(words.chain(texts(stage, "arguments"))))
}

/// Returns a text, or the texts of a list.
fn texts<'a>(table: &'a Table, key: &str) -> impl Iterator<Item = &'a str> {
    let (one, list) = match table.get(key) {
        Some(Value::Array(list)) => (None, list.as_slice()),
        one => (one, [].as_slice()),
    };
    one.into_iter().chain(list).filter_map(Value::as_str)
}

/// Reads the configurations of a folder other than `own`, in the order of their names. Files that are
/// not valid are left out.
fn configurations_in(folder: &Path, own: Option<&Path>) -> Vec<(PathBuf, Table)> {
    let listed = match folder.as_os_str().is_empty() {
        true => Path::new(".").read_dir(),
        false => folder.read_dir(),
    };
    let names = listed.into_iter().flatten().flatten().map(|entry| folder.join(entry.file_name()));
    let is_other = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "toml") && own != Some(path.as_path())
    };
    let mut paths: Vec<PathBuf> = names.filter(is_other).take(MOST_FILES).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let keys = config::load::<Table>(&path, &[]).ok()?.value;
        Some((path, keys))
    };
    paths.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_writes_a_missing_input_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let here = place.path().display().to_string();
        let files = [
            // Its run folder contains those of the others, and the first one in the order of names.
            ("all.toml", "run = \"HERE/runs\"\n[lora]\nrank = 2\n"),
            ("sft.toml", "run = \"HERE/runs/sft\"\n[lora]\nrank = 2\n[pretrain]\nsteps = 1\n"),
            ("inner.toml", "run = \"HERE/runs/adapter/x\"\n[pretrain]\nsteps = 1\n"),
            ("judge.toml", "run = \"HERE/runs/judge\"\n[judge]\nsteps = 1\n"),
            ("broken.toml", "run = \"HERE/runs/broken"),
            (
                "pipeline.toml",
                "[[stages]]\nname = \"split\"\ncommand = \"split-data\"\narguments = [\"--input\", \"pairs.jsonl\", \"--output-dir=HERE/data\"]\noutputs = [\"HERE/data/s.json\"]\n[[stages]]\nname = \"grpo\"\ncommand = \"train\"\nconfig = \"HERE/grpo.toml\"\n",
            ),
            ("grpo.toml", "run = \"HERE/runs/grpo\"\n"),
        ];
        for (name, text) in files {
            std::fs::write(at(name), text.replace("HERE", &here)).unwrap();
        }
        let told = |of: &str, message: &str| {
            let error = anyhow::anyhow!(message.replace("HERE", &here));
            sentence(&with_writer(error, Some(&at(of)))).replace(&here, "HERE")
        };
        let all = ", and `grpo run HERE/pipeline.toml` runs all stages";
        let cases = [
            (
                "grpo.toml",
                "adapter folder HERE/runs/sft/adapter does not exist; an adapter folder contains a",
                format!(
                    "adapter folder HERE/runs/sft/adapter does not exist; `grpo pretrain HERE/sft.toml` writes it{all}"
                ),
            ),
            (
                "sft.toml",
                "adapter folder HERE/runs/adapter does not exist; check the path",
                "adapter folder HERE/runs/adapter does not exist; `grpo train HERE/all.toml` writes it".to_owned(),
            ),
            (
                "sft.toml",
                "folder HERE/runs/adapter/x/model does not exist; check the path",
                "folder HERE/runs/adapter/x/model does not exist; `grpo pretrain HERE/inner.toml` writes it".to_owned(),
            ),
            (
                "grpo.toml",
                "reward.judge: folder HERE/runs/judge/model does not exist; check the path",
                format!(
                    "reward.judge: folder HERE/runs/judge/model does not exist; `grpo train-judge HERE/judge.toml` writes it{all}"
                ),
            ),
            (
                "sft.toml",
                "`HERE/data/phase1.jsonl` does not exist; check the path",
                "`HERE/data/phase1.jsonl` does not exist; `grpo split-data --input pairs.jsonl --output-dir=HERE/data` writes it".to_owned(),
            ),
        ];
        for (of, message, expected) in cases {
            assert_eq!(told(of, message), expected);
        }
        // Nothing says who writes these.
        for message in [
            "`HERE/datas/phase1.jsonl` does not exist; check the path",
            "`HERE/runs/grpo/adapter` does not exist; check the path",
            "`HERE/runs/sft/model` does not exist; check the path",
            "`HERE/runs/other/adapter` does not exist; check the path",
            "`HERE/sft.toml` does not exist; check the path",
            "the key does not exist",
            " does not exist",
        ] {
            assert_eq!(told("grpo.toml", message), sentence(&anyhow::anyhow!(message)));
        }
        // The run was interrupted, so its folder is in the way of a new one.
        std::fs::create_dir_all(at("runs/sft")).unwrap();
        std::fs::write(at("runs/sft/run.json"), "{}").unwrap();
        let message = "adapter folder HERE/runs/sft/adapter does not exist";
        assert_eq!(
            told("grpo.toml", message),
            format!("{message}; `grpo pretrain --resume HERE/runs/sft` writes it{all}")
        );
    }
}
