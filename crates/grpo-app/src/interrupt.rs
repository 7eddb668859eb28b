//! Ctrl-C and what else asks a program to end.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::dashboard;

/// Exit code after an interruption, as shells give it to a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// A second signal that comes sooner is the first one again: a terminal sends Ctrl-C to `grpo run` and to the command that
/// it runs, and `grpo run` passes it on.
const SAME_REQUEST: Duration = Duration::from_millis(300);

/// A flag that the first signal sets (SIGINT, SIGTERM, SIGHUP); the second one ends the program at once.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let of_handler = Arc::clone(&flag);
    let first = OnceLock::new();
    ctrlc::set_handler(move || {
        let since_first = first.get_or_init(Instant::now).elapsed();
        if of_handler.swap(true, Ordering::Relaxed) && since_first > SAME_REQUEST {
            dashboard::restore();
            std::process::exit(EXIT_CODE.into());
        }
    })
    .context("signals cannot be caught")?;
    Ok(flag)
}

/// A run that was asked to end, and did so in good order.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}
