//! Rule: the index of the decisions and the summary of the book list each decision.

use crate::tidy::tree::{File, Tree, Violation};

const FOLDER: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";
const SUMMARY: &str = "docs/SUMMARY.md";

pub(in crate::tidy) fn are_listed(tree: &Tree) -> Vec<Violation> {
    let text = |path: &str| tree.file(path).map_or("", |file| file.text.as_str());
    let (index, summary) = (text(INDEX), grpo_links::links(text(SUMMARY)));
    let mut found = Vec::new();
    for page in tree.files_with("md").filter(|page| page.path != INDEX) {
        let Some(name) = page.path.strip_prefix(FOLDER) else { continue };
        let Some((number, title)) = heading(page) else {
            found.push(page.violation(1, "begin with a heading such as `# 7. A title`"));
            continue;
        };
        let line = format!("{number}. [{title}]({name})");
        if !index.lines().any(|listed| listed == line) {
            found.push(Violation::new(INDEX, 1, format!("add the line `{line}`")));
        }
        let target = format!("decisions/{name}");
        if !summary.iter().any(|link| link.target == target) {
            found.push(Violation::new(SUMMARY, 1, format!("add a link to `{target}`")));
        }
    }
    found
}

/// Returns the number and the title of a decision.
fn heading(page: &File) -> Option<(&str, &str)> {
    page.text.lines().next()?.strip_prefix("# ")?.split_once(". ")
}

#[cfg(test)]
mod tests {
    use super::are_listed;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn decisions_that_are_not_listed_are_found() {
        let tree = |index: &str, summary: &str, page: &str| {
            tree([
                ("docs/decisions/README.md", index),
                ("docs/SUMMARY.md", summary),
                ("docs/decisions/0007-a.md", page),
                ("docs/b.md", ""),
            ])
        };
        let (index, summary) =
            ("# D\n\n7. [A `b`](0007-a.md)\n", "- [7. A](decisions/0007-a.md)\n");
        check(are_listed, &tree(index, summary, "# 7. A `b`\n"), "");
        let add = "docs/decisions/README.md:1: add the line `7. [A `b`](0007-a.md)`\n";
        for other in ["", "7. [A](0007-a.md)\n", "6. [A `b`](0007-a.md)\n"] {
            check(are_listed, &tree(other, summary, "# 7. A `b`\n"), add);
        }
        let add = "docs/SUMMARY.md:1: add a link to `decisions/0007-a.md`\n";
        check(are_listed, &tree(index, "- [7. A]()\n", "# 7. A `b`\n"), add);
        let begin = "docs/decisions/0007-a.md:1: begin with a heading such as `# 7. A title`";
        check(are_listed, &tree(index, summary, "A `b`\n"), begin);
    }
}
