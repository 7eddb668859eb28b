//! Parsing of JSON files written by other programs.

use crate::plain_words::in_plain_words;
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

/// Parses JSON and rejects duplicate keys. By default, serde_json silently ignores all but one of
/// them.
///
/// # Errors
/// Returns an error if the text is not valid JSON, does not match `T`, or contains an object with a
/// duplicate key.
pub fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let UniqueKeys = serde_json::from_str(text).map_err(|error| json_reason(&error))?;
    serde_json::from_str(text).map_err(|error| json_reason(&error))
}

/// Like [`parse_json`], for a file that belongs to a model or an adapter. Errors have a remedy.
///
/// # Errors
/// See [`parse_json`].
pub fn parse_model_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    parse_json(text.strip_prefix('\u{feff}').unwrap_or(text))
        .map_err(|reason| format!("{reason}; copy the file from the original again"))
}

/// Formats a JSON parser error without the names of Rust types.
pub fn json_reason(error: &serde_json::Error) -> String {
    match (error.is_eof(), error.line(), error.column()) {
        (true, 1, 0) => "it is empty".to_owned(),
        (true, line, column) => format!("unexpected end of input at line {line} column {column}"),
        // The whole value has the wrong type.
        (false, 1, 0) => {
            let message = error.to_string();
            in_plain_words(message.trim_end_matches(" at line 1 column 0"), "object")
        }
        _ => in_plain_words(&error.to_string(), "object"),
    }
}

/// Like [`json_reason`], but for a single line of a JSON Lines file: gives only the column.
pub fn json_line_reason(error: &serde_json::Error) -> String {
    json_reason(error).replace(" at line 1 column ", " at column ")
}

/// The entries of a JSON object in file order, and the first duplicate key.
#[derive(Debug)]
pub struct JsonEntries<V> {
    /// Keys and values, including duplicates.
    pub entries: Vec<(String, V)>,
    /// The first key that occurs more than once.
    pub duplicate: Option<String>,
}

impl<V> JsonEntries<V> {
    fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error>
    where
        V: Deserialize<'de>,
    {
        let mut read = Self { entries: Vec::new(), duplicate: None };
        let mut keys = BTreeSet::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            if !keys.insert(key.clone()) {
                read.duplicate.get_or_insert(key.clone());
            }
            read.entries.push((key, value));
        }
        Ok(read)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for JsonEntries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = JsonEntries<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<JsonEntries<V>, A::Error> {
        JsonEntries::read(map)
    }
}

/// Any JSON value without duplicate keys.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UniqueKeys, A::Error> {
        let JsonEntries::<UniqueKeys> { duplicate, .. } = JsonEntries::read(map)?;
        match duplicate {
            Some(key) => Err(A::Error::custom(format_args!("duplicate key `{key}`"))),
            None => Ok(UniqueKeys),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        while let Some(UniqueKeys) = items.next_element()? {}
        Ok(UniqueKeys)
    }

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_bool<E>(self, _: bool) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_json;
    use std::collections::BTreeMap;

    #[test]
    fn reasons_name_what_is_wrong_in_plain_words() {
        for (text, reason) in [
            ("", "it is empty"),
            (
                "None",
                "a value is missing or misspelled (text has double quotes) at line 1 column 1",
            ),
            ("{\"a\": 1", "unexpected end of input at line 1 column 7"),
            (
                "{\"a\": -1}",
                "found -1; expected a whole number that is not negative at line 1 column 8",
            ),
            ("{\"a\": 1, \"b\": 2, \"a\": 3}", "duplicate key `a` at line 1 column 24"),
        ] {
            let parsed = parse_json::<BTreeMap<String, usize>>(text);
            assert_eq!(parsed.unwrap_err(), reason, "{text}");
        }
        let nested = "{\"a\": [null, true, -1, 1, 1.5, \"x\", {\"b\": 1, \"b\": 2}]}";
        let error = parse_json::<serde_json::Value>(nested).unwrap_err();
        assert!(error.starts_with("duplicate key `b`"), "{error}");
        let parsed = parse_json::<BTreeMap<String, usize>>("{\"a\": 1, \"b\": 2}").unwrap();
        assert_eq!(parsed.len(), 2);
    }
}
