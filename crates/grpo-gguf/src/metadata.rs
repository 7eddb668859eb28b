//! Metadata: keys with typed values.

use std::io::{Read, Write};

use crate::error::{Result, damaged, unfit, unsupported};
use crate::source::Source;

/// Deepest nesting of arrays. No known file has an array in an array.
const DEEPEST: usize = 4;
/// Longest key in bytes, from the specification.
const LONGEST_KEY: usize = 65_535;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the types")]
pub enum MetadataValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Text(String),
    /// Elements of one type.
    Array(ValueType, Vec<MetadataValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// The type of a value, which an array states for its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the types")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Text = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Text,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn read(source: &mut Source<impl Read>, key: &str) -> Result<Self> {
        let number = source.u32(key)?;
        match Self::ALL.get(number as usize) {
            Some(kind) => Ok(*kind),
            None => damaged(format!("{key} has the unknown type {number}; expected 0 to 12")),
        }
    }

    /// Returns the fewest bytes that a value takes in a file.
    fn least_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Text | Self::U64 | Self::I64 | Self::F64 => 8,
            Self::Array => 12,
        }
    }
}

impl MetadataValue {
    /// Returns the type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::Text,
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Returns the value as a number that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(value) => Some(value.into()),
            Self::U16(value) => Some(value.into()),
            Self::U32(value) => Some(value.into()),
            Self::U64(value) => Some(value),
            Self::I8(value) => value.try_into().ok(),
            Self::I16(value) => value.try_into().ok(),
            Self::I32(value) => value.try_into().ok(),
            Self::I64(value) => value.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the value of a floating-point number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => Some(value.into()),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// Returns a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(_, elements) => Some(elements),
            _ => None,
        }
    }

    fn read(
        source: &mut Source<impl Read>,
        kind: ValueType,
        key: &str,
        depth: usize,
    ) -> Result<Self> {
        Ok(match kind {
            ValueType::U8 => Self::U8(u8::from_le_bytes(source.bytes(key)?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(source.bytes(key)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(source.bytes(key)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(source.bytes(key)?)),
            ValueType::U32 => Self::U32(source.u32(key)?),
            ValueType::I32 => Self::I32(i32::from_le_bytes(source.bytes(key)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(source.bytes(key)?)),
            ValueType::Bool => match source.bytes(key)? {
                [0] => Self::Bool(false),
                [1] => Self::Bool(true),
                [other] => return damaged(format!("{key} is {other}; expected 0 or 1")),
            },
            ValueType::Text => Self::Text(source.text(key)?),
            ValueType::Array => Self::read_array(source, key, depth)?,
            ValueType::U64 => Self::U64(source.u64(key)?),
            ValueType::I64 => Self::I64(i64::from_le_bytes(source.bytes(key)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(source.bytes(key)?)),
        })
    }

    fn read_array(source: &mut Source<impl Read>, key: &str, depth: usize) -> Result<Self> {
        if depth == DEEPEST {
            return damaged(format!("{key} nests more than {DEEPEST} arrays"));
        }
        let kind = ValueType::read(source, key)?;
        let count = source.u64(key)?;
        // A count that does not fit is refused before memory is taken for it.
        if count > source.left() / kind.least_bytes() {
            return damaged(format!(
                "{key} lists {count} values, but only {} bytes follow; the file is truncated or damaged, so download it again",
                source.left()
            ));
        }
        source.take_memory(count.saturating_mul(size_of::<Self>() as u64))?;
        let mut elements = Vec::with_capacity(count as usize);
        for _ in 0..count {
            elements.push(Self::read(source, kind, key, depth + 1)?);
        }
        Ok(Self::Array(kind, elements))
    }

    fn write(&self, writer: &mut impl Write) -> Result<()> {
        match self {
            Self::U8(value) => writer.write_all(&value.to_le_bytes())?,
            Self::I8(value) => writer.write_all(&value.to_le_bytes())?,
            Self::U16(value) => writer.write_all(&value.to_le_bytes())?,
            Self::I16(value) => writer.write_all(&value.to_le_bytes())?,
            Self::U32(value) => writer.write_all(&value.to_le_bytes())?,
            Self::I32(value) => writer.write_all(&value.to_le_bytes())?,
            Self::F32(value) => writer.write_all(&value.to_le_bytes())?,
            Self::Bool(value) => writer.write_all(&[u8::from(*value)])?,
            Self::Text(text) => write_text(writer, text)?,
            Self::Array(kind, elements) => {
                writer.write_all(&(*kind as u32).to_le_bytes())?;
                writer.write_all(&(elements.len() as u64).to_le_bytes())?;
                for element in elements {
                    if element.value_type() != *kind {
                        return unfit(format!(
                            "an array of {kind:?} contains a value of type {:?}",
                            element.value_type()
                        ));
                    }
                    element.write(writer)?;
                }
            }
            Self::U64(value) => writer.write_all(&value.to_le_bytes())?,
            Self::I64(value) => writer.write_all(&value.to_le_bytes())?,
            Self::F64(value) => writer.write_all(&value.to_le_bytes())?,
        }
        Ok(())
    }
}

/// Writes a text: its length, then its bytes.
pub(crate) fn write_text(writer: &mut impl Write, text: &str) -> Result<()> {
    writer.write_all(&(text.len() as u64).to_le_bytes())?;
    writer.write_all(text.as_bytes())?;
    Ok(())
}

impl From<&str> for MetadataValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for MetadataValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u32> for MetadataValue {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<f32> for MetadataValue {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

impl From<bool> for MetadataValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<Vec<String>> for MetadataValue {
    fn from(texts: Vec<String>) -> Self {
        Self::Array(ValueType::Text, texts.into_iter().map(Self::Text).collect())
    }
}

impl From<Vec<i32>> for MetadataValue {
    fn from(values: Vec<i32>) -> Self {
        Self::Array(ValueType::I32, values.into_iter().map(Self::I32).collect())
    }
}

impl From<Vec<f32>> for MetadataValue {
    fn from(values: Vec<f32>) -> Self {
        Self::Array(ValueType::F32, values.into_iter().map(Self::F32).collect())
    }
}

/// Keys and values in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Vec<(String, MetadataValue)>);

impl Metadata {
    /// Reads `count` keys with their values.
    pub(crate) fn read(source: &mut Source<impl Read>, count: u64) -> Result<Self> {
        // A key takes 8 bytes for its length, 4 for its type and 1 for a value.
        if count > source.left() / 13 {
            return damaged(format!(
                "its header declares {count} metadata keys, but only {} bytes follow; the file is truncated or damaged, so download it again",
                source.left()
            ));
        }
        let mut entries = Vec::new();
        let mut keys = std::collections::HashSet::new();
        for number in 1..=count {
            let key = source.text(&format!("the name of metadata key {number}"))?;
            if key.len() > LONGEST_KEY {
                return damaged(format!("the name of metadata key {number} is too long"));
            }
            source.take_memory(2 * (key.len() + 64) as u64)?;
            let what = format!("the metadata key `{}`", key.escape_debug());
            let kind = ValueType::read(source, &what)?;
            let value = MetadataValue::read(source, kind, &what, 0)?;
            if !keys.insert(key.clone()) {
                return damaged(format!("{what} occurs twice"));
            }
            entries.push((key, value));
        }
        Ok(Self(entries))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&MetadataValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets a key. A new key is added at the end.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<MetadataValue>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// Returns keys and values in their order.
    pub fn entries(&self) -> &[(String, MetadataValue)] {
        &self.0
    }

    pub(crate) fn write(&self, writer: &mut impl Write) -> Result<()> {
        for (key, value) in &self.0 {
            write_text(writer, key)?;
            writer.write_all(&(value.value_type() as u32).to_le_bytes())?;
            value.write(writer)?;
        }
        Ok(())
    }

    /// Returns a text, or an error if the value has another type.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", MetadataValue::as_text)
    }

    /// Returns a flag, or an error if the value has another type.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |value| match value {
            MetadataValue::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Returns a number that is not negative, or an error if the value has another type.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number that is not negative", MetadataValue::as_u64)
    }

    /// Returns a finite number, or an error if the value has another type.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a finite number", |value| {
            value.as_f64().filter(|number| number.is_finite())
        })
    }

    /// Returns an array, or an error if the value has another type.
    pub(crate) fn array(&self, key: &str) -> Result<Option<&[MetadataValue]>> {
        self.typed(key, "an array", MetadataValue::as_array)
    }

    /// Returns an array of texts, or an error if the value has another type.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.typed(key, "an array of texts", |value| {
            value.as_array()?.iter().map(MetadataValue::as_text).collect()
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a MetadataValue) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => unsupported(format!(
                "the metadata key `{key}` has type {:?}; expected {expected}",
                value.value_type()
            )),
        }
    }
}
