//! Deserializes TOML values without accepting lists in place of tables. The derived implementations
//! of serde would fill the fields of a struct by position.

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::Error;
use toml::{Table, Value};

/// A value whose tables must be tables.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> IntoDeserializer<'de, Error> for Strict {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Table(table) => visitor.visit_map(entries(table)),
            // An internally tagged enum is buffered before its variant is known.
            Value::Array(_) if is_tagged_enum(&visitor) => Err(not_a_table(&visitor)),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Strict));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            value => value.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(not_a_table(&visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(entries(table)))
            }
            value => value.deserialize_enum(name, variants, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct identifier ignored_any
    }
}

type Entries<'de> = MapDeserializer<
    'de,
    std::iter::Map<toml::map::IntoIter<String, Value>, fn((String, Value)) -> (String, Strict)>,
    Error,
>;

fn entries<'de>(table: Table) -> Entries<'de> {
    let entry: fn((String, Value)) -> (String, Strict) = |(key, value)| (key, Strict(value));
    MapDeserializer::new(table.into_iter().map(entry))
}

fn is_tagged_enum(expected: &dyn Expected) -> bool {
    expected.to_string().starts_with("internally tagged enum ")
}

fn not_a_table(expected: &dyn Expected) -> Error {
    Error::invalid_type(Unexpected::Seq, expected)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use crate::deserialize_settings;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    #[allow(dead_code, reason = "only deserialized")]
    struct Outer {
        inner: Inner,
        optional: Option<Inner>,
        list: Vec<Inner>,
        tagged: Option<Tagged>,
        pair: (u8, u8),
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    #[allow(dead_code, reason = "only deserialized")]
    struct Inner {
        every: u32,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    #[allow(dead_code, reason = "only deserialized")]
    enum Tagged {
        One { value: f64 },
    }

    fn fault(text: &str) -> (String, String) {
        let fault = deserialize_settings::<Outer>(toml::from_str(text).unwrap()).unwrap_err();
        (fault.key, fault.message.trim().to_owned())
    }

    #[test]
    fn lists_are_not_tables() {
        let list = "found a list; expected a table";
        for (text, key, message) in [
            ("inner = [5]", "inner", list),
            ("inner = []", "inner", list),
            ("optional = [5]", "optional", list),
            ("list = [[5]]", "list[0]", list),
            ("tagged = ['one', 1.0]", "tagged", "found a list; expected a table with `type`"),
        ] {
            assert_eq!(fault(text), (key.to_owned(), message.to_owned()));
        }
        assert_eq!(fault("[[list]]\nevery = 'x'").0, "list[0].every");
    }

    #[test]
    fn tables_and_lists_are_read() {
        let text = "pair = [1, 2]\ninner.every = 3\n[[list]]\nevery = 4\n[tagged]\ntype = 'one'\nvalue = 2";
        let read: Outer = deserialize_settings(toml::from_str(text).unwrap()).unwrap();
        assert_eq!((read.pair, read.inner.every, read.list[0].every), ((1, 2), 3, 4));
        assert!(matches!(read.tagged, Some(Tagged::One { value: 2.0 })));
    }
}
