//! Rule: sources include only files of their own package, because `cargo package` contains no others.

use std::path::{Component, Path, PathBuf};

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn are_in_the_package(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").filter(|file| !file.is_test()).flat_map(violations).collect()
}

fn violations(file: &File) -> Vec<Violation> {
    let Some(name) = file.crate_name() else { return Vec::new() };
    let package = Path::new("crates").join(name);
    let calls = ["include_str", "include_bytes"].iter().flat_map(|macro_name| {
        let call = [macro_name, "!", "("];
        find(&file.tokens, &call).into_iter().map(move |start| start + call.len())
    });
    let paths = calls.filter_map(|place| file.tokens.get(place));
    let outside = paths.filter(|path| {
        let Some(text) = path.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return false;
        };
        let parent = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        !normalized(&parent.join(text)).starts_with(&package)
    });
    outside
        .map(|path| {
            let what = format!("{} is outside of the package: move it into it", path.text);
            file.violation(path.line, what)
        })
        .collect()
}

/// Returns the path without `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::are_in_the_package;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn files_outside_of_the_package_are_found() {
        let path = "crates/grpo-data/src/split/a.rs";
        for (included, is_outside) in [
            ("../../fixtures/a.json", false),
            ("b.txt", false),
            ("../../../../Cargo.lock", true),
            ("../../../grpo-eval/src/a.json", true),
        ] {
            let source = format!("const A: &str = include_str!({included:?});\n");
            let what = format!("{path}:1: {included:?} is outside of the package: move it into it");
            check(
                are_in_the_package,
                &tree([(path, source.as_str())]),
                if is_outside { &what } else { "" },
            );
        }
    }
}
