//! The keys that a type reads.

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// Returns the keys that a struct reads, as the implementation of serde names them. Other types have none.
pub fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // Reading always fails: `Asked` has no values.
    let _none = T::deserialize(Asked(&mut keys));
    keys
}

/// Notes the keys that it is asked for.
struct Asked<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no value"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = keys;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::keys_of;

    #[test]
    fn keys_are_those_that_a_table_may_have() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its keys matter")]
        struct Section {
            first: u32,
            #[serde(default)]
            r#type: Option<String>,
            #[serde(skip)]
            own: u32,
            #[serde(rename = "called")]
            other: Vec<u32>,
        }

        assert_eq!(keys_of::<Section>(), ["first", "type", "called"]);
        assert!(keys_of::<u32>().is_empty() && keys_of::<Vec<Section>>().is_empty());
    }
}
