//! The API `/chat/completions`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::EndpointError;
use crate::request::{ReplyFault, Request};

/// Keys that [`ChatSettings::extra`] may not contain.
const RESERVED: [&str; 4] = ["model", "messages", "stream", "n"];

/// Settings that all chat requests of a client share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatSettings {
    /// Name of the model on the server.
    pub model: String,
    /// Sampling temperature; 0 selects the most likely token.
    #[serde(default)]
    pub temperature: f64,
    /// Maximum number of tokens of an answer.
    #[serde(default = "default_max_tokens")]
    pub max_tokens: u32,
    /// Seed of the server's sampler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// More keys of the body. They replace the keys above; `null` removes one, as in
    /// `{"max_tokens": null, "max_completion_tokens": 512}`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

fn default_max_tokens() -> u32 {
    512
}

impl ChatSettings {
    /// Returns the defaults for a model: temperature 0, 512 tokens, no seed.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            temperature: 0.0,
            max_tokens: default_max_tokens(),
            seed: None,
            extra: Map::new(),
        }
    }

    /// Checks all values.
    ///
    /// # Errors
    /// Returns an error if the model has no name, a number is out of range, or `extra` has a reserved
    /// key.
    pub fn check(&self) -> Result<(), EndpointError> {
        let refused = |key, found: String, expected: &str| {
            Err(EndpointError::Setting { key, found, expected: expected.to_owned() })
        };
        if self.model.is_empty() {
            return refused("model", "empty".to_owned(), "the name of a model on the server");
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return refused("temperature", self.temperature.to_string(), "0 to 2");
        }
        if self.max_tokens == 0 {
            return refused("max_tokens", "0".to_owned(), "at least 1");
        }
        match self.extra.keys().find(|key| RESERVED.contains(&key.as_str())) {
            Some(key) => {
                let expected = "keys other than `model`, `messages`, `stream` and `n`";
                refused("extra", format!("an object with the key `{key}`"), expected)
            }
            None => Ok(()),
        }
    }

    /// Returns a request with a single message of the user.
    pub fn ask(&self, text: impl Into<String>) -> ChatRequest<'_> {
        ChatRequest { settings: self, messages: vec![Message::user(text)] }
    }
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Text.
    pub content: String,
}

impl Message {
    /// Returns a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: "user".to_owned(), content: content.into() }
    }
}

/// A conversation that the model continues.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest<'a> {
    /// Model and sampling.
    pub settings: &'a ChatSettings,
    /// The conversation.
    pub messages: Vec<Message>,
}

/// The model's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatAnswer {
    /// Text, not empty.
    pub text: String,
    /// Whether the text ends at the token limit.
    pub is_truncated: bool,
    /// Name of the model according to the server.
    pub model: Option<String>,
}

impl Request for ChatRequest<'_> {
    type Answer = ChatAnswer;

    const PATH: &'static str = "chat/completions";

    fn body(&self) -> Map<String, Value> {
        let settings = self.settings;
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(settings.model));
        body.insert("messages".to_owned(), json!(self.messages));
        body.insert("temperature".to_owned(), json!(settings.temperature));
        body.insert("max_tokens".to_owned(), json!(settings.max_tokens));
        if let Some(seed) = settings.seed {
            body.insert("seed".to_owned(), json!(seed));
        }
        for (key, value) in &settings.extra {
            match value {
                Value::Null => body.shift_remove(key),
                value => body.insert(key.clone(), value.clone()),
            };
        }
        body
    }

    fn answer(&self, reply: &Value) -> Result<ChatAnswer, ReplyFault> {
        let choice = reply.get("choices").and_then(|choices| choices.get(0));
        let choice = choice.ok_or_else(|| ReplyFault::of_endpoint("has no `choices`"))?;
        let message = choice.get("message").and_then(Value::as_object);
        let message =
            message.ok_or_else(|| ReplyFault::of_endpoint("has no `choices[0].message`"))?;
        let is_truncated = choice.get("finish_reason").is_some_and(|reason| reason == "length");
        let text = match message.get("content") {
            Some(Value::String(text)) => text.as_str(),
            None | Some(Value::Null) => "",
            Some(_) => {
                let what = "has a `choices[0].message.content` that is not a string";
                return Err(ReplyFault::of_endpoint(what));
            }
        };
        if text.trim().is_empty() {
            let what = "has an empty `choices[0].message.content`";
            let fix = match is_truncated {
                true => "raise `max_tokens`: the model spent all of them before its answer",
                false => "check the model and its chat template, or raise `max_tokens`",
            };
            return Err(ReplyFault::of_request(what, fix));
        }
        let model = reply.get("model").and_then(Value::as_str).map(str::to_owned);
        Ok(ChatAnswer { text: text.to_owned(), is_truncated, model })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies() {
        let mut settings = ChatSettings::new("m");
        settings.seed = Some(7);
        let body = Value::Object(settings.ask("Hi").body());
        let messages = json!([{"role": "user", "content": "Hi"}]);
        let expect = json!({
            "model": "m", "messages": messages, "temperature": 0.0, "max_tokens": 512, "seed": 7
        });
        assert_eq!(body, expect);
        let extra = json!({"max_tokens": null, "max_completion_tokens": 9, "temperature": 1});
        settings.extra = extra.as_object().unwrap().clone();
        let body = Value::Object(settings.ask("Hi").body());
        let expect = json!({
            "model": "m", "messages": messages, "temperature": 1, "seed": 7,
            "max_completion_tokens": 9
        });
        assert_eq!(body, expect);
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn settings_that_are_refused() {
        let check = |change: fn(&mut ChatSettings), expect: &str| {
            let mut settings = ChatSettings::new("m");
            change(&mut settings);
            assert_eq!(settings.check().unwrap_err().to_string(), expect);
        };
        check(
            |settings| settings.model.clear(),
            "`model` is empty; expected the name of a model on the server",
        );
        check(|settings| settings.temperature = f64::NAN, "`temperature` is NaN; expected 0 to 2");
        check(|settings| settings.max_tokens = 0, "`max_tokens` is 0; expected at least 1");
        check(
            |settings| drop(settings.extra.insert("stream".to_owned(), json!(true))),
            "`extra` is an object with the key `stream`; expected keys other than `model`, `messages`, `stream` and `n`",
        );
    }

    #[test]
    fn answers() {
        let settings = ChatSettings::new("m");
        let answer = |reply: Value| settings.ask("Hi").answer(&reply);
        let choice = |choice: Value| answer(json!({"choices": [choice], "model": "served"}));
        let good = choice(json!({"message": {"content": "Yes"}, "finish_reason": "length"}));
        let expect = ChatAnswer {
            text: "Yes".to_owned(),
            is_truncated: true,
            model: Some("served".to_owned()),
        };
        assert_eq!(good, Ok(expect));
        for reply in [json!({}), json!({"choices": []}), json!([1]), json!({"choices": "a"})] {
            let fault = answer(reply).unwrap_err();
            assert_eq!((fault.what.as_str(), fault.is_of_request), ("has no `choices`", false));
        }
        assert!(!choice(json!({"message": "Yes"})).unwrap_err().is_of_request);
        assert!(!choice(json!({"message": {"content": [1]}})).unwrap_err().is_of_request);
        for content in [Value::Null, json!(""), json!(" \n")] {
            let fault = choice(json!({"message": {"content": content}})).unwrap_err();
            assert!(fault.is_of_request, "{fault:?}");
        }
        let empty = choice(json!({"message": {"content": ""}, "finish_reason": "length"}));
        assert!(empty.unwrap_err().fix.starts_with("raise `max_tokens`"));
    }
}
