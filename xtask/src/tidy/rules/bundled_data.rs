//! Rule: the source of all bundled data is documented.

use crate::tidy::tree::{Tree, Violation};

const DESCRIPTION: &str = "data/README.md";

pub(in crate::tidy) fn is_described(tree: &Tree) -> Vec<Violation> {
    let description = tree.file(DESCRIPTION).map_or("", |file| file.text.as_str());
    let data = tree.files().filter(|file| file.path != DESCRIPTION);
    data.filter_map(|file| {
        let inside = file.path.strip_prefix("data/")?;
        let what =
            format!("{DESCRIPTION} doesn't mention `{inside}`: add its source, licence and author");
        (!description.contains(inside)).then(|| file.violation(1, what))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::is_described;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn data_without_a_word_is_found() {
        let description = ("data/README.md", "- `molecules/a.smi`: …");
        let files = [description, ("data/molecules/a.smi", ""), ("crates/a/data/a.bin", "")];
        check(is_described, &tree(files), "");
        check(
            is_described,
            &tree([description, ("data/prior/a.smi", "")]),
            "data/prior/a.smi:1: data/README.md doesn't mention `prior/a.smi`: add its source, licence and author",
        );
    }
}
