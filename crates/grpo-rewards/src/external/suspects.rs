//! Completions that made a program crash or hang.

use std::collections::HashMap;

use super::cache::Key;
use crate::RewardInput;

/// Maximum number of entries. Further ones are not remembered.
const MOST: usize = 100_000;
/// How often a completion fails alone before it is not sent any more. Once may be by chance.
const MOST_FAILURES: u32 = 2;

/// Completions that failed although they were sent alone.
#[derive(Default)]
pub(super) struct Suspects(HashMap<Key, Record>);

struct Record {
    failures: u32,
    /// What the completion does.
    what: &'static str,
}

/// How a completion is sent.
pub(super) enum Standing {
    /// With others.
    Good,
    /// Alone.
    Suspect,
    /// Not at all, for this reason.
    Refused(&'static str),
}

impl Suspects {
    pub(super) fn standing(&self, sample: &RewardInput) -> Standing {
        if self.0.is_empty() {
            return Standing::Good;
        }
        match self.0.get(&Key::new(sample)) {
            None => Standing::Good,
            Some(Record { failures, what }) if *failures >= MOST_FAILURES => {
                Standing::Refused(what)
            }
            Some(_) => Standing::Suspect,
        }
    }

    pub(super) fn failed(&mut self, key: Key, what: &'static str) {
        if self.0.len() < MOST || self.0.contains_key(&key) {
            let record = self.0.entry(key).or_insert(Record { failures: 0, what });
            *record = Record { failures: record.failures + 1, what };
        }
    }

    pub(super) fn answered(&mut self, key: &Key) {
        self.0.remove(key);
    }
}
