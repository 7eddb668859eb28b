//! Replaces links that leave a set of pages.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{Link, bytes_of, code, inline, is_on_the_web, links, opening_bracket, resolve};

/// Returns the page at `path` in which no link leads outside of the set of pages.
///
/// `is_inside` returns whether a path, relative to the root of the repository, is in the set. With the
/// address of a repository on the web, the other links lead there. Without one, or with an empty one,
/// they become plain text: the text of the link and the path as code, or only the path if the text
/// names it. The definitions of their targets are removed. A link above the root, which has no address
/// either, becomes its text.
///
/// What [`links`] does not find stays as it is: HTML, and targets on another line than their bracket.
/// Code blocks that are only indented, comments and escaped brackets are read as text.
pub fn without_links_outside(
    path: &str,
    page: &str,
    is_inside: impl Fn(&str) -> bool,
    repository: Option<&str>,
) -> String {
    let repository = repository.map(|address| address.trim().trim_end_matches('/'));
    let repository = repository.filter(|address| !address.is_empty());
    let links = links(page);
    let mut edits = Vec::new();
    // The first definition of a name holds.
    let mut definitions = BTreeMap::new();
    for link in &links {
        let outside = target_outside(path, link.target, &is_inside);
        let text = bytes_of(page, link.text);
        match (&outside, repository) {
            (Some(Some(target)), Some(address)) => {
                let anchor = link.target.find('#').map_or("", |at| &link.target[at..]);
                let address = format!("{address}/blob/main/{target}{anchor}");
                edits.push(Edit { range: bytes_of(page, link.target), with: With::Text(address) });
            }
            (Some(target), _) if link.is_inline => {
                // The mark of an image belongs to it.
                let start = link.range.start - usize::from(page[..link.range.start].ends_with('!'));
                let with = With::Plain { text, target: target.clone() };
                edits.push(Edit { range: start..link.range.end, with });
            }
            (Some(_), _) => {
                let end = page[link.range.end..]
                    .find('\n')
                    .map_or(page.len(), |at| link.range.end + at + 1);
                edits.push(Edit { range: link.range.start..end, with: With::Text(String::new()) });
            }
            (None, _) => {}
        }
        if !link.is_inline {
            let is_removed = !matches!((&outside, repository), (Some(Some(_)), Some(_)));
            let target = outside.filter(|_| is_removed);
            definitions.entry(name_of(link.text)).or_insert(target);
        }
    }
    if definitions.values().any(Option::is_some) {
        edits.extend(references(page, &links, &definitions));
    }
    edits.sort_by_key(|edit| edit.range.start);
    edited(page, 0..page.len(), &edits)
}

/// A target outside of the set of pages: its path, or `None` above the root.
type Outside = Option<String>;

/// Returns a link's target if it is outside of the set of pages.
fn target_outside(path: &str, target: &str, is_inside: impl Fn(&str) -> bool) -> Option<Outside> {
    let resolved = resolve(path, target);
    let is_outside = !is_on_the_web(target) && !resolved.as_deref().is_some_and(is_inside);
    is_outside.then_some(resolved)
}

/// A change of a page.
struct Edit {
    range: Range<usize>,
    with: With,
}

/// What replaces a part of a page.
enum With {
    Text(String),
    /// The text of a link, which may contain an image, and where it led.
    Plain {
        text: Range<usize>,
        target: Outside,
    },
}

/// Returns part of a page after the edits in it, which are sorted by their start.
fn edited(page: &str, part: Range<usize>, edits: &[Edit]) -> String {
    let mut changed = String::new();
    let mut at = part.start;
    for (index, Edit { range, with }) in edits.iter().enumerate() {
        // Those inside of a replaced link are part of its text.
        if range.start < at || range.end > part.end {
            continue;
        }
        changed.push_str(&page[at..range.start]);
        match with {
            With::Text(text) => changed.push_str(text),
            With::Plain { text, target } => {
                let text = edited(page, text.clone(), &edits[index + 1..]);
                changed.push_str(&plain(text, target.as_deref(), changed.ends_with('(')));
            }
        }
        at = range.end;
    }
    changed + &page[at..part.end]
}

