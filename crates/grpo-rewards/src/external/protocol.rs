//! The message format of external rewards. Each JSON request is followed by one JSON reply.
//!
//! A request has the keys `id`, `step` and `items`. Each item has the keys `prompt`, `completion`,
//! `completion_ids`, `group`, `sample` and `row`. The reply has the keys `id` and `rewards`, and
//! optionally `components`, `info`, `errors` and `seconds`. All of its lists have one entry per item.
//! A reply with the text `error` has no rewards: all items have failed.
//!
//! The REINVENT format is also supported. Its request has one SMILES string per line, and its reply
//! is `{"version": 1, "payload": {name: [...]}}`.

use grpo_data::{LARGEST_REWARD, in_plain_words, parse_json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Outcome, PartName, RewardInput, Scored};

/// The encoding of requests and replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// The format of `ExternalProcess` in REINVENT 4.
    Reinvent {
        /// The list in the payload that contains the rewards.
        property: String,
    },
}

/// The values that a reply contains for each completion in addition to the reward.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Component names in display order.
    pub components: Vec<String>,
    /// Weights of the components. If present, the reward is the weighted sum of the components.
    pub weights: Option<Vec<f64>>,
}

/// The part of a reply that refers to a single completion.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The reward, or `None` for `null`, and the components.
    Given(Option<f64>, Vec<Option<f64>>),
    /// The error message of the reward.
    Failed(String),
}

/// A valid reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// The verdict for each completion.
    pub(super) verdicts: Vec<Verdict>,
    /// The note on each completion, if any.
    pub(super) info: Vec<Option<String>>,
    /// `info` if it is not a list with one entry per completion.
    pub(super) remark: Option<Value>,
    /// The time needed to score each completion, if the program measured it.
    pub(super) seconds: Option<Vec<f64>>,
}

/// A reply, for error messages.
const EXAMPLE: &str = r#"{"id": 1, "rewards": [0.5, 1.0]}"#;

/// Maximum length of the note on a completion, in characters.
const MOST_OF_INFO: usize = 4096;

#[derive(Serialize)]
struct Request<'a> {
    id: usize,
    step: Option<u32>,
    items: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Item<'a> {
    prompt: &'a str,
    completion: &'a str,
    completion_ids: &'a [u32],
    group: u32,
    sample: u32,
    row: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Reply {
    id: Value,
    rewards: Option<Vec<Value>>,
    #[serde(default)]
    components: Map<String, Value>,
    info: Option<Value>,
    errors: Option<Vec<Option<String>>>,
    /// The reason why no completion of the request has a reward.
    error: Option<String>,
    seconds: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct ReinventReply {
    payload: Map<String, Value>,
}

impl Format {
    /// Returns an error if a completion cannot be represented in this format.
    pub(super) fn check(&self, sample: &RewardInput) -> Result<(), String> {
        let is_line = || !sample.text.is_empty() && !sample.text.contains(['\n', '\r']);
        match self {
            Self::Reinvent { .. } if !is_line() => Err(format!(
                "completion {} is empty or contains a line break, which format = \"reinvent\" does not support",
                excerpt(sample.text.as_bytes())
            )),
            Self::Json | Self::Reinvent { .. } => Ok(()),
        }
    }

    /// Encodes a request.
    pub(super) fn request<'a>(&self, id: usize, samples: &[&'a RewardInput]) -> Vec<u8> {
        if let Self::Reinvent { .. } = self {
            let lines: Vec<&str> = samples.iter().map(|sample| sample.text.as_str()).collect();
            return lines.join("\n").into_bytes();
        }
        let item = |sample: &&'a RewardInput| Item {
            prompt: &sample.prompt,
            completion: &sample.text,
            completion_ids: &sample.completion_ids,
            group: sample.group,
            sample: sample.sample,
            row: &sample.fields,
        };
        let step = samples.first().and_then(|sample| sample.step);
        let items = samples.iter().map(item).collect();
        let mut bytes = serde_json::to_vec(&Request { id, step, items }).expect("it is JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Parses the reply to the request `id`.
    pub(super) fn answer(
        &self,
        reply: &[u8],
        id: usize,
        samples: &[&RewardInput],
        shape: &Shape,
    ) -> Result<Answer, String> {
        let text = str::from_utf8(reply).map_err(|_| "the reply is not UTF-8".to_owned())?;
        let (rewards, components, errors, info, seconds) = match self {
            Self::Json => {
                let reply: Reply = parsed(text)?;
                if reply.id != id {
                    return Err(format!(
                        "the reply has id {}, but the request has id {id}; expected one reply per request, in order",
                        reply.id
                    ));
                }
                if let Some(error) = reply.error {
                    return Ok(Answer::failed(&error, samples.len()));
                }
                (reply.rewards, reply.components, reply.errors, reply.info, reply.seconds)
            }
            Self::Reinvent { property } => {
                let ReinventReply { mut payload } = parsed(text)?;
                let names: Vec<&String> = payload.keys().collect();
                let missing = format!(
                    "the payload has no '{property}', only {names:?}; set reward.property to the one to use as the reward"
                );
                let rewards = list(payload.remove(property).ok_or(missing)?, property)?;
                payload.retain(|name, _| shape.components.contains(name));
                (Some(rewards), payload, None, None, None)
            }
        };
        let count = samples.len();
        if let Some(found) = seconds.as_ref().filter(|seconds| seconds.len() != count) {
            return Err(format!("'seconds' has {} entries for {count} completions", found.len()));
        }
        let lists = Lists::new(rewards, components, errors, count, shape)?;
        let (info, remark) = match info {
            Some(Value::Array(all)) if all.len() == count => {
                (all.into_iter().map(text_of).collect(), None)
            }
            remark => (vec![None; count], remark),
        };
        Ok(Answer { verdicts: lists.verdicts(samples, shape), info, remark, seconds })
    }
}

