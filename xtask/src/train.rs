//! `cargo xtask train`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// Builds `grpo` in release mode and trains
///
/// `molecules` (also where nothing is named) stands for configs/molecules/grpo.toml; `infill` and `replies` are names
/// for tasks that have no configuration yet. What follows goes to `grpo train` unchanged. The run folder comes into being in the
/// repository's root.
#[derive(clap::Args)]
#[command(
    override_usage = "cargo xtask train [--features <BACKEND>] [molecules|FILE.toml] [ARGUMENTS]...",
    after_help = "Examples:
  cargo xtask train                                  a molecule generator, in minutes
  cargo xtask train molecules --set seed=7           the same with another seed
  cargo xtask train my.toml                          your own configuration
  cargo xtask train --features cuda molecules        on an NVIDIA card
  cargo xtask train molecules --help                 what `grpo train` knows"
)]
pub(crate) struct Train {
    /// Build for this backend instead of the CPU's
    #[arg(long, value_name = "BACKEND", value_parser = ["cuda", "wgpu"])]
    features: Option<String>,
    /// A configuration, then what is passed on to `grpo train`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds, then becomes `grpo train CONFIGURATION ARGUMENTS…`.
pub(crate) fn train(root: &Path, train: Train) -> Result<()> {
    let here = std::env::current_dir().context("the current folder cannot be read")?;
    let (configuration, arguments) = split(root, &here, train.arguments)?;

    let mut cargo = process::cargo(root);
    cargo.args(["build", "--release", "--package", "grpo-cli", "--bin", "grpo"]);
    if let Some(backend) = train.features {
        cargo.args(["--no-default-features", "--features", &backend]);
    }
    process::run(&mut cargo)?;

    let grpo = Workspace::read(root)?
        .target_directory
        .join("release")
        .join(format!("grpo{}", std::env::consts::EXE_SUFFIX));
    let mut grpo = Command::new(grpo);
    grpo.arg("train").arg(configuration).args(arguments).current_dir(root);
    process::become_program(&mut grpo)
}

/// The configuration's path as seen from the root, and the arguments that follow it.
fn split(
    root: &Path,
    here: &Path,
    mut arguments: Vec<OsString>,
) -> Result<(PathBuf, Vec<OsString>)> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let named = arguments.first().is_some_and(|word| !is_option(word));
    let word = if named { arguments.remove(0) } else { "molecules".into() };

    let path = match word.to_str() {
        Some(name @ ("molecules" | "infill" | "replies")) => {
            Path::new("configs").join(name).join("grpo.toml")
        }
        _ if Path::new(&word).extension().is_some_and(|extension| extension == "toml") => {
            let file = here.join(word);
            file.strip_prefix(root).map(Path::to_owned).unwrap_or(file)
        }
        _ => bail!(
            "no configuration is called `{}`: say molecules, infill, replies or a file that ends in .toml",
            word.display()
        ),
    };
    if !root.join(&path).is_file() {
        bail!("{} does not exist, so there is nothing to train", path.display());
    }
    Ok((path, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits `arguments`, typed in `here`, in a folder with one configuration and a file of the user's.
    fn check(here: &str, arguments: &[&str], expect: &str) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir_all(root.join("configs/molecules")).unwrap();
        std::fs::create_dir_all(root.join("mine")).unwrap();
        std::fs::write(root.join("configs/molecules/grpo.toml"), "").unwrap();
        std::fs::write(root.join("mine/own.toml"), "").unwrap();

        let arguments = arguments.iter().map(OsString::from).collect();
        let found = match split(root, &root.join(here), arguments) {
            Ok((path, rest)) => format!("{} {rest:?}", path.display()),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn molecules_where_nothing_is_named() {
        check("", &[], "configs/molecules/grpo.toml []");
        check("", &["--set", "a=1"], r#"configs/molecules/grpo.toml ["--set", "a=1"]"#);
        check("mine", &["molecules", "-q"], r#"configs/molecules/grpo.toml ["-q"]"#);
    }

    #[test]
    fn a_file_is_looked_for_where_the_user_stands() {
        check("mine", &["own.toml", "own.toml"], r#"mine/own.toml ["own.toml"]"#);
        check("", &["mine/own.toml"], "mine/own.toml []");
        check("", &["own.toml"], "own.toml does not exist, so there is nothing to train");
    }

    #[test]
    fn what_is_not_there_is_one_sentence() {
        check(
            "",
            &["infill"],
            "configs/infill/grpo.toml does not exist, so there is nothing to train",
        );
        check(
            "",
            &["molecule"],
            "no configuration is called `molecule`: say molecules, infill, replies or a file that ends in .toml",
        );
    }
}
