#![doc = include_str!("../README.md")]
//! # Why not another engine
//!
//! Chat templates are written for Jinja2 in Python, and they use what Python's values can do: `%`
//! formatting, methods of strings, `None` in a text, an error when a number is compared with a
//! string. An engine with values of its own renders most templates and differs in the rest, often
//! without an error, and a prompt that differs by a space is another prompt. This crate therefore
//! implements the language as `transformers` sets it up (`ImmutableSandboxedEnvironment` with
//! `trim_blocks`, `lstrip_blocks`, `loopcontrols`, the `generation` tag and its own `tojson`), with
//! Python's semantics throughout. Messages of errors are Python's or Jinja2's where they have one.
//!
//! What is not supported is refused with a reason: other templates (`include`, `import`, `extends`),
//! `autoescape`, the filters `random`, `urlize`, `xmlattr` and `striptags`, the function `lipsum`,
//! integers of more than 127 bits, and attributes of functions and macros.
//!
//! Templates are untrusted. The number of evaluated nodes, the depth of nesting and the length of a
//! text are limited, and nothing outside of the given variables can be reached except the clock
//! (`strftime_now`). The parser and the interpreter are recursive: run them on a thread with a stack
//! of at least 256 MiB. Unused stack is never committed.

mod access;
mod arguments;
mod checks;
mod filters;
mod formatting;
mod functions;
mod interpreter;
mod json;
mod lexer;
mod methods;
mod operators;
mod parser;
mod python_text;
mod sorting;
mod syntax;
mod value;

use std::fmt;
use std::sync::Arc;

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    nodes: Arc<[syntax::Node]>,
}

/// Why a template does not parse or does not render, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The line of the template, starting at 1.
    pub line: u64,
    /// The reason, on one line.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for Failure {}

impl From<value::Error> for Failure {
    fn from(error: value::Error) -> Self {
        let one_line = |c: char| if c == '\n' { ' ' } else { c };
        let reason = error.reason.chars().take(300).map(one_line).collect();
        Self { line: error.line.max(1).into(), reason }
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Returns an error if the template is not valid Jinja or is nested too deeply.
    pub fn parse(source: &str) -> Result<Self, Failure> {
        Ok(Self { nodes: parser::parse(source)?.into() })
    }

    /// Renders the template with these variables.
    ///
    /// # Errors
    /// Returns an error if the template calls `raise_exception`, fails as it would in Python, uses
    /// something that is not supported, or exceeds a limit.
    pub fn render(
        &self,
        variables: impl IntoIterator<Item = (String, serde_json::Value)>,
    ) -> Result<String, Failure> {
        Ok(interpreter::render(&self.nodes, variables, false)?)
    }

    /// Renders the template with these variables, like Jinja2 with `StrictUndefined`: a value that
    /// does not exist is an error where the template prints it.
    ///
    /// # Errors
    /// See [`Self::render`].
    pub fn render_strict(
        &self,
        variables: impl IntoIterator<Item = (String, serde_json::Value)>,
    ) -> Result<String, Failure> {
        Ok(interpreter::render(&self.nodes, variables, true)?)
    }
}
