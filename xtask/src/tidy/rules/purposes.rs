//! Rule: the numbers of random purposes differ, because equal ones would share their random numbers.

use std::collections::BTreeMap;

use crate::tidy::tokens::{Token, find};
use crate::tidy::tree::{File, Tree, Violation};

pub(in crate::tidy) fn have_own_numbers(tree: &Tree) -> Vec<Violation> {
    let mut owners: BTreeMap<&str, String> = BTreeMap::new();
    let mut found = Vec::new();
    for file in tree.files_with("rs") {
        for number in numbers(file) {
            let place = format!("{}:{}", file.path, number.line);
            if let Some(other) = owners.insert(&number.text, place) {
                let what =
                    format!("the purpose {} exists at {other}; choose a new number", number.text);
                found.push(file.violation(number.line, what));
            }
        }
    }
    found
}

/// Returns the arguments of `Purpose::new`.
fn numbers(file: &File) -> impl Iterator<Item = &Token> {
    const CALL: &[&str] = &["Purpose", ":", ":", "new", "("];
    find(&file.tokens, CALL).into_iter().filter_map(|start| file.tokens.get(start + CALL.len()))
}

#[cfg(test)]
mod tests {
    use super::have_own_numbers;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn equal_numbers_are_found() {
        let one = "const A: Purpose = Purpose::new(1);\nconst B: Purpose = Purpose::new(2);\n";
        let two = "/// Mine.\npub const C: Purpose = Purpose::new(2);\n";
        let expected = "b.rs:2: the purpose 2 exists at a.rs:2; choose a new number";
        check(have_own_numbers, &tree([("a.rs", one), ("b.rs", two)]), expected);
        check(have_own_numbers, &tree([("a.rs", one), ("b.rs", &two.replace('2', "3"))]), "");
    }
}
