//! Iteration over values.

use super::{Dict, Error, Result, Value, View, fail, range_length};
use std::rc::Rc;

/// The items of an iteration, and the error that ends it.
pub(crate) struct Items {
    items: std::vec::IntoIter<Value>,
    error: Option<Error>,
}

impl Iterator for Items {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.items.next() {
            Some(item) => Some(Ok(item)),
            None => self.error.take().map(Err),
        }
    }
}

impl Value {
    /// Whether Python's `iter(value)` succeeds.
    pub(crate) fn is_iterable(&self) -> bool {
        !matches!(
            self,
            Self::None
                | Self::Bool(_)
                | Self::Int(_)
                | Self::Float(_)
                | Self::Namespace(_)
                | Self::Function(_)
                | Self::Method(..)
                | Self::Macro(_)
                | Self::Cycler(_)
                | Self::Joiner(_)
        )
    }

    /// Iterates over the value as Python does. Generators can be iterated over once.
    ///
    /// # Errors
    /// Returns an error if the value is not iterable.
    pub(crate) fn iterate(&self) -> Result<Items> {
        if let Self::Iterator(iterator) = self {
            let rest = std::mem::take(&mut *iterator.items.borrow_mut());
            return Ok(Items { items: rest, error: iterator.error.clone() });
        }
        let items = match self {
            Self::Undefined(_) => vec![],
            Self::Str(text) | Self::Markup(text) => characters(text).map(Self::Str).collect(),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => items.to_vec(),
            Self::Dict(dict) => keys(dict),
            Self::Range(range) => {
                let at = |i: usize| i128::from(range[0]) + i as i128 * i128::from(range[2]);
                (0..range_length(range)).map(|i| Self::Int(at(i))).collect()
            }
            Self::View(View::Keys, dict) => keys(dict),
            Self::View(View::Values, dict) => {
                dict.entries().iter().map(|(_, value)| value.clone()).collect()
            }
            Self::View(View::Items, dict) => {
                let pair =
                    |(key, value): &(Value, Value)| Self::tuple(vec![key.clone(), value.clone()]);
                dict.entries().iter().map(pair).collect()
            }
            Self::Loop(_) => return fail("iteration over `loop` is not supported"),
            _ => return fail(format!("'{}' object is not iterable", self.type_name())),
        };
        Ok(Items { items: items.into_iter(), error: None })
    }

    /// Returns the items as a list.
    ///
    /// # Errors
    /// Returns an error if the value is not iterable or the iteration fails.
    pub(crate) fn items(&self) -> Result<Vec<Value>> {
        match self.sequence() {
            Some(items) => Ok(items.to_vec()),
            None => self.iterate()?.collect(),
        }
    }

    /// Takes the next item of an iterator.
    pub(crate) fn next_item(iterator: &Rc<super::Generator>) -> Option<Result<Value>> {
        let next = iterator.items.borrow_mut().next();
        match next {
            Some(item) => Some(Ok(item)),
            None => iterator.error.clone().map(Err),
        }
    }
}

fn keys(dict: &Dict) -> Vec<Value> {
    dict.entries().iter().map(|(key, _)| key.clone()).collect()
}

fn characters(text: &str) -> impl Iterator<Item = std::sync::Arc<str>> {
    text.chars().map(|c| c.encode_utf8(&mut [0; 4]).to_owned().into())
}