/// Returns the plain text that replaces a link to `target`.
fn plain(text: String, target: Option<&str>, in_parentheses: bool) -> String {
    let Some(target) = target else { return text };
    let code = match target.contains('/') {
        true => format!("`{target}`"),
        false => format!("`{target}` of the repository"),
    };
    let name = text.trim_matches('`').trim_end_matches('/');
    let ends_with = |path: &str, name: &str| {
        path.strip_suffix(name).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
    };
    // `policy.rs` or "README", but not the type `Policy`.
    let names_it = ends_with(target, name)
        || target.strip_suffix(".md").is_some_and(|page| ends_with(page, &text));
    match (names_it, in_parentheses) {
        (true, _) => code,
        (false, true) => format!("{text}: {code}"),
        (false, false) => format!("{text} ({code})"),
    }
}

/// Returns the name of a definition in the form in which names are compared.
fn name_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Returns edits of the references `[text][name]`, `[name][]` and `[name]` to removed definitions.
fn references(
    page: &str,
    links: &[Link<'_>],
    definitions: &BTreeMap<String, Option<Outside>>,
) -> Vec<Edit> {
    let is_code = code::bytes(page);
    let brackets = page.match_indices(']').filter(|(close, _)| !is_code[*close]);
    let brackets: Vec<Range<usize>> = brackets
        .filter_map(|(close, _)| Some(opening_bracket(page, &is_code, close)?..close + 1))
        .collect();
    let in_brackets = |range: &Range<usize>| range.start + 1..range.end - 1;
    let follows = |range: &Range<usize>| brackets.iter().find(|next| next.start == range.end);
    let mut edits = Vec::new();
    for range in &brackets {
        let is_inline =
            page[range.end..].starts_with('(') && inline(page, &is_code, range.end - 1).is_some();
        let is_name = brackets.iter().any(|text| text.end == range.start);
        let is_defined = |link: &Link<'_>| !link.is_inline && link.range.contains(&range.start);
        if is_inline || is_name || links.iter().any(is_defined) {
            continue;
        }
        let name = follows(range).filter(|name| name.len() > 2).unwrap_or(range);
        let target = definitions.get(&name_of(&page[in_brackets(name)]));
        if let Some(Some(target)) = target {
            let start = range.start - usize::from(page[..range.start].ends_with('!'));
            let end = follows(range).map_or(range.end, |name| name.end);
            let with = With::Plain { text: in_brackets(range), target: target.clone() };
            edits.push(Edit { range: start..end, with });
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "https://g.org/h/blob/main";

    #[track_caller]
    fn check(page: &str, plain: &str, on_the_web: &str) {
        let inside = |path: &str| path.starts_with("docs/") && path != "docs/LOG.md";
        let without = |address| without_links_outside("docs/guides/a.md", page, inside, address);
        for address in [None, Some(""), Some("/"), Some(" ")] {
            assert_eq!(without(address), plain, "{address:?}");
        }
        for address in ["https://g.org/h", "https://g.org/h/"] {
            assert_eq!(without(Some(address)), on_the_web);
        }
    }

    #[test]
    fn links_inside_and_on_the_web_are_kept() {
        for page in [
            "[a](../b.md#c), ![f](../images/f.svg), [g](b.md), [h](#h), [i](/docs/i.md)",
            "[e](https://e.org/../x) <https://e.org> [m](mailto:m@e.org)",
            "`[x](../../y.md)`\n```\n[x](../../y.md)\n```\n> ~~~\n> [x](../../y.md)\n> ~~~\n",
            "[a], [b][a], [a][]\n\n[a]: ../b.md (title)\n[a]: https://e.org\n",
            "a](b) [c](",
        ] {
            check(page, page, page);
        }
    }

    #[test]
    fn links_outside_are_paths_or_lead_to_the_repository() {
        for (page, plain, target) in [
            ("[`d.rs`](../../crates/d.rs#L3)", "`crates/d.rs`", "crates/d.rs#L3"),
            ("[`d::e`](../../crates/d.rs)", "`d::e` (`crates/d.rs`)", "crates/d.rs"),
            ("[`D`](../../crates/d.rs)", "`D` (`crates/d.rs`)", "crates/d.rs"),
            ("[a\nb](../../crates/d.rs)", "a\nb (`crates/d.rs`)", "crates/d.rs"),
            ("[LOG](../LOG.md)", "`docs/LOG.md`", "docs/LOG.md"),
            ("[`tests/d/`](../../tests/d/)", "`tests/d`", "tests/d"),
            ("[The log](../LOG.md#x)", "The log (`docs/LOG.md`)", "docs/LOG.md#x"),
            ("[README](../../README.md)", "`README.md` of the repository", "README.md"),
            ("[b](../../b_(c).md)", "b (`b_(c).md` of the repository)", "b_(c).md"),
        ] {
            let text = &page[..=page.find(']').unwrap()];
            check(page, plain, &format!("{text}({WEB}/{target})"));
        }
        check(
            "It pays ([how](../../b/c.md), ![x](../../d.svg)).",
            "It pays (how: `b/c.md`, x (`d.svg` of the repository)).",
            &format!("It pays ([how]({WEB}/b/c.md), ![x]({WEB}/d.svg))."),
        );
        check(
            "[a](../../b/c.md \"Title\"), [a](<../../b/c d.md>)",
            "a (`b/c.md`), a (`b/c d.md`)",
            &format!("[a]({WEB}/b/c.md \"Title\"), [a](<{WEB}/b/c d.md>)"),
        );
    }

    #[test]
    fn linked_images() {
        check(
            "[![x](../../b/x.svg)](../../c/d.md).",
            "x (`b/x.svg`) (`c/d.md`).",
            &format!("[![x]({WEB}/b/x.svg)]({WEB}/c/d.md)."),
        );
        check(
            "[![x](../x.svg)](../../c/d.md)",
            "![x](../x.svg) (`c/d.md`)",
            &format!("[![x](../x.svg)]({WEB}/c/d.md)"),
        );
        check(
            "[an ![x](../../b/x.svg) and ![y](y.svg)](https://e.org)",
            "[an x (`b/x.svg`) and ![y](y.svg)](https://e.org)",
            &format!("[an ![x]({WEB}/b/x.svg) and ![y](y.svg)](https://e.org)"),
        );
    }

    #[test]
    fn definitions_of_targets() {
        for title in ["", " (title)", " \"title\""] {
            let page = |definition: &str| {
                format!("See [b], [how][B]\nand [c](c.md) `[b]`.\n\n{definition}[e]: e.md\n")
            };
            check(
                &page(&format!("[b]: ../../b/c.md#d{title}\n")),
                &page("").replace("[b],", "b (`b/c.md`),").replace("[how][B]", "how (`b/c.md`)"),
                &page(&format!("[b]: {WEB}/b/c.md#d{title}\n")),
            );
        }
        // The first definition of a name holds.
        check(
            "[b]\n\n[b]: ../../b/c.md\n[b]: b.md\n",
            "b (`b/c.md`)\n\n[b]: b.md\n",
            &format!("[b]\n\n[b]: {WEB}/b/c.md\n[b]: b.md\n"),
        );
        check(
            "[![i]][b] [x][no] [b](c.md) ![i][]\n> [b]:<../../b/c.md>\n[i]: ../../i.svg",
            "i (`i.svg` of the repository) (`b/c.md`) [x][no] [b](c.md) i (`i.svg` of the repository)\n",
            &format!("[![i]][b] [x][no] [b](c.md) ![i][]\n> [b]:<{WEB}/b/c.md>\n[i]: {WEB}/i.svg"),
        );
    }

    #[test]
    fn links_above_the_root_become_their_text() {
        let page = "[a `b`](../../../c.md), ![d](../../../../d.svg) [e]\n\n[e]: ../../../e.md\n";
        check(page, "a `b`, d e\n\n", "a `b`, d e\n\n");
    }
}
