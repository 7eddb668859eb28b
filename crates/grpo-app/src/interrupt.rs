//! Ctrl-C and the other signals that ask the program to end.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::dashboard::terminal;
use crate::output::say_aside;

/// Exit code after an interruption, as shells give it to a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// A second signal that comes sooner is the first one again: a terminal sends Ctrl-C to `grpo run` and to the command that
/// it runs, and `grpo run` passes it on.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// Whether something runs that saves its progress when the flag is set.
static SAVES_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Returns a flag that the first signal (SIGINT, SIGTERM, SIGHUP) sets. The signal is answered by a line. It ends the
/// program, unless a [`Deferred`] lives: then only the second signal does.
///
/// A process has one handler: a second command in it gets the flag of the first, taken back.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        flag.store(false, Ordering::SeqCst);
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    let of_handler = Arc::clone(&flag);
    let first = OnceLock::new();
    ctrlc::set_handler(move || {
        let since_first = first.get_or_init(Instant::now).elapsed();
        if of_handler.swap(true, Ordering::SeqCst) {
            if since_first > SAME_REQUEST {
                end_process();
            }
            return;
        }
        let saves_progress = SAVES_PROGRESS.load(Ordering::SeqCst);
        if !saves_progress || !terminal::is_open() {
            // Over a progress bar, which has no line end.
            let clear = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            say_aside(format_args!("{clear}{}", answer(saves_progress)));
        }
        if !saves_progress {
            end_process();
        }
    })
    .context("signals cannot be caught")?;
    Ok(Arc::clone(FLAG.get_or_init(|| flag)))
}

fn answer(saves_progress: bool) -> &'static str {
    match saves_progress {
        true => "interrupting (finishing this step; a second signal ends the program without saving)",
        false => "interrupted  there was no progress to save",
    }
}

/// While it lives, whoever made the work interruptible ends it and saves its progress; otherwise a signal ends the program,
/// since nothing is lost: in loading, in the checks before a run, and after the last save.
pub(crate) struct Deferred;

impl Deferred {
    pub(crate) fn new() -> Self {
        SAVES_PROGRESS.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        SAVES_PROGRESS.store(false, Ordering::SeqCst);
    }
}

/// Ends the program immediately, with the terminal as it was.
pub(crate) fn end_process() -> ! {
    terminal::restore();
    std::process::exit(EXIT_CODE.into())
}

/// A run that was asked to end, and saved its progress.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
