//! The syntax tree of a template.

use std::sync::Arc;

/// A name or a constant text.
pub(crate) type Text = Arc<str>;

/// A statement, with the line where it starts.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) kind: NodeKind,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    /// Text outside of tags.
    Data(Text),
    /// `{{ expression }}`
    Output(Expr),
    For(Arc<For>),
    /// The branches with conditions, and `else`.
    If(Vec<(Expr, Vec<Node>)>, Vec<Node>),
    Set(Target, Expr),
    /// `{% set x | filter %}…{% endset %}`: the target, the filters and the body.
    SetBlock(Target, Vec<FilterCall>, Vec<Node>),
    With(Vec<(Target, Expr)>, Vec<Node>),
    /// `{% generation %}` and `{% block %}`: a body with a scope of its own.
    Scope(Vec<Node>),
    FilterBlock(Vec<FilterCall>, Vec<Node>),
    Macro(Arc<Macro>),
    /// `{% call(parameters) f(…) %}`: the callee and its arguments, and the body as a macro.
    Call(Expr, Call, Arc<Macro>),
    Break,
    Continue,
    /// A tag that needs other templates or changes the escaping; fails if it is reached.
    Unsupported(&'static str),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iterable: Expr,
    pub(crate) condition: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Node>,
    pub(crate) otherwise: Vec<Node>,
}

#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) name: Text,
    pub(crate) parameters: Vec<(Text, Option<Expr>)>,
    pub(crate) body: Vec<Node>,
    /// Whether the body mentions `varargs`, `kwargs` and `caller`, which only then are passed.
    pub(crate) varargs: bool,
    pub(crate) kwargs: bool,
    pub(crate) caller: bool,
}

/// What a value is assigned to.
#[derive(Debug)]
pub(crate) enum Target {
    Name(Text),
    /// An attribute of a namespace.
    Attribute(Text, Text),
    Tuple(Vec<Target>),
}

#[derive(Debug, Default)]
pub(crate) struct Call {
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Text, Expr)>,
    pub(crate) more_positional: Option<Expr>,
    pub(crate) more_named: Option<Expr>,
}

#[derive(Debug)]
pub(crate) struct FilterCall {
    pub(crate) name: Text,
    pub(crate) arguments: Call,
}

#[derive(Debug)]
pub(crate) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    Name(Text),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, Text),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<Call>),
    Filter(Box<Expr>, Box<FilterCall>),
    Test(Box<Expr>, Box<FilterCall>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    /// `value if condition else otherwise`
    If {
        condition: Box<Expr>,
        value: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `a < b <= c`
    Compare(Box<Expr>, Vec<(Comparison, Expr)>),
    Concat(Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}
