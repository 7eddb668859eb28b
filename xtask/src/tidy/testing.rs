//! Test helpers for rules.

use std::path::PathBuf;

use super::rules::Rule;
use super::tree::Tree;
use crate::workspace::{Dependency, Package};

/// Creates an in-memory tree from paths and texts.
pub(super) fn tree<const N: usize>(files: [(&str, &str); N]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.add(path, text.len() as u64, text.to_owned()).unwrap();
    }
    tree
}

/// Adds a package with dependencies. The prefix `dev:` marks a dev-dependency. If the package has
/// no `Cargo.toml`, one is created with a dependency per line, starting at line 2.
pub(super) fn with_package(mut tree: Tree, name: &str, dependencies: &[&str]) -> Tree {
    let path = format!("crates/{name}/Cargo.toml");
    let dependencies: Vec<Dependency> = dependencies
        .iter()
        .map(|word| match word.strip_prefix("dev:") {
            Some(name) => Dependency { name: name.into(), kind: Some("dev".into()) },
            None => Dependency { name: (*word).into(), kind: None },
        })
        .collect();
    if tree.file(&path).is_none() {
        let lines = dependencies.iter().map(|d| format!("{}.workspace = true\n", d.name));
        let text = format!("[dependencies]\n{}", lines.collect::<String>());
        tree.add(&path, text.len() as u64, text).unwrap();
    }
    let manifest_path = PathBuf::from(path);
    tree.packages.push(Package { name: name.into(), manifest_path, dependencies });
    tree
}

/// Checks that a rule finds exactly the expected violations, one per line.
#[track_caller]
pub(super) fn check(rule: Rule, tree: &Tree, expect: &str) {
    let found: Vec<String> = rule(tree).iter().map(ToString::to_string).collect();
    assert_eq!(found.join("\n"), expect.trim_end());
}
