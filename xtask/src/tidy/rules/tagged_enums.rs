//! Rule: enums of settings that are told apart by a key such as `type` have no unit variants, because
//! serde ignores unknown keys next to them. `Cosine {}` is a struct without fields.

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn have_no_unit_variants(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    let mut found = Vec::new();
    for start in find(&file.tokens, &["#", "[", "serde", "("]) {
        let after = &file.tokens[start..];
        let position = |text: &str| after.iter().position(|token| token.text == text);
        let attribute = &after[..position("]").unwrap_or(after.len())];
        let has = |word: &str| attribute.iter().any(|token| token.text == word);
        let item = after.iter().position(|token| matches!(token.text.as_str(), "enum" | "struct"));
        let Some(item) = item.filter(|item| after[*item].text == "enum") else { continue };
        if !has("tag") || !has("deny_unknown_fields") {
            continue;
        }
        let mut depth = 0;
        for three in after[item..].windows(3) {
            let [before, variant, next] = [0, 1, 2].map(|i| three[i].text.as_str());
            match before {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            // The body of the enum ends.
            if depth == 0 && before == "}" {
                break;
            }
            if depth == 1 && matches!(before, "{" | "," | "]") && matches!(next, "," | "}") {
                let what = format!(
                    "unknown keys next to the unit variant {variant} are ignored: write `{variant} {{}}`"
                );
                found.push(file.violation(three[1].line, what));
            }
        }
    }
    found
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
            (
                format!("{tagged}One {{}},\nTwo {{ a: u8, b: u8 }},\n}}\nenum B {{ C }}"),
                String::new(),
            ),
            ("#[serde(tag = \"type\")]\nenum A { One }".to_owned(), String::new()),
            ("#[serde(deny_unknown_fields)]\nenum A { One, Two }".to_owned(), String::new()),
        ] {
            check(have_no_unit_variants, &tree([("a.rs", source.as_str())]), &expected);
        }
    }
}
