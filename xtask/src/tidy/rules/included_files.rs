//! Rule: sources include only files of their own package, because `cargo package` contains no others. It
//! would find them only if it compiled all packages again.

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn are_in_the_package(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").filter(|file| !file.is_test()).flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    if file.crate_name().is_none() {
        return Vec::new();
    }
    // `crates`, the package and the file itself are no folders of the package.
    let depth = file.path.split('/').count() - 3;
    let calls = ["include_str", "include_bytes"].iter().flat_map(|name| {
        let call = [name, "!", "("];
        find(&file.tokens, &call).into_iter().filter_map(|start| file.tokens.get(start + 3))
    });
    let outside = calls.filter(|path| path.text.matches("../").count() > depth);
    let violation = |path: &crate::tidy::tokens::Token| {
        let what = format!("{} is outside of the package: move it into it", path.text);
        file.violation(path.line, what)
    };
    outside.map(violation).collect()
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
            let expected = if is_outside { &what } else { "" };
            check(are_in_the_package, &tree([(path, source.as_str())]), expected);
        }
    }
}
