//! Embeds the git revision of the checkout. This crate is compiled last, so a new commit only
//! requires relinking.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Files and folders that affect the program.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(manifest) = std::env::var_os("CARGO_MANIFEST_DIR") else { return };
    let root = Path::new(&manifest).join("../..");
    // A published crate may be unpacked inside an unrelated repository.
    if !root.join(".git").exists() {
        return;
    }
    let Some(revision) = git(&root, &["rev-parse", "HEAD"]) else { return };
    let edited = git(&root, &[&["status", "--porcelain", "--"][..], &SOURCES].concat());
    let dirty = if edited.is_none_or(|edited| edited.is_empty()) { "" } else { "-dirty" };
    println!("cargo::rustc-env=GRPO_REVISION={revision}{dirty}");

    // Commits and checkouts modify one of these two files, and edits modify the sources.
    let of_git = ["HEAD", "logs/HEAD"]
        .iter()
        .filter_map(|name| git(&root, &["rev-parse", "--git-path", name]));
    let watched = of_git.map(PathBuf::from).chain(SOURCES.map(PathBuf::from));
    for path in watched.map(|path| root.join(path)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Runs git and returns its output, or `None` if it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
