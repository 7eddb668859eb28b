//! The file `reward.log` of a run: what reward programs write to standard error, and why requests failed.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of the file that one session writes. A program that never stops writing must not fill the disk.
const MOST: usize = 16 << 20;
/// Bytes that are kept while there is no run folder yet.
const MOST_WITHOUT_FILE: usize = 1 << 16;
/// The name of the file in the run folder.
const NAME: &str = "reward.log";

/// Where that goes. Write errors are ignored: a full disk stops a run elsewhere, with a better message.
#[derive(Default)]
pub(super) struct Output(Mutex<State>);

#[derive(Default)]
struct State {
    file: Option<File>,
    waiting: Vec<u8>,
    written: usize,
}

impl Output {
    /// From now on, and what was written so far.
    pub(super) fn keep_in(&self, folder: &Path) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.file = OpenOptions::new().create(true).append(true).open(folder.join(NAME)).ok();
        let waiting = std::mem::take(&mut state.waiting);
        state.write(&waiting);
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes);
    }

    /// A line of ours.
    pub(super) fn note(&self, text: &str) {
        self.write(format!("grpo: {text}\n").as_bytes());
    }
}

impl State {
    fn write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else {
            let room = MOST_WITHOUT_FILE.saturating_sub(self.waiting.len());
            self.waiting.extend(&bytes[..bytes.len().min(room)]);
            return;
        };
        if bytes.is_empty() || self.written >= MOST {
            return;
        }
        self.written += bytes.len();
        let _ignored = file.write_all(bytes);
        if self.written >= MOST {
            let _ignored = file.write_all(b"\ngrpo: output truncated at 16 MiB\n");
        }
    }
}
