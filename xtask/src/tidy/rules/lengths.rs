//! A file is about one thing, and short enough to hold in the head.

use crate::tidy::tree::{Tree, Violation};

const SOURCE_LINES: usize = 600;
const TEST_LINES: usize = 900;

pub(in crate::tidy) fn fit_the_head(tree: &Tree) -> Vec<Violation> {
    let sources = tree.files_with("rs").chain(tree.files_with("py"));
    sources
        .filter_map(|file| {
            let most = if file.is_test() { TEST_LINES } else { SOURCE_LINES };
            let lines = file.text.lines().count();
            let what = format!("{lines} lines, at most {most}: split it by what it is about");
            (lines > most).then(|| file.violation(most + 1, what))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::fit_the_head;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(path: &str, lines: usize, expect: &str) {
        check_rule(fit_the_head, &tree([(path, &"\n".repeat(lines))]), expect);
    }

    #[test]
    fn short_files() {
        check("crates/grpo-core/src/loss.rs", 600, "");
        check("crates/grpo-core/tests/loss.rs", 900, "");
        check("docs/LOG.md", 5000, "");
    }

    #[test]
    fn long_files() {
        check(
            "crates/grpo-core/src/loss.rs",
            601,
            "crates/grpo-core/src/loss.rs:601: 601 lines, at most 600: split it by what it is about",
        );
        check(
            "tests/peers/compare.py",
            1000,
            "tests/peers/compare.py:901: 1000 lines, at most 900: split it by what it is about",
        );
    }
}
