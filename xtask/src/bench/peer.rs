//! The Python environment used for comparison with PyTorch, transformers and TRL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::venv;

/// Directory of the Python benchmark and its requirements.
const FOLDER: &str = "crates/grpo-bench/peers";

/// Returns the interpreter given on the command line. Otherwise, returns the one in a local virtual
/// environment, which is set up on first use.
pub(super) fn python(root: &Path, target: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        // Like all paths on the command line, it is relative to the current directory.
        let path = std::path::absolute(named).context("cannot determine the current folder")?;
        if !path.is_file() {
            bail!("--python {}: file does not exist", named.display());
        }
        return Ok(path);
    }
    let requirements = root.join(FOLDER).join("requirements.txt");
    venv::python(&target.join("peers").join("venv"), &requirements)
        .context("requires Python 3.11 with venv, or --python with an interpreter that has PyTorch, transformers and TRL")
}

/// Returns the benchmark command without case-specific arguments.
pub(super) fn command(root: &Path, python: &Path, threads: usize) -> Command {
    let mut command = Command::new(python);
    command
        .arg(root.join(FOLDER).join("bench.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("OMP_NUM_THREADS", threads.to_string());
    command
}

/// Returns the versions of Python and of the packages.
pub(super) fn versions(python: &Path) -> Result<String> {
    let script = "import platform; from importlib.metadata import version as v; \
                  print('Python', platform.python_version(), *(f', {n} {v(n)}' for n in \
                  ['torch', 'transformers', 'trl']))";
    let output = Command::new(python)
        .args(["-c", script])
        .output()
        .with_context(|| format!("cannot start `{}`", python.display()))?;
    told(python, &output)
}

/// Returns the output of the interpreter. If it failed, returns an error with the reason.
fn told(python: &Path, output: &Output) -> Result<String> {
    if !output.status.success() {
        // The last line of a traceback states the problem.
        let fault = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} cannot run the peer: {}; without --python, everything it needs is installed",
            python.display(),
            fault.lines().last().unwrap_or("no error message")
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().replace(" ,", ","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_interpreter_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("python");
        let error = python(folder.path(), folder.path(), Some(&missing)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("--python {}: file does not exist", missing.display())
        );
        std::fs::write(&missing, "").unwrap();
        assert_eq!(python(folder.path(), folder.path(), Some(&missing)).unwrap(), missing);
    }

    /// Tests the output instead of a script. Linux refuses to run a script while a child process of
    /// another test still has it open for writing.
    #[test]
    #[cfg(unix)]
    fn reports_an_interpreter_without_the_packages() {
        use std::os::unix::process::ExitStatusExt;
        let check = |code: i32, stdout: &str, stderr: &str, expect: &str| {
            let output = Output {
                status: std::process::ExitStatus::from_raw(code << 8),
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            let found =
                told(Path::new("PYTHON"), &output).unwrap_or_else(|error| error.to_string());
            assert_eq!(found, expect);
        };
        check(0, "Python 3.11.7 , torch 2.15.0\n", "", "Python 3.11.7, torch 2.15.0");
        check(
            1,
            "",
            "Traceback\nNo package trl\n",
            "PYTHON cannot run the peer: No package trl; without --python, everything it needs is installed",
        );
    }

    #[test]
    fn reports_an_interpreter_that_cannot_start() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("python");
        let error = versions(&missing).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot start `{}`", missing.display()));
    }

    /// Nothing is installed a second time unless the requirements change.
    #[test]
    fn what_is_installed_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let (root, target) = (folder.path().join("root"), folder.path().join("target"));
        let venv = target.join("peers/venv");
        std::fs::create_dir_all(root.join(FOLDER)).unwrap();
        std::fs::create_dir_all(&venv).unwrap();
        std::fs::write(root.join(FOLDER).join("requirements.txt"), "torch==1\n").unwrap();
        std::fs::write(venv.join("installed.txt"), "torch==1\n").unwrap();
        assert_eq!(python(&root, &target, None).unwrap(), venv.join("bin/python"));
    }
}
