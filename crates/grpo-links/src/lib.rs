#![doc = include_str!("../README.md")]

mod code;
mod outside;

use std::collections::BTreeSet;
use std::ops::Range;

pub use outside::without_links_outside;

/// A link in a page: inline, as in `[text](target "title")`, or the definition of a target, as in
/// `[text]: target "title"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link<'a> {
    /// Text between the brackets.
    pub text: &'a str,
    /// Path, heading or address.
    pub target: &'a str,
    /// Line of the target, starting at 1.
    pub line: usize,
    /// Whether the link is inline. Otherwise it is a definition.
    pub is_inline: bool,
    /// Bytes of the whole link.
    range: Range<usize>,
}

/// Returns the position of a slice of a page in it.
fn bytes_of(page: &str, slice: &str) -> Range<usize> {
    let start = slice.as_ptr().addr() - page.as_ptr().addr();
    start..start + slice.len()
}

/// Returns the links of a page that are not part of code, in order.
pub fn links(page: &str) -> Vec<Link<'_>> {
    let is_code = code::bytes(page);
    let inline = page.match_indices("](").filter_map(|(middle, _)| inline(page, &is_code, middle));
    let mut links: Vec<Link<'_>> = inline.chain(definitions(page, &is_code)).collect();
    links.sort_by_key(|link| link.range.start);
    links
}

/// Returns the link whose text and target meet at `middle`.
fn inline<'a>(page: &'a str, is_code: &[bool], middle: usize) -> Option<Link<'a>> {
    if is_code[middle] {
        return None;
    }
    let start = opening_bracket(page, is_code, middle)?;
    let rest = &page[middle + 2..];
    let inside = &rest[..closing_parenthesis(rest)?];
    Some(Link {
        text: &page[start + 1..middle],
        target: target_of(inside).unwrap_or(&inside[..0]),
        line: line_of(page, middle),
        is_inline: true,
        range: start..middle + 3 + inside.len(),
    })
}

/// Returns the position of the parenthesis that ends a link on its line.
fn closing_parenthesis(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'\n' => return None,
            b'(' => depth += 1,
            b')' if depth == 0 => return Some(at),
            b')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the target before the title. Only one in angle brackets contains spaces.
fn target_of(text: &str) -> Option<&str> {
    match text.trim_start().strip_prefix('<') {
        Some(rest) => rest.split_once('>').map(|(target, _)| target),
        None => text.split_whitespace().next(),
    }
}

/// Returns the position of the bracket that the one at `closing` closes.
fn opening_bracket(page: &str, is_code: &[bool], closing: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for at in (0..closing).rev().filter(|at| !is_code[*at]) {
        match page.as_bytes()[at] {
            b']' => depth += 1,
            b'[' if depth == 0 => return Some(at),
            b'[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Returns the definitions of link targets, one per line.
fn definitions<'a>(page: &'a str, is_code: &[bool]) -> impl Iterator<Item = Link<'a>> {
    code::lines(page).filter_map(|Range { start, end }| {
        let (_, line) = code::without_quotes(&page[start..end], usize::MAX);
        let (text, target) = line.strip_prefix('[')?.split_once("]:")?;
        // `[^text]: …` is a footnote.
        let is_name = !text.is_empty() && !text.starts_with('^') && !text.contains(['[', ']']);
        let target = target_of(target)?;
        (is_name && !is_code[start]).then(|| Link {
            text,
            target,
            line: line_of(page, start),
            is_inline: false,
            range: start..end,
        })
    })
}

fn line_of(page: &str, at: usize) -> usize {
    1 + page[..at].matches('\n').count()
}

/// Returns the links of the page at `path` that lead to no file and no heading.
///
/// `exists` returns whether a path is a file or a folder. `page_at` returns the text of a page, or
/// `None` for other files, in which every anchor is accepted. Addresses on the web are not followed.
pub fn dead_links<'a, 'p>(
    path: &str,
    page: &'a str,
    exists: impl Fn(&str) -> bool,
    page_at: impl Fn(&str) -> Option<&'p str>,
) -> Vec<Link<'a>> {
    let leads_somewhere = |link: &Link<'_>| {
        if is_on_the_web(link.target) {
            return true;
        }
        let (target, heading) = link.target.split_once('#').unwrap_or((link.target, ""));
        let has_heading = |page: &str| heading.is_empty() || anchors(page).contains(heading);
        if target.is_empty() {
            return has_heading(page);
        }
        resolve(path, target).is_some_and(|found| {
            exists(&found) && (heading.is_empty() || page_at(&found).is_none_or(has_heading))
        })
    };
    links(page).into_iter().filter(|link| !leads_somewhere(link)).collect()
}

