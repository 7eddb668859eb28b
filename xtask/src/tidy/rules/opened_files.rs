//! Rules: files are opened through a single module, which rejects named pipes and devices and limits
//! the size of files that are read in full; and files are written through another one, which does not
//! follow links inside of run and output folders.

use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

/// Files that may open system files, directories, or files they have created themselves.
const FREE: &[&str] = &[
    "crates/grpo-data/src/own_folder/",
    "crates/grpo-data/src/regular_file.rs",
    "crates/grpo-runtime/",
];

/// Calls that can open any file.
const CALLS: &[(&[&str], &str)] = &[
    (&["File", ":", ":", "open", "("], "File::open"),
    (&["fs", ":", ":", "read", "("], "fs::read"),
    (&["fs", ":", ":", "read_to_string", "("], "fs::read_to_string"),
];

/// Files that may create, rename or delete files by their paths, by reason.
const FREE_TO_WRITE: &[&str] = &[
    // What the others use, and the folder of a new run.
    "crates/grpo-data/src/own_folder",
    "crates/grpo-run/src/atomic.rs",
    "crates/grpo-run/src/new_run.rs",
    // Output files that the user chose.
    "crates/grpo-task/src/output.rs",
    "crates/grpo-task/src/output/",
    // Files in a folder that was just created under a temporary name.
    "crates/grpo-task/src/checkpoint.rs",
    "crates/grpo-examples/src/init_project.rs",
    "crates/grpo-infill/src/sections.rs",
    "crates/grpo-model/src/folder.rs",
    "crates/grpo-model/src/peft.rs",
    "crates/grpo-model/src/stored.rs",
    "crates/grpo-replies/src/rewards/engagement/description.rs",
    // Files in a temporary folder of this process.
    "crates/grpo-model/src/gguf_file.rs",
    "crates/grpo-program/src/orchestrate/sweep.rs",
    "crates/grpo-program/src/train/resume_check.rs",
    "crates/grpo-servers/src/vllm/adapters.rs",
    // Tools for developers, and files of the system.
    "crates/grpo-bench/",
    "crates/grpo-runtime/",
    "crates/grpo-selftest/",
];

/// Calls that can write through a link, or wait for the reader of a named pipe.
const WRITING_CALLS: &[(&[&str], &str)] = &[
    (&["File", ":", ":", "create", "("], "File::create"),
    (&["File", ":", ":", "create_new", "("], "File::create_new"),
    (&["File", ":", ":", "options", "("], "File::options"),
    (&["OpenOptions", ":", ":", "new", "("], "OpenOptions::new"),
    (&["fs", ":", ":", "copy", "("], "fs::copy"),
    (&["fs", ":", ":", "create_dir", "("], "fs::create_dir"),
    (&["fs", ":", ":", "hard_link", "("], "fs::hard_link"),
    (&["fs", ":", ":", "remove_dir", "("], "fs::remove_dir"),
    (&["fs", ":", ":", "remove_dir_all", "("], "fs::remove_dir_all"),
    (&["fs", ":", ":", "remove_file", "("], "fs::remove_file"),
    (&["fs", ":", ":", "rename", "("], "fs::rename"),
    (&["fs", ":", ":", "write", "("], "fs::write"),
];

pub(in crate::tidy) fn are_regular(tree: &Tree) -> Vec<Violation> {
    let fix = "the file may be a named pipe or endless; use grpo_data::regular_file";
    calls(tree, FREE, CALLS, fix)
}

pub(in crate::tidy) fn are_not_written_through_links(tree: &Tree) -> Vec<Violation> {
    let fix = "the path may lead through a link or to a named pipe; use grpo_data::OwnFolder or grpo_task::output::FileInPlace";
    calls(tree, FREE_TO_WRITE, WRITING_CALLS, fix)
}

fn calls(tree: &Tree, free: &[&str], calls: &[(&[&str], &str)], fix: &str) -> Vec<Violation> {
    let is_free = |file: &File| free.iter().any(|free| file.path.starts_with(free));
    let ours = |file: &&File| file.crate_name().is_some() && !file.is_test() && !is_free(file);
    tree.files_with("rs").filter(ours).flat_map(|file| of_file(file, calls, fix)).collect()
}

fn of_file(file: &File, calls: &[(&[&str], &str)], fix: &str) -> Vec<Violation> {
    // Tests come last in a file.
    let tests =
        find(&file.tokens, &["cfg", "(", "test", ")"]).first().copied().unwrap_or(usize::MAX);
    let found = calls.iter().flat_map(|(call, name)| {
        find(&file.tokens, call).into_iter().filter(|at| *at < tests).map(move |at| (at, name))
    });
    let violation =
        |(at, name): (usize, &&str)| file.violation(file.tokens[at].line, format!("{name}: {fix}"));
    found.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::{are_not_written_through_links, are_regular};
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

    #[test]
    fn calls_that_write_outside_of_few_places_are_found() {
        let source = "fn f() {\n    std::fs::remove_dir_all(p);\n    folder.remove_all(p);\n}\n\
                      #[cfg(test)]\nmod tests { fn g() { fs::write(p, q); } }";
        let what = "crates/a/src/b.rs:2: fs::remove_dir_all: the path may lead through a link or to a named pipe; use grpo_data::OwnFolder or grpo_task::output::FileInPlace";
        check(are_not_written_through_links, &tree([("crates/a/src/b.rs", source)]), what);
        for path in [
            "crates/a/tests/b.rs",
            "crates/a/src/b/tests.rs",
            "crates/grpo-data/src/own_folder/unix.rs",
            "xtask/src/b.rs",
        ] {
            check(are_not_written_through_links, &tree([(path, source)]), "");
        }
    }
}
