//! What deterministic rewards said of completions, so that equal ones are scored once.

use std::collections::{HashMap, VecDeque};

use crate::{Outcome, RewardInput};

/// Entries of a cache, each of about 200 bytes. Beyond, the oldest leave.
const MOST: usize = 200_000;

type Key = [u8; 32];

/// Outcomes by completion, prompt and record.
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

/// All that a deterministic reward may depend on.
fn key(sample: &RewardInput) -> Key {
    let parts = (&sample.text, &sample.prompt, &sample.fields);
    let bytes = serde_json::to_vec(&parts).expect("strings and JSON values serialize to JSON");
    *blake3::hash(&bytes).as_bytes()
}
