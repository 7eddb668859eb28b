//! Version, edition, licence and lints stand once, in the root.

use toml::{Table, Value};

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn from_the_workspace(tree: &Tree) -> Vec<Violation> {
    tree.manifests().flat_map(of_manifest).collect()
}

fn of_manifest(manifest: &File) -> Vec<Violation> {
    // Cargo has read it before us.
    let table: Table = manifest.text.parse().unwrap_or_default();
    let package = table.get("package");
    let mut violations = Vec::new();
    for key in ["version", "edition", "rust-version", "license"] {
        if !package.and_then(|package| package.get(key)).is_some_and(is_inherited) {
            let what = format!("`{key}` of its own: say `{key}.workspace = true`");
            violations.push(manifest.violation(manifest.line_of_key(key), what));
        }
    }
    if !table.get("lints").is_some_and(is_inherited) {
        let what = "lints of its own, or none: say `workspace = true` under `[lints]`";
        violations.push(manifest.violation(manifest.line_of_key("lints"), what));
    }
    violations
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::from_the_workspace;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(manifest: &str, expect: &str) {
        check_rule(from_the_workspace, &tree([("crates/a/Cargo.toml", manifest)]), expect);
    }

    const INHERITED: &str = "\
[package]
name = \"a\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
";

    #[test]
    fn all_inherited() {
        check(&format!("{INHERITED}[lints]\nworkspace = true"), "");
        check(&format!("lints.workspace = true\n{INHERITED}"), "");
    }

    #[test]
    fn something_of_its_own() {
        let own = INHERITED.replace("version.workspace = true\ned", "version = \"0.2.0\"\ned");
        check(
            &format!("{own}[lints.rust]\nmissing_docs = \"allow\""),
            "\
crates/a/Cargo.toml:3: `version` of its own: say `version.workspace = true`
crates/a/Cargo.toml:1: lints of its own, or none: say `workspace = true` under `[lints]`",
        );
        check(
            &format!("{}[lints]\nworkspace = true", INHERITED.replace("license.", "# ")),
            "crates/a/Cargo.toml:1: `license` of its own: say `license.workspace = true`",
        );
    }
}
