//! Libraries have error types of their own.

use crate::tidy::crate_table::PROGRAMS;
use crate::tidy::tree::{Tree, Violation};

pub(in crate::tidy) fn in_libraries(tree: &Tree) -> Vec<Violation> {
    tree.packages
        .iter()
        .filter(|package| !PROGRAMS.contains(&package.name.as_str()))
        .filter(|package| package.dependencies.iter().any(|d| d.name == "anyhow" && !d.is_dev()))
        .filter_map(|package| tree.manifest_of(package))
        .map(|manifest| {
            let what = "`anyhow` in a library: give it one `thiserror` enum";
            manifest.violation(manifest.line_of_key("anyhow"), what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::in_libraries as rule;
    use crate::tidy::testing::{check, tree, with_package};

    #[test]
    fn anyhow_is_for_programs_and_tests() {
        let tree = with_package(tree([]), "grpo-cli", &["anyhow"]);
        let tree = with_package(tree, "grpo-bench", &["anyhow"]);
        let tree = with_package(tree, "xtask", &["anyhow"]);
        check(rule, &with_package(tree, "grpo-run", &["thiserror", "dev:anyhow"]), "");
    }

    #[test]
    fn anyhow_in_a_library() {
        check(
            rule,
            &with_package(tree([]), "grpo-run", &["serde", "anyhow"]),
            "crates/grpo-run/Cargo.toml:3: `anyhow` in a library: give it one `thiserror` enum",
        );
    }
}
