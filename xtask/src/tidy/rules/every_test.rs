//! Rule: every test runs. Tests must not be ignored or be part of a target with `test = false`.

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn all_run(tree: &Tree) -> Vec<Violation> {
    let untested = tree.manifests().filter_map(|manifest| {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        let source = format!("{folder}src/");
        let has_test = |file: &&File| {
            file.path.starts_with(&source)
                && !find(&file.tokens, &["#", "[", "test", "]"]).is_empty()
        };
        let file = tree.files_with("rs").find(has_test)?;
        let says_none = manifest.text.lines().position(|line| line.trim() == "test = false")?;
        let what = format!("the tests of {} do not run: remove `test = false`", file.path);
        Some(manifest.violation(says_none + 1, what))
    });
    let ignored = tree.files_with("rs").flat_map(|file| {
        find(&file.tokens, &["#", "[", "ignore"]).into_iter().map(move |i| (file, i))
    });
    let ignored = ignored.map(|(file, i)| {
        file.violation(
            file.tokens[i].line,
            "an ignored test proves nothing: make it run, or delete it",
        )
    });
    ignored.chain(untested).collect()
}

#[cfg(test)]
mod tests {
    use super::all_run;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn ignored_tests_are_found() {
        let what = "an ignored test proves nothing: make it run, or delete it";
        check(all_run, &tree([("a.rs", "#[test]\nfn ignore() {}")]), "");
        let source = "#[test]\n#[ignore]\nfn f() {}\n#[test]\n#[ignore = \"slow\"]\nfn g() {}";
        check(all_run, &tree([("a.rs", source)]), &format!("a.rs:2: {what}\na.rs:5: {what}"));
    }

    #[test]
    fn targets_without_tests_have_none() {
        let manifest = "[lib]\ntest = false\n";
        let test = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn f() {}\n}";
        let of = |source| {
            tree([
                ("crates/a/Cargo.toml", manifest),
                ("crates/a/src/b.rs", source),
                ("crates/a/tests/c.rs", test),
            ])
        };
        check(all_run, &of("fn f() {}"), "");
        let what = "crates/a/Cargo.toml:2: the tests of crates/a/src/b.rs do not run: remove `test = false`";
        check(all_run, &of(test), what);
    }
}
