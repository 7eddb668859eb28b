//! Which of our crates may depend on which. docs/ARCHITECTURE.md shows the same table, with reasons.

/// What a crate may depend on, among ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum May {
    /// These alone, named without `grpo-`.
    Only(&'static [&'static str]),
    /// The crates of the rows above.
    AllAbove,
    /// Every `grpo-` crate of the table.
    All,
}

/// A row a crate.
pub(super) const CRATE_TABLE: &[(&str, May)] = &[
    ("grpo-core", May::Only(&[])),
    ("grpo-process", May::Only(&[])),
    ("grpo-kernels", May::Only(&[])),
    ("grpo-sampling", May::Only(&[])),
    ("grpo-logprob", May::Only(&["kernels", "sampling"])),
    ("grpo-text", May::Only(&[])),
    ("grpo-data", May::Only(&["chem", "sampling"])),
    ("grpo-chem", May::Only(&[])),
    ("grpo-model", May::Only(&["kernels", "logprob", "data"])),
    ("grpo-rollout", May::Only(&["kernels", "model", "logprob", "data", "sampling"])),
    ("grpo-rewards", May::Only(&["data", "chem", "model", "text"])),
    ("grpo-run", May::Only(&["data"])),
    ("grpo-train", May::AllAbove),
    ("grpo-eval", May::Only(&["data", "chem", "rewards", "run", "text"])),
    ("grpo-report", May::Only(&["data", "chem", "run"])),
    (
        "grpo-selftest",
        May::Only(&["core", "logprob", "model", "data", "sampling", "rewards", "train"]),
    ),
    (
        "grpo-bench",
        May::Only(&["process", "data", "model", "rewards", "rollout", "sampling", "train"]),
    ),
    ("grpo-app", May::AllAbove),
    ("grpo-cli", May::Only(&["app", "process"])),
    ("xtask", May::Only(&[])),
];

/// The crates that are programs: they print, and their errors are sentences for who started them.
pub(super) const PROGRAMS: &[&str] = &["grpo-app", "grpo-bench", "grpo-cli", "xtask"];

/// The crates that `name` may depend on; none for a crate that the table doesn't know.
pub(super) fn allowed(name: &str) -> Option<Vec<String>> {
    let row = CRATE_TABLE.iter().position(|(row, _)| *row == name)?;
    let is_other = |row: &String| row.starts_with("grpo-") && row != name;
    let names = |rows: &[(&str, May)]| {
        rows.iter().map(|(row, _)| (*row).to_owned()).filter(is_other).collect()
    };
    Some(match CRATE_TABLE[row].1 {
        May::Only(short) => short.iter().map(|short| format!("grpo-{short}")).collect(),
        May::AllAbove => names(&CRATE_TABLE[..row]),
        May::All => names(CRATE_TABLE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expect: Option<&str>) {
        assert_eq!(allowed(name).map(|names| names.join(" ")).as_deref(), expect);
    }

    #[test]
    fn rows_are_written_out() {
        check("grpo-core", Some(""));
        check("grpo-model", Some("grpo-kernels grpo-logprob grpo-data"));
        check(
            "grpo-train",
            Some(
                "grpo-core grpo-process grpo-kernels grpo-sampling grpo-logprob grpo-text grpo-data grpo-chem grpo-model \
                 grpo-rollout grpo-rewards grpo-run",
            ),
        );
        check("grpo-new", None);
        let all = allowed("grpo-cli").unwrap();
        assert_eq!(all.len(), 17);
        assert!(all.contains(&"grpo-selftest".to_owned()));
    }

    #[test]
    fn every_name_in_a_row_is_a_row() {
        for (name, _) in CRATE_TABLE {
            for other in allowed(name).unwrap() {
                assert!(
                    allowed(&other).is_some(),
                    "{name} may depend on {other}, which has no row"
                );
            }
        }
    }
}
