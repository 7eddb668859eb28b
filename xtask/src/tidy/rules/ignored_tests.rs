//! Every test runs.

use crate::tidy::tokens::find;
use crate::tidy::tree::{Tree, Violation};

pub(in crate::tidy) fn do_not_exist(tree: &Tree) -> Vec<Violation> {
    let ignored = tree.files_with("rs").flat_map(|file| {
        find(&file.tokens, &["#", "[", "ignore"]).into_iter().map(move |i| (file, i))
    });
    ignored
        .map(|(file, i)| {
            file.violation(
                file.tokens[i].line,
                "an ignored test proves nothing: make it run, or delete it",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::do_not_exist;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn ignored_tests_are_found() {
        let what = "an ignored test proves nothing: make it run, or delete it";
        check(do_not_exist, &tree([("a.rs", "#[test]\nfn ignore() {}")]), "");
        let source = "#[test]\n#[ignore]\nfn f() {}\n#[test]\n#[ignore = \"slow\"]\nfn g() {}";
        check(do_not_exist, &tree([("a.rs", source)]), &format!("a.rs:2: {what}\na.rs:5: {what}"));
    }
}
