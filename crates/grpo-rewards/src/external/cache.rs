//! A cache for deterministic rewards that avoids scoring identical completions twice.

use std::collections::{HashMap, VecDeque};

use crate::{Outcome, RewardInput};

/// Maximum number of entries, each of about 200 bytes. If it is exceeded, the oldest entries are
/// removed.
const MOST: usize = 200_000;

type Key = [u8; 32];

/// Outcomes by completion, prompt and fields.
#[derive(Default)]
pub(super) struct Cache {
    outcomes: HashMap<Key, Outcome>,
    order: VecDeque<Key>,
}

impl Cache {
    pub(super) fn get(&self, sample: &RewardInput) -> Option<Outcome> {
        self.outcomes.get(&key(sample)).cloned()
    }

    pub(super) fn insert(&mut self, sample: &RewardInput, outcome: &Outcome) {
        let key = key(sample);
        if self.outcomes.insert(key, outcome.clone()).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
    }
}

/// Hashes all inputs that a deterministic reward can depend on.
fn key(sample: &RewardInput) -> Key {
    let parts = (&sample.text, &sample.prompt, &sample.fields);
    let bytes = serde_json::to_vec(&parts).expect("strings and JSON values serialize to JSON");
    *blake3::hash(&bytes).as_bytes()
}
