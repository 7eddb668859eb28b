//! Rule: links in documents point to existing files and headings.

use std::collections::BTreeSet;

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn lead_somewhere(tree: &Tree) -> Vec<Violation> {
    tree.files_with("md").flat_map(|file| of_document(tree, file)).collect()
}

fn of_document(tree: &Tree, document: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in lines(&document.text) {
        for target in targets(line) {
            if !leads_somewhere(tree, document, target) {
                let what = format!("`{target}` does not exist: fix the link, or add its target");
                violations.push(document.violation(number, what));
            }
        }
    }
    violations
}

/// Returns the lines outside code blocks, numbered from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((i + 1, line))
    })
}

fn leads_somewhere(tree: &Tree, document: &File, target: &str) -> bool {
    let target = target.trim_matches(['<', '>']);
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path =
        if path.is_empty() { Some(document.path.clone()) } else { resolve(&document.path, path) };
    let Some(path) = path.filter(|path| tree.exists(path)) else { return false };
    let page = tree.files_with("md").find(|file| file.path == path);
    heading.is_empty() || page.is_none_or(|page| anchors(&page.text).contains(heading))
}

/// Returns the anchors that GitHub generates for the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in lines(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') {
            let kept = heading.trim().to_lowercase();
            let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let numbered = (1..).map(|n| format!("{anchor}-{n}"));
            let mut names = std::iter::once(anchor.clone()).chain(numbered);
            anchors.extend(names.find(|name| !anchors.contains(name)));
        }
    }
    anchors
}

/// Returns the link targets in a line, in the forms `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let outside: Vec<&str> = line.split('`').step_by(2).collect(); // skip code spans
    let inline = outside.iter().flat_map(|part| {
        // Splitting off code can separate a link from its text, so a part may start with `](`.
        part.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
    });
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, target)| target.split_whitespace().next());
    inline.chain(definition).collect()
}

/// Resolves a path relative to the directory of `document`. Returns `None` if it is outside the
/// repository.
fn resolve(document: &str, path: &str) -> Option<String> {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = match path.strip_prefix('/') {
        Some(from_root) => from_root.to_owned(),
        None => format!("{folder}/{path}"),
    };
    let mut parts = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
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
