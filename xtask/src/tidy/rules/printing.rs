//! Libraries give values back; the command line prints.

use crate::tidy::crate_table::PROGRAMS;
use crate::tidy::tokens::find;
use crate::tidy::tree::{File, Tree, Violation};

const MACROS: &[&str] = &["println", "eprintln", "print", "eprint"];

pub(in crate::tidy) fn is_for_the_command_line(tree: &Tree) -> Vec<Violation> {
    tree.files_with("rs").filter(|file| is_library(file)).flat_map(of_file).collect()
}

fn is_library(file: &File) -> bool {
    file.crate_name().is_some_and(|name| !PROGRAMS.contains(&name)) && !file.is_test()
}

fn of_file(file: &File) -> Vec<Violation> {
    MACROS
        .iter()
        .flat_map(|name| find(&file.tokens, &[name, "!"]).into_iter().map(move |i| (i, name)))
        .map(|(i, name)| {
            let what = format!("`{name}!` in a library: give the value back; grpo-cli prints");
            file.violation(file.tokens[i].line, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_for_the_command_line as rule;
    use crate::tidy::testing::{check, tree};

    const SOURCE: &str = "/// Like `println!()`.\nfn f() {\n    println!();\n    eprint!(\"\");\n}";

    #[test]
    fn terminal_programs_and_tests_print() {
        check(
            rule,
            &tree([
                ("crates/grpo-cli/src/main.rs", SOURCE),
                ("crates/grpo-bench/src/main.rs", SOURCE),
                ("crates/grpo-run/benches/write.rs", SOURCE),
                ("crates/grpo-run/examples/write.rs", SOURCE),
                ("crates/grpo-run/tests/it/main.rs", SOURCE),
                ("crates/grpo-run/src/folder/tests.rs", SOURCE),
                ("crates/grpo-run/build.rs", SOURCE),
                ("xtask/src/main.rs", SOURCE),
            ]),
            "",
        );
    }

    #[test]
    fn libraries_do_not() {
        check(
            rule,
            &tree([("crates/grpo-run/src/lib.rs", SOURCE)]),
            "\
crates/grpo-run/src/lib.rs:3: `println!` in a library: give the value back; grpo-cli prints
crates/grpo-run/src/lib.rs:4: `eprint!` in a library: give the value back; grpo-cli prints",
        );
    }
}
