//! The `cargo xtask train` command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::build::built;
use crate::process;

/// Build `grpo` in release mode and start training
///
/// NAME refers to a directory in configs/ and defaults to `molecules`. If the directory contains a
/// pipeline.toml, it is passed to `grpo run`; otherwise its grpo.toml is passed to `grpo train`.
/// Any further arguments are passed to the same command. Paths in configuration files are relative
/// to the repository root, and run directories are created there. A run to resume may also be given
/// relative to the current folder. The commands that are printed work without an installed `grpo`.
#[derive(clap::Args)]
#[command(
    override_usage = "cargo xtask train [--features <BACKEND>] [NAME|FILE.toml|--resume RUN] [ARGUMENTS]...",
    after_help = "Examples:
  cargo xtask train                                  a molecule generator, in minutes
  cargo xtask train molecules --set seed=7           the same with another seed
  cargo xtask train infill                           an infiller, its judges, and GRPO with them
  cargo xtask train replies                          replies to tweets, supervised and then GRPO
  cargo xtask train my.toml                          your own configuration or pipeline
  cargo xtask train --resume runs/molecules          after an interruption
  cargo xtask train --features cuda molecules        on an NVIDIA card
  cargo xtask train molecules --help                 the options of `grpo train`"
)]
pub(crate) struct Train {
    /// Build for this backend as well, and use it by default
    #[arg(long, value_name = "BACKEND", value_parser = ["cuda", "wgpu"])]
    features: Option<String>,
    /// Configuration, followed by arguments for `grpo train` or `grpo run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds `grpo` and replaces the current process with it.
pub(crate) fn train(root: &Path, train: Train) -> Result<()> {
    let here = std::env::current_dir().context("cannot determine the current folder")?;
    let arguments = arguments(root, &here, train.arguments)?;
    let program = built(root, train.features.as_slice())?;
    let printed = printed_commands(root, &here, &program, train.features.as_deref());
    let mut grpo = Command::new(program);
    process::become_program(grpo.args(arguments).envs(printed).current_dir(root))
}

/// Returns the environment variables with which `grpo` prints commands that work in the folder `here`:
/// how to start the program, and how to start `grpo train`.
fn printed_commands(
    root: &Path,
    here: &Path,
    program: &Path,
    features: Option<&str>,
) -> [(&'static str, String); 2] {
    let program = program.strip_prefix(root).unwrap_or(program);
    let program = process::quoted(&program.to_string_lossy());
    // Paths that `grpo` prints are relative to the root.
    let program = match here == root {
        true => program,
        false => format!("cd {} && {program}", process::quoted(&root.to_string_lossy())),
    };
    let features = features.map_or_else(String::new, |name| format!(" --features {name}"));
    [("GRPO_PROGRAM", program), ("GRPO_TRAIN", format!("cargo xtask train{features}"))]
}

/// Returns the arguments for `grpo`, with paths relative to the repository root.
fn arguments(root: &Path, here: &Path, mut words: Vec<OsString>) -> Result<Vec<OsString>> {
    let is_resumed = resume_from_root(root, here, &mut words);
    let is_named = words.first().is_some_and(|word| !word.to_string_lossy().starts_with('-'));
    if !is_named && is_resumed {
        words.insert(0, "train".into());
        return Ok(words);
    }
    let name = if is_named { words.remove(0) } else { "molecules".into() };
    let in_configs = |file: &str| Path::new("configs").join(&name).join(file);
    let [pipeline, grpo] = ["pipeline.toml", "grpo.toml"].map(in_configs);
    let (command, path) = if Path::new(&name).extension().is_some_and(|ending| ending == "toml") {
        let path = from_root(root, here, Path::new(&name));
        let text = std::fs::read_to_string(root.join(&path))
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let table: toml::Table = text.parse().unwrap_or_default();
        (if table.contains_key("stages") { "run" } else { "train" }, path)
    } else if root.join(&pipeline).is_file() {
        ("run", pipeline)
    } else if root.join(&grpo).is_file() {
        ("train", grpo)
    } else {
        bail!(
            "`{}` is not a folder in configs/ with a pipeline.toml or grpo.toml; expected molecules, infill, replies, or a .toml file",
            name.display()
        );
    };
    words.splice(0..0, [command.into(), path.into()]);
    Ok(words)
}

/// Rewrites the path given with `--resume`. Returns whether there is one.
fn resume_from_root(root: &Path, here: &Path, words: &mut [OsString]) -> bool {
    let Some(index) = words.iter().position(|word| word.to_string_lossy().starts_with("--resume"))
    else {
        return false;
    };
    let word = words[index].to_string_lossy().into_owned();
    // The program prints paths relative to the root, where it creates runs.
    let run = |path: &Path| match here.join(path).exists() || !root.join(path).exists() {
        true => from_root(root, here, path),
        false => path.to_owned(),
    };
    if let Some(path) = word.strip_prefix("--resume=") {
        words[index] = format!("--resume={}", run(Path::new(path)).display()).into();
    } else if let Some(path) = words.get_mut(index + 1) {
        *path = run(Path::new(path)).into();
    }
    true
}

/// Converts a path relative to `here` to one relative to `root`. Paths outside `root` become
/// absolute.
fn from_root(root: &Path, here: &Path, path: &Path) -> PathBuf {
    let path = here.join(path);
    path.strip_prefix(root).map(Path::to_owned).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the command for `typed` in the directory `here`. The repository has two bundled
    /// configurations, and a configuration and a pipeline of the user.
    #[track_caller]
    fn check(here: &str, typed: &[&str], expect: &str) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (path, text) in [
            ("configs/molecules/grpo.toml", ""),
            ("configs/infill/grpo.toml", ""),
            ("configs/infill/pipeline.toml", ""),
            ("mine/own.toml", "seed = 1"),
            ("runs/molecules/run.json", ""),
            ("mine/many.toml", "[[stages]]\nname = \"a\""),
        ] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        let typed = typed.iter().map(OsString::from).collect();
        let found = match arguments(root, &root.join(here), typed) {
            Ok(arguments) => {
                let words = arguments.iter().map(|word| word.to_string_lossy());
                words.collect::<Vec<_>>().join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn names_and_files_become_commands() {
        check("", &[], "train configs/molecules/grpo.toml");
        check("", &["--set", "a=1"], "train configs/molecules/grpo.toml --set a=1");
        check("mine", &["molecules", "-q"], "train configs/molecules/grpo.toml -q");
        check("mine", &["infill", "--force"], "run configs/infill/pipeline.toml --force");
        check("mine", &["own.toml", "own.toml"], "train mine/own.toml own.toml");
        check("", &["mine/many.toml"], "run mine/many.toml");
        check("", &["own.toml"], "cannot read the configuration own.toml");
        check(
            "",
            &["molecule"],
            "`molecule` is not a folder in configs/ with a pipeline.toml or grpo.toml; expected molecules, infill, replies, or a .toml file",
        );
    }

    #[test]
    fn a_resumed_run_needs_no_configuration() {
        check("", &["--resume", "mine/run"], "train --resume mine/run");
        check("mine", &["--resume", "run", "--verify"], "train --resume mine/run --verify");
        check("mine", &["--plain", "--resume=run"], "train --plain --resume=mine/run");
        // The program prints paths relative to the root.
        check("mine", &["--resume", "runs/molecules"], "train --resume runs/molecules");
        check("mine", &["--resume=runs/molecules"], "train --resume=runs/molecules");
        check("runs", &["--resume", "molecules"], "train --resume runs/molecules");
        // `grpo train` reports what is wrong with these two.
        check("", &["--resume"], "train --resume");
        check("", &["molecules", "--resume", "x"], "train configs/molecules/grpo.toml --resume x");
    }

    #[test]
    fn printed_commands_work_where_they_are_read() {
        let check = |here: &str, program: &str, features: Option<&str>, expect: [&str; 2]| {
            let printed =
                printed_commands(Path::new("/a b"), Path::new(here), Path::new(program), features);
            assert_eq!(printed.map(|(_, command)| command), expect);
        };
        let program = "/a b/target/release/grpo";
        check("/a b", program, None, ["target/release/grpo", "cargo xtask train"]);
        check("/a b", "/t/release/grpo", None, ["/t/release/grpo", "cargo xtask train"]);
        check(
            "/a b/crates",
            program,
            Some("cuda"),
            ["cd '/a b' && target/release/grpo", "cargo xtask train --features cuda"],
        );
    }
}
