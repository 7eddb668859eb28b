//! docs/ARCHITECTURE.md shows the crate table as it is checked.

use std::collections::BTreeSet;

use crate::tidy::crate_table::allowed;
use crate::tidy::tree::{File, Tree, Violation};

const DOCUMENT: &str = "docs/ARCHITECTURE.md";

pub(in crate::tidy) fn agrees_with_the_crate_table(tree: &Tree) -> Vec<Violation> {
    let Some(document) = tree.file(DOCUMENT) else { return vec![] };
    let rows = rows(document);
    if rows.is_empty() {
        let what = "there is no table with the columns `crate` and `may depend on`: write it, a row a crate";
        return vec![document.violation(1, what)];
    }

    let exists = |name: &String| tree.packages.iter().any(|package| package.name == *name);
    let mut violations = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let name = &row.name;
        let what = match allowed(name) {
            _ if !exists(name) => format!("there is no crate `{name}`: take the row out"),
            None => {
                format!("`{name}` has no row in xtask/src/tidy/crate_table.rs: add it there")
            }
            Some(allowed) => {
                let code: BTreeSet<String> = allowed.into_iter().filter(exists).collect();
                let shown: BTreeSet<String> = written_out(&rows, i).filter(exists).collect();
                if code == shown {
                    continue;
                }
                format!(
                    "`{name}` may depend on {} here and on {} in xtask/src/tidy/crate_table.rs: make them agree",
                    list(&shown),
                    list(&code)
                )
            }
        };
        violations.push(document.violation(row.line, what));
    }
    for package in tree.packages.iter().filter(|package| package.name != "xtask") {
        if !rows.iter().any(|row| row.name == package.name) {
            let what = format!("the crate table has no row for `{}`: add it", package.name);
            violations.push(document.violation(rows[0].line, what));
        }
    }
    violations
}

struct Row {
    line: usize,
    name: String,
    may: String,
}

/// The rows of the table whose header names both columns.
fn rows(document: &File) -> Vec<Row> {
    let mut lines = document.text.lines().enumerate();
    let Some((crate_column, may_column)) = lines.by_ref().find_map(|(_, line)| {
        let cells = cells(line);
        let column = |start: &str| cells.iter().position(|cell| cell.starts_with(start));
        Some((column("crate")?, column("may depend on")?))
    }) else {
        return vec![];
    };
    lines
        .skip(1) // the line of dashes
        .take_while(|(_, line)| line.trim_start().starts_with('|'))
        .filter_map(|(i, line)| {
            let cells = cells(line);
            let cell = |column: usize| cells.get(column).map(|cell| cell.replace('`', ""));
            Some(Row { line: i + 1, name: cell(crate_column)?, may: cell(may_column)? })
        })
        .collect()
}

fn cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    if !line.starts_with('|') {
        return vec![];
    }
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// The crates that row `i` names, one by one.
fn written_out(rows: &[Row], i: usize) -> Box<dyn Iterator<Item = String> + '_> {
    let names = |rows: &'_ [Row]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    match rows[i].may.as_str() {
        "all above" => Box::new(names(&rows[..i]).into_iter()),
        "all" => Box::new(names(rows).into_iter().filter(move |name| *name != rows[i].name)),
        "" | "–" | "-" | "—" => Box::new(std::iter::empty()),
        words => Box::new(words.split(',').map(|word| {
            let short = word.trim();
            if short.starts_with("grpo-") { short.to_owned() } else { format!("grpo-{short}") }
        })),
    }
}

fn list(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::{check as check_rule, tree, with_package};

    /// A document with these rows, beside grpo-kernels, grpo-logprob, grpo-cli and xtask.
    #[track_caller]
    fn check(rows: &str, expect: &str) {
        let text =
            format!("# Map\n\n| crate | what | may depend on |\n|---|---|---|\n{rows}\nMore.\n");
        let mut tree = tree([(DOCUMENT, &text)]);
        for name in ["grpo-kernels", "grpo-logprob", "grpo-cli", "xtask"] {
            tree = with_package(tree, name, &[]);
        }
        check_rule(agrees_with_the_crate_table, &tree, expect);
    }

    #[test]
    fn a_table_that_agrees() {
        check(
            "| `grpo-kernels` | a | – |\n| `grpo-logprob` | b | kernels |\n| `grpo-cli` | c | all |",
            "",
        );
        check(
            "| grpo-kernels | a | |\n| grpo-logprob | b | `grpo-kernels` |\n| grpo-cli | c | all above |",
            "",
        );
    }

    #[test]
    fn a_row_that_differs() {
        check(
            "| `grpo-kernels` | a | logprob |\n| `grpo-logprob` | b | – |\n| `grpo-cli` | c | all |",
            "\
docs/ARCHITECTURE.md:5: `grpo-kernels` may depend on grpo-logprob here and on none in xtask/src/tidy/crate_table.rs: make them agree
docs/ARCHITECTURE.md:6: `grpo-logprob` may depend on none here and on grpo-kernels in xtask/src/tidy/crate_table.rs: make them agree",
        );
    }

    #[test]
    fn rows_too_few_and_too_many() {
        check(
            "| `grpo-kernels` | a | – |\n| `grpo-logprob` | b | kernels |\n| `grpo-eval` | c | – |",
            "\
docs/ARCHITECTURE.md:7: there is no crate `grpo-eval`: take the row out
docs/ARCHITECTURE.md:5: the crate table has no row for `grpo-cli`: add it",
        );
    }

    #[test]
    fn no_table() {
        check_rule(
            agrees_with_the_crate_table,
            &tree([(DOCUMENT, "| crate | what |\n|---|---|\n")]),
            "docs/ARCHITECTURE.md:1: there is no table with the columns `crate` and `may depend on`: write it, a row a crate",
        );
    }

    #[test]
    fn no_document() {
        check_rule(agrees_with_the_crate_table, &tree([]), "");
    }
}
