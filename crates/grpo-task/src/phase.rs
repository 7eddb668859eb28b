//! Status display for long operations, such as loading a model.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grpo_run::thousands;
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

/// Items of the current phase. Only one phase is shown at a time.
static ITEMS: Items = Items { done: AtomicUsize::new(0), all: AtomicUsize::new(0) };

/// Number of finished items, and of all of them. 0 if there are no items.
struct Items {
    done: AtomicUsize,
    all: AtomicUsize,
}

/// Shows how many items of the current phase are done. May be called by several threads.
pub fn progress(done: usize, all: usize) {
    ITEMS.set(done, all);
}

impl Items {
    fn set(&self, done: usize, all: usize) {
        match self.all.swap(all, Ordering::Relaxed) == all {
            // Threads can overtake each other.
            true => drop(self.done.fetch_max(done, Ordering::Relaxed)),
            false => self.done.store(done, Ordering::Relaxed),
        }
    }

    /// Returns the progress as text, e.g. `, 20,000 of 200,000`.
    fn text(&self) -> String {
        match [&self.done, &self.all].map(|number| number.load(Ordering::Relaxed)) {
            [_, 0] => String::new(),
            [done, all] => format!(", {} of {}", thousands(done), thousands(all)),
        }
    }
}

impl Phase {
    /// Starts a phase with a description such as `loading data/molecules/prior`.
    #[must_use = "a phase ends when it is dropped"]
    pub fn begin(what: impl Into<String>) -> Self {
        if is_quiet() {
            return Self { ending: None, thread: None };
        }
        ITEMS.set(0, 0);
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
                let seconds = begun.elapsed().as_secs();
                bar.set_message(format!("{what} … {seconds} s{}", ITEMS.text()));
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
    fn progress_has_numbers_of_items() {
        let items = Items { done: AtomicUsize::new(0), all: AtomicUsize::new(0) };
        assert_eq!(items.text(), "");
        [999, 4_000, 3_999].into_iter().for_each(|done| items.set(done, 200_000));
        assert_eq!(items.text(), ", 4,000 of 200,000");
        // Another file.
        items.set(1, 50);
        assert_eq!(items.text(), ", 1 of 50");
    }

    #[test]
    fn a_short_phase_ends_without_waiting() {
        let begun = Instant::now();
        drop(Phase::begin("loading"));
        assert!(begun.elapsed() < PATIENCE_OF_A_LOG);
    }
}