impl Answer {
    /// Returns the answer to a request of which all completions failed for the same reason.
    fn failed(reason: &str, count: usize) -> Self {
        let verdicts = vec![Verdict::Failed(reason.to_owned()); count];
        Self { verdicts, info: vec![None; count], remark: None, seconds: None }
    }
}

/// The lists in a reply. Each has one entry per completion.
struct Lists {
    rewards: Option<Vec<Value>>,
    /// In the same order as the components of the shape.
    components: Vec<Vec<Value>>,
    errors: Option<Vec<Option<String>>>,
}

impl Lists {
    fn new(
        rewards: Option<Vec<Value>>,
        mut named: Map<String, Value>,
        errors: Option<Vec<Option<String>>>,
        count: usize,
        shape: &Shape,
    ) -> Result<Self, String> {
        let fits = |name: &str, found: usize| match found == count {
            true => Ok(()),
            false => Err(format!("'{name}' has {found} entries for {count} completions")),
        };
        if shape.weights.is_none() && rewards.is_none() {
            return Err("the reply has no 'rewards'".to_owned());
        }
        rewards.iter().try_for_each(|rewards| fits("rewards", rewards.len()))?;
        errors.iter().try_for_each(|errors| fits("errors", errors.len()))?;
        let mut components = Vec::new();
        for name in &shape.components {
            let found = named.remove(name).ok_or_else(|| {
                format!(
                    "the reply is missing component '{name}', which is listed in reward.components"
                )
            })?;
            let found = list(found, name)?;
            fits(name, found.len())?;
            components.push(found);
        }
        match named.keys().next() {
            Some(name) => Err(format!(
                "unexpected component '{name}' in the reply; it is not listed in reward.components"
            )),
            None => Ok(Self { rewards, components, errors }),
        }
    }

    fn verdicts(&self, samples: &[&RewardInput], shape: &Shape) -> Vec<Verdict> {
        let of = |index: usize| {
            let error = self.errors.as_ref().and_then(|errors| errors[index].clone());
            error.map_or_else(|| self.given(index, shape), Err)
        };
        let count = samples.len();
        let verdict = |(index, sample): (usize, &&RewardInput)| {
            of(index).unwrap_or_else(|fault| {
                let completion = excerpt(sample.text.as_bytes());
                let item = index + 1;
                Verdict::Failed(format!(
                    "completion {completion} (item {item} of {count}): {fault}"
                ))
            })
        };
        samples.iter().enumerate().map(verdict).collect()
    }

    fn given(&self, index: usize, shape: &Shape) -> Result<Verdict, String> {
        let reward =
            self.rewards.as_ref().map_or(Ok(None), |all| number("the reward", &all[index]))?;
        let names = shape.components.iter().zip(&self.components);
        let components =
            names.map(|(name, all)| number(&format!("component '{name}'"), &all[index]));
        Ok(Verdict::Given(reward, components.collect::<Result<_, String>>()?))
    }
}

impl Shape {
    /// Returns the outcome of an invalid completion, which has no components. With several
    /// functions, each of them has the value `reward`.
    pub(super) fn invalid(&self, reward: f64) -> Outcome {
        let terms = match &self.weights {
            Some(weights) => weights.iter().map(|weight| (*weight, reward)).collect(),
            None => vec![(1.0, reward)],
        };
        Outcome::Scored(Scored::new(terms, Vec::new()))
    }

