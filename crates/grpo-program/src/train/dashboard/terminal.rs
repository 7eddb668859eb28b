//! Sets up the terminal for the live screen and restores it.

use std::io;
#[cfg(unix)]
use std::io::IsTerminal;
#[cfg(unix)]
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use grpo_task::interrupt::{self, LiveScreen};
use grpo_task::output::say_aside;
#[cfg(unix)]
use nix::errno::Errno;
#[cfg(unix)]
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};

/// Whether the live screen is open, so the terminal has to be restored.
static OPEN: AtomicBool = AtomicBool::new(false);

pub(super) fn open() -> io::Result<()> {
    interrupt::has_screen(LiveScreen { is_open, restore });
    enable_raw_mode()?;
    OPEN.store(true, Ordering::SeqCst);
    let opened = execute!(io::stderr(), EnterAlternateScreen, cursor::Hide);
    if opened.is_err() {
        restore();
    }
    opened
}

/// Returns whether the live screen is open.
fn is_open() -> bool {
    OPEN.load(Ordering::SeqCst)
}

/// Restores the terminal and prints held-back panic messages. Only the first call has an effect: at
/// the end of the run, after an error or on a second Ctrl-C.
pub(crate) fn restore() {
    if OPEN.swap(false, Ordering::SeqCst) {
        // There is no one to report an error to.
        let _left = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
        let _cooked = disable_raw_mode();
        let mut held = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
        held.drain(..).for_each(|panic| say_aside(format_args!("{panic}")));
    }
}

/// Returns the next event, for which it waits no longer than `time`.
///
/// # Errors
/// Returns an error if the terminal was closed or cannot be read.
pub(super) fn next_event(time: Duration) -> io::Result<Option<Event>> {
    // Crossterm reads all input and queues its events. There may be one without further input.
    for wait in [Duration::ZERO, time] {
        wait_for_input(wait)?;
        if event::poll(Duration::ZERO)? {
            return event::read().map(Some);
        }
    }
    Ok(None)
}

/// Waits until the terminal has input, but no longer than `time`.
///
/// # Errors
/// Returns an error if the terminal was closed. Crossterm would read it in an endless loop.
#[cfg(unix)]
fn wait_for_input(time: Duration) -> io::Result<()> {
    // Crossterm reads standard input if it is a terminal. Otherwise it reads /dev/tty; the screen is
    // on standard error, so that terminal is polled.
    let (input, screen) = (io::stdin(), io::stderr());
    let terminal = if input.is_terminal() { input.as_fd() } else { screen.as_fd() };
    let mut polled = [PollFd::new(terminal, PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    match polled[0].revents() {
        Some(events) if events.intersects(closed) => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn wait_for_input(time: Duration) -> io::Result<()> {
    event::poll(time).map(|_ready| ())
}

/// Panic messages that were held back while the screen was open. Closing the screen would have
/// erased them.
static HELD_BACK: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Installs a panic hook that holds messages back while the screen is open. If training panics,
/// unwinding drops the [`Monitor`](super::Monitor), which restores the terminal and prints them.
/// Panics in a reward function are caught, and the screen stays open.
pub(super) fn hold_panics_back() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !OPEN.load(Ordering::SeqCst) {
                return before(panic);
            }
            let mut held = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
            // A reward function may panic in every step.
            if held.len() < 100 {
                let name = thread::current().name().unwrap_or("without a name").to_owned();
                held.push(format!("thread '{name}' {panic}"));
            }
        }));
    });
}
