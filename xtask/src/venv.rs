//! Virtual environments of Python for programs that results are compared with.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Returns the interpreter of the virtual environment `venv`, which is set up if it does not have the packages
/// in `requirements` yet.
///
/// # Errors
/// Returns an error if Python has no `venv`, or if the packages cannot be installed.
pub(crate) fn python(venv: &Path, requirements: &Path) -> Result<PathBuf> {
    let python = venv.join("bin").join("python");
    let wanted = std::fs::read(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    // Written last, so an incomplete environment is detected and recreated.
    let installed = venv.join("installed.txt");
    if std::fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    eprintln!("installing the packages of {} into {}", requirements.display(), venv.display());
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    process::run(Command::new(&python).args(pip).arg(requirements))?;
    std::fs::write(&installed, wanted)
        .with_context(|| format!("cannot write {}", installed.display()))?;
    Ok(python)
}
