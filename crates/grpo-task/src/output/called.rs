//! How the user starts this program: `grpo`, unless it is not installed.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The commands that start the program, as `cargo xtask train` passes them.
struct Called {
    /// Replaces `grpo`.
    program: String,
    /// Replaces `grpo train`.
    train: String,
}

static CALLED: LazyLock<Option<Called>> = LazyLock::new(|| {
    let [program, train] = ["GRPO_PROGRAM", "GRPO_TRAIN"].map(std::env::var);
    Some(Called { program: program.ok()?, train: train.ok()? })
});

/// Replaces `grpo` in the commands of a message by what starts the program on this machine. Names of
/// commands in a sentence, e.g. `grpo train`, have no arguments and stay.
pub(super) fn as_called(text: &str) -> Cow<'_, str> {
    CALLED.as_ref().map_or(Cow::Borrowed(text), |called| called.rewritten(text))
}

const PROGRAM: &str = "grpo ";

/// A command that is useful without arguments.
const DEVICES: &str = "devices`";

impl Called {
    fn rewritten<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !text.contains(PROGRAM) {
            return Cow::Borrowed(text);
        }
        let mut rewritten = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(PROGRAM) {
            let (before, after) = (&rest[..at], &rest[at + PROGRAM.len()..]);
            let is_first = before.is_empty() && rewritten.is_empty();
            let is_start = is_first || before.ends_with([' ', '`', '\n']);
            rewritten.push_str(before);
            rest = after;
            match after.strip_prefix("train --resume ") {
                Some(run) if is_start => {
                    rewritten.push_str(&self.train);
                    rewritten.push_str(" --resume ");
                    rest = run;
                }
                _ if is_start && is_command(after) => {
                    rewritten.push_str(&self.program);
                    rewritten.push(' ');
                }
                _ => rewritten.push_str(PROGRAM),
            }
        }
        Cow::Owned(rewritten + rest)
    }
}

/// Returns whether text begins with the name of a command and an argument.
fn is_command(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let has_argument = rest.strip_prefix(' ').is_some_and(|rest| !rest.starts_with(['`', ' ']));
    (!name.is_empty() && has_argument) || text.starts_with(DEVICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_begin_with_what_starts_the_program() {
        let called = Called {
            program: "target/release/grpo".to_owned(),
            train: "cargo xtask train".to_owned(),
        };
        for (text, expected) in [
            ("resume       grpo train --resume a", "resume       cargo xtask train --resume a"),
            (
                "interrupted; resume with `grpo pretrain --resume a`",
                "interrupted; resume with `target/release/grpo pretrain --resume a`",
            ),
            (
                "next         grpo sample --model a\n             grpo report a",
                "next         target/release/grpo sample --model a\n             target/release/grpo report a",
            ),
            ("grpo train a.toml --run b", "target/release/grpo train a.toml --run b"),
            ("see `grpo devices`", "see `target/release/grpo devices`"),
            // Names of commands, and what is not a command.
            ("`a` is a run of `grpo train`", "`a` is a run of `grpo train`"),
            ("use target/release/grpo report a", "use target/release/grpo report a"),
            ("the folder grpo 2", "the folder grpo 2"),
            ("no command", "no command"),
        ] {
            assert_eq!(called.rewritten(text), expected);
        }
    }
}
