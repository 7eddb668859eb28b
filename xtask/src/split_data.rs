//! The `cargo xtask split-data` command.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::build::built;
use crate::process;

/// Build `grpo` in release mode and split tweets and replies between the two phases
///
/// All arguments are passed to `grpo split-data`. Paths are relative to the current directory.
#[derive(clap::Args)]
#[command(
    override_usage = "cargo xtask split-data --input <FILE> [ARGUMENTS]...",
    after_help = "Examples:
  cargo xtask split-data --input data/replies/replies.jsonl
  cargo xtask split-data --input my.jsonl --output-dir data/mine --split-ratio 0.5 --seed 42"
)]
pub(crate) struct SplitData {
    /// Arguments for `grpo split-data`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds `grpo` and replaces the current process with `grpo split-data ARGUMENTS…`.
pub(crate) fn split_data(root: &Path, split: SplitData) -> Result<()> {
    let mut grpo = Command::new(built(root, &[])?);
    grpo.arg("split-data").args(split.arguments);
    process::become_program(&mut grpo)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        split: SplitData,
    }

    #[test]
    fn what_follows_is_passed_on_as_it_is() {
        let words =
            ["--input", "a b.jsonl", "--output-dir", "d", "--split-ratio", "0.5", "--force"];
        let parsed = Alone::parse_from(std::iter::once("split-data").chain(words));
        assert_eq!(parsed.split.arguments, words);
    }
}
