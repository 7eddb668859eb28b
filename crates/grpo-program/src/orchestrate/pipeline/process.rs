//! Runs commands of this program as subprocesses.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::Context;
use grpo_task::device;
use grpo_task::interrupt;
use grpo_task::interrupt::{EXIT_CODE, Interrupted};
use grpo_task::output::{command_line, say_aside};

/// The executable of this program.
pub(super) struct Program {
    path: PathBuf,
    threads: Option<usize>,
    quiet: bool,
    /// Set when the first signal arrives.
    interrupted: Arc<AtomicBool>,
    /// Process id of the running command, or 0 if there is none.
    running: Arc<AtomicU32>,
}

impl Program {
    /// Installs a signal handler that forwards signals to the running command. The command then
    /// ends in the same way as if it had been started directly.
    pub(super) fn new(threads: Option<usize>, quiet: bool) -> anyhow::Result<Self> {
        let path = std::env::current_exe().context("cannot determine the path of this program")?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicU32::new(0));
        let (flag, child) = (Arc::clone(&interrupted), Arc::clone(&running));
        let handler = move || {
            flag.store(true, Ordering::Relaxed);
            match child.load(Ordering::Relaxed) {
                0 => std::process::exit(EXIT_CODE.into()),
                id => terminate(id),
            }
        };
        interrupt::install(Arc::new(handler)).context("cannot install the signal handler")?;
        Ok(Self { path, threads, quiet, interrupted, running })
    }

    /// Runs a command attached to this terminal.
    ///
    /// # Errors
    /// Returns [`StageFailed`] if the exit code is not 0, and [`Interrupted`] after a signal.
    pub(super) fn run(&self, words: &[String]) -> anyhow::Result<()> {
        say_aside(format_args!("\n$ grpo {}", command_line(words)));
        self.wait(&mut self.command(words), words)
    }

    /// Runs a command with its standard output discarded.
    ///
    /// # Errors
    /// Returns an error if the command fails or is interrupted. See [`Self::run`].
    pub(super) fn check(&self, words: &[String]) -> anyhow::Result<()> {
        self.wait(self.command(words).stdout(Stdio::null()), words)
    }

    /// Runs a command whose output is discarded, and returns whether it succeeds.
    ///
    /// # Errors
    /// Returns an error if the command cannot be started or is interrupted.
    pub(super) fn succeeds(&self, words: &[String]) -> anyhow::Result<bool> {
        let mut command = self.command(words);
        match self.wait(command.stdout(Stdio::null()).stderr(Stdio::null()), words) {
            Ok(()) => Ok(true),
            Err(error) if error.is::<StageFailed>() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(threads) = self.threads {
            command.arg(format!("--threads={threads}"));
        }
        if self.quiet {
            command.arg("--quiet");
        }
        if let Some(device) = device::chosen() {
            command.arg(format!("--device={device}"));
        }
        command.args(words);
        command
    }

    fn wait(&self, command: &mut Command, words: &[String]) -> anyhow::Result<()> {
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", self.path.display()))?;
        self.running.store(child.id(), Ordering::Relaxed);
        let status = child.wait().context("cannot determine the result of a command");
        self.running.store(0, Ordering::Relaxed);
        let status = status?;
        if status.success() && !self.interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.interrupted.load(Ordering::Relaxed) || status.code() == Some(EXIT_CODE.into()) {
            return Err(Interrupted.into());
        }
        Err(StageFailed { command: command_line(words), status }.into())
    }
}

/// Sends SIGTERM to a process.
#[cfg(unix)]
fn terminate(id: u32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    // The process may have exited already.
    let _ended = i32::try_from(id).map(|id| kill(Pid::from_raw(id), Signal::SIGTERM));
}

/// The console already sends Ctrl-C to every process.
#[cfg(not(unix))]
fn terminate(_id: u32) {}

/// Error of a command that exited with a nonzero code.
#[derive(Debug)]
pub(super) struct StageFailed {
    command: String,
    status: ExitStatus,
}

impl StageFailed {
    /// Returns the exit code, or `None` if the command was killed by a signal.
    pub(super) fn code(&self) -> Option<u8> {
        self.status.code().and_then(|code| u8::try_from(code).ok())
    }
}

impl fmt::Display for StageFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`grpo {}` ended with {}", self.command, self.status)
    }
}

impl std::error::Error for StageFailed {}
