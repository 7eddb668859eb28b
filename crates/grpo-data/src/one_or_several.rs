//! Settings that are a string or a list of strings.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrSeveral {
    /// A string.
    One(String),
    /// A list of strings.
    Several(Vec<String>),
}

impl OneOrSeveral {
    /// Returns the strings.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

/// Unlike a derived implementation, says what is expected if the value is neither.
impl<'de> Deserialize<'de> for OneOrSeveral {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;

        impl<'de> Visitor<'de> for Strings {
            type Value = OneOrSeveral;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrSeveral, E> {
                Ok(OneOrSeveral::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrSeveral, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(OneOrSeveral::Several(texts))
            }
        }

        deserializer.deserialize_any(Strings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deserialize_settings;

    #[derive(Debug, Deserialize)]
    struct Section {
        url: OneOrSeveral,
    }

    fn read(text: &str) -> Result<OneOrSeveral, String> {
        let section = deserialize_settings::<Section>(toml::from_str(text).unwrap());
        section.map(|section| section.url).map_err(|fault| format!("{}: {fault}", fault.key))
    }

    #[test]
    fn strings_and_lists() {
        assert_eq!(read("url = 'a'").unwrap().as_slice(), ["a"]);
        assert_eq!(read("url = ['a', 'b']").unwrap().as_slice(), ["a", "b"]);
        assert_eq!(read("url = []").unwrap(), OneOrSeveral::Several(Vec::new()));
    }

    #[test]
    fn other_values() {
        let expected = "url: found 3; expected a string or a list of strings";
        assert_eq!(read("url = 3").unwrap_err(), expected);
        let expected = "url[1]: found true; expected a string";
        assert_eq!(read("url = ['a', true]").unwrap_err(), expected);
    }
}
