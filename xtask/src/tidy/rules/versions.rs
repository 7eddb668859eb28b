//! Versions of dependencies stand once, in the root.

use toml::{Table, Value};

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn stand_in_the_root(tree: &Tree) -> Vec<Violation> {
    tree.manifests().flat_map(of_manifest).collect()
}

fn of_manifest(manifest: &File) -> Vec<Violation> {
    // Cargo has read it before us.
    let table: Table = manifest.text.parse().unwrap_or_default();
    let targets = table.get("target").and_then(Value::as_table);
    let for_targets = targets.into_iter().flat_map(|t| t.values()).filter_map(Value::as_table);
    std::iter::once(&table)
        .chain(for_targets)
        .flat_map(dependencies_of)
        .filter(|(_, value)| {
            let inherited = value.get("workspace").and_then(Value::as_bool) == Some(true);
            !inherited && value.get("path").is_none()
        })
        .map(|(name, _)| {
            let what = format!(
                "`{name}` has a version of its own: move it to `[workspace.dependencies]` of the root, and say \
                 `{name}.workspace = true`"
            );
            manifest.violation(manifest.line_of_key(name), what)
        })
        .collect()
}

/// Name and value of all dependencies, of all three kinds.
fn dependencies_of(table: &Table) -> impl Iterator<Item = (&String, &Value)> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|kind| table.get(*kind).and_then(Value::as_table))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::stand_in_the_root;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(manifest: &str, lines: &[(usize, &str)]) {
        let expect: Vec<String> = lines
            .iter()
            .map(|(line, name)| {
                format!(
                    "crates/a/Cargo.toml:{line}: `{name}` has a version of its own: move it to \
                     `[workspace.dependencies]` of the root, and say `{name}.workspace = true`"
                )
            })
            .collect();
        check_rule(
            stand_in_the_root,
            &tree([("Cargo.toml", "[workspace.dependencies]\nserde = \"1\"")]),
            "",
        );
        check_rule(
            stand_in_the_root,
            &tree([("crates/a/Cargo.toml", manifest)]),
            &expect.join("\n"),
        );
    }

    #[test]
    fn from_the_workspace_or_beside() {
        check(
            "[dependencies]\nserde.workspace = true\nburn = { workspace = true, features = [\"x\"] }\n\
             grpo-data = { path = \"../grpo-data\" }",
            &[],
        );
    }

    #[test]
    fn versions_of_their_own() {
        check(
            "[dependencies]\nserde = \"1\"\n[dev-dependencies]\nlibm = { version = \"0.2\" }\n\
             [target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n[dependencies.burn]\nversion = \"1\"",
            &[(2, "serde"), (7, "burn"), (4, "libm"), (6, "libc")],
        );
    }
}
