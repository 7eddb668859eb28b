//! A preprocessor of mdBook: links that leave `docs/`, e.g. to sources, lead to the repository on the
//! web. They work where the pages are read in a checkout, but the book does not contain their targets.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::Value;
use toml::Table;

/// Preprocess the book for mdBook, which runs this command (see book.toml)
#[derive(Args)]
pub(crate) struct BookLinks {
    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Subcommand)]
enum Question {
    /// Ask whether a renderer is supported
    Supports { renderer: String },
}

/// Reads `[context, book]` from standard input and writes the book.
pub(crate) fn book_links(root: &Path, arguments: &BookLinks) -> Result<()> {
    if let Some(Question::Supports { renderer: _any }) = &arguments.question {
        return Ok(());
    }
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).context("cannot read the book")?;
    let book: Value = serde_json::from_str(&input).context("this is not a book of mdBook")?;
    let [_, mut book]: [Value; 2] = serde_json::from_value(book)?;
    change(&mut book, address(root)?.as_deref());
    std::io::stdout().write_all(book.to_string().as_bytes()).context("cannot write the book")
}

/// Returns the address of the repository from the root manifest. It is empty if it is not known yet.
fn address(root: &Path) -> Result<Option<String>> {
    let manifest: Table = std::fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let package = manifest.get("workspace").and_then(|of| of.get("package"));
    let address = package.and_then(|of| of.get("repository")).and_then(toml::Value::as_str);
    Ok(address.map(str::to_owned))
}

/// Changes the links of all chapters.
fn change(item: &mut Value, address: Option<&str>) {
    if let (Some(path), Some(content)) = (item["path"].as_str(), item["content"].as_str()) {
        item["content"] = with_links(content, path, address).into();
    }
    match item {
        Value::Array(items) => items.iter_mut().for_each(|item| change(item, address)),
        Value::Object(fields) => fields.values_mut().for_each(|item| change(item, address)),
        _ => {}
    }
}

/// Returns a chapter in which links that leave the book lead to the repository, or are plain text if
/// its address is unknown.
fn with_links(content: &str, chapter: &str, address: Option<&str>) -> String {
    let is_inside = |path: &str| path == "docs" || path.starts_with("docs/");
    grpo_links::without_links_outside(&format!("docs/{chapter}"), content, is_inside, address)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let text = "[a](../b.md#c) [`d`](../../crates/d/src/lib.rs#L3), ![f](../images/f.svg)";
        let address = with_links(text, "guides/a.md", Some("https://g.org/h"));
        assert_eq!(
            address,
            "[a](../b.md#c) [`d`](https://g.org/h/blob/main/crates/d/src/lib.rs#L3), ![f](../images/f.svg)"
        );
        assert_eq!(
            with_links(text, "guides/a.md", None),
            "[a](../b.md#c) `d` (`crates/d/src/lib.rs`), ![f](../images/f.svg)"
        );
    }

    #[test]
    fn all_chapters_are_changed() {
        let chapter = |path: &str, below: Value| json!({"Chapter": {"content": "[x](../y)", "path": path, "sub_items": below}});
        let mut book =
            json!({"items": [chapter("a.md", json!([chapter("b.md", json!([]))])), "Separator"]});
        change(&mut book, None);
        assert!(!book.to_string().contains("](../y)"), "{book}");
    }

    /// No link of the pages leaves the book afterwards.
    #[test]
    fn the_pages_have_no_other_links() {
        let root = crate::workspace::root();
        let (docs, address) = (root.join("docs"), address(&root).unwrap());
        for page in ["README.md", "configuration.md", "guides/molecules.md", "coverage.md"] {
            let text = std::fs::read_to_string(docs.join(page)).unwrap();
            for address in [None, address.as_deref()] {
                let changed = with_links(&text, page, address);
                for outside in ["](../crates/", "](../../", "](../README.md", "](/"] {
                    assert!(!changed.contains(outside), "{outside} in {page}");
                }
            }
        }
    }
}
