//! The API `/v1/completions` with token ids and log-probabilities.

use std::sync::Arc;

use crate::{ReplyFault, Request};
use serde_json::{Map, Value, json};

/// Settings that all requests of an engine share.
#[derive(Clone, Debug)]
pub(crate) struct CompletionSettings {
    /// Number of completions per prompt.
    pub(crate) count: usize,
    pub(crate) max_tokens: usize,
    /// Number of tokens of the model.
    pub(crate) vocabulary: usize,
    pub(crate) temperature: f32,
    pub(crate) repetition_penalty: f32,
    /// Ids that are never sampled.
    pub(crate) forbidden: Vec<u32>,
    /// Ids that end a completion.
    pub(crate) end_ids: Vec<u32>,
    /// Strings that end a completion.
    pub(crate) stop: Vec<String>,
}

/// A request for the completions of a prompt.
#[derive(Clone, Debug)]
pub(crate) struct CompletionRequest {
    pub(crate) settings: Arc<CompletionSettings>,
    /// Name of the adapter.
    pub(crate) model: String,
    pub(crate) prompt: Vec<u32>,
    pub(crate) seed: Option<u64>,
}

/// A completion of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) ids: Vec<u32>,
    /// Log-probability of each id.
    pub(crate) logprobs: Vec<f32>,
    /// Whether the server ended it before the maximum length.
    pub(crate) is_stopped: bool,
}

/// The largest log-probability above 0 that can be a rounding error of f32.
const ROUNDING: f64 = 1e-5;
/// vLLM's log-probability of tokens that top-k or top-p have removed.
const REMOVED: f64 = -9999.0;

const FIX_OF_VLLM: &str = "use a vLLM server of a supported version (docs/cluster.md)";

impl Request for CompletionRequest {
    type Answer = Vec<Choice>;

    const PATH: &'static str = "completions";

    /// Sets every field that affects sampling, because the defaults of a server can come from the
    /// model's `generation_config.json`.
    fn body(&self) -> Map<String, Value> {
        let settings = &self.settings;
        let body = json!({
            "model": self.model,
            "prompt": self.prompt,
            "n": settings.count,
            "max_tokens": settings.max_tokens,
            "min_tokens": 0,
            "temperature": settings.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": settings.repetition_penalty,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "ignore_eos": true,
            "stop_token_ids": settings.end_ids,
            "stop": settings.stop,
            // Stop strings are not searched in special tokens, as by the local engine.
            "skip_special_tokens": true,
            "logprobs": 0,
            "return_token_ids": true,
            "cache_salt": self.model,
        });
        let Value::Object(mut body) = body else { unreachable!("it is an object") };
        if !settings.forbidden.is_empty() {
            // The lowest bias that vLLM accepts. The trainer removes these ids, which is the same unless
            // their logits are higher than all others by nearly 100. Then they are refused as actions.
            let bias = settings.forbidden.iter().map(|id| (id.to_string(), json!(-100.0)));
            body.insert("logit_bias".to_owned(), Value::Object(bias.collect()));
        }
        if let Some(seed) = self.seed {
            body.insert("seed".to_owned(), json!(seed));
        }
        body
    }

    fn answer(&self, reply: &Value) -> Result<Vec<Choice>, ReplyFault> {
        let fault = |what: String| ReplyFault::of_endpoint(what).with_fix(FIX_OF_VLLM);
        let model = reply["model"].as_str();
        if model != Some(&self.model) {
            let found = model.map_or("no model".to_owned(), |model| format!("the model {model}"));
            return Err(fault(format!("names {found} instead of {}", self.model)));
        }
        let empty = Vec::new();
        let choices = reply["choices"].as_array().unwrap_or(&empty);
        let expected = self.settings.count;
        let mut found: Vec<Option<Choice>> = vec![None; expected];
        for choice in choices {
            let index = choice["index"].as_u64().and_then(|index| usize::try_from(index).ok());
            let slot = index.and_then(|index| found.get_mut(index));
            *slot.ok_or_else(|| fault("has a choice without a valid index".to_owned()))? =
                Some(self.choice(choice)?);
        }
        let all = found.into_iter().collect::<Option<Vec<Choice>>>();
        all.filter(|_| choices.len() == expected)
            .ok_or_else(|| fault(format!("has {} choices; expected {expected}", choices.len())))
    }
}

