//! Rejects templates that use a Jinja namespace as a value.

/// A token of the template code between `{{` and `}}` or `{%` and `%}`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Sign(char),
}

use Token::{Sign, Word};

/// Returns the name of a namespace that is used as a value. For a `namespace()` call whose result
/// isn't assigned to a variable, returns `namespace`.
///
/// Namespaces are the only mutable values in Jinja, so a value can contain itself only through a
/// namespace. minijinja would follow such a cycle until the stack overflows, which aborts the
/// process. Real templates only read and set the attributes of a namespace.
pub(super) fn used_as_value(source: &str) -> Option<&str> {
    let blocks: Vec<Vec<Token<'_>>> = blocks(source);
    let mut names = vec![];
    for block in &blocks {
        if let [Word("set"), Word(name), Sign('='), Word("namespace"), Sign('('), .., Sign(')')] =
            block[..]
        {
            names.push(name);
        }
    }
    for block in &blocks {
        let is_assignment = matches!(
            block[..],
            [Word("set"), Word(_), Sign('='), Word("namespace"), Sign('('), .., Sign(')')]
        );
        for (i, token) in block.iter().enumerate() {
            let Word(word) = *token else { continue };
            let is_attribute = i > 0 && block[i - 1] == Sign('.');
            let is_target = is_assignment && (i == 1 || i == 3);
            if is_attribute || is_target {
                continue;
            }
            let has_attribute = block.get(i + 1) == Some(&Sign('.'));
            if word == "namespace" || names.contains(&word) && !has_attribute {
                return Some(word);
            }
        }
    }
    None
}

/// Splits the template into blocks and returns the tokens of each. Comments, strings and whitespace
/// control (`-` and `+`) are skipped.
fn blocks(source: &str) -> Vec<Vec<Token<'_>>> {
    let mut blocks = vec![];
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        rest = &rest[start + 1..];
        let end = match rest.bytes().next() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => {
                rest = rest.find("#}").map_or("", |end| &rest[end + 2..]);
                continue;
            }
            _ => continue,
        };
        let (block, after) = tokens(&rest[1..], end);
        blocks.push(block);
        rest = after;
    }
    blocks
}

/// Returns the tokens before `end` and the remaining source after it.
fn tokens<'a>(source: &'a str, end: &str) -> (Vec<Token<'a>>, &'a str) {
    let mut tokens = vec![];
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix(end) {
            rest = after;
            break;
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '\'' | '"' => string_length(rest, first),
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match first {
            '\'' | '"' => {}
            _ if is_word(first) => tokens.push(Word(token)),
            _ if first.is_whitespace() => {}
            _ => tokens.push(Sign(first)),
        }
        rest = after;
    }
    let trimmed = |token: Option<&Token<'_>>| matches!(token, Some(Sign('-' | '+')));
    if trimmed(tokens.last()) {
        tokens.pop();
    }
    if trimmed(tokens.first()) {
        tokens.remove(0);
    }
    (tokens, rest)
}

/// Returns the length of a quoted string in bytes, including its quotes.
fn string_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return i + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::used_as_value;

    #[test]
    fn attributes_of_namespaces_are_allowed() {
        for source in [
            "{%- set ns = namespace(found=false, n='ns') -%}{% set ns.found = ns.n %}{{ ns.found }}",
            "ns {# {{ ns }} #} {{ 'ns' ~ \"a \\\" ns\" }}{% set ns = namespace() %}{{ message.ns }}",
            "{{ messages[0].namespace }}{ ns }",
        ] {
            assert_eq!(used_as_value(source), None, "{source}");
        }
    }

    #[test]
    fn namespaces_are_not_values() {
        for (source, name) in [
            ("{% set ns = namespace() %}{% set ns.a = ns %}", "ns"),
            ("{% set ns.a = [ ns] %}{%+ set ns = namespace() -%}", "ns"),
            ("{% set ns = namespace() %}{{ f(ns) }}", "ns"),
            ("{% set x = [namespace()] %}", "namespace"),
            ("{% set f = namespace %}", "namespace"),
            ("{% set a = namespace(b=namespace()) %}", "namespace"),
        ] {
            assert_eq!(used_as_value(source), Some(name), "{source}");
        }
    }
}
