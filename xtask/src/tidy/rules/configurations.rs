//! Every configuration that we ship is TOML. What it means, `grpo` checks.

use crate::tidy::tree::{Tree, Violation};

pub(in crate::tidy) fn are_toml(tree: &Tree) -> Vec<Violation> {
    tree.files_with("toml")
        .filter(|file| file.path.starts_with("configs/"))
        .filter_map(|file| {
            let error = file.text.parse::<toml::Table>().err()?;
            let start = error.span().map_or(0, |span| span.start);
            let line = file.text[..start].matches('\n').count() + 1;
            Some(file.violation(line, format!("no TOML: {}", error.message())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::are_toml;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(text: &str, expect: &str) {
        check_rule(are_toml, &tree([("configs/molecules/grpo.toml", text)]), expect);
    }

    #[test]
    fn toml() {
        check("[run]\nseed = 1\n", "");
        check_rule(are_toml, &tree([("tests/broken.toml", "seed = ")]), "");
    }

    #[test]
    fn no_toml() {
        check(
            "[run]\nseed = = 1\n",
            "configs/molecules/grpo.toml:2: no TOML: extra `=`, expected nothing",
        );
        check(
            "[run]\nseed = 1\nseed = 2\n",
            "configs/molecules/grpo.toml:3: no TOML: duplicate key",
        );
    }
}
