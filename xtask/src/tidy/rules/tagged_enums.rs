//! Rule: enums of settings that are told apart by a key such as `type` have no unit variants, because
//! serde ignores unknown keys next to them. `Cosine {}` is a struct without fields.

use crate::tidy::tokens::{Token, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn have_no_unit_variants(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").flat_map(violations).collect()
}

fn violations(file: &File) -> Vec<Violation> {
    let tokens = &file.tokens;
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        if !stands_at(tokens, start, &["#", "[", "serde", "("]) {
            continue;
        }
        let end = closing(tokens, start + 1);
        let attribute = &tokens[start..end];
        let is_tagged = (0..attribute.len()).any(|i| stands_at(attribute, i, &["tag", "="]));
        let is_strict = attribute.iter().any(|token| token.text == "deny_unknown_fields");
        if is_tagged && is_strict {
            let units = unit_variants(tokens, end);
            found.extend(units.into_iter().map(|variant| {
                let name = &variant.text;
                let what = format!(
                    "unknown keys next to the unit variant {name} are ignored: write `{name} {{}}`"
                );
                file.violation(variant.line, what)
            }));
        }
    }
    found
}

/// Returns the names of unit variants of the enum after `start`.
fn unit_variants(tokens: &[Token], start: usize) -> Vec<&Token> {
    let is_item = |i: &usize| ["enum", "struct"].contains(&tokens[*i].text.as_str());
    let item = (start..tokens.len()).find(is_item);
    let Some(item) = item.filter(|item| tokens[*item].text == "enum") else { return Vec::new() };
    let Some(open) = (item..tokens.len()).find(|i| tokens[*i].text == "{") else {
        return Vec::new();
    };
    let end = closing(tokens, open);
    let mut units = Vec::new();
    let mut i = open + 1;
    while i < end {
        let next = tokens.get(i + 1).map_or("", |token| token.text.as_str());
        match tokens[i].text.as_str() {
            "#" => i += 1,
            "[" | "{" | "(" => i = closing(tokens, i) + 1,
            "," => i += 1,
            _ => {
                if next == "," || i + 1 == end {
                    units.push(&tokens[i]);
                }
                i += 1;
            }
        }
    }
    units
}

/// Returns the index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::have_no_unit_variants;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn unit_variants_of_settings_are_found() {
        let what = |name: &str, line: usize| {
            format!(
                "a.rs:{line}: unknown keys next to the unit variant {name} are ignored: write `{name} {{}}`"
            )
        };
        let tagged = "#[serde(tag = \"type\", deny_unknown_fields)]\nenum A {\n";
        for (source, expected) in [
            (format!("{tagged}/// One.\nOne,\nTwo(B),\n}}"), what("One", 4)),
            (
                format!("{tagged}One {{}},\n#[default]\nTwo,\n#[serde(rename = \"x\")]\nThree\n}}"),
                format!("{}\n{}", what("Two", 5), what("Three", 7)),
            ),
            (format!("{tagged}One {{}},\nTwo {{ a: u8, b: u8 }},\n}}"), String::new()),
            ("#[serde(tag = \"type\")]\nenum A { One }".to_owned(), String::new()),
            ("#[serde(deny_unknown_fields)]\nenum A { One, Two }".to_owned(), String::new()),
        ] {
            check(have_no_unit_variants, &tree([("a.rs", source.as_str())]), &expected);
        }
    }
}
