//! Embeds the revision of the checkout that the program is built in. This crate is the last one that is compiled, so a new
//! commit costs one link.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the program is made from.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(manifest) = std::env::var_os("CARGO_MANIFEST_DIR") else { return };
    let root = Path::new(&manifest).join("../..");
    // A published crate may be unpacked below somebody else's repository.
    if !root.join(".git").exists() {
        return;
    }
    let Some(revision) = git(&root, &["rev-parse", "HEAD"]) else { return };
    let edited = git(&root, &[&["status", "--porcelain", "--"][..], &SOURCES].concat());
    let dirty = if edited.is_none_or(|edited| edited.is_empty()) { "" } else { "-dirty" };
    println!("cargo::rustc-env=GRPO_REVISION={revision}{dirty}");

    // A commit or a checkout changes one of these two; an edit changes a source.
    let of_git = ["HEAD", "logs/HEAD"]
        .iter()
        .filter_map(|name| git(&root, &["rev-parse", "--git-path", name]));
    let watched = of_git.map(PathBuf::from).chain(SOURCES.map(PathBuf::from));
    for path in watched.map(|path| root.join(path)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// What git prints, if it succeeds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
