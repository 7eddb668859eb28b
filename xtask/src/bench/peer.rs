//! The Python that has PyTorch, transformers and TRL.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Where the peer's program and what it needs are listed.
const FOLDER: &str = "tests/peers/trl";

/// The interpreter that was named, or that of a folder of our own, into which the packages are installed once.
pub(super) fn python(root: &Path, target: &Path, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        // Seen from wherever the user stands, like every path that is typed.
        let path = std::path::absolute(named).context("the current folder cannot be read")?;
        if !path.is_file() {
            bail!("--python {}: there is no such file", named.display());
        }
        return Ok(path);
    }
    let venv = target.join("peers").join("venv");
    let python = venv.join("bin").join("python");
    let requirements = root.join(FOLDER).join("requirements.txt");
    let wanted = std::fs::read(&requirements)
        .with_context(|| format!("{} cannot be read", requirements.display()))?;
    // Written last: a folder that was left half made is made again.
    let installed = venv.join("installed.txt");
    if std::fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    eprintln!("PyTorch, transformers and TRL are installed into {}", venv.display());
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).context(
        "Python 3.11 with venv is needed, or --python with an interpreter that has them",
    )?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    process::run(Command::new(&python).args(pip).arg(&requirements))?;
    std::fs::write(&installed, wanted)
        .with_context(|| format!("{} cannot be written", installed.display()))?;
    Ok(python)
}

/// The peer's program, without the arguments of a case.
pub(super) fn command(root: &Path, python: &Path, threads: usize) -> Command {
    let mut command = Command::new(python);
    command
        .arg(root.join(FOLDER).join("bench.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HF_HUB_OFFLINE", "1")
        .env("OMP_NUM_THREADS", threads.to_string());
    command
}

/// What the packages of the interpreter are, for the record.
pub(super) fn versions(python: &Path) -> Result<String> {
    let script = "from importlib.metadata import version as v\n\
                  import platform\n\
                  names = ['torch', 'transformers', 'trl']\n\
                  print('Python', platform.python_version(), *(f'{n} {v(n)}' for n in names), sep=', ')";
    let output =
        process::output_of(Command::new(python).args(["-c", script])).with_context(|| {
            format!(
                "{} lacks torch, transformers or trl; leave --python out to have them installed",
                python.display()
            )
        })?;
    Ok(String::from_utf8_lossy(&output).trim().replacen("Python, ", "Python ", 1))
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
            format!("--python {}: there is no such file", missing.display())
        );
        std::fs::write(&missing, "").unwrap();
        assert_eq!(python(folder.path(), folder.path(), Some(&missing)).unwrap(), missing);
    }

    /// A second run installs nothing; other requirements do.
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
