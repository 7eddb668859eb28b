//! Rule: crates only have the dependencies listed in the table in docs/ARCHITECTURE.md, and never
//! depend on a crate further down the table.

use std::collections::BTreeSet;

use crate::tidy::tree::{File, Tree, Violation};
use crate::workspace::Package;

const DOCUMENT: &str = "docs/ARCHITECTURE.md";
/// The only crate of the workspace that `xtask` may depend on.
const LINKS: &str = "grpo-links";
/// The crate that tasks and commands stand on.
const COMMANDS: &str = "grpo-task";
/// Crates with commands, in addition to those that may depend on [`COMMANDS`]. They may report errors
/// as `anyhow` messages, while all other crates use typed errors.
const WITH_COMMANDS: [&str; 3] = [COMMANDS, "grpo-cli", "xtask"];

pub(in crate::tidy) fn follows_the_document(tree: &Tree) -> Vec<Violation> {
    let Some(document) = tree.file(DOCUMENT) else { return Vec::new() };
    let rows = rows(document);
    if rows.is_empty() {
        let what = "missing table with the columns `crate` and `may depend on`: add it with one row per crate";
        return vec![document.violation(1, what)];
    }
    let is_package = |name: &str| tree.packages.iter().any(|package| package.name == name);
    let superfluous = rows.iter().filter(|row| !is_package(&row.name)).map(|row| {
        document.violation(row.line, format!("crate `{}` does not exist: remove the row", row.name))
    });
    let of_packages = tree.packages.iter().flat_map(|package| {
        let allowed = match rows.iter().position(|row| row.name == package.name) {
            Some(row) => Some(allowed(&rows, row)),
            // xtask is a development tool and not part of the program.
            None => (package.name == "xtask").then(|| BTreeSet::from([LINKS.to_owned()])),
        };
        of_package(tree, package, allowed)
    });
    superfluous.chain(of_packages).collect()
}

fn of_package(tree: &Tree, package: &Package, allowed: Option<BTreeSet<String>>) -> Vec<Violation> {
    let Some(manifest) = tree.manifest_of(package) else { return Vec::new() };
    let name = package.name.as_str();
    let Some(allowed) = allowed else {
        let what = format!("`{name}` has no row in the crate table of {DOCUMENT}: add it");
        return vec![manifest.violation(1, what)];
    };
    let of_code = package.dependencies.iter().filter(|dependency| !dependency.is_dev());
    let faults = of_code.filter_map(|dependency| {
        let other = dependency.name.as_str();
        // A package can depend on the published one that it replaces.
        let is_ours = other != name && tree.packages.iter().any(|package| package.name == other);
        let what = if is_ours && !allowed.contains(other) {
            format!(
                "`{name}` may not depend on `{other}`: move the code, or change the row in {DOCUMENT} and give the reason in docs/decisions/"
            )
        } else if other == "anyhow"
            && !(WITH_COMMANDS.contains(&name) || allowed.contains(COMMANDS))
        {
            "`anyhow` in a library: give it an error type with `thiserror`".to_owned()
        } else {
            return None;
        };
        Some(manifest.violation(manifest.line_of_key(other), what))
    });
    faults.collect()
}

struct Row {
    line: usize,
    name: String,
    may: String,
}

/// Returns the rows of the table that has both columns.
fn rows(document: &File) -> Vec<Row> {
    let mut lines = document.text.lines().enumerate();
    let Some((crate_column, may_column)) = lines.by_ref().find_map(|(_, line)| {
        let cells = cells(line);
        let column = |start: &str| cells.iter().position(|cell| cell.starts_with(start));
        Some((column("crate")?, column("may depend on")?))
    }) else {
        return Vec::new();
    };
    lines
        .skip(1) // separator line
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
    match line.starts_with('|') {
        true => line.trim_matches('|').split('|').map(str::trim).collect(),
        false => Vec::new(),
    }
}

/// Returns the crates on which the crate in row `index` may depend.
fn allowed(rows: &[Row], index: usize) -> BTreeSet<String> {
    match rows[index].may.as_str() {
        "all above" => rows[..index].iter().map(|row| row.name.clone()).collect(),
        "" | "–" | "-" | "—" => BTreeSet::new(),
        words => words
            .split(',')
            .map(|word| format!("grpo-{}", word.trim().trim_start_matches("grpo-")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::testing::{check as check_rule, tree, with_package};

    /// Checks packages, given with their dependencies, against the rows of a table.
    #[track_caller]
    fn check(rows: &str, packages: &[(&str, &[&str])], expect: &str) {
        let text =
            format!("# Map\n\n| crate | what | may depend on |\n|---|---|---|\n{rows}\nMore.\n");
        let tree = tree([(DOCUMENT, &text)]);
        let tree = packages.iter().fold(tree, |tree, (name, on)| with_package(tree, name, on));
        check_rule(follows_the_document, &tree, expect);
    }

    const ROWS: &str = "| `grpo-kernels` | a | – |\n| `grpo-logprob` | b | kernels |\n| `grpo-cli` | c | all above |";

    #[test]
    fn allowed_dependencies() {
        check(
            ROWS,
            &[
                ("grpo-kernels", &["rayon"]),
                ("grpo-logprob", &["grpo-kernels", "burn", "dev:grpo-cli", "dev:anyhow"]),
                ("grpo-cli", &["grpo-kernels", "grpo-logprob", "anyhow"]),
                ("xtask", &["anyhow", "grpo-links"]),
            ],
            "",
        );
    }

    #[test]
    fn what_stands_on_the_crate_of_tasks_may_have_commands() {
        let rows = "| `grpo-task` | a | – |\n| `grpo-words` | b | task |";
        check(rows, &[("grpo-task", &["anyhow"]), ("grpo-words", &["grpo-task", "anyhow"])], "");
    }

    #[test]
    fn dependencies_against_the_table() {
        let change = "move the code, or change the row in docs/ARCHITECTURE.md and give the reason in docs/decisions/";
        check(
            ROWS,
            &[
                ("grpo-kernels", &["rayon", "grpo-logprob"]),
                ("grpo-logprob", &["anyhow"]),
                ("grpo-cli", &[]),
                ("xtask", &["grpo-cli"]),
            ],
            &format!(
                "\
crates/grpo-kernels/Cargo.toml:3: `grpo-kernels` may not depend on `grpo-logprob`: {change}
crates/grpo-logprob/Cargo.toml:2: `anyhow` in a library: give it an error type with `thiserror`
crates/xtask/Cargo.toml:2: `xtask` may not depend on `grpo-cli`: {change}"
            ),
        );
    }

    #[test]
    fn rows_too_few_and_too_many() {
        check(
            "| `grpo-kernels` | a | – |\n| `grpo-eval` | c | – |",
            &[("grpo-kernels", &[]), ("grpo-new", &[])],
            "\
docs/ARCHITECTURE.md:6: crate `grpo-eval` does not exist: remove the row
crates/grpo-new/Cargo.toml:1: `grpo-new` has no row in the crate table of docs/ARCHITECTURE.md: add it",
        );
        check_rule(
            follows_the_document,
            &tree([(DOCUMENT, "| crate | what |\n|---|---|\n")]),
            "docs/ARCHITECTURE.md:1: missing table with the columns `crate` and `may depend on`: add it with one row per crate",
        );
    }
}
