//! Rule: files are opened through a single module. It rejects named pipes and devices, and limits
//! the size of files that are read in full.

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

/// Files that may open system files, directories, or files they have created themselves.
const FREE: &[&str] = &[
    "crates/grpo-data/src/regular_file.rs",
    "crates/grpo-run/src/atomic.rs",
    "crates/grpo-process/",
];

/// Calls that can open any file.
const CALLS: &[(&[&str], &str)] = &[
    (&["File", ":", ":", "open", "("], "File::open"),
    (&["fs", ":", ":", "read", "("], "fs::read"),
    (&["fs", ":", ":", "read_to_string", "("], "fs::read_to_string"),
];

pub(in crate::tidy) fn are_regular(tree: &Tree) -> Vec<Violation> {
    let is_free = |file: &File| FREE.iter().any(|free| file.path.starts_with(free));
    let ours = |file: &&File| file.crate_name().is_some() && !file.is_test() && !is_free(file);
    tree.files_with("rs").filter(ours).flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    // Tests come last in a file.
    let tests =
        find(&file.tokens, &["cfg", "(", "test", ")"]).first().copied().unwrap_or(usize::MAX);
    let found = CALLS.iter().flat_map(|(call, name)| {
        find(&file.tokens, call).into_iter().filter(|at| *at < tests).map(move |at| (at, name))
    });
    let violation = |(at, name): (usize, &&str)| {
        let what =
            format!("{name}: the file may be a named pipe or endless; use grpo_data::regular_file");
        file.violation(file.tokens[at].line, what)
    };
    found.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::are_regular;
    use crate::tidy::testing::{check, tree};

    #[test]
    fn calls_outside_of_the_one_place_are_found() {
        let source = "fn f() {\n    std::fs::read(p);\n    regular_file::read(p);\n}\n\
                      #[cfg(test)]\nmod tests { fn g() { File::open(p); } }";
        let what = "crates/a/src/b.rs:2: fs::read: the file may be a named pipe or endless; use grpo_data::regular_file";
        check(are_regular, &tree([("crates/a/src/b.rs", source)]), what);
        for path in
            ["crates/a/tests/b.rs", "crates/grpo-data/src/regular_file.rs", "xtask/src/b.rs"]
        {
            check(are_regular, &tree([(path, source)]), "");
        }
    }
}
