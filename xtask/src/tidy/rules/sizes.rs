//! Rule: the length of files and functions and the size of files are limited.

use crate::tidy::tokens::Token;
use crate::tidy::tree::{File, Tree, Violation};

const FILE_LINES: usize = 700;
const FUNCTION_LINES: usize = 80;
/// Stricter limits for key functions of the algorithm: crate, function, number of lines.
const READ_FIRST: [(&str, &str, usize); 3] =
    [("grpo-train", "step", 60), ("grpo-train", "learn", 60), ("grpo-core", "loss_terms", 60)];
const FILE_BYTES: u64 = 8 << 20;

pub(in crate::tidy) fn are_limited(tree: &Tree) -> Vec<Violation> {
    let large = tree.files().filter(|file| file.bytes > FILE_BYTES).map(|file| {
        let mebibytes = file.bytes as f64 / f64::from(1 << 20);
        let what =
            format!("{mebibytes:.1} MiB, at most 8: shrink it, or generate it with a command");
        file.violation(1, what)
    });
    let sources = || tree.files_with("rs").chain(tree.files_with("py"));
    let long = sources().filter_map(|file| {
        let lines = file.text.lines().count();
        let what = format!("{lines} lines, at most {FILE_LINES}: split it by topic");
        (lines > FILE_LINES).then(|| file.violation(FILE_LINES + 1, what))
    });
    large.chain(long).chain(sources().flat_map(long_functions)).collect()
}

fn long_functions(file: &File) -> impl Iterator<Item = Violation> {
    functions(&file.tokens).into_iter().filter_map(|function| {
        let Function { name, first, last } = function;
        let most =
            READ_FIRST.iter().find(|(of, read, _)| file.crate_name() == Some(of) && *read == name);
        let most = most.map_or(FUNCTION_LINES, |(_, _, most)| *most);
        let lines = last - first + 1;
        let what = format!("`{name}` has {lines} lines, at most {most}: extract a function");
        (lines > most).then(|| file.violation(first, what))
    })
}

struct Function<'a> {
    name: &'a str,
    /// Line of the `fn` keyword, and line of the closing brace.
    first: usize,
    last: usize,
}

/// Returns all functions that have a body.
fn functions(tokens: &[Token]) -> Vec<Function<'_>> {
    let is_name = |token: &Token| token.text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let starts =
        tokens.windows(2).enumerate().filter(|(_, two)| two[0].text == "fn" && is_name(&two[1]));
    starts
        .filter_map(|(start, two)| {
            let mut depth = 0;
            let mut has_body = false;
            for token in &tokens[start..] {
                match token.text.as_str() {
                    "{" if depth == 0 => (has_body, depth) = (true, 1),
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => depth -= 1,
                    // Trait method without a body.
                    ";" if depth == 0 => return None,
                    _ => {}
                }
                if has_body && depth == 0 {
                    return Some(Function {
                        name: &two[1].text,
                        first: two[0].line,
                        last: token.line,
                    });
                }
            }
            None
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing;

    #[track_caller]
    fn check(path: &str, text: &str, expect: &str) {
        testing::check(are_limited, &testing::tree([(path, text)]), expect);
    }

    #[test]
    fn long_files() {
        check("crates/grpo-core/src/loss.rs", &"\n".repeat(700), "");
        check("docs/LOG.md", &"\n".repeat(5000), "");
        for path in ["crates/grpo-core/tests/loss.rs", "tests/peers/compare.py"] {
            let what = format!("{path}:701: 701 lines, at most 700: split it by topic");
            check(path, &"\n".repeat(701), &what);
        }
    }

    #[test]
    fn long_functions() {
        let source = |name: &str, lines: usize| {
            let body = "\n".repeat(lines - 1);
            format!(
                "trait T {{\n    fn f(a: [u8; 2]);\n}}\nfn {name}(x: fn(u8)) -> [u8; 4] {{{body}}}\n"
            )
        };
        check("crates/grpo-core/src/a.rs", &source("long", 80), "");
        let what =
            "crates/grpo-core/src/a.rs:4: `long` has 81 lines, at most 80: extract a function";
        check("crates/grpo-core/src/a.rs", &source("long", 81), what);
        check("crates/grpo-core/src/a.rs", &source("step", 80), "");
        let what =
            "crates/grpo-train/src/a.rs:4: `step` has 61 lines, at most 60: extract a function";
        check("crates/grpo-train/src/a.rs", &source("step", 61), what);
    }

    #[test]
    fn large_files() {
        let mut tree = testing::tree([("data/small", "")]);
        tree.add("data/prior.safetensors", FILE_BYTES * 3 / 2, String::new()).unwrap();
        let what = "data/prior.safetensors:1: 12.0 MiB, at most 8: shrink it, or generate it with a command";
        testing::check(are_limited, &tree, what);
    }
}
