//! Replaces links that leave a set of pages.

use crate::{Link, is_on_the_web, links, resolve};

/// Returns the page at `path` in which no inline link leads outside of the set of pages.
///
/// `is_inside` returns whether a path, relative to the root of the repository, is in the set. With the
/// address of a repository on the web, the other links lead there. Without one, they become plain
/// text: the text of the link and the path as code, or only the path if the text names it.
pub fn without_links_outside(
    path: &str,
    page: &str,
    is_inside: impl Fn(&str) -> bool,
    repository: Option<&str>,
) -> String {
    let mut changed = String::with_capacity(page.len());
    let mut rest = 0;
    for link in links(page) {
        let is_inline = page[link.range.clone()].ends_with(')');
        let target = resolve(path, link.target).filter(|_| is_inline);
        let Some(target) = target.filter(|to| !is_on_the_web(link.target) && !is_inside(to)) else {
            continue;
        };
        let before = &page[rest..link.range.start];
        match repository {
            Some(address) => {
                let anchor = link.target.find('#').map_or("", |at| &link.target[at..]);
                let text = link.text;
                changed
                    .push_str(&format!("{before}[{text}]({address}/blob/main/{target}{anchor})"));
            }
            None => {
                let before = before.strip_suffix('!').unwrap_or(before); // of an image
                changed.push_str(before);
                changed.push_str(&plain(&link, &target, before.ends_with('(')));
            }
        }
        rest = link.range.end;
    }
    changed + &page[rest..]
}

/// Returns the plain text that replaces a link to `target`.
fn plain(link: &Link<'_>, target: &str, in_parentheses: bool) -> String {
    let code = match target.contains('/') {
        true => format!("`{target}`"),
        false => format!("`{target}` of the repository"),
    };
    let name = link.text.trim_matches('`').trim_end_matches('/');
    let ends_with = |path: &str, name: &str| {
        path.strip_suffix(name).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    };
    // `policy.rs` or "README", but not the type `Policy`.
    let names_it = ends_with(target, name)
        || target.strip_suffix(".md").is_some_and(|page| ends_with(page, link.text));
    match (names_it, in_parentheses) {
        (true, _) => code,
        (false, true) => format!("{}: {code}", link.text),
        (false, false) => format!("{} ({code})", link.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &str, plain: &str, on_the_web: &str) {
        let inside = |path: &str| path.starts_with("docs/") && path != "docs/LOG.md";
        let without = |address| without_links_outside("docs/guides/a.md", page, inside, address);
        assert_eq!(without(None), plain);
        assert_eq!(without(Some("https://g.org/h")), on_the_web);
    }

    #[test]
    fn links_inside_and_on_the_web_are_kept() {
        for page in [
            "[a](../b.md#c), ![f](../images/f.svg), [g](b.md), [h](#h), [i](/docs/i.md)",
            "[e](https://e.org/../x) <https://e.org> [m](mailto:m@e.org)",
            "`[x](../../y.md)`\n```\n[x](../../y.md)\n```\n",
            "a](b) [c](",
        ] {
            check(page, page, page);
        }
    }

    #[test]
    fn links_outside_are_paths_or_lead_to_the_repository() {
        const WEB: &str = "https://g.org/h/blob/main";
        for (page, plain, target) in [
            ("[`d.rs`](../../crates/d.rs#L3)", "`crates/d.rs`", "crates/d.rs#L3"),
            ("[`d::e`](../../crates/d.rs)", "`d::e` (`crates/d.rs`)", "crates/d.rs"),
            ("[`D`](../../crates/d.rs)", "`D` (`crates/d.rs`)", "crates/d.rs"),
            ("[a\nb](../../crates/d.rs)", "a\nb (`crates/d.rs`)", "crates/d.rs"),
            ("[LOG](../LOG.md)", "`docs/LOG.md`", "docs/LOG.md"),
            ("[`tests/d/`](../../tests/d/)", "`tests/d`", "tests/d"),
            ("[The log](../LOG.md#x)", "The log (`docs/LOG.md`)", "docs/LOG.md#x"),
            ("[README](../../README.md)", "`README.md` of the repository", "README.md"),
        ] {
            let text = &page[..=page.find(']').unwrap()];
            check(page, plain, &format!("{text}({WEB}/{target})"));
        }
        check(
            "It pays ([how](../../b/c.md), ![x](../../d.svg)).",
            "It pays (how: `b/c.md`, x (`d.svg` of the repository)).",
            &format!("It pays ([how]({WEB}/b/c.md), ![x]({WEB}/d.svg))."),
        );
    }
}
