//! Small models of each family, and sizes that are refused.

use grpo_infill::Characters;
use grpo_model::ModelConfig;
use serde_json::{Value, json};

use crate::configs::with;
use crate::known_families;
use crate::oracle::Oracle;

/// An infiller with a critic.
pub(crate) fn infiller() -> Value {
    json!({
        "model_type": "infiller", "vocab_size": 19, "block_size": 24, "n_layer": 2, "n_head": 3,
        "n_embd": 24, "rope_theta": 50.0, "critic": true,
    })
}

pub(crate) fn sequence_scorer() -> Value {
    json!({
        "model_type": "sequence_scorer", "vocab_size": 19, "block_size": 8, "n_layer": 2,
        "n_head": 3, "n_embd": 24, "rope_theta": 50.0,
    })
}

impl Oracle {
    /// Computes the logit that each character is wrong.
    pub(crate) fn critic(&self, ids: &[u32]) -> Vec<f64> {
        self.hidden(ids).iter().map(|x| self.linear("critic", x)[0]).collect()
    }

    /// Computes the score of a text that fits into the context.
    pub(crate) fn score(&self, text: &[u32]) -> f64 {
        let cls = self.size("vocab_size") as u32 - 1;
        let first = &self.hidden(&[&[cls], text].concat())[0];
        let raw = self.linear("score_head.direction", first)[0];
        let of = |name: &str| self.tensors[&format!("score_head.{name}")][0];
        1.0 / (1.0 + (-(of("scale") * raw + of("shift"))).exp())
    }
}

/// Returns a vocabulary with as many IDs as the model, including MASK, PAD and CLS.
pub(crate) fn characters(config: &ModelConfig) -> Characters {
    let number = u32::try_from(config.description().vocabulary).unwrap() - 3;
    let text: String = (0..number).map(|i| char::from_u32(u32::from('a') + i).unwrap()).collect();
    Characters::from_texts([text.as_str()]).unwrap()
}

#[track_caller]
fn check_refused(fine: Value, change: Value, expected: &str) {
    let json = with(fine, change).to_string();
    assert_eq!(known_families().parse(&json).unwrap_err(), expected);
}

#[test]
fn sizes_that_do_not_fit() {
    for (change, expected) in [
        (
            json!({"vocab_size": 3}),
            "vocab_size = 3 is out of range; expected at least 4 (one character, MASK, PAD and CLS)",
        ),
        (json!({"n_head": 5}), "n_embd = 24 is not a multiple of n_head = 5"),
        (json!({"n_head": 8}), "rotary positions require an even head width, found 3"),
        (json!({"n_layer": 0}), "n_layer = 0 is out of range; expected 1 or more"),
        (json!({"n_layer": -4}), "found -4; expected a whole number that is not negative"),
        (json!({"block_size": 0}), "block_size = 0 is out of range; expected 1 or more"),
        (json!({"rope_theta": 1.0}), "rope_theta = 1 is out of range; expected more than 1"),
    ] {
        check_refused(infiller(), change, expected);
    }
    let refusal = "critic is not valid for sequence_scorer; remove it";
    check_refused(sequence_scorer(), json!({"critic": false}), refusal);
}
