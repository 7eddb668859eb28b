//! Rule: the source of all bundled data is documented.

use crate::tidy::tree::{Tree, Violation};

const DESCRIPTION: &str = "data/README.md";

pub(in crate::tidy) fn is_described(tree: &Tree) -> Vec<Violation> {
    let mut data = tree
        .files()
        .filter(|file| file.path.starts_with("data/") && file.path != DESCRIPTION)
        .peekable();
    let Some(description) = tree.file(DESCRIPTION) else {
        let what = "missing: describe the source, licence and author of each file in data/";
        return data.peek().map(|_| Violation::new(DESCRIPTION, 1, what)).into_iter().collect();
    };
    data.filter_map(|file| {
        let inside = file.path.strip_prefix("data/")?;
        let what =
            format!("{DESCRIPTION} doesn't mention `{inside}`: add its source, licence and author");
        (!description.text.contains(inside)).then(|| file.violation(1, what))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::is_described as rule;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn described_data() {
        check(
            rule,
            &tree([("data/README.md", "- `molecules/a.smi`: …"), ("data/molecules/a.smi", "")]),
            "",
        );
        check(rule, &tree([("crates/grpo-chem/data/a.bin", "")]), "");
    }

    #[test]
    fn data_without_a_word() {
        check(
            rule,
            &tree([
                ("data/README.md", "- `molecules/a.smi`: …"),
                ("data/molecules/a.smi", ""),
                ("data/prior/a.smi", ""),
            ]),
            "data/prior/a.smi:1: data/README.md doesn't mention `prior/a.smi`: add its source, licence and author",
        );
        check(
            rule,
            &tree([("data/a.smi", ""), ("data/b.smi", "")]),
            "data/README.md:1: missing: describe the source, licence and author of each file in data/",
        );
    }
}
