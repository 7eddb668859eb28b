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
    use crate::tidy::testing::{check, tree};

    /// What a link is and where it leads is tested in grpo-links.
    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "[a](LOG.md#there) [b](../data/) [c](#here)\n[d](../data/b.smi) [e](../..)\n\
                    ```\n[f](f.md)\n```\n[g]: LOG.md#nowhere\n# Here\n";
        let files =
            [("docs/a.md", page), ("docs/LOG.md", "# There\n"), ("data/a.smi", "[no](page.md)")];
        let expected =
            [(2, "../data/b.smi"), (2, "../.."), (6, "LOG.md#nowhere")].map(|(line, target)| {
                format!(
                    "docs/a.md:{line}: `{target}` does not exist: fix the link, or add its target"
                )
            });
        check(lead_somewhere, &tree(files), &expected.join("\n"));
    }
}
