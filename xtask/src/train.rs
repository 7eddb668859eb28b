//! `cargo xtask train`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::train_path::{INFILL, REPLIES, TrainPath};
use crate::workspace::Workspace;

/// Builds `grpo` in release mode and trains
///
/// `molecules` (also where nothing is named) stands for configs/molecules/grpo.toml. What follows goes to `grpo train` unchanged.
///
/// `infill` and `replies` are paths of several stages. `infill`: an infiller of molecules, its judge, a second judge, and GRPO;
/// then examples and a table before and after. `replies`: the pairs of tweets and replies split in two halves, a supervised
/// training on one, and GRPO on the tweets of the other; then replies before and after. A stage whose run is finished is
/// taken as it is (where its configuration was edited since, that is said), `--force` does everything anew, and `--set` is for the
/// GRPO stage alone, where it is checked before anything is trained.
///
/// The run folder comes into being in the repository's root. With `--resume RUN` a run goes on, which has its configuration.
#[derive(clap::Args)]
#[command(
    override_usage = "cargo xtask train [--features <BACKEND>] [molecules|FILE.toml|--resume RUN] [ARGUMENTS]...",
    after_help = "Examples:
  cargo xtask train                                  a molecule generator, in minutes
  cargo xtask train molecules --set seed=7           the same with another seed
  cargo xtask train infill                           an infiller, its judges, and GRPO with them
  cargo xtask train replies                          replies to tweets, supervised and then GRPO
  cargo xtask train my.toml                          your own configuration
  cargo xtask train --resume runs/molecules          after an interruption
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

/// Builds, then becomes `grpo train ARGUMENTS…`.
pub(crate) fn train(root: &Path, train: Train) -> Result<()> {
    let here = std::env::current_dir().context("the current folder cannot be read")?;
    let path = path(&train.arguments)?;
    let arguments = match &path {
        Some(_) => Vec::new(),
        None => arguments(root, &here, train.arguments)?,
    };

    let grpo = built(root, train.features.as_deref())?;
    if let Some((path, words)) = path {
        return path.train(root, &words, || Command::new(&grpo));
    }
    let mut grpo = Command::new(grpo);
    grpo.arg("train").args(arguments).current_dir(root);
    process::become_program(&mut grpo)
}

/// `grpo` in release mode, built where it is not.
pub(crate) fn built(root: &Path, backend: Option<&str>) -> Result<PathBuf> {
    let mut cargo = process::cargo(root);
    cargo.args(["build", "--release", "--package", "grpo-cli", "--bin", "grpo"]);
    if let Some(backend) = backend {
        cargo.args(["--no-default-features", "--features", backend]);
    }
    process::run(&mut cargo)?;
    let folder = Workspace::read(root)?.target_directory.join("release");
    Ok(folder.join(format!("grpo{}", std::env::consts::EXE_SUFFIX)))
}

/// A path of several stages, where one is named, and what stands behind its name.
fn path(arguments: &[OsString]) -> Result<Option<(&'static TrainPath, Vec<String>)>> {
    let Some((name, rest)) = arguments.split_first() else { return Ok(None) };
    let path = match name.to_str() {
        Some("infill") => &INFILL,
        Some("replies") => &REPLIES,
        _ => return Ok(None),
    };
    let text = |word: &OsString| {
        let text = word.to_str().with_context(|| format!("{} is no text", word.display()))?;
        anyhow::Ok(text.to_owned())
    };
    Ok(Some((path, rest.iter().map(text).collect::<Result<_>>()?)))
}

