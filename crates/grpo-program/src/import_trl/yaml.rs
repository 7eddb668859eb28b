//! Reads the subset of YAML that TRL configurations use.
//!
//! Values are built from parser events in a loop. Aliases are refused, so that a small file cannot
//! expand to a large value.

use grpo_data::caught;
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

/// Maximum nesting depth.
const DEEPEST: usize = 32;

/// Maximum number of keys and values.
const MOST: usize = 20_000;

/// Parses a document. Errors start with the line.
pub(crate) fn parse_yaml(text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    caught(|| read(text)).unwrap_or_else(Err)
}

/// A list or mapping whose end has not been read yet.
enum Open {
    List(Vec<Value>),
    Mapping { values: Map<String, Value>, key: Option<String> },
}

impl Open {
    fn close(self) -> Value {
        match self {
            Self::List(values) => Value::Array(values),
            Self::Mapping { values, .. } => Value::Object(values),
        }
    }

    /// Returns whether the next value is a key.
    fn expects_key(&self) -> bool {
        matches!(self, Self::Mapping { key: None, .. })
    }

    fn push(&mut self, value: Value) {
        match self {
            Self::List(values) => values.push(value),
            Self::Mapping { values, key } => {
                if let Some(key) = key.take() {
                    values.insert(key, value);
                }
            }
        }
    }
}

fn read(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut document = None;
    let mut count = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|fault| format!("line {}: {}", fault.marker().line(), fault.info()))?;
        let refuse = |reason: &str| Err(format!("line {}: {reason}", span.start.line()));
        count += 1;
        if count > MOST {
            return refuse(&format!("the file has more than {MOST} keys and values"));
        }
        let is_key = open.last().is_some_and(Open::expects_key);
        let finished = match event {
            Event::Alias(..) => {
                return refuse("aliases (`*name`) are not supported; write the value out");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return refuse("tags (`!name`) are not supported; remove it");
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if is_key => {
                return refuse("a key is a list or a mapping; expected a name");
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == DEEPEST => {
                return refuse(&format!("the values are nested more than {DEEPEST} levels deep"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                None
            }
            Event::MappingStart(..) => {
                open.push(Open::Mapping { values: Map::new(), key: None });
                None
            }
            Event::Scalar(name, ..) if is_key => {
                if let Some(Open::Mapping { values, key }) = open.last_mut() {
                    if values.contains_key(&*name) {
                        return refuse(&format!("duplicate key `{name}`"));
                    }
                    *key = Some(name.into_owned());
                }
                None
            }
            Event::Scalar(text, style, ..) => Some(scalar(&text, style == ScalarStyle::Plain)),
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(Open::close),
            Event::DocumentStart(..) if document.is_some() => {
                return refuse("a second document begins; expected a single one");
            }
            _ => None,
        };
        match (finished, open.last_mut()) {
            (Some(value), Some(parent)) => parent.push(value),
            (Some(value), None) => document = Some(value),
            (None, _) => {}
        }
    }
    Ok(document.unwrap_or(Value::Null))
}

/// Converts a scalar like PyYAML, except that `1e-6` is a number: TRL turns it into one.
fn scalar(text: &str, is_plain: bool) -> Value {
    if !is_plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return Value::from(true);
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::from(false);
        }
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Value::from(text);
    }
    let digits = text.replace('_', "");
    match (digits.parse::<i64>(), digits.parse::<f64>()) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) if number.is_finite() => Value::from(number),
        _ => Value::from(text),
    }
}
