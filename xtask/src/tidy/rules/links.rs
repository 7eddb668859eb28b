//! Rule: links in documents point to existing files and headings.

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn lead_somewhere(tree: &Tree) -> Vec<Violation> {
    tree.files_with("md").flat_map(|file| of_document(tree, file)).collect()
}

fn of_document(tree: &Tree, document: &File) -> Vec<Violation> {
    let exists = |path: &str| tree.exists(path);
    let page_at = |path: &str| {
        tree.file(path).filter(|_| path.ends_with(".md")).map(|file| file.text.as_str())
    };
    let dead = grpo_links::dead_links(&document.path, &document.text, exists, page_at);
    let violations = dead.into_iter().map(|link| {
        let what = format!("`{}` does not exist: fix the link, or add its target", link.target);
        document.violation(link.line, what)
    });
    violations.collect()
}

#[cfg(test)]
mod tests {
    use super::lead_somewhere;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(document: &str, text: &str, expect: &[(usize, &str)]) {
        let log = "# The `top` of it\n```\n# No heading\n```\n## Twice\n## Twice\n";
        let mut tree = tree([("README.md", ""), ("docs/LOG.md", log), ("data/a.smi", "")]);
        tree.add(document, 0, text.into()).unwrap();
        let expect: Vec<String> = expect
            .iter()
            .map(|(line, target)| {
                format!(
                    "{document}:{line}: `{target}` does not exist: fix the link, or add its target"
                )
            })
            .collect();
        check_rule(lead_somewhere, &tree, &expect.join("\n"));
    }

    #[test]
    fn links_that_lead_somewhere() {
        check(
            "README.md",
            "[log](docs/LOG.md#the-top-of-it), [`data`](data/) ![x](/data/a.smi \"X\")",
            &[],
        );
        check(
            "docs/a.md",
            "# Here\n[readme](../README.md) [log](./LOG.md) [here](#here) [root](..)",
            &[],
        );
        check("docs/a.md", "[second](LOG.md#twice-1)", &[]);
        check("docs/a.md", "[web](https://example.org/a.md) <https://example.org>", &[]);
        check("docs/a.md", "`[no](link.md)`\n```\n[no](link.md)\n```\n", &[]);
        check("docs/a.md", "[log]: LOG.md", &[]);
    }

    #[test]
    fn links_that_lead_nowhere() {
        check(
            "README.md",
            "\n[log](LOG.md) and [`b`](data/b.smi)",
            &[(2, "LOG.md"), (2, "data/b.smi")],
        );
        check(
            "docs/a.md",
            "[out](../../x.md)\n[log]: ../LOG.md",
            &[(1, "../../x.md"), (2, "../LOG.md")],
        );
        check("docs/a.md", "```\n```\n[x](x.md)", &[(3, "x.md")]);
        check("crates/a/README.md", "[x](nowhere.md)", &[(1, "nowhere.md")]);
        check("docs/a.md", "[log](LOG.md#no-heading)", &[(1, "LOG.md#no-heading")]);
        check("docs/a.md", "# There\n[here](#here)", &[(2, "#here")]);
    }
}
