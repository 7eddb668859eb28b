//! The Jinja environment that `transformers` provides: its whitespace rules, functions and filters.

use chrono::Local;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::fmt::Write as _;
use std::io;

/// Maximum number of instructions, enough for a thousand messages with 200 instructions each. It
/// also bounds the running time.
const FUEL: u64 = 200_000;

/// Maximum nesting depth of blocks and macro calls.
const RECURSION: usize = 200;

pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    let syntax = syntax.trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are Jinja's defaults"));
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    environment
}

/// Replaces `{% generation %}` … `{% endgeneration %}`, which `transformers` uses to mark assistant
/// tokens, with `with` blocks that have no effect. Line numbers don't change.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        out.push_str(before);
        let (tag, after) = tag.split_at(end);
        let word = tag.trim_matches(|c: char| "{%-+}".contains(c) || c.is_whitespace());
        match word {
            "generation" | "endgeneration" => out.push_str(&tag.replace("generation", "with")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out + rest
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> Result<String, Error> {
    let mut text = String::new();
    // Writing an unknown directive returns an error. `to_string` would panic.
    write!(text, "{}", Local::now().format(&format)).map_err(|_| {
        let detail = format!("strftime_now does not support the format `{format}`");
        Error::new(ErrorKind::InvalidOperation, detail)
    })?;
    Ok(text)
}

/// Equivalent to Python's `json.dumps(value, ensure_ascii=False, indent=indent)`. Unlike
/// minijinja's filter, it does not escape HTML.
fn tojson(value: &Value, indent: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        None => kwargs.get::<Option<usize>>("indent")?,
        given => given,
    };
    let sorted: Option<bool> = kwargs.get("sort_keys")?;
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    if ascii == Some(true) {
        let detail = "tojson with ensure_ascii=True is not supported";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    let failed = |reason: String| Error::new(ErrorKind::BadSerialization, reason);
    let mut value = serde_json::to_value(value).map_err(|error| failed(error.to_string()))?;
    if sorted == Some(true) {
        value.sort_all_objects();
    }
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let blanks = " ".repeat(indent.min(64));
            let pretty = PrettyFormatter::with_indent(blanks.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut out, pretty))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
    };
    written.map_err(|error| failed(error.to_string()))?;
    String::from_utf8(out).map_err(|error| failed(error.to_string()))
}

/// Formats JSON with the separators that Python uses: `, ` and `: `.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }
}
