//! Counters of requests, tokens and costs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// HTTP requests that were sent, including retries.
    pub requests: u64,
    /// Retries among them.
    pub retries: u64,
    /// Answers from the cache, or from an equal request of the same batch.
    pub cache_hits: u64,
    /// Prompt tokens of the answers from the server.
    pub prompt_tokens: u64,
    /// Completion tokens of the answers from the server.
    pub completion_tokens: u64,
    /// Answers from the server without token counts. If there are any, the tokens and the costs are
    /// lower bounds.
    pub uncounted_answers: u64,
}

impl Usage {
    /// Returns the costs of the counted tokens.
    pub fn cost(&self, prices: &Prices) -> f64 {
        let of = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        of(self.prompt_tokens, prices.prompt) + of(self.completion_tokens, prices.completion)
    }

    /// Adds the token counts of a reply.
    pub(crate) fn add_tokens(&mut self, reply: &Value) {
        let count = |key: &str| reply.get("usage").and_then(|usage| usage.get(key)?.as_u64());
        match (count("prompt_tokens"), count("completion_tokens")) {
            (Some(prompt), Some(completion)) => {
                self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
                self.completion_tokens = self.completion_tokens.saturating_add(completion);
            }
            _ => self.uncounted_answers += 1,
        }
    }
}

/// Prices per million tokens, in any currency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Price of a million prompt tokens.
    pub prompt: f64,
    /// Price of a million completion tokens.
    pub completion: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn costs_of_counted_tokens() {
        let mut usage = Usage::default();
        usage.add_tokens(&json!({"usage": {"prompt_tokens": 2000, "completion_tokens": 30}}));
        usage.add_tokens(&json!({"usage": {"prompt_tokens": 1000, "completion_tokens": 10}}));
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3000, 40));
        let cost = usage.cost(&Prices { prompt: 2.5, completion: 10.0 });
        assert!((cost - (0.0075 + 0.0004)).abs() < 1e-15, "{cost}");
        assert_eq!(usage.uncounted_answers, 0);
        for reply in [json!({}), json!({"usage": null}), json!({"usage": {"prompt_tokens": 3}})] {
            usage.add_tokens(&reply);
        }
        assert_eq!((usage.uncounted_answers, usage.prompt_tokens), (3, 3000));
    }
}
