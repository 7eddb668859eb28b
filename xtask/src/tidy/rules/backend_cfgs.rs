//! Rule: a backend is selected in one file, and only two other files may list the backends.

use crate::tidy::tokens::{find, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

/// Files that may mention backends.
const FREE: &[&str] = &[
    "crates/grpo-task/src/device.rs",
    "crates/grpo-kernels/src/backend.rs",
    "crates/grpo-logprob/src/backend.rs",
];
/// Crates with kernels for the CPU, which are under `#[cfg(feature = "flex")]`.
const WITH_CPU_KERNELS: [&str; 2] = ["crates/grpo-kernels/", "crates/grpo-logprob/"];

pub(in crate::tidy) fn stand_in_few_files(tree: &Tree) -> Vec<Violation> {
    let files = tree.files_with("rs").filter(|file| !FREE.contains(&file.path.as_str()));
    files.flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    let cpu = ["#", "[", "cfg", "(", "feature", "=", "\"flex\"", ")", "]"];
    let has_kernels = WITH_CPU_KERNELS.iter().any(|of| file.path.starts_with(of));
    let is_free = |i: usize| has_kernels && i >= 4 && stands_at(&file.tokens, i - 4, &cpu);
    let mut found = Vec::new();
    for backend in ["\"flex\"", "\"cuda\"", "\"wgpu\""] {
        for i in find(&file.tokens, &["feature", "=", backend]).into_iter().filter(|i| !is_free(*i))
        {
            let what = format!(
                "a backend cfg ({backend}): grpo-cli chooses the backend, in device.rs; ask the device at run \
                 time, or move this into backend.rs of grpo-kernels or grpo-logprob"
            );
            found.push(file.violation(file.tokens[i].line, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::stand_in_few_files;
    use crate::tidy::testing::tree;

    #[track_caller]
    fn check(path: &str, source: &str, expect: &[&str]) {
        let found = stand_in_few_files(&tree([(path, source)]));
        let starts: Vec<String> = found
            .iter()
            .map(|one| one.to_string().split(": grpo-cli").next().unwrap().to_owned())
            .collect();
        assert_eq!(starts, expect.iter().map(|one| format!("{path}:{one}")).collect::<Vec<_>>());
    }

    #[test]
    fn backends_outside_of_few_files_are_found() {
        for path in super::FREE {
            check(path, "#[cfg(feature = \"cuda\")]\nfn f() {}", &[]);
        }
        let step = "crates/grpo-train/src/step.rs";
        check(step, "#[cfg(feature = \"plots\")]\nfn f() {}\n// #[cfg(feature = \"cuda\")]", &[]);
        check(step, "\n#[cfg(feature = \"flex\")]\nfn f() {}", &["2: a backend cfg (\"flex\")"]);
        let call = "fn f() -> bool {\n    cfg!(feature = \"wgpu\")\n}";
        check(step, call, &["2: a backend cfg (\"wgpu\")"]);
        let kernels = "crates/grpo-kernels/src/gelu.rs";
        check(kernels, "#[cfg(feature = \"flex\")]\nfn f() {}", &[]);
        check(
            kernels,
            "#[cfg(feature = \"cuda\")]\nfn f() {}\n#[cfg(not(feature = \"flex\"))]\nfn g() {}",
            &["3: a backend cfg (\"flex\")", "1: a backend cfg (\"cuda\")"],
        );
    }
}
