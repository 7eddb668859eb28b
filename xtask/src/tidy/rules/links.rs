//! Links of the documents to files of the repository lead to one.

use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn lead_somewhere(tree: &Tree) -> Vec<Violation> {
    tree.files_with("md")
        .filter(|file| file.path == "README.md" || file.path.starts_with("docs/"))
        .flat_map(|file| of_document(tree, file))
        .collect()
}

fn of_document(tree: &Tree, document: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut in_code = false;
    for (i, line) in document.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let leads = local(target)
                .is_none_or(|path| resolve(&document.path, path).is_some_and(|p| tree.exists(&p)));
            if !leads {
                let what =
                    format!("`{target}` leads nowhere: mend the link, or add the file to git");
                violations.push(document.violation(i + 1, what));
            }
        }
    }
    violations
}

/// What the links of a line lead to: `[text](target "title")` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let outside: Vec<&str> = line.split('`').step_by(2).collect(); // not what is shown as code
    let inline = outside.iter().flat_map(|part| {
        // A text of code is cut from its brackets, so that a part may begin with `](`.
        part.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
    });
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, target)| target.split_whitespace().next());
    inline.chain(definition).collect()
}

/// The path in a link to a file; none where it leads into the web or into the same page.
fn local(target: &str) -> Option<&str> {
    let target = target.trim_matches(['<', '>']);
    let path = target.split('#').next().unwrap_or_default();
    let is_web = path.contains("://") || path.starts_with("mailto:");
    (!is_web && !path.is_empty()).then_some(path)
}

/// A path from the root, for one from the folder of `document`; none where it leaves the repository.
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
        let mut tree = tree([("README.md", ""), ("docs/LOG.md", ""), ("data/a.smi", "")]);
        tree.add(document, 0, text.into()).unwrap();
        let expect: Vec<String> = expect
            .iter()
            .map(|(line, target)| {
                format!(
                    "{document}:{line}: `{target}` leads nowhere: mend the link, or add the file to git"
                )
            })
            .collect();
        check_rule(lead_somewhere, &tree, &expect.join("\n"));
    }

    #[test]
    fn links_that_lead_somewhere() {
        check("README.md", "[log](docs/LOG.md#top), [`data`](data/) ![x](/data/a.smi \"X\")", &[]);
        check("docs/a.md", "[readme](../README.md) [log](./LOG.md) [here](#here) [root](..)", &[]);
        check("docs/a.md", "[web](https://example.org/a.md) <https://example.org>", &[]);
        check("docs/a.md", "`[no](link.md)`\n```\n[no](link.md)\n```\n", &[]);
        check("docs/a.md", "[log]: LOG.md", &[]);
        check("crates/a/README.md", "[x](nowhere.md)", &[]);
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
    }
}
