//! Nothing is left for later, and nothing is hushed up.

use crate::tidy::tokens::{Token, find, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn nothing_is_left(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    let tokens = &file.tokens;
    let at = |i: usize, what: &str| file.violation(tokens[i].line, what);
    let mut violations = Vec::new();
    for name in ["todo", "unimplemented"] {
        for i in find(tokens, &[name, "!"]) {
            violations
                .push(at(i, "code that is not there yet: write it, or take the way to it out"));
        }
    }
    for i in attributes(tokens, "allow").filter(|i| !has_reason(&tokens[*i..])) {
        violations
            .push(at(i, "a lint silenced without reason: say `#[expect(…, reason = \"…\")]`"));
    }
    for i in attributes(tokens, "ignore") {
        violations.push(at(i, "an ignored test proves nothing: make it run, or delete it"));
    }
    violations
}

/// Places of `#[name …` and `#![name …`.
fn attributes(tokens: &[Token], name: &str) -> impl Iterator<Item = usize> {
    (0..tokens.len()).filter(move |i| {
        stands_at(tokens, *i, &["#", "[", name]) || stands_at(tokens, *i, &["#", "!", "[", name])
    })
}

/// Whether the attribute that begins here says `reason = …` before it ends.
fn has_reason(attribute: &[Token]) -> bool {
    let end = attribute.iter().position(|token| token.text == "]").unwrap_or(attribute.len());
    !find(&attribute[..end], &["reason", "="]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::nothing_is_left;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(source: &str, expect: &str) {
        check_rule(nothing_is_left, &tree([("a.rs", source)]), expect);
    }

    #[test]
    fn finished_code() {
        check("/// todo!()\nfn todo() {}\nconst TODO: &str = \"todo!()\";", "");
        check("#[expect(dead_code, reason = \"soon\")]\nfn f() {}", "");
        check("#[allow(dead_code, reason = \"only on Windows\")]\nfn f() {}", "");
        check("#[test]\nfn ignore() {}", "");
    }

    #[test]
    fn code_that_is_not_there() {
        let what = "code that is not there yet: write it, or take the way to it out";
        check(
            "fn f() {\n    todo!()\n}\nfn g() {\n    unimplemented!(\"g\")\n}",
            &format!("a.rs:2: {what}\na.rs:5: {what}"),
        );
    }

    #[test]
    fn silenced_lints() {
        let what = "a lint silenced without reason: say `#[expect(…, reason = \"…\")]`";
        check(
            "#![allow(dead_code)]\n#[allow(unused)]\n#[doc(alias = \"reason = 1\")]\nfn f() {}",
            &format!("a.rs:1: {what}\na.rs:2: {what}"),
        );
    }

    #[test]
    fn ignored_tests() {
        let what = "an ignored test proves nothing: make it run, or delete it";
        check(
            "#[test]\n#[ignore]\nfn f() {}\n#[test]\n#[ignore = \"slow\"]\nfn g() {}",
            &format!("a.rs:2: {what}\na.rs:5: {what}"),
        );
    }
}
