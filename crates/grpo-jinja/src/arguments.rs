//! Arguments of functions, methods, filters and tests.

use crate::value::{Result, Value, fail};
use std::sync::Arc;

/// The arguments of a call. Each function takes the ones that it knows, and refuses the rest.
#[derive(Clone, Default)]
pub(crate) struct Arguments {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(Arc<str>, Value)>,
}

/// The arguments of one function in the order of its parameters.
pub(crate) struct Bound {
    values: Vec<Option<Value>>,
    names: &'static [&'static str],
    function: String,
}

impl Arguments {
    pub(crate) fn new(positional: Vec<Value>) -> Self {
        Self { positional, named: vec![] }
    }

    /// Assigns the arguments to parameters, as Python does.
    ///
    /// # Errors
    /// Returns an error if there are too many arguments or one has an unknown name.
    pub(crate) fn bind(self, function: &str, names: &'static [&'static str]) -> Result<Bound> {
        let given = self.positional.len();
        if given > names.len() {
            let most = names.len();
            return fail(format!("{function}() takes at most {most} arguments ({given} given)"));
        }
        let mut values: Vec<Option<Value>> = self.positional.into_iter().map(Some).collect();
        values.resize(names.len(), None);
        for (name, value) in self.named {
            match names.iter().position(|known| **known == *name) {
                Some(at) if values[at].is_none() => values[at] = Some(value),
                Some(_) => {
                    return fail(format!("{function}() got multiple values for argument '{name}'"));
                }
                None => {
                    let reason = "got an unexpected keyword argument";
                    return fail(format!("{function}() {reason} '{name}'"));
                }
            }
        }
        Ok(Bound { values, names, function: function.to_owned() })
    }

    /// As [`Arguments::bind`] for a function that Python calls without names.
    ///
    /// # Errors
    /// Returns an error if an argument has a name.
    pub(crate) fn unnamed(self, function: &str, names: &'static [&'static str]) -> Result<Bound> {
        if self.named.is_empty() {
            return self.bind(function, names);
        }
        fail(format!("{function}() takes no keyword arguments"))
    }
}

impl Bound {
    /// Returns the argument at a position, if it was given.
    pub(crate) fn get(&self, at: usize) -> Option<&Value> {
        self.values[at].as_ref()
    }

    /// Returns the argument at a position if it was given and is not `None`.
    pub(crate) fn some(&self, at: usize) -> Option<&Value> {
        self.get(at).filter(|value| !matches!(value, Value::None))
    }

    /// Returns a required argument.
    pub(crate) fn required(&self, at: usize) -> Result<&Value> {
        match self.get(at) {
            Some(value) => Ok(value),
            None => {
                let (function, name) = (&self.function, self.names[at]);
                fail(format!("{function}() missing 1 required positional argument: '{name}'"))
            }
        }
    }

    /// Returns a required text.
    pub(crate) fn text(&self, at: usize) -> Result<&Arc<str>> {
        let value = self.required(at)?;
        match value.text() {
            Some(text) => Ok(text),
            None => self.wrong(at, "str", value),
        }
    }

    /// Returns a text that may be missing or `None`.
    pub(crate) fn text_or_none(&self, at: usize) -> Result<Option<&Arc<str>>> {
        self.some(at).map(|_| self.text(at)).transpose()
    }

    /// Returns an integer that may be missing or `None`.
    pub(crate) fn int_or_none(&self, at: usize) -> Result<Option<i128>> {
        match self.some(at) {
            None => Ok(None),
            Some(value) => match value.int() {
                Some(number) => Ok(Some(number)),
                None => self.wrong(at, "int", value),
            },
        }
    }

    /// Returns a required integer.
    pub(crate) fn int(&self, at: usize) -> Result<i128> {
        let value = self.required(at)?;
        value.int().map_or_else(|| self.wrong(at, "int", value), Ok)
    }

    /// Returns whether an argument is true.
    pub(crate) fn is_true(&self, at: usize) -> bool {
        self.get(at).is_some_and(Value::is_true)
    }

    fn wrong<T>(&self, at: usize, expected: &str, found: &Value) -> Result<T> {
        if let Value::Undefined(reason) = found {
            return fail(&**reason);
        }
        let (function, name, found) = (&self.function, self.names[at], found.type_name());
        fail(format!("{function}() argument '{name}' must be {expected}, not {found}"))
    }
}
