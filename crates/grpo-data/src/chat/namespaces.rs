//! Refuses templates that use a namespace as a value.

/// A word or a character of the code between `{{` and `}}` or `{%` and `%}`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Sign(char),
}

use Token::{Sign, Word};

/// Returns the name of a namespace that is used as a value, or `namespace` for a call that is not assigned to a name.
///
/// A namespace is the only value that can be changed, so only through one can a value contain itself. minijinja follows such a
/// value until the stack overflows, which ends the process. Templates read and set attributes of namespaces and have no other use
/// for them.
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

/// The tokens of each block, without strings, `-` and `+` at its ends, and comments.
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

/// The tokens up to `end`, and the source behind it.
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

/// Bytes of a string with its quotes.
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
