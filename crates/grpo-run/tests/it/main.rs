//! Tests of the public interface in a single binary.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

mod atomic;
mod audit;
mod audit_replay;
mod audit_staleness;
mod checkpoints;
mod completions;
mod folder;
mod going_back;
mod json_lines;
mod ledger;
mod manifest;
mod tensorboard;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Lists everything in a folder, including hidden names. Files are mapped to their text, and folder
/// names end with `/`.
fn listing(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            for (below, text) in listing(&path) {
                found.insert(format!("{name}/{below}"), text);
            }
            found.insert(name + "/", String::new());
        } else {
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    listing(folder).into_keys().collect()
}