impl CompletionRequest {
    fn choice(&self, choice: &Value) -> Result<Choice, ReplyFault> {
        let fault = |what: &str| ReplyFault::of_endpoint(what).with_fix(FIX_OF_VLLM);
        let prompt = ids(&choice["prompt_token_ids"])
            .ok_or_else(|| fault("has a choice without `prompt_token_ids`"))?;
        if prompt != self.prompt {
            return Err(fault("is about another prompt"));
        }
        let ids = ids(&choice["token_ids"])
            .filter(|ids| !ids.is_empty())
            .ok_or_else(|| fault("has a choice without `token_ids`"))?;
        let numbers = choice["logprobs"]["token_logprobs"].as_array();
        let logprobs = numbers
            .and_then(|numbers| numbers.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>())
            .filter(|logprobs| logprobs.len() == ids.len())
            .ok_or_else(|| fault("does not have one log-probability per token"))?;
        if logprobs.contains(&REMOVED) {
            let what = "has a log-probability of -9999, which stands for a token that the server's own top-k or top-p has removed";
            let fix = "start vLLM with `--generation-config vllm`";
            return Err(ReplyFault::of_endpoint(what).with_fix(fix));
        }
        if let Some(bad) = logprobs.iter().find(|bad| !bad.is_finite() || **bad > ROUNDING) {
            return Err(fault(&format!("has the log-probability {bad}")));
        }
        let vocabulary = self.settings.vocabulary;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            let what =
                format!("has the token {id}, but the model of this run has {vocabulary} tokens");
            let fix = "start vLLM with the model of this run";
            return Err(ReplyFault::of_endpoint(what).with_fix(fix));
        }
        let most = self.settings.max_tokens;
        if ids.len() > most {
            return Err(fault(&format!("has {} tokens, more than {most}", ids.len())));
        }
        let is_stopped = match choice["finish_reason"].as_str() {
            Some("stop") => true,
            Some("length") => false,
            other => {
                let other = other.unwrap_or("null");
                return Err(fault(&format!("has a choice with finish_reason {other}")));
            }
        };
        if !is_stopped && ids.len() < most {
            let what =
                format!("ends after {} of {most} tokens, because they do not fit", ids.len());
            let fix =
                "start vLLM with a larger `--max-model-len`, or lower sampling.max_new_tokens";
            return Err(ReplyFault::of_endpoint(what).with_fix(fix));
        }
        let logprobs = logprobs.into_iter().map(|logprob| logprob.min(0.0) as f32).collect();
        Ok(Choice { ids, logprobs, is_stopped })
    }
}

