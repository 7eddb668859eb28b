//! A clone stays small.

use crate::tidy::tree::{Tree, Violation};

const MOST: u64 = 8 << 20;

pub(in crate::tidy) fn are_small(tree: &Tree) -> Vec<Violation> {
    tree.files()
        .filter(|file| file.bytes > MOST)
        .map(|file| {
            let mebibytes = file.bytes as f64 / f64::from(1 << 20);
            let what = format!(
                "{mebibytes:.1} MiB, at most 8: make it smaller, or have a command make it"
            );
            file.violation(1, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{MOST, are_small};
    use crate::tidy::testing;

    #[track_caller]
    fn check(bytes: u64, expect: &str) {
        let mut tree = testing::tree([]);
        tree.add("data/prior.safetensors", bytes, String::new()).unwrap();
        testing::check(are_small, &tree, expect);
    }

    #[test]
    fn files_up_to_the_limit() {
        check(MOST, "");
        check(
            MOST * 3 / 2,
            "data/prior.safetensors:1: 12.0 MiB, at most 8: make it smaller, or have a command make it",
        );
    }
}
