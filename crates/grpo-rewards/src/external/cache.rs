//! A cache for deterministic rewards that avoids scoring equal completions twice.

use std::collections::{HashMap, VecDeque};

use crate::{Outcome, RewardInput};

/// Maximum number of entries, each of about 200 bytes. If it is exceeded, the oldest entries are
/// removed.
const MOST: usize = 200_000;

/// Hash of the inputs that a deterministic reward can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

/// An outcome and the note on the completion.
pub(super) type Entry = (Outcome, Option<String>);

/// Outcomes by completion, prompt and fields.
#[derive(Default)]
pub(super) struct Cache {
    entries: HashMap<Key, Entry>,
    order: VecDeque<Key>,
}

impl Cache {
    pub(super) fn get(&self, key: &Key) -> Option<Entry> {
        self.entries.get(key).cloned()
    }

    pub(super) fn insert(&mut self, key: Key, entry: Entry) {
        if self.entries.insert(key, entry).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }
}

impl Key {
    /// Returns the key of a completion as it is sent.
    pub(super) fn new(sample: &RewardInput) -> Self {
        let parts = (&sample.text, &sample.prompt, &sample.fields);
        let bytes = serde_json::to_vec(&parts).expect("strings and JSON values serialize to JSON");
        Self(*blake3::hash(&bytes).as_bytes())
    }
}
