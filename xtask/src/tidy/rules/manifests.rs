//! Rule: the version, edition, licence, lints and dependency versions are inherited from the
//! workspace.

use toml::{Table, Value};

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn inherit_from_the_workspace(tree: &Tree) -> Vec<Violation> {
    let root = tree.file("Cargo.toml").map(parsed).unwrap_or_default();
    tree.manifests().flat_map(|manifest| of_manifest(&root, manifest)).collect()
}

/// Cargo has already parsed the manifest successfully.
fn parsed(manifest: &File) -> Table {
    manifest.text.parse().unwrap_or_default()
}

fn of_manifest(root: &Table, manifest: &File) -> Vec<Violation> {
    let table = parsed(manifest);
    let mut violations = Vec::new();
    for key in ["version", "edition", "rust-version", "license"] {
        let package = table.get("package");
        let is_inherited = package.and_then(|package| package.get(key)).is_some_and(is_inherited);
        // The version of a crate that replaces a published one follows from that one.
        let is_exempt = key == "version" && package.is_some_and(|package| is_patch(root, package));
        if !is_inherited && !is_exempt {
            let what = format!("`{key}` is set in the package: use `{key}.workspace = true`");
            violations.push(manifest.violation(manifest.line_of_key(key), what));
        }
    }
    if !table.get("lints").is_some_and(is_inherited) {
        let what = "lints are not inherited: add `workspace = true` under `[lints]`";
        violations.push(manifest.violation(manifest.line_of_key("lints"), what));
    }
    for (name, value) in dependencies(&table) {
        if !is_inherited(value) && value.get("path").is_none() {
            let what = format!(
                "`{name}` has its own version: move it to the root's `[workspace.dependencies]` and use `{name}.workspace = true`"
            );
            violations.push(manifest.violation(manifest.line_of_key(name), what));
        }
    }
    violations
}

/// Returns whether the package replaces one of crates.io.
fn is_patch(root: &Table, package: &Value) -> bool {
    let patches = root.get("patch").and_then(|patch| patch.get("crates-io"));
    let name = package.get("name").and_then(Value::as_str);
    name.zip(patches).is_some_and(|(name, patches)| patches.get(name).is_some())
}

/// Returns all dependencies by name, including platform-specific ones.
fn dependencies(table: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let targets = table.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(table).chain(targets.filter_map(Value::as_table));
    tables.flat_map(|table| {
        ["dependencies", "dev-dependencies", "build-dependencies"]
            .into_iter()
            .filter_map(|kind| table.get(kind).and_then(Value::as_table))
            .flatten()
    })
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::inherit_from_the_workspace as rule;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(manifest: &str, expect: &str) {
        check_rule(rule, &tree([("crates/a/Cargo.toml", manifest)]), expect);
    }

    const INHERITED: &str = "\
[package]
name = \"a\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
lints.workspace = true
";

    fn inherited(more: &str) -> String {
        INHERITED.replace("lints.workspace = true\n", "") + "[lints]\nworkspace = true\n" + more
    }

    #[test]
    fn all_inherited() {
        check(&inherited(""), "");
        check(
            &inherited(
                "[dependencies]\nserde.workspace = true\nburn = { workspace = true, features = [\"x\"] }\n\
                 grpo-data = { path = \"../grpo-data\" }",
            ),
            "",
        );
        check_rule(rule, &tree([("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"")]), "");
    }

    #[test]
    fn refuses_fields_that_are_not_inherited() {
        let own = INHERITED.replace("version.workspace = true\ned", "version = \"0.2.0\"\ned");
        check(
            &own.replace("lints.workspace = true", "[lints.rust]\nmissing_docs = \"allow\""),
            "\
crates/a/Cargo.toml:3: `version` is set in the package: use `version.workspace = true`
crates/a/Cargo.toml:1: lints are not inherited: add `workspace = true` under `[lints]`",
        );
        let own = inherited("").replace("version.workspace = true\ned", "version = \"0.2.0\"\ned");
        let root = "[patch.crates-io]\na = { path = \"crates/a\" }";
        check_rule(rule, &tree([("Cargo.toml", root), ("crates/a/Cargo.toml", &own)]), "");
        let found = [(10, "serde"), (13, "libc")].map(|(line, name)| {
            format!(
                "crates/a/Cargo.toml:{line}: `{name}` has its own version: move it to the root's `[workspace.dependencies]` and use `{name}.workspace = true`"
            )
        });
        let more = "[dependencies]\nserde = \"1\"\n[dev-dependencies]\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n";
        check(&inherited(more), &found.join("\n"));
    }
}