fn is_on_the_web(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Returns the anchors that GitHub generates for the headings of a page.
pub fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let is_code = code::bytes(page);
    for Range { start, end } in code::lines(page) {
        let line = &page[start..end];
        let heading = line.trim_start_matches('#');
        if heading.len() < line.len() && heading.starts_with(' ') && !is_code[start] {
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

/// Returns the path to which `target` leads from the page at `path`, without its anchor. Returns
/// `None` if it is outside of the root folder. A target that starts with `/` is relative to the root.
pub fn resolve(path: &str, target: &str) -> Option<String> {
    let (target, _) = target.split_once('#').unwrap_or((target, ""));
    if target.is_empty() {
        return Some(path.to_owned());
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = match target.strip_prefix('/') {
        Some(from_root) => from_root.to_owned(),
        None => format!("{folder}/{target}"),
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
    use super::*;

    #[test]
    fn links_outside_of_code() {
        #[track_caller]
        fn check(page: &str, expect: &[(&str, &str, usize)]) {
            let found = links(page);
            let found: Vec<_> = found.iter().map(|of| (of.text, of.target, of.line)).collect();
            assert_eq!(found, expect);
        }
        check("[a](b) and\n![c](d.svg \"Title\")", &[("a", "b", 1), ("c", "d.svg", 2)]);
        check("[`a[i]`](b), [x [y]](<z>)", &[("`a[i]`", "b", 1), ("x [y]", "z", 1)]);
        check("[two\nlines](b#c)", &[("two\nlines", "b#c", 2)]);
        check("`[no](x)` [a](b) ``[`no](x)``", &[("a", "b", 1)]);
        check("```\n[no](x)\n```\n  ~~~sh\n[no](x)\n  ~~~\n[a](b)", &[("a", "b", 7)]);
        check("- `a code\n  [no](x)`\n- a ` sign\n- [a](b)\n- another ` sign", &[("a", "b", 4)]);
        check("````\n```\n[no](x)\n````\n[a](b)", &[("a", "b", 5)]);
        check("[a]: b \"Title\"\n```\n[no]: x\n```", &[("a", "b", 1)]);
        check(
            "> [a](b)\n> ```\n> [no](x)\n> > ```\n> ```\n> [c](d)",
            &[("a", "b", 1), ("c", "d", 6)],
        );
        check("> ```\n> [no](x)\n[a](b)\n> > ~~~\n> [c](d)", &[("a", "b", 3), ("c", "d", 5)]);
        check("```\n> ```\n[no](x)\n```\n- ```\n  [no](x)\n  ```\n[a](b)", &[("a", "b", 8)]);
        check("[a](b_(c).md (title)), [d](<e f.md>)", &[("a", "b_(c).md", 1), ("d", "e f.md", 1)]);
        check(
            "[a]: <b c> (title)\n> [d]:e\n[^no]: x\n[f](g) [no]: x",
            &[("a", "b c", 1), ("d", "e", 2), ("f", "g", 4)],
        );
        check("a](b) [c](", &[]);
        check("é [ä](ö.md)", &[("ä", "ö.md", 1)]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let page = "# The `top`, of it\n```\n# No heading\n```\n## Twice\n## Twice\n#no heading\n";
        let expect = ["the-top-of-it", "twice", "twice-1"];
        assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn paths_are_resolved_within_the_root() {
        let check = |target: &str, expect: Option<&str>| {
            assert_eq!(resolve("docs/a/b.md", target).as_deref(), expect, "{target}");
        };
        check("c.md#x", Some("docs/a/c.md"));
        check("../c/", Some("docs/c"));
        check("/c.md", Some("c.md"));
        check("../..", Some(""));
        check("#x", Some("docs/a/b.md"));
        check("../../../c.md", None);
    }
}
