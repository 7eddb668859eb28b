//! The log file `reward.log` of a run. It contains the standard error output of reward programs and
//! the reasons for failed requests.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use grpo_data::OwnFolder;

/// Maximum number of bytes written per session. A program with unlimited output must not fill the
/// disk.
const MOST: usize = 16 << 20;
/// Number of bytes buffered until the run folder is known.
const MOST_WITHOUT_FILE: usize = 1 << 16;
/// Name of the log file in the run folder.
const NAME: &str = "reward.log";

/// The destination of log messages. Write errors are ignored, because a full disk is reported with
/// a better message elsewhere.
#[derive(Debug, Default)]
pub struct Output(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    waiting: Vec<u8>,
    written: usize,
}

impl Output {
    /// Opens the log file in `folder` and writes all buffered messages to it.
    pub(super) fn keep_in(&self, folder: &Path) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = OwnFolder::open(folder).and_then(|folder| folder.open_to_append(NAME));
        state.file = opened.ok();
        let waiting = std::mem::take(&mut state.waiting);
        state.write(&waiting);
    }

    pub(super) fn write(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes);
    }

    /// Writes a message of this program.
    pub fn note(&self, text: &str) {
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
