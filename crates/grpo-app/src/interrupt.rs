//! Ctrl-C and other signals that end the program.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::dashboard::terminal;
use crate::output::say_aside;

/// Exit code after an interrupt, as shells report for SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;

/// A second signal within this time is the same request: a terminal sends Ctrl-C to `grpo run` and
/// to its command, and `grpo run` passes it on.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// Whether something running saves its progress when the flag is set.
static SAVES_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Returns a flag that the first signal (SIGINT, SIGTERM, SIGHUP) sets, printing a line. Without a
/// [`Deferred`] it ends the program; with one, only the second signal does.
///
/// A process has one handler: a later command gets the same flag, reset.
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
            // Clears a progress bar, which has no line end.
            let clear = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            let _unread = write!(io::stderr(), "{clear}");
            say_aside(format_args!("{}", answer(saves_progress)));
        }
        if !saves_progress {
            end_process();
        }
    })
    .context("cannot install the signal handler")?;
    Ok(Arc::clone(FLAG.get_or_init(|| flag)))
}

fn answer(saves_progress: bool) -> &'static str {
    match saves_progress {
        true => "interrupting (finishing this step; send a second signal to quit without saving)",
        false => "interrupted  no progress to save",
    }
}

/// While it exists, an interrupt lets the work save its progress. Otherwise a signal ends the
/// program, because nothing would be lost: while loading, checking, and after the last save.
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

/// Ends the program immediately and restores the terminal.
pub(crate) fn end_process() -> ! {
    terminal::restore();
    std::process::exit(EXIT_CODE.into())
}

/// A run was interrupted and has saved its progress.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
