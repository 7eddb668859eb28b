//! Runs the console blocks in README.md and the guides and compares the output with the pages.
//!
//! A block is fenced with ```` ```console ````. Lines that start with `$ ` are commands, followed
//! by their standard output and standard error. A line `...` stands for omitted lines, and `[..]`
//! stands for omitted text. All blocks of a page run in order in a folder created by
//! `grpo init-project`.
//!
//! Tags after `console` mark special blocks:
//!
//! - `long` blocks only run with `GRPO_LONG_PAGES=1 cargo xtask test --test pages`.
//! - `numbers-vary` blocks print numbers that depend on the machine.
//! - `ignore` blocks cannot be tested, e.g. because they download files.
#![allow(clippy::disallowed_methods, reason = "tests open their own files")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snapbox::{Assert, Data};

const LONG: &str = "GRPO_LONG_PAGES";

/// A console block with its commands and expected outputs.
struct Block {
    line: usize,
    tags: Vec<String>,
    commands: Vec<(String, String)>,
}

impl Block {
    fn has(&self, tag: &str) -> bool {
        self.tags.iter().any(|one| one == tag)
    }
}

/// Returns the console blocks of a Markdown page.
fn blocks(page: &str) -> Vec<Block> {
    let mut lines = page.lines().zip(1..);
    let mut blocks = Vec::new();
    while let Some((line, number)) = lines.next() {
        let text = line.trim_start();
        let Some(tags) = text.strip_prefix("```console") else { continue };
        let indent = line.len() - text.len();
        let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        let mut commands: Vec<(String, String)> = Vec::new();
        let inside = lines.by_ref().map(|(line, _)| line.get(indent..).unwrap_or_default());
        for line in inside.take_while(|line| !line.starts_with("```")) {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), String::new())),
                (None, Some((command, _))) if command.ends_with('\\') => {
                    *command += "\n";
                    *command += line;
                }
                (None, Some((_, output))) => *output += &format!("{line}\n"),
                (None, None) => panic!("line {number}: a console block begins with `$ `"),
            }
        }
        blocks.push(Block { line: number, tags, commands });
    }
    blocks
}

/// Replaces numbers with `#` and collapses the padding of tables.
fn without_numbers(text: &str) -> String {
    let number = regex::Regex::new(r"[-+]?\d[\d,.]*(e-?\d+)?").unwrap();
    let padding = regex::Regex::new(r"[ ─═]+").unwrap();
    padding.replace_all(&number.replace_all(text, "#"), " ").into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns `PATH` with the compiled program first.
fn path(folder: &Path) -> OsString {
    let program = Path::new(env!("CARGO_BIN_EXE_grpo"));
    std::os::unix::fs::symlink(program, folder.join("grpo")).unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(&others));
    std::env::join_paths(folders).unwrap()
}

#[track_caller]
fn check(page: &str) {
    let long = std::env::var_os(LONG).is_some();
    let place = tempfile::tempdir().unwrap();
    let path = path(place.path());
    let project = place.path().join("project");
    let run = |command: &str, folder: &Path| {
        let script = format!("exec 2>&1\n{command}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(folder);
        // Pages show tables as printed on a terminal.
        let output = shell.env("PATH", &path).env("CLICOLOR_FORCE", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    run("grpo init-project project", place.path());
    assert!(project.join("configs").is_dir(), "grpo init-project");
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut faults = String::new();
    for block in blocks(&text) {
        if block.has("ignore") || block.has("long") && !long {
            continue;
        }
        for (command, expected) in &block.commands {
            let mut pair = [run(command, &project), expected.clone()];
            if block.has("numbers-vary") {
                pair = pair.map(|text| without_numbers(&text));
            }
            let [actual, expected] = pair.map(Data::text);
            let place = format!("{page}:{}: $ {command}", block.line);
            if let Err(difference) = Assert::new().try_eq(Some(&place), actual, expected) {
                faults += &format!("{difference}\n");
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $name() {
            check($page);
        })*
    };
}

pages! {
    readme: "README.md",
    evaluate: "docs/guides/evaluate.md",
    from_trl: "docs/guides/from-trl.md",
    hub_model: "docs/guides/hub-model.md",
    infill: "docs/guides/infill.md",
    library: "docs/guides/library.md",
    molecules: "docs/guides/molecules.md",
    own_data: "docs/guides/own-data.md",
    own_reward: "docs/guides/own-reward.md",
    read_a_run: "docs/guides/read-a-run.md",
    replies: "docs/guides/replies.md",
    reproduce: "docs/guides/reproduce.md",
    troubleshooting: "docs/guides/troubleshooting.md",
}

#[test]
fn every_guide_is_listed() {
    for entry in fs::read_dir(root().join("docs/guides")).unwrap() {
        let name = format!("docs/guides/{}", entry.unwrap().file_name().display());
        assert!(PAGES.contains(&name.as_str()), "{name}");
    }
}
