//! The terminal while a screen is drawn on it, and how it is given back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};

use crate::output::say_aside;

/// Whether the terminal is ours and has to be given back.
static OPEN: AtomicBool = AtomicBool::new(false);

pub(super) fn open() -> io::Result<()> {
    enable_raw_mode()?;
    OPEN.store(true, Ordering::SeqCst);
    let opened = execute!(io::stderr(), EnterAlternateScreen, cursor::Hide);
    if opened.is_err() {
        restore();
    }
    opened
}

/// Whether the screen is open.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::SeqCst)
}

/// Once, whoever comes first: the end, an error, an impatient user. Panics that were held back are shown then.
pub(crate) fn restore() {
    if OPEN.swap(false, Ordering::SeqCst) {
        // There is nobody to tell.
        let _left = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
        let _cooked = disable_raw_mode();
        let mut held = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
        held.drain(..).for_each(|panic| say_aside(format_args!("{panic}")));
    }
}

/// Messages of panics while the screen was open: written over it, they would be gone with it.
static HELD_BACK: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Holds messages back while the screen is open. A panic of the training unwinds through the [`Monitor`](super::Monitor), which gives the
/// terminal back and shows them; one of a reward is caught, and the screen goes on.
pub(super) fn hold_panics_back() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !OPEN.load(Ordering::SeqCst) {
                return before(panic);
            }
            let mut held = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
            // A reward can panic at every step.
            if held.len() < 100 {
                let name = thread::current().name().unwrap_or("without a name").to_owned();
                held.push(format!("thread '{name}' {panic}"));
            }
        }));
    });
}
