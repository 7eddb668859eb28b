//! Dictionaries in insertion order.

use super::{Dict, Error, Key, Result, Value, fail};
use std::sync::Arc;

impl Key {
    /// Returns the key of a value.
    ///
    /// # Errors
    /// Returns an error if the value cannot be a key.
    pub(crate) fn new(value: &Value) -> Result<Self> {
        Ok(match value {
            Value::None => Self::None,
            Value::Undefined(_) => Self::Undefined,
            Value::Bool(_) | Value::Int(_) => Self::Int(value.int().unwrap_or_default()),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => {
                Self::Int(*number as i128)
            }
            Value::Float(number) => Self::Float(number.to_bits()),
            Value::Str(text) | Value::Markup(text) => Self::Str(Arc::clone(text)),
            Value::Tuple(items) | Value::Group(items) => {
                Self::Tuple(items.iter().map(Self::new).collect::<Result<_>>()?)
            }
            Value::Range(range) => Self::Range(range.to_vec()),
            Value::Function(name) => Self::Function(name),
            Value::List(_) | Value::Dict(_) | Value::View(..) => {
                return fail(format!("unhashable type: '{}'", value.type_name()));
            }
            Value::Iterator(it) => Self::Other(std::rc::Rc::as_ptr(it) as usize),
            Value::Macro(it) => Self::Other(std::rc::Rc::as_ptr(it) as usize),
            _ => {
                return Err(Error::new(format!(
                    "a {} as a key is not supported",
                    value.type_name()
                )));
            }
        })
    }
}

impl Dict {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> &[(Value, Value)] {
        &self.entries
    }

    pub(crate) fn set(&mut self, key: Value, value: Value) -> Result<()> {
        let hashed = Key::new(&key)?;
        match self.positions.get(&hashed) {
            Some(&at) => self.entries[at].1 = value,
            None => {
                self.positions.insert(hashed, self.entries.len());
                self.entries.push((key, value));
            }
        }
        Ok(())
    }

    /// Sets the value of a key that is a text.
    pub(crate) fn set_text(&mut self, key: &str, value: Value) {
        let key: Arc<str> = key.into();
        match self.positions.get(&Key::Str(Arc::clone(&key))) {
            Some(&at) => self.entries[at].1 = value,
            None => {
                self.positions.insert(Key::Str(Arc::clone(&key)), self.entries.len());
                self.entries.push((Value::Str(key), value));
            }
        }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Returns an error if the value cannot be a key.
    pub(crate) fn get(&self, key: &Value) -> Result<Option<&Value>> {
        Ok(self.positions.get(&Key::new(key)?).map(|&at| &self.entries[at].1))
    }
}
