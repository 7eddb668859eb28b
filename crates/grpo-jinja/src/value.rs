//! The values of templates, which behave as Python's.

mod dict;
mod iterate;

use crate::syntax::{For, Macro};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// An error without its position, or with it as soon as a statement is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Error {
    pub(crate) reason: String,
    /// 0 as long as it is not known.
    pub(crate) line: u32,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), line: 0 }
    }

    /// Adds the line, if none is known yet.
    pub(crate) fn at(mut self, line: u32) -> Self {
        if self.line == 0 {
            self.line = line;
        }
        self
    }
}

/// Returns an error with this reason.
pub(crate) fn fail<T>(reason: impl Into<String>) -> Result<T> {
    Err(Error::new(reason))
}

#[derive(Clone)]
pub(crate) enum Value {
    /// A missing value, with the message of the error if it is used.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    /// Text that counts as escaped, i.e. the result of `escape` or `safe`.
    Markup(Arc<str>),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    /// A pair of `groupby`: a tuple with the attributes `grouper` and `list`.
    Group(Rc<Vec<Value>>),
    Dict(Rc<Dict>),
    /// Start, end and step.
    Range(Rc<[i64; 3]>),
    /// `keys()`, `values()` or `items()` of a dict.
    View(View, Rc<Dict>),
    Iterator(Rc<Generator>),
    Namespace(Rc<Namespace>),
    /// A global function, by its name.
    Function(&'static str),
    /// A method of a value, by its name.
    Method(Rc<Value>, &'static str),
    Macro(Rc<MacroValue>),
    Loop(Rc<Loop>),
    /// The items and the position.
    Cycler(Rc<(Vec<Value>, RefCell<usize>)>),
    /// The separator, and whether it has been called.
    Joiner(Rc<(Value, RefCell<bool>)>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum View {
    Keys,
    Values,
    Items,
}

/// The attributes of a `namespace()`, in the order in which they were set first.
pub(crate) type Namespace = RefCell<Vec<(Arc<str>, Value)>>;

/// What a generator such as `map` still returns, and the error after it.
pub(crate) struct Generator {
    /// `generator`, `list_reverseiterator` and so on.
    pub(crate) kind: &'static str,
    pub(crate) items: RefCell<std::vec::IntoIter<Value>>,
    pub(crate) error: Option<Error>,
}

/// A dictionary: its entries in order, and where each key is.
#[derive(Clone, Default)]
pub(crate) struct Dict {
    entries: Vec<(Value, Value)>,
    positions: HashMap<Key, usize>,
}

/// What decides whether two keys are equal: `1`, `1.0` and `True` are one key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    None,
    Undefined,
    Int(i128),
    /// The bits of a number that is not an integer.
    Float(u64),
    Str(Arc<str>),
    Tuple(Vec<Key>),
    Range(Vec<i64>),
    Function(&'static str),
    /// The address of a value that equals only itself.
    Other(usize),
}

/// A macro with the scope in which it was defined.
pub(crate) struct MacroValue {
    pub(crate) definition: Arc<Macro>,
    pub(crate) scope: Rc<Scope>,
}

/// The state of a loop, which is the variable `loop` in it.
pub(crate) struct Loop {
    pub(crate) items: Vec<Value>,
    pub(crate) index: Cell<usize>,
    pub(crate) depth: usize,
    /// The values of the last call of `loop.changed`.
    pub(crate) last: RefCell<Option<Value>>,
    /// What `loop(…)` runs, if the loop is recursive.
    pub(crate) recursion: Option<(Arc<For>, Rc<Scope>)>,
}

/// The variables of a body, and the scope around it.
pub(crate) struct Scope {
    pub(crate) variables: RefCell<HashMap<Arc<str>, Value>>,
    pub(crate) parent: Option<Rc<Scope>>,
}

impl View {
    /// Returns the view that a method of a dict returns.
    pub(crate) fn of_method(name: &str) -> Option<Self> {
        match name {
            "keys" => Some(Self::Keys),
            "values" => Some(Self::Values),
            "items" => Some(Self::Items),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Int(number as i128)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(Rc::new(items))
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        match json {
            Json::Null => Self::None,
            Json::Bool(truth) => Self::Bool(truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Int(number.into()),
                (_, Some(number)) => Self::Int(number.into()),
                _ => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => text.into(),
            Json::Array(items) => items.into_iter().map(Self::from).collect::<Vec<_>>().into(),
            Json::Object(entries) => {
                let mut dict = Dict::default();
                for (key, value) in entries {
                    dict.set_text(&key, value.into());
                }
                Self::Dict(Rc::new(dict))
            }
        }
    }
}

impl Value {
    pub(crate) fn undefined(reason: impl AsRef<str>) -> Self {
        Self::Undefined(reason.as_ref().into())
    }

    pub(crate) fn tuple(items: Vec<Value>) -> Self {
        Self::Tuple(Rc::new(items))
    }

    /// Creates a generator, which can be iterated over once.
    pub(crate) fn generator(items: Vec<Value>, error: Option<Error>) -> Self {
        Self::iterator("generator", items, error)
    }

    pub(crate) fn iterator(kind: &'static str, items: Vec<Value>, error: Option<Error>) -> Self {
        Self::Iterator(Rc::new(Generator { kind, items: RefCell::new(items.into_iter()), error }))
    }

    /// Returns the text of a string.
    pub(crate) fn text(&self) -> Option<&Arc<str>> {
        match self {
            Self::Str(text) | Self::Markup(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number that the value is an instance of `int` with. `True` is 1.
    pub(crate) fn int(&self) -> Option<i128> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bool(truth) => Some((*truth).into()),
            _ => None,
        }
    }

    /// Returns the number, if the value is one.
    pub(crate) fn float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            _ => self.int().map(|number| number as f64),
        }
    }

    /// Returns the items of a list or tuple.
    pub(crate) fn sequence(&self) -> Option<&Rc<Vec<Value>>> {
        match self {
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => Some(items),
            _ => None,
        }
    }

    /// Returns Python's `bool(value)`.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(truth) => *truth,
            Self::Int(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            _ => self.length().is_none_or(|length| length > 0),
        }
    }

    /// Returns Python's `len(value)`, if the value has a length.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            Self::Undefined(_) => Some(0),
            Self::Str(text) | Self::Markup(text) => Some(text.chars().count()),
            Self::List(items) | Self::Tuple(items) | Self::Group(items) => Some(items.len()),
            Self::Dict(dict) | Self::View(_, dict) => Some(dict.len()),
            Self::Range(range) => Some(range_length(range)),
            Self::Loop(state) => Some(state.items.len()),
            _ => None,
        }
    }

    /// Returns the name of the value's type in Python.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::Markup(_) => "Markup",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Group(_) => "_GroupTuple",
            Self::Dict(_) => "dict",
            Self::Range(_) => "range",
            Self::View(View::Keys, _) => "dict_keys",
            Self::View(View::Values, _) => "dict_values",
            Self::View(View::Items, _) => "dict_items",
            Self::Iterator(iterator) => iterator.kind,
            Self::Namespace(_) => "TemplateNamespace",
            Self::Function("dict") => "TemplateDict",
            Self::Function(_) => "function",
            Self::Method(..) => "builtin_function_or_method",
            Self::Macro(_) => "Macro",
            Self::Loop(_) => "LoopContext",
            Self::Cycler(_) => "Cycler",
            Self::Joiner(_) => "Joiner",
        }
    }

    /// Returns how Jinja names the value in a message about a missing attribute.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            _ => format!("{} object", self.type_name()),
        }
    }
}

/// Returns the number of items of a range.
pub(crate) fn range_length(&[start, end, step]: &[i64; 3]) -> usize {
    let (start, end, step) = (i128::from(start), i128::from(end), i128::from(step));
    let span = if step > 0 { end - start } else { start - end };
    let step = step.abs().max(1);
    usize::try_from((span + step - 1) / step).unwrap_or(0)
}
