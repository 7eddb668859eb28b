//! Our crates depend on each other as the crate table says. What only tests use is free.

use crate::tidy::crate_table::allowed;
use crate::tidy::tree::{Tree, Violation};
use crate::workspace::Package;

pub(in crate::tidy) fn follow_the_crate_table(tree: &Tree) -> Vec<Violation> {
    tree.packages.iter().flat_map(|package| of_package(tree, package)).collect()
}

fn of_package(tree: &Tree, package: &Package) -> Vec<Violation> {
    let name = &package.name;
    let Some(manifest) = tree.manifest_of(package) else { return vec![] };
    let Some(allowed) = allowed(name) else {
        return vec![manifest.violation(
            1,
            format!(
                "`{name}` has no row in the crate table: add it to xtask/src/tidy/crate_table.rs and to \
                 docs/ARCHITECTURE.md"
            ),
        )];
    };
    let ours = |name: &str| tree.packages.iter().any(|package| package.name == name);
    package
        .dependencies
        .iter()
        .filter(|other| !other.is_dev() && ours(&other.name) && !allowed.contains(&other.name))
        .map(|other| {
            manifest.violation(
                manifest.line_of_key(&other.name),
                format!(
                    "`{name}` may not depend on `{}`: move the code, or change the row in \
                     xtask/src/tidy/crate_table.rs and docs/ARCHITECTURE.md and give the reason in \
                     docs/decisions/",
                    other.name
                ),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::follow_the_crate_table as rule;
    use crate::tidy::testing::{check, tree, with_package};

    #[test]
    fn allowed_dependencies() {
        let tree = with_package(tree([]), "grpo-kernels", &["rayon"]);
        let tree =
            with_package(tree, "grpo-logprob", &["grpo-kernels", "burn", "dev:grpo-selftest"]);
        let tree = with_package(tree, "grpo-selftest", &["grpo-logprob"]);
        let tree = with_package(tree, "grpo-cli", &["grpo-selftest", "grpo-logprob"]);
        check(rule, &tree, "");
    }

    #[test]
    fn a_dependency_against_the_table() {
        let tree = with_package(tree([]), "grpo-core", &[]);
        let tree = with_package(tree, "grpo-chem", &["regex", "grpo-core"]);
        check(
            rule,
            &tree,
            "crates/grpo-chem/Cargo.toml:3: `grpo-chem` may not depend on `grpo-core`: move the code, or change \
             the row in xtask/src/tidy/crate_table.rs and docs/ARCHITECTURE.md and give the reason in \
             docs/decisions/",
        );
    }

    #[test]
    fn a_crate_that_the_table_does_not_know() {
        check(
            rule,
            &with_package(tree([]), "grpo-new", &[]),
            "crates/grpo-new/Cargo.toml:1: `grpo-new` has no row in the crate table: add it to \
             xtask/src/tidy/crate_table.rs and to docs/ARCHITECTURE.md",
        );
    }
}
