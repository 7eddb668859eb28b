//! Rendering of HTML pages.

use minijinja::value::{Serde, Value};
use minijinja::{Environment, HtmlEscape};
use serde::Serialize;

/// The style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("report.css");
/// Macros that the templates of all pages import.
const MACROS: &str = include_str!("macros.html.j2");

/// Renders a template, which can import `macros.html`. All text that the template does not mark as
/// safe is escaped, and control characters are replaced with symbols.
pub(crate) fn render(template: &str, page: impl Serialize) -> String {
    let mut environment = Environment::new();
    environment.add_filter("code", with_code);
    // Templates with names ending in `.html` escape all text that is not marked as safe.
    for (name, source) in [("macros.html", MACROS), ("page.html", template)] {
        environment.add_template(name, source).expect("the template is valid");
    }
    let template = environment.get_template("page.html").expect("it was added");
    let page = template.render(Serde(page)).expect("the template's variables are all defined");
    printable(&page)
}

/// Returns escaped text in which what stands between backticks is marked as code.
fn with_code(text: &str) -> Value {
    let mut html = String::new();
    let mut parts = text.split('`').peekable();
    let mut is_code = false;
    while let Some(part) = parts.next() {
        let part = HtmlEscape(part);
        // Without a second backtick, the first one is part of the text.
        match (is_code, parts.peek().is_some()) {
            (true, true) => html += &format!("<code>{part}</code>"),
            (true, false) => html += &format!("`{part}"),
            (false, _) => html += &part.to_string(),
        }
        is_code = !is_code;
    }
    Value::from_safe_string(html)
}

/// Replaces control characters with their Unicode symbols, e.g. `␛`, except line breaks and tabs.
pub(crate) fn printable(text: &str) -> String {
    let symbol = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(symbol).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_backticks_is_code() {
        for (text, html) in [
            ("`kl` was not measured", "<code>kl</code> was not measured"),
            ("a ` alone", "a ` alone"),
            ("`a` and ` alone", "<code>a</code> and ` alone"),
            ("`<b>` <i>", "<code>&lt;b&gt;</code> &lt;i&gt;"),
            ("", ""),
        ] {
            assert_eq!(with_code(text).as_str(), Some(html), "{text}");
        }
    }
}
