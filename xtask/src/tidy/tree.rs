//! The input to rules: the files of the repository and the packages of the workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::tokens::{Token, tokens};
use crate::process;
use crate::workspace::{Package, Workspace};

/// The repository as seen by rules.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
    /// Packages of the workspace.
    pub(super) packages: Vec<Package>,
}

/// A file that is tracked by git or would be added by `git add`.
#[derive(Debug)]
pub(super) struct File {
    /// Path relative to the repository root, with `/` as the separator.
    pub(super) path: String,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Text of the file. Empty for file types that no rule reads.
    pub(super) text: String,
    /// Tokens, if it is a Rust file.
    pub(super) tokens: Vec<Token>,
}

/// A rule violation.
#[derive(Debug)]
pub(super) struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Extensions of files whose text is read.
const TEXTS: &[&str] = &["rs", "toml", "md", "py"];

impl Tree {
    /// Reads all files that are tracked, or untracked and not ignored.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut git = std::process::Command::new("git");
        git.current_dir(root);
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = process::output_of(&mut git).context("tidy requires git to list files")?;
        let listed = String::from_utf8(listed).context("a file's name is not UTF-8")?;

        let Workspace { mut packages, .. } = Workspace::read(root)?;
        for package in &mut packages {
            if let Ok(inside) = package.manifest_path.strip_prefix(root) {
                package.manifest_path = inside.to_owned();
            }
        }
        let mut tree = Self { files: BTreeMap::new(), packages };
        for path in listed.split_terminator('\0') {
            // Git lists deleted files until the deletion is committed.
            let Ok(data) = std::fs::metadata(root.join(path)) else { continue };
            let text = if TEXTS.contains(&extension(path)) {
                std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?
            } else {
                String::new()
            };
            tree.add(path, data.len(), text)?;
        }
        Ok(tree)
    }

    /// Adds a file.
    pub(super) fn add(&mut self, path: &str, bytes: u64, text: String) -> Result<()> {
        let tokens = if extension(path) == "rs" {
            tokens(&text).with_context(|| format!("cannot parse {path} as Rust"))?
        } else {
            Vec::new()
        };
        let path = path.to_owned();
        self.files.insert(path.clone(), File { path, bytes, text, tokens });
        Ok(())
    }

    /// Returns all files, sorted by path.
    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// Returns the files with the given extension.
    pub(super) fn files_with(&self, wanted: &str) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| extension(&file.path) == wanted)
    }

    /// Returns the file at `path`.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Returns whether `path` is a file or a directory that contains files. The empty path is the
    /// repository root.
    pub(super) fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    /// Returns the `Cargo.toml` of every package.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with("/Cargo.toml"))
    }

    /// Returns the `Cargo.toml` of a package.
    pub(super) fn manifest_of(&self, package: &Package) -> Option<&File> {
        self.file(&package.manifest_path.to_string_lossy().replace('\\', "/"))
    }
}

impl File {
    /// Returns whether the file contains tests, benchmarks or examples.
    pub(super) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"))
            || self.path.ends_with("/tests.rs")
    }

    /// Returns the name of the workspace crate that the file belongs to.
    pub(super) fn crate_name(&self) -> Option<&str> {
        let (name, _) = self.path.strip_prefix("crates/")?.split_once("/src/")?;
        Some(name)
    }

    /// Returns the first line of a TOML file that begins with `key`. If there is none, returns 1.
    pub(super) fn line_of_key(&self, key: &str) -> usize {
        let is_end = |c: char| !(c.is_alphanumeric() || c == '-' || c == '_');
        let is_it = |line: &str| line.split(is_end).next() == Some(key);
        self.text.lines().position(is_it).map_or(1, |i| i + 1)
    }

    /// Creates a violation in this file.
    pub(super) fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation::new(&self.path, line, what)
    }
}

impl Violation {
    /// Creates a violation. `what` states the problem and how to fix it.
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

fn extension(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use crate::tidy::testing::tree;

    #[test]
    fn folders_exist_through_their_files() {
        let tree = tree([("docs/a/b.md", ""), ("docs-old/c.md", ""), ("README.md", "")]);
        let check = |path: &str, expect: bool| assert_eq!(tree.exists(path), expect, "{path}");
        check("", true);
        check("docs", true);
        check("docs/a", true);
        check("docs/a/b.md", true);
        check("docs/a/b", false);
        check("doc", false);
    }

    #[test]
    fn a_key_is_found_on_its_line() {
        let text =
            "[package]\nname = \"a\"\n[dependencies]\nserde_json = \"1\"\nserde.workspace = true\n";
        let tree = tree([("Cargo.toml", text)]);
        let check = |key: &str, expect: usize| {
            assert_eq!(tree.file("Cargo.toml").unwrap().line_of_key(key), expect, "{key}");
        };
        check("name", 2);
        check("serde", 5);
        check("serde_json", 4);
        check("clap", 1);
    }
}