    /// Converts a verdict to an outcome.
    pub(super) fn outcome(&self, verdict: Verdict) -> Outcome {
        let (reward, components) = match verdict {
            Verdict::Given(reward, components) => (reward, components),
            Verdict::Failed(reason) => return Outcome::failed(reason),
        };
        let terms: Vec<(f64, f64)> = match &self.weights {
            // As in TRL, a function that returns null for a completion does not contribute to its
            // reward.
            Some(_) if components.iter().all(Option::is_none) => return Outcome::abstained(),
            Some(weights) => {
                let values = components.iter().map(|value| value.unwrap_or(0.0));
                weights.iter().copied().zip(values).collect()
            }
            None => match reward {
                Some(reward) => vec![(1.0, reward)],
                None => return Outcome::abstained(),
            },
        };
        let named = self.components.iter().zip(components);
        let parts = named.filter_map(|(name, value)| Some((PartName::from(name.clone()), value?)));
        Outcome::Scored(Scored::new(terms, parts.collect()))
    }
}

/// Converts an entry of `info` to text. Strings remain unchanged, and `null` becomes `None`.
fn text_of(value: Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text,
        other => other.to_string(),
    };
    Some(match text.char_indices().nth(MOST_OF_INFO) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    })
}

fn list(value: Value, name: &str) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(format!("'{name}' is {other}; expected a list")),
    }
}

fn number(name: &str, value: &Value) -> Result<Option<f64>, String> {
    let fault = |found: &dyn std::fmt::Display| {
        Err(format!("{name} is {found}; expected a finite number or null"))
    };
    match value {
        Value::Null => Ok(None),
        Value::Number(found) => match found.as_f64().filter(|value| value.is_finite()) {
            Some(value) if value.abs() > LARGEST_REWARD => Err(format!(
                "{name} is {value:e}; expected a number up to {LARGEST_REWARD:e} in magnitude, or null"
            )),
            Some(value) => Ok(Some(value)),
            None => fault(found),
        },
        Value::String(text) if text.parse::<f64>().is_ok_and(|value| !value.is_finite()) => {
            fault(text)
        }
        other => fault(&excerpt(other.to_string().as_bytes())),
    }
}

/// Parses JSON. Numbers that JSON does not support (Python writes `NaN` and `Infinity`) and numbers
/// that are too large are converted to strings.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    if text.trim().is_empty() {
        return Err("the reply is empty".to_owned());
    }
    let value: Value = parse_json(&with_quoted_numbers(text)).map_err(|reason| {
        match reason.starts_with("duplicate key") {
            true => format!("the reply has the {reason}"),
            false => format!("the reply is not valid JSON: {reason}"),
        }
    })?;
    let kind = match &value {
        Value::Object(_) => None,
        Value::Array(_) => Some("a list"),
        Value::String(_) => Some("text"),
        Value::Number(_) => Some("a number"),
        Value::Bool(_) => Some("a boolean"),
        Value::Null => Some("null"),
    };
    if let Some(kind) = kind {
        return Err(format!("the reply is {kind}; expected an object such as {EXAMPLE}"));
    }
    serde_json::from_value(value).map_err(|error| {
        format!("unexpected reply: {}", in_plain_words(&error.to_string(), "object"))
    })
}

/// Quotes numbers that have no finite value.
fn with_quoted_numbers(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let (mut is_string, mut is_escaped, mut word) = (false, false, String::new());
    let end_word = |word: &mut String, quoted: &mut String| {
        let is_infinite = word.parse::<f64>().is_ok_and(|value| !value.is_finite());
        let mark = if is_infinite { "\"" } else { "" };
        quoted.extend([mark, word, mark]);
        word.clear();
    };
    for character in text.chars() {
        let is_in_word = character.is_ascii_alphanumeric() || "+-.".contains(character);
        if !is_string && is_in_word {
            word.push(character);
            continue;
        }
        end_word(&mut word, &mut quoted);
        quoted.push(character);
        match character {
            '"' if !is_escaped => is_string = !is_string,
            _ => {}
        }
        is_escaped = is_string && character == '\\' && !is_escaped;
    }
    end_word(&mut word, &mut quoted);
    quoted
}

/// Returns the quoted beginning of a text.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(800)]);
    let mut short: String = text.chars().take(160).collect();
    if text.chars().count() > 160 || bytes.len() > 800 {
        short.push('…');
    }
    format!("{short:?}")
}