/// What `grpo train` is told, with paths as seen from the root: a configuration before what follows it, or a run to go on
/// with.
fn arguments(root: &Path, here: &Path, mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let is_option = |word: &OsString| word.to_string_lossy().starts_with('-');
    let named = arguments.first().is_some_and(|word| !is_option(word));
    if !named && resume(root, here, &mut arguments)? {
        return Ok(arguments);
    }
    let word = if named { arguments.remove(0) } else { "molecules".into() };

    let path = match word.to_str() {
        Some("molecules") => PathBuf::from("configs/molecules/grpo.toml"),
        _ if Path::new(&word).extension().is_some_and(|extension| extension == "toml") => {
            from_root(root, here, Path::new(&word))
        }
        _ => bail!(
            "no configuration is called `{}`: say molecules, infill, replies or a file that ends in .toml",
            word.display()
        ),
    };
    if !root.join(&path).is_file() {
        bail!("{} does not exist, so there is nothing to train", path.display());
    }
    arguments.insert(0, path.into());
    Ok(arguments)
}

/// Whether a run is named with `--resume RUN` or `--resume=RUN`; its path is then as seen from the root.
fn resume(root: &Path, here: &Path, arguments: &mut [OsString]) -> Result<bool> {
    for place in 0..arguments.len() {
        let word = arguments[place].to_string_lossy().into_owned();
        let (run, changed) = match word.strip_prefix("--resume") {
            Some("") if place + 1 < arguments.len() => {
                (PathBuf::from(&arguments[place + 1]), place + 1)
            }
            // `grpo train` says that the run is missing.
            Some("") => return Ok(true),
            Some(rest) if rest.starts_with('=') => (PathBuf::from(&rest[1..]), place),
            _ => continue,
        };
        let run = from_root(root, here, &run);
        if !root.join(&run).join("run.json").is_file() {
            bail!(
                "{} is not the folder of a run, so there is nothing to go on with",
                run.display()
            );
        }
        arguments[changed] = match changed == place {
            true => format!("--resume={}", run.display()).into(),
            false => run.into(),
        };
        return Ok(true);
    }
    Ok(false)
}

/// `path`, named by somebody who stands in `here`, as seen from the root, where it is below that.
fn from_root(root: &Path, here: &Path, path: &Path) -> PathBuf {
    let path = here.join(path);
    path.strip_prefix(root).map(Path::to_owned).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `arguments`, typed in `here`, in a folder with one configuration, and a file and a run of the user's.
    #[track_caller]
    fn check(here: &str, typed: &[&str], expect: &str) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir_all(root.join("configs/molecules")).unwrap();
        std::fs::create_dir_all(root.join("mine")).unwrap();
        std::fs::write(root.join("configs/molecules/grpo.toml"), "").unwrap();
        std::fs::write(root.join("mine/own.toml"), "").unwrap();
        std::fs::create_dir(root.join("mine/run")).unwrap();
        std::fs::write(root.join("mine/run/run.json"), "").unwrap();

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
    fn molecules_where_nothing_is_named() {
        check("", &[], "configs/molecules/grpo.toml");
        check("", &["--set", "a=1"], "configs/molecules/grpo.toml --set a=1");
        check("mine", &["molecules", "-q"], "configs/molecules/grpo.toml -q");
    }

    #[test]
    fn a_file_is_looked_for_where_the_user_stands() {
        check("mine", &["own.toml", "own.toml"], "mine/own.toml own.toml");
        check("", &["mine/own.toml"], "mine/own.toml");
        check("", &["own.toml"], "own.toml does not exist, so there is nothing to train");
    }

    #[test]
    fn a_run_that_goes_on_needs_no_configuration() {
        check("", &["--resume", "mine/run"], "--resume mine/run");
        check("mine", &["--resume", "run", "--verify"], "--resume mine/run --verify");
        check("mine", &["--plain", "--resume=run"], "--plain --resume=mine/run");
        // `grpo train` says what is wrong with these two.
        check("", &["--resume"], "--resume");
        check("", &["molecules", "--resume", "x"], "configs/molecules/grpo.toml --resume x");
        check(
            "mine",
            &["--resume", "none"],
            "mine/none is not the folder of a run, so there is nothing to go on with",
        );
    }

    #[test]
    fn what_is_not_there_is_one_sentence() {
        check(
            "",
            &["molecule"],
            "no configuration is called `molecule`: say molecules, infill, replies or a file that ends in .toml",
        );
    }
}
