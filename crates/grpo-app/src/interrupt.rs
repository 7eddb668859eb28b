//! Ctrl-C and what else asks a program to end.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;

use crate::dashboard;

/// Exit code after an interruption, as shells give it to a program that SIGINT ended.
pub(crate) const EXIT_CODE: u8 = 130;

/// A flag that the first signal sets (SIGINT, SIGTERM, SIGHUP); the second one ends the program at once.
pub(crate) fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let of_handler = Arc::clone(&flag);
    ctrlc::set_handler(move || {
        if of_handler.swap(true, Ordering::Relaxed) {
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
