//! Rule: the version, edition, licence, lints and dependency versions are inherited from the
//! workspace, and no target with tests has `test = false`.

use toml::{Table, Value};

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn inherit_from_the_workspace(tree: &Tree) -> Vec<Violation> {
    let root = tree.file("Cargo.toml").map(parsed).unwrap_or_default();
    let patches = root.get("patch").and_then(|patch| patch.get("crates-io"));
    let of_manifest = |manifest: &File| {
        let table = parsed(manifest);
        let package = table.get("package");
        // The version of a crate that replaces a published one follows from that one.
        let name = package.and_then(|package| package.get("name")).and_then(Value::as_str);
        let is_patch = name.zip(patches).is_some_and(|(name, of)| of.get(name).is_some());
        let own = ["version", "edition", "rust-version", "license"].into_iter().filter(|key| {
            let value = package.and_then(|package| package.get(*key));
            !(value.is_some_and(is_inherited) || is_patch && *key == "version")
        });
        let mut faults: Vec<(&str, String)> = own
            .map(|key| {
                (key, format!("`{key}` is set in the package: use `{key}.workspace = true`"))
            })
            .collect();
        if !table.get("lints").is_some_and(is_inherited) {
            let what = "lints are not inherited: add `workspace = true` under `[lints]`";
            faults.push(("lints", what.to_owned()));
        }
        let own = dependencies(&table)
            .filter(|(_, value)| !is_inherited(value) && value.get("path").is_none());
        faults.extend(own.map(|(name, _)| {
            (name.as_str(), format!("`{name}` has its own version: move it to the root's `[workspace.dependencies]` and use `{name}.workspace = true`"))
        }));
        if let Some(file) = file_with_tests(tree, manifest)
            && manifest.text.lines().any(|line| line.trim() == "test = false")
        {
            let what = format!("the tests of {} do not run: remove `test = false`", file.path);
            faults.push(("test", what));
        }
        let found =
            faults.iter().map(|(key, what)| manifest.violation(manifest.line_of_key(key), what));
        found.collect::<Vec<_>>()
    };
    tree.manifests().flat_map(of_manifest).collect()
}

/// Cargo has already parsed the manifest successfully.
fn parsed(manifest: &File) -> Table {
    manifest.text.parse().unwrap_or_default()
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

/// Returns a file in `src` with a test.
fn file_with_tests<'a>(tree: &'a Tree, manifest: &File) -> Option<&'a File> {
    let source = manifest.path.replace("Cargo.toml", "src/");
    let has_test = |file: &&File| !find(&file.tokens, &["#", "[", "test", "]"]).is_empty();
    tree.files_with("rs").filter(|file| file.path.starts_with(&source)).find(has_test)
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
[lints]
workspace = true
";

    #[test]
    fn all_inherited() {
        let more = "[dependencies]\nserde.workspace = true\nburn = { workspace = true, features = [\"x\"] }\n\
                    grpo-data = { path = \"../grpo-data\" }";
        check(&format!("{INHERITED}{more}"), "");
        check_rule(rule, &tree([("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"")]), "");
    }

    #[test]
    fn refuses_fields_that_are_not_inherited() {
        let own = INHERITED.replace("version.workspace = true\ned", "version = \"0.2.0\"\ned");
        check(
            &own.replace("[lints]\nworkspace = true", "[lints.rust]\nmissing_docs = \"allow\""),
            "\
crates/a/Cargo.toml:3: `version` is set in the package: use `version.workspace = true`
crates/a/Cargo.toml:1: lints are not inherited: add `workspace = true` under `[lints]`",
        );
        let root = "[patch.crates-io]\na = { path = \"crates/a\" }";
        check_rule(rule, &tree([("Cargo.toml", root), ("crates/a/Cargo.toml", &own)]), "");
        let found = [(10, "serde"), (13, "libc")].map(|(line, name)| {
            format!(
                "crates/a/Cargo.toml:{line}: `{name}` has its own version: move it to the root's `[workspace.dependencies]` and use `{name}.workspace = true`"
            )
        });
        let more = "[dependencies]\nserde = \"1\"\n[dev-dependencies]\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n";
        check(&format!("{INHERITED}{more}"), &found.join("\n"));
    }

    #[test]
    fn targets_without_tests_have_none() {
        let manifest = format!("{INHERITED}[lib]\ntest = false\n");
        let test = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn f() {}\n}";
        let of = |source| {
            tree([
                ("crates/a/Cargo.toml", &manifest),
                ("crates/a/src/b.rs", source),
                ("crates/a/tests/c.rs", test),
            ])
        };
        check_rule(rule, &of("fn f() {}"), "");
        let what = "crates/a/Cargo.toml:10: the tests of crates/a/src/b.rs do not run: remove `test = false`";
        check_rule(rule, &of(test), what);
    }
}
