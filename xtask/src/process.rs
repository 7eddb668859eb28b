//! Helpers for running child processes.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Returns a command for the cargo that started this program, run in the repository root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    // Remove the variables that cargo sets for xtask. They would cause build scripts to run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Returns whether a program can be started with `--version`.
pub(crate) fn is_installed(program: &mut Command) -> bool {
    let status = program.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Runs a command and lets it inherit standard output and standard error.
///
/// # Errors
/// Returns [`Failed`] if the exit status is not 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    succeeded(shown, status)
}

fn succeeded(shown: String, status: ExitStatus) -> Result<()> {
    if status.success() { Ok(()) } else { Err(Failed { shown, status }.into()) }
}

/// Like [`run`], but also passes each line of standard output to `read`.
pub(crate) fn run_reading(command: &mut Command, mut read: impl FnMut(&str)) -> Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        read(text.trim_end());
        line.clear();
    }
    succeeded(shown, child.wait()?)
}

/// Runs a command and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let shown = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    succeeded(shown, output.status)?;
    Ok(output.stdout)
}

/// Replaces the current process with the command. On Unix, returns only if the command cannot be
/// started.
pub(crate) fn become_program(command: &mut Command) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        eprintln!("$ {}", shown(command));
        let error = command.exec();
        Err(error).with_context(|| format!("cannot start `{}`", shown(command)))
    }
    #[cfg(not(unix))]
    run(command)
}

/// Returns the exit code of the program that failed, or 1 if the error has another cause.
pub(crate) fn exit_code_of(error: &anyhow::Error) -> ExitCode {
    let code = error.downcast_ref::<Failed>().and_then(|failed| failed.status.code());
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// A program exited with a nonzero status.
#[derive(Debug)]
pub(crate) struct Failed {
    shown: String,
    status: ExitStatus,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed ({})", self.shown, self.status)
    }
}

impl std::error::Error for Failed {}

/// Formats a command the way a user would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// Quotes a word for a POSIX shell if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let check = |words: &[&str], expect: &str| {
            assert_eq!(shown(Command::new("/usr/bin/cargo").args(words)), expect);
        };
        check(&["test", "--workspace"], "cargo test --workspace");
        check(&["--set", "a b=1"], "cargo --set 'a b=1'");
        check(&["it's", ""], r"cargo 'it'\''s' ''");
    }

    #[test]
    #[cfg(unix)]
    fn lines_are_read_and_shown() {
        let mut lines = Vec::new();
        let mut command = Command::new("printf");
        run_reading(command.arg("one\\ntwo"), |line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    #[cfg(unix)]
    fn the_exit_status_is_passed_on() {
        let check = |script: &str, expect: Option<ExitCode>| {
            let done = run(Command::new("sh").args(["-c", script]));
            // `ExitCode` does not implement `PartialEq`.
            let found = done.err().map(|error| format!("{:?}", exit_code_of(&error)));
            assert_eq!(found, expect.map(|code| format!("{code:?}")), "{script}");
        };
        check("exit 0", None);
        check("exit 7", Some(ExitCode::from(7)));
        check("kill -9 $$", Some(ExitCode::FAILURE));
    }
}
