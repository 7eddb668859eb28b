//! Rule: a backend is selected in one file, and only two other files may list the backends.

use crate::tidy::tokens::{Token, find, stands_at};
use crate::tidy::tree::{File, Tree, Violation};

/// Files that may mention backends.
const FREE: &[&str] = &[
    "crates/grpo-task/src/device.rs",
    "crates/grpo-kernels/src/backend.rs",
    "crates/grpo-logprob/src/backend.rs",
];

pub(in crate::tidy) fn stand_in_few_files(tree: &Tree) -> Vec<Violation> {
    let files = tree.files_with("rs").filter(|file| !FREE.contains(&file.path.as_str()));
    files.flat_map(of_file).collect()
}

fn of_file(file: &File) -> Vec<Violation> {
    ["\"flex\"", "\"cuda\"", "\"wgpu\""]
        .iter()
        .flat_map(|backend| find(&file.tokens, &["feature", "=", backend]).into_iter().map(move |i| (i, backend)))
        .filter(|(i, _)| !is_cpu_kernel(file, &file.tokens, *i))
        .map(|(i, backend)| {
            file.violation(
                file.tokens[i].line,
                format!(
                    "a backend cfg ({backend}): grpo-cli chooses the backend, in device.rs; ask the device at run \
                     time, or move this into backend.rs of grpo-kernels or grpo-logprob"
                ),
            )
        })
        .collect()
}

/// Returns whether this is a `#[cfg(feature = "flex")]` in a crate with CPU kernels.
fn is_cpu_kernel(file: &File, tokens: &[Token], feature: usize) -> bool {
    let whole = ["#", "[", "cfg", "(", "feature", "=", "\"flex\"", ")", "]"];
    ["crates/grpo-kernels/", "crates/grpo-logprob/"].iter().any(|of| file.path.starts_with(of))
        && feature >= 4
        && stands_at(tokens, feature - 4, &whole)
}

#[cfg(test)]
mod tests {
    use super::stand_in_few_files;
    use crate::tidy::testing::{check as check_rule, tree};

    #[track_caller]
    fn check(path: &str, source: &str, lines: &[(usize, &str)]) {
        let expect: Vec<String> = lines
            .iter()
            .map(|(line, backend)| {
                format!(
                    "{path}:{line}: a backend cfg (\"{backend}\"): grpo-cli chooses the backend, in device.rs; ask \
                     the device at run time, or move this into backend.rs of grpo-kernels or grpo-logprob"
                )
            })
            .collect();
        check_rule(stand_in_few_files, &tree([(path, source)]), &expect.join("\n"));
    }

    #[test]
    fn free_files() {
        for path in super::FREE {
            check(path, "#[cfg(feature = \"cuda\")]\nfn f() {}", &[]);
        }
        check("crates/grpo-kernels/src/gelu.rs", "#[cfg(feature = \"flex\")]\nfn f() {}", &[]);
        check("crates/grpo-logprob/src/fused.rs", "#[cfg(feature = \"flex\")]\nmod cpu;", &[]);
        check("crates/grpo-train/src/step.rs", "#[cfg(feature = \"plots\")]\nfn f() {}", &[]);
        check("crates/grpo-train/src/step.rs", "// #[cfg(feature = \"cuda\")]", &[]);
    }

    #[test]
    fn others() {
        let step = "crates/grpo-train/src/step.rs";
        check(step, "\n#[cfg(feature = \"flex\")]\nfn f() {}", &[(2, "flex")]);
        check(step, "fn f() -> bool {\n    cfg!(feature = \"wgpu\")\n}", &[(2, "wgpu")]);
        check(
            "crates/grpo-kernels/src/gelu.rs",
            "#[cfg(feature = \"cuda\")]\nfn f() {}\n#[cfg(not(feature = \"flex\"))]\nfn g() {}",
            &[(3, "flex"), (1, "cuda")],
        );
    }
}
