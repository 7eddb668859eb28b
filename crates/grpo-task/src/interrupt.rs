//! Handles Ctrl-C and other signals that end the program.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::output::{remove_incomplete, say_aside};

/// Exit code after an interrupt, the same as a shell reports for SIGINT.
pub const EXIT_CODE: u8 = 130;

/// Signals within this time count as one request. On Ctrl-C, the terminal signals both `grpo run`
/// and its subprocess, and `grpo run` forwards its signal too.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// A live screen, which signals and the end of the process concern.
#[derive(Clone, Copy, Debug)]
pub struct LiveScreen {
    /// Returns whether it is open and shows messages itself.
    pub is_open: fn() -> bool,
    /// Closes it and restores the terminal.
    pub restore: fn(),
}

/// The program's live screen, see [`has_screen`].
static SCREEN: OnceLock<LiveScreen> = OnceLock::new();

/// Registers the live screen of the program.
pub fn has_screen(screen: LiveScreen) {
    SCREEN.get_or_init(|| screen);
}

fn screen() -> Option<LiveScreen> {
    SCREEN.get().copied()
}

/// Whether the running command saves its progress when the flag is set.
static SAVES_PROGRESS: AtomicBool = AtomicBool::new(false);

/// What a signal that ends the program now leaves behind, and how to continue.
static LEFT_BEHIND: Mutex<Option<String>> = Mutex::new(None);

/// Sets what to say if a signal ends the program from now on, e.g. that all steps are saved and how
/// to resume. By default, there is nothing to save.
pub fn leaves_behind(words: impl Into<String>) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    *left = Some(words.into());
}

/// Returns a flag that is set by the first SIGINT, SIGTERM or SIGHUP. The signal handler also
/// prints a message. While a [`Deferred`] exists, only the second signal ends the program.
/// Otherwise, the first one does.
///
/// There is one handler per process. Further calls reset and return the same flag.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(flag) = FLAG.get() {
        flag.store(false, Ordering::SeqCst);
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    let of_handler = Arc::clone(&flag);
    let first = OnceLock::new();
    let handle = move || {
        let since_first = first.get_or_init(Instant::now).elapsed();
        if of_handler.swap(true, Ordering::SeqCst) {
            if since_first > SAME_REQUEST {
                end_process();
            }
            return;
        }
        let saves_progress = SAVES_PROGRESS.load(Ordering::SeqCst);
        if !saves_progress || !screen().is_some_and(|screen| (screen.is_open)()) {
            // Clears the progress bar, which does not end with a line break.
            let clear = if io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
            let _unread = write!(io::stderr(), "{clear}");
            say_aside(format_args!("{}", answer(saves_progress)));
        }
        if !saves_progress {
            end_process();
        }
    };
    install(Arc::new(handle)).context("cannot install the signal handler")?;
    Ok(Arc::clone(FLAG.get_or_init(|| flag)))
}

/// Calls `handle` for each signal that ends a program. Under `nohup`, SIGHUP is ignored, and stays so.
pub fn install(handle: Arc<dyn Fn() + Send + Sync>) -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGHUP, SIGTERM};
        let ends =
            [SIGTERM, SIGHUP].into_iter().filter(|signal| !grpo_runtime::ignores_signal(*signal));
        let mut signals = signal_hook::iterator::Signals::new(ends)?;
        let handle = Arc::clone(&handle);
        let wait = move || signals.forever().for_each(|_| handle());
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    }
    Ok(ctrlc::set_handler(move || handle())?)
}

fn answer(saves_progress: bool) -> String {
    if saves_progress {
        return "interrupting (finishing this step; send a second signal to quit without saving)"
            .to_owned();
    }
    let left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    format!("interrupted  {}", left.as_deref().unwrap_or("nothing to save"))
}

/// While this value exists, interrupted work can save its progress. Otherwise a signal ends the
/// program immediately, because there is nothing to lose: while loading, while checking, and after
/// the last save, see [`leaves_behind`].
pub struct Deferred;

impl Deferred {
    /// Begins work that saves its progress.
    #[expect(clippy::new_without_default, reason = "it has an effect")]
    pub fn new() -> Self {
        SAVES_PROGRESS.store(true, Ordering::SeqCst);
        Self
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        SAVES_PROGRESS.store(false, Ordering::SeqCst);
    }
}

/// Prepares a program for signals: incomplete output files are removed when one ends it, and
/// writing to a file at its size limit (`ulimit -f`) is an error instead of SIGXFSZ, which ends the
/// program without a message. `forwards` is true for a command that forwards signals to
/// subprocesses instead.
pub fn prepare(forwards: bool) {
    #[cfg(unix)]
    let _unhandled = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    if !forwards {
        // Without a handler, commands work but leave hidden files behind.
        let _unhandled = flag();
    }
}

/// Restores the terminal, removes incomplete output files and exits immediately.
pub fn end_process() -> ! {
    if let Some(screen) = screen() {
        (screen.restore)();
    }
    remove_incomplete();
    std::process::exit(EXIT_CODE.into())
}

/// Error of a run that was interrupted after saving its progress.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