fn ids(list: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    list.as_array()?.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CompletionRequest {
        let settings = CompletionSettings {
            count: 2,
            max_tokens: 3,
            vocabulary: 20,
            temperature: 0.7,
            repetition_penalty: 1.0,
            forbidden: vec![5],
            end_ids: vec![0],
            stop: Vec::new(),
        };
        let (settings, model) = (Arc::new(settings), "policy-1".to_owned());
        CompletionRequest { settings, model, prompt: vec![1, 2], seed: Some(1 << 62) }
    }

    /// A reply of vLLM 0.32.0 to a request with `n = 2`, with other ids and texts.
    fn reply() -> Value {
        let choice = |index: usize, ids: [u32; 3], reason: &str| {
            json!({
                "index": index, "text": "...", "finish_reason": reason, "stop_reason": null,
                "logprobs": {
                    "text_offset": [0, 12, 23], "token_logprobs": [-5.692, -5.216, 1e-7],
                    "tokens": ["a", "b", "c"], "top_logprobs": [{"a": -5.692}, {"b": -5.216}, {"c": 1e-7}]
                },
                "token_ids": ids, "prompt_logprobs": null, "prompt_token_ids": [1, 2],
                "routed_experts": null
            })
        };
        json!({
            "id": "cmpl-b90581a0ef9c4b83", "object": "text_completion", "created": 1795343654,
            "model": "policy-1",
            "choices": [choice(1, [7, 8, 0], "stop"), choice(0, [7, 8, 9], "length")],
            "usage": {"prompt_tokens": 2, "total_tokens": 8, "completion_tokens": 6}
        })
    }

    #[test]
    fn every_sampling_field_is_sent() {
        let body = request().body();
        assert_eq!((&body["model"], &body["cache_salt"]), (&json!("policy-1"), &json!("policy-1")));
        assert_eq!(body["logit_bias"], json!({"5": -100.0}));
        assert_eq!(body["seed"], json!(1_u64 << 62));
        assert_eq!(body["temperature"], json!(0.7_f32));
        let mut unbiased = request();
        Arc::make_mut(&mut unbiased.settings).forbidden.clear();
        unbiased.seed = None;
        let body = unbiased.body();
        assert!(!body.contains_key("logit_bias") && !body.contains_key("seed"));
    }

    #[test]
    fn choices_are_sorted_and_rounded() {
        let choices = request().answer(&reply()).unwrap();
        let logprobs = vec![-5.692, -5.216, 0.0];
        let first = Choice { ids: vec![7, 8, 9], logprobs: logprobs.clone(), is_stopped: false };
        assert_eq!(choices, [first, Choice { ids: vec![7, 8, 0], logprobs, is_stopped: true }]);
    }

    #[test]
    fn replies_that_are_refused() {
        let check = |change: &dyn Fn(&mut Value), expected: &str| {
            let mut reply = reply();
            change(&mut reply);
            assert_eq!(request().answer(&reply).unwrap_err().what, expected);
        };
        check(&|reply| reply["model"] = json!("base"), "names the model base instead of policy-1");
        check(&|reply| *reply = json!([]), "names no model instead of policy-1");
        check(&|reply| reply["choices"] = json!([]), "has 0 choices; expected 2");
        let index = "has a choice without a valid index";
        check(&|reply| reply["choices"][0]["index"] = json!(2), index);
        // Choice 1 is there twice, and choice 0 is missing.
        check(&|reply| reply["choices"][1]["index"] = json!(1), "has 2 choices; expected 2");
        let of_first = |key: &'static str, value: Value| {
            move |reply: &mut Value| reply["choices"][0][key] = value.clone()
        };
        check(&of_first("prompt_token_ids", json!([1, 3])), "is about another prompt");
        let missing = "has a choice without `prompt_token_ids`";
        check(&of_first("prompt_token_ids", Value::Null), missing);
        for ids in [Value::Null, json!([]), json!([1, -1, 2]), json!([1, 1_u64 << 32, 2])] {
            check(&of_first("token_ids", ids), "has a choice without `token_ids`");
        }
        let large = "has the token 20, but the model of this run has 20 tokens";
        check(&of_first("token_ids", json!([7, 20, 0])), large);
        let count = "does not have one log-probability per token";
        check(&of_first("token_ids", json!([7, 8])), count);
        check(&of_first("logprobs", Value::Null), count);
        check(&of_first("finish_reason", json!("abort")), "has a choice with finish_reason abort");
        check(&of_first("finish_reason", Value::Null), "has a choice with finish_reason null");
        let of_logprob = |value: f64| {
            move |reply: &mut Value| {
                reply["choices"][0]["logprobs"]["token_logprobs"][1] = json!(value);
            }
        };
        check(&of_logprob(0.1), "has the log-probability 0.1");
        let removed = "has a log-probability of -9999, which stands for a token that the server's own top-k or top-p has removed";
        check(&of_logprob(-9999.0), removed);
    }

    #[test]
    fn completions_that_the_server_shortens_or_extends() {
        let with_most = |most: usize| {
            let mut request = request();
            Arc::make_mut(&mut request.settings).max_tokens = most;
            request.answer(&reply()).unwrap_err()
        };
        let short = with_most(4);
        assert_eq!(short.what, "ends after 3 of 4 tokens, because they do not fit");
        assert!(short.fix.contains("--max-model-len"), "{}", short.fix);
        assert_eq!(with_most(2).what, "has 3 tokens, more than 2");
    }
}
