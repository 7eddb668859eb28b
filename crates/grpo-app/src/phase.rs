//! A long phase without steps, such as loading a model: what is being done, and for how long.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{is_quiet, say_aside};

/// Shows a phase on standard error until it is dropped: on a terminal as a line with the time, which disappears at the end;
/// elsewhere as one line, and only for a phase that takes long.
pub struct Phase {
    /// Dropped to end the thread.
    ending: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Shorter phases show nothing on a terminal.
const PATIENCE: Duration = Duration::from_millis(500);
/// Shorter phases write no line into a log file.
const PATIENCE_OF_A_LOG: Duration = Duration::from_secs(10);

impl Phase {
    /// Begins a phase, as `loading data/molecules/prior`.
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
        // Without a thread nothing is shown, and the phase itself is as it was.
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
