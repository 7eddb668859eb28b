//! The input of rules: files of the repository and packages of the workspace.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::tokens::{Token, tokens};
use crate::process;
use crate::workspace::{Package, Workspace};

/// The repository.
#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
    /// The packages of the workspace.
    pub(super) packages: Vec<Package>,
}

/// A file that git tracks or would add.
#[derive(Debug)]
pub(super) struct File {
    /// Path from the root, with `/`.
    pub(super) path: String,
    /// Its size.
    pub(super) bytes: u64,
    /// Its text; empty for kinds that no rule reads.
    pub(super) text: String,
    /// Its tokens, if it is Rust.
    pub(super) tokens: Vec<Token>,
}

/// A violation of a rule.
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
    /// Reads all files that are tracked, or new and not ignored.
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
            // Git lists deleted files until they are committed.
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

    /// The files, sorted by path.
    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// Those of this extension.
    pub(super) fn files_with(&self, wanted: &str) -> impl Iterator<Item = &File> {
        self.files().filter(move |file| extension(&file.path) == wanted)
    }

    /// The file of this path.
    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether this is the path of a file, or of a folder with files in it. The root's is empty.
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

    /// The `Cargo.toml` of each package.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with("/Cargo.toml"))
    }

    /// The `Cargo.toml` of that package.
    pub(super) fn manifest_of(&self, package: &Package) -> Option<&File> {
        self.file(&package.manifest_path.to_string_lossy().replace('\\', "/"))
    }
}

impl File {
    /// Whether it holds tests, benchmarks or examples.
    pub(super) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"))
            || self.path.ends_with("/tests.rs")
    }

    /// The crate of ours that it is source of.
    pub(super) fn crate_name(&self) -> Option<&str> {
        let (name, _) = self.path.strip_prefix("crates/")?.split_once("/src/")?;
        Some(name)
    }

    /// The first line of a TOML file that sets `key` or begins a table of that last name; 1 where none does.
    pub(super) fn line_of_key(&self, key: &str) -> usize {
        let is_it = |line: &str| {
            let line = line.trim_start();
            let sets = line
                .strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']));
            let begins = line.starts_with('[')
                && line.trim_matches(['[', ']']).rsplit('.').next().is_some_and(|last| last == key);
            sets || begins
        };
        self.text.lines().position(is_it).map_or(1, |i| i + 1)
    }

    /// A violation in it.
    pub(super) fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation::new(&self.path, line, what)
    }
}

impl Violation {
    /// `what` says what is wrong, and how to mend it.
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
        let text = "[package]\nname = \"a\"\n[dependencies]\nserde_json = \"1\"\nserde.workspace = true\n\
                    [dependencies.burn]\n";
        let tree = tree([("Cargo.toml", text)]);
        let check = |key: &str, expect: usize| {
            assert_eq!(tree.file("Cargo.toml").unwrap().line_of_key(key), expect, "{key}");
        };
        check("name", 2);
        check("serde", 5);
        check("serde_json", 4);
        check("dependencies", 3);
        check("burn", 6);
        check("clap", 1);
    }
}
