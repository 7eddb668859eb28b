//! Rule: files have a limited number of lines and bytes, and the functions that are read first a limited
//! number of lines. Clippy limits all functions (`clippy.toml`).

use crate::tidy::tree::{File, Tree, Violation};

const FILE_LINES: usize = 700;
const FILE_BYTES: u64 = 8 << 20;
/// Key functions of the algorithm by crate.
const READ_FIRST: [(&str, &str); 3] =
    [("grpo-train", "step"), ("grpo-train", "learn"), ("grpo-core", "loss_terms")];
const READ_FIRST_LINES: usize = 60;

pub(in crate::tidy) fn are_limited(tree: &Tree) -> Vec<Violation> {
    let large = tree.files().filter(|file| file.bytes > FILE_BYTES).map(|file| {
        let mebibytes = file.bytes as f64 / f64::from(1 << 20);
        let what =
            format!("{mebibytes:.1} MiB, at most 8: shrink it, or generate it with a command");
        file.violation(1, what)
    });
    let long = tree.files_with("rs").chain(tree.files_with("py")).filter_map(|file| {
        let lines = file.text.lines().count();
        let what = format!("{lines} lines, at most {FILE_LINES}: split it by topic");
        (lines > FILE_LINES).then(|| file.violation(FILE_LINES + 1, what))
    });
    large.chain(long).chain(tree.files_with("rs").flat_map(long_functions)).collect()
}

fn long_functions(file: &File) -> Vec<Violation> {
    let of_crate = READ_FIRST.iter().filter(|(of, _)| file.crate_name() == Some(of));
    let names: Vec<&str> = of_crate.map(|(_, name)| *name).collect();
    let lines: Vec<&str> = file.text.lines().collect();
    let found = lines.iter().enumerate().filter_map(|(first, line)| {
        let (_, after) = line.split_once("fn ")?;
        let name = names.iter().find(|name| {
            after.strip_prefix(**name).is_some_and(|rest| rest.starts_with(['(', '<']))
        })?;
        let head = lines[first..].iter().position(|line| line.ends_with(['{', '}', ';']))?;
        // In formatted code, the brace that closes a function is indented as its first line.
        let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        let count = match lines[first + head].ends_with('{') {
            true => lines[first..].iter().position(|line| *line == end)? + 1,
            false => head + 1,
        };
        let what =
            format!("`{name}` has {count} lines, at most {READ_FIRST_LINES}: extract a function");
        (count > READ_FIRST_LINES).then(|| file.violation(first + 1, what))
    });
    found.collect()
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
            let body = "        if a {\n        }\n".repeat(lines / 2 - 1);
            format!(
                "trait T {{\n    fn step(a: u8);\n    pub fn {name}<B>(\n{body}    ) {{\n    }}\n}}\n"
            )
        };
        let path = "crates/grpo-train/src/a.rs";
        check(path, &source("step", 59), "");
        let what = format!("{path}:3: `step` has 61 lines, at most 60: extract a function");
        check(path, &source("step", 60), &what);
        check(path, &source("steps", 70), "");
        check("crates/grpo-core/src/a.rs", &source("step", 70), "");
    }

    #[test]
    fn large_files() {
        let mut tree = testing::tree([("data/small", "")]);
        tree.add("data/prior.safetensors", FILE_BYTES * 3 / 2, String::new()).unwrap();
        let what = "data/prior.safetensors:1: 12.0 MiB, at most 8: shrink it, or generate it with a command";
        testing::check(are_limited, &tree, what);
    }
}
