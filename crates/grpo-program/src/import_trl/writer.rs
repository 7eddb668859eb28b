//! Writes the configuration as TOML, with a comment that gives the origin of each key.

use std::fmt::Write;

use super::draft::{Draft, Entry, shown};

/// Sections in the same order as in the documentation. The first one is the top level.
const SECTIONS: [&str; 13] = [
    "",
    "lora",
    "data",
    "train",
    "sampling",
    "reward",
    "advantage",
    "loss",
    "reference",
    "optimizer",
    "schedule",
    "eval",
    "save",
];

/// Returns the text of the configuration. `source` is the file that was imported.
pub(super) fn toml_of(draft: &Draft<'_>, source: &str) -> String {
    let mut text = String::new();
    comment(&mut text, &format!("Imported from {source} by `grpo import-trl`."));
    if !draft.report.to_do.is_empty() {
        comment(&mut text, "");
        comment(&mut text, "Before the first run:");
    }
    for sentence in &draft.report.to_do {
        comment(&mut text, &format!("- {sentence}"));
    }
    for section in SECTIONS {
        let of_section = |entry: &&Entry| split(entry.key).0 == section;
        let mut entries = draft.entries.iter().filter(of_section).peekable();
        if entries.peek().is_none() {
            continue;
        }
        text.push('\n');
        if !section.is_empty() {
            let _into_memory = writeln!(text, "[{section}]");
        }
        for Entry { key, value, from } in entries {
            let line = format!("{} = {}", split(key).1, shown(value));
            let _into_memory = writeln!(text, "{line:<35} # {}", one_line(from));
        }
    }
    text
}

/// Splits a key into its section and its name.
fn split(key: &str) -> (&str, &str) {
    key.split_once('.').unwrap_or(("", key))
}

fn comment(text: &mut String, sentence: &str) {
    let line = format!("# {}", one_line(sentence));
    text.push_str(line.trim_end());
    text.push('\n');
}

/// Replaces control characters, which would end a comment or are not allowed in one.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
