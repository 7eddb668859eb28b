//! Generates a list of the example files that are embedded in this crate.
//!
//! `files/` contains symbolic links to folders of the repository. `cargo package` replaces them
//! with copies. If symbolic links are not available, e.g. on Windows, the folders are found two
//! levels up.
#![expect(clippy::disallowed_methods, reason = "files of the build")]

use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 3] = ["configs", "data", "docs"];

/// Output files of example commands, which git also ignores.
const IGNORED: &str = "data/processed";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name| std::env::var_os(name).map(PathBuf::from).expect("cargo sets it");
    let (here, out) = (variable("CARGO_MANIFEST_DIR"), variable("OUT_DIR"));
    let mut files = Vec::new();
    for folder in FOLDERS {
        let places = [here.join("files").join(folder), here.join("../..").join(folder)];
        let found =
            places.iter().find_map(|place| place.canonicalize().ok().filter(|p| p.is_dir()));
        let folder_path = found.unwrap_or_else(|| panic!("{folder}/ is missing: {places:?}"));
        println!("cargo::rerun-if-changed={}", folder_path.display());
        add(&folder_path, folder, &mut files);
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (index, (name, path)) in files.iter().enumerate() {
        let content = std::fs::read(path).expect("the examples can be read");
        let content = match name.ends_with(".md") {
            true => page_of_a_project(name, content, &files),
            false => content,
        };
        let compressed = out.join(index.to_string());
        let size = content.len();
        let content = if name.ends_with(".safetensors") { planes(&content) } else { content };
        std::fs::write(&compressed, deflated(&content)).expect("OUT_DIR can be written");
        writeln!(
            list,
            "    ExampleFile {{ path: {name:?}, size: {size}, deflated: include_bytes!({compressed:?}) }},"
        )
        .expect("a string takes all");
    }
    list.push(']');
    std::fs::write(out.join("files.rs"), list).expect("OUT_DIR can be written");
}

/// Compresses a file. The program would be two megabytes larger without it.
fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).and_then(|()| encoder.finish()).expect("memory takes all")
}

/// Sorts the bytes of numbers with 32 bits: all first bytes, then all second ones. Signs and exponents, which
/// are similar, stand together then, which saves a megabyte.
fn planes(content: &[u8]) -> Vec<u8> {
    (0..4).flat_map(|first| content.iter().skip(first).step_by(4).copied()).collect()
}

/// Pages for developers, and pictures of the README.
const NOT_FOR_USERS: [&str; 6] = [
    "docs/ARCHITECTURE.md",
    "docs/LOG.md",
    "docs/SUMMARY.md",
    "docs/coverage.md",
    "docs/images/live.svg",
    "docs/images/report-1400.png",
];

/// Returns a page whose links stay in the project. The others lead to the repository on the web if
/// the manifest has its address.
fn page_of_a_project(name: &str, content: Vec<u8>, files: &[(String, PathBuf)]) -> Vec<u8> {
    let page = String::from_utf8(content).expect("pages are UTF-8");
    let is_inside = |path: &str| {
        let rest = |file: &str| file.strip_prefix(path).map(|rest| rest.chars().next());
        path.is_empty()
            || files.iter().any(|(file, _)| matches!(rest(file), Some(None | Some('/'))))
    };
    let repository = std::env::var("CARGO_PKG_REPOSITORY").ok();
    grpo_links::without_links_outside(name, &page, is_inside, repository.as_deref()).into_bytes()
}

/// Adds all files below a folder. Names are relative to the project.
fn add(folder: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) {
    let entries = std::fs::read_dir(folder).expect("the examples can be read");
    for entry in entries.map(|entry| entry.expect("the examples can be read")) {
        let (path, own) = (entry.path(), entry.file_name());
        let own = own.to_str().expect("names of examples are UTF-8");
        let name = format!("{name}/{own}");
        if own.starts_with('.') || name == IGNORED {
            continue;
        }
        match path.is_dir() {
            true => add(&path, &name, files),
            false if NOT_FOR_USERS.contains(&&*name) => {}
            false => files.push((name, path)),
        }
    }
}
