//! Status display for long operations without steps, such as loading a model.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{is_quiet, say_aside};

/// Shows an operation on standard error until it is dropped. On a terminal, this is a line with the
/// elapsed time that disappears at the end. Elsewhere, one line is printed if the operation takes
/// long.
pub struct Phase {
    /// Dropping the sender ends the thread.
    ending: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Delay before the status is shown on a terminal.
const PATIENCE: Duration = Duration::from_millis(500);
/// Delay before a line is written to a log file.
const PATIENCE_OF_A_LOG: Duration = Duration::from_secs(10);

impl Phase {
    /// Starts a phase with a description such as `loading data/molecules/prior`.
    #[must_use = "a phase ends when it is dropped"]
    pub fn begin(what: impl Into<String>) -> Self {
        if is_quiet() {
            return Self { ending: None, thread: None };
        }
        let what = what.into();
        let (ending, ended) = mpsc::channel::<()>();
        let is_terminal = io::stderr().is_terminal();
        let patience = if is_terminal { PATIENCE } else { PATIENCE_OF_A_LOG };
        let begun = Instant::now();
        let thread = thread::Builder::new().name("phase".to_owned()).spawn(move || {
            if ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            if !is_terminal {
                say_aside(format_args!("{what} …"));
                return;
            }
            let style = ProgressStyle::with_template("{spinner} {msg}");
            let bar = ProgressBar::new_spinner().with_style(style.expect("the template is valid"));
            while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
                bar.set_message(format!("{what} … {} s", begun.elapsed().as_secs()));
                bar.tick();
            }
            bar.finish_and_clear();
        });
        // If the thread cannot be spawned, nothing is displayed.
        Self { ending: Some(ending), thread: thread.ok() }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        drop(self.ending.take());
        if let Some(thread) = self.thread.take() {
            let _shown = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_phase_ends_without_waiting() {
        let begun = Instant::now();
        drop(Phase::begin("loading"));
        assert!(begun.elapsed() < PATIENCE_OF_A_LOG);
    }
}
