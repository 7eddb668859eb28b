//! `cargo xtask bench --kernels`: the benchmarks of the packages that have some.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail};

use crate::process;
use crate::workspace::{Package, Workspace};

/// `cargo bench` on each bench target by name: without names cargo would call the libraries' test programs
/// too, and those know none of a benchmark's arguments.
pub(super) fn run(
    root: &Path,
    wanted: &[String],
    arguments: &[OsString],
    harness: &[OsString],
) -> Result<()> {
    let packages = Workspace::read(root)?.packages;
    let chosen = benches_of(&packages, wanted)?;
    let mut cargo = process::cargo(root);
    cargo.arg("bench");
    println!("benchmarks:");
    for (package, name) in chosen {
        println!("  {package}: {name}");
        cargo.args(["--package", package, "--bench", name]);
    }
    cargo.args(arguments);
    if !harness.is_empty() {
        cargo.arg("--").args(harness);
    }
    process::run(&mut cargo)
}

/// Package and name of each bench target of the packages in `wanted`, or of all where it is empty.
fn benches_of<'a>(packages: &'a [Package], wanted: &[String]) -> Result<Vec<(&'a str, &'a str)>> {
    let benches: Vec<(&str, &str)> = packages
        .iter()
        .flat_map(|package| package.targets.iter().map(move |target| (package, target)))
        .filter(|(_, target)| target.kind.iter().any(|kind| kind == "bench"))
        .map(|(package, target)| (package.name.as_str(), target.name.as_str()))
        .collect();
    if benches.is_empty() {
        bail!("no package has benchmarks");
    }
    for name in wanted {
        if !benches.iter().any(|(package, _)| package == name) {
            let mut have: Vec<&str> = benches.iter().map(|(package, _)| *package).collect();
            have.dedup();
            bail!("`{name}` has no benchmarks; these have: {}", have.join(", "));
        }
    }
    let is_wanted = |package: &str| wanted.is_empty() || wanted.iter().any(|name| name == package);
    Ok(benches.into_iter().filter(|(package, _)| is_wanted(package)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Target;

    fn package(name: &str, targets: &[(&str, &str)]) -> Package {
        let targets = targets
            .iter()
            .map(|(name, kind)| Target { name: (*name).into(), kind: vec![(*kind).into()] })
            .collect();
        Package { name: name.into(), manifest_path: "".into(), dependencies: vec![], targets }
    }

    #[test]
    fn benches_are_found_by_their_kind() {
        let packages = [
            package("a", &[("a", "lib"), ("fast", "bench"), ("slow", "bench")]),
            package("b", &[("b", "lib")]),
            package("c", &[("all", "bench")]),
        ];
        let check = |wanted: &[&str], expect: &str| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            let found = match benches_of(&packages, &wanted) {
                Ok(found) => {
                    found.iter().map(|(p, b)| format!("{p}/{b}")).collect::<Vec<_>>().join(" ")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(found, expect);
        };
        check(&[], "a/fast a/slow c/all");
        check(&["c"], "c/all");
        check(&["b"], "`b` has no benchmarks; these have: a, c");
    }

    #[test]
    fn none_at_all_is_an_error() {
        let error = benches_of(&[package("b", &[("b", "lib")])], &[]).unwrap_err();
        assert_eq!(error.to_string(), "no package has benchmarks");
    }
}
