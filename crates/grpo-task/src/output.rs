//! Messages, progress bars and output files.

mod called;
mod device;
mod file_in_place;
mod formats;
mod incomplete;
mod lost;
mod paths;
mod sentence;

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use comfy_table::{CellAlignment, Row, Table, presets};
use grpo_data::{short_text, without_passwords};
use grpo_hub::is_name;
use grpo_rewards::EmbedderConfig;
use grpo_run::{Existing, RunError, RunFolder};
use indicatif::{ProgressBar, ProgressStyle};
use unicode_width::UnicodeWidthStr;

use self::called::as_called;
pub use self::device::is_device;
pub use self::file_in_place::FileInPlace;
pub use self::formats::{CSV, Formats, JSON, JSON_LINES, SVG};
pub use self::incomplete::remove_incomplete;
pub use self::incomplete::{begin as remove_at_exit, stop_if_ending};
pub use self::lost::note_closed;
pub use self::lost::{check_written, note_lost};
pub use self::paths::{check_output, create_folder, is_same_place, refuse_input, refuse_same};
pub use self::sentence::reason_line;
use self::sentence::traceback;
pub use self::sentence::{command_line, sentence};
use crate::device::device;
use crate::file_pattern::matching_files;
use crate::visible::visible;
use crate::written_by::writer;
use crate::wrong_folder::refuse_wrong_folder;

/// Returns whether the error is a closed pipe on standard output, e.g. because of `head`. This does
/// not count as a failure.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        let csv = cause.downcast_ref::<csv::Error>().and_then(|error| match error.kind() {
            csv::ErrorKind::Io(io) => Some(io),
            _ => None,
        });
        io.or(csv).is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Whether `--quiet` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// If `quiet` is true, suppresses everything except errors and data.
pub fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Returns whether only errors and data are printed.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line to standard output. Errors do not interrupt the command. A closed pipe, e.g.
/// behind `| head`, is ignored, and `check_written` reports all other errors at the end.
pub fn say(line: fmt::Arguments<'_>) {
    if !is_quiet() {
        let line = line.to_string();
        say_data(format_args!("{}", without_passwords(&as_called(&line))));
    }
}

/// Like [`say`], but for data read by scripts, which `--quiet` does not suppress.
pub fn say_data(line: fmt::Arguments<'_>) {
    note_closed();
    match writeln!(io::stdout(), "{}", visible(&line.to_string())) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => note_lost(&error),
        _ => {}
    }
}

/// Prints an error to standard error, followed by each cause that adds information.
/// The lines of a Python traceback follow it.
pub fn say_error(error: &anyhow::Error) {
    write_line(&format!("error: {}", sentence(error)));
    for line in traceback(error).into_iter().flatten() {
        write_line(&format!("    {line}"));
    }
}

/// Returns the last error in what another process of this program printed to standard error.
pub fn last_error(said: &str) -> Option<&str> {
    said.lines().rev().find_map(|line| line.strip_prefix("error: "))
}

/// Prints a line to standard error and ignores write errors. Never used for results.
pub fn say_aside(line: fmt::Arguments<'_>) {
    if is_quiet() {
        return;
    }
    write_line(&line.to_string());
}

/// Writes a line to standard error in one piece, so that `mpirun` inserts nothing before its end.
fn write_line(line: &str) {
    let line = as_called(line);
    let line = without_passwords(&line);
    let _unread = io::stderr().write_all(format!("{}\n", visible(&line)).as_bytes());
}

/// Prints that a configuration is valid, which of its inputs are missing or in the wrong place, and
/// whether its run exists, unless `force` is set. Missing inputs may be results of commands that have
/// not been run yet. Each input has a role, e.g. `model`, `adapter` or `data`.
///
/// # Errors
/// Returns an error for paths that no run and no input can have, such as an empty one.
pub fn say_checked<'a>(
    configuration: &Path,
    run: &Path,
    force: bool,
    inputs: impl IntoIterator<Item = (&'static str, &'a PathBuf)>,
) -> anyhow::Result<()> {
    let taken = match RunFolder::check_unused(run, Existing::Refuse) {
        Err(taken @ RunError::RunExists { .. }) => (!force).then_some(taken),
        checked => {
            checked?;
            None
        }
    };
    let inputs: Vec<_> = inputs.into_iter().collect();
    for (role, path) in &inputs {
        let bytes = path.as_os_str().as_encoded_bytes();
        let is_possible = (1..4096).contains(&bytes.len()) && !bytes.contains(&0);
        let shown = short_text(&path.to_string_lossy());
        anyhow::ensure!(
            is_possible,
            "{role}: `{shown}` is not a path; expected that of the {role}"
        );
    }
    say(format_args!(
        "{}: configuration is valid (models and data were not read)",
        configuration.display()
    ));
    for (role, path) in inputs {
        if is_name(path) {
            say(format_args!("note         {}", note_of_name(path)));
        } else if !path.exists() && matching_files(path).is_none_or(|found| found.is_empty()) {
            let writer = writer(configuration, path).map(|writer| format!("; {writer}"));
            let writer = writer.unwrap_or_default();
            say(format_args!("note         {} does not exist yet{writer}", path.display()));
        } else if role != "data"
            && let Err(wrong) = refuse_wrong_folder(path, role)
        {
            say(format_args!("note         {wrong}"));
        }
    }
    if let Err(unusable) = device() {
        say(format_args!("note         {unusable:#}"));
    }
    if let Some(taken) = taken {
        say(format_args!("note         {taken}"));
    }
    Ok(())
}

/// Says what happens to a name of the hub.
pub fn note_of_name(name: &Path) -> String {
    format!(
        "{} is looked for in the cache of the hub, and downloaded, when the run starts",
        name.display()
    )
}

/// Prints which of the embedders of a checked configuration cannot be used.
pub fn say_embedders_checked<'a>(embedders: impl IntoIterator<Item = &'a EmbedderConfig>) {
    for embedder in embedders {
        let note = match embedder {
            EmbedderConfig::SentenceTransformers { folder } if is_name(folder) => {
                Some(note_of_name(folder))
            }
            embedder => embedder.files().err().map(|fault| fault.to_string()),
        };
        if let Some(note) = note {
            say(format_args!("note         {note}"));
        }
    }
}

/// Formats a reward or metric as all printed tables show it: with four decimals. NaN becomes a dash.
pub fn four_decimals(number: f64) -> String {
    if number.is_nan() { "–".to_owned() } else { format!("{number:.4}") }
}

/// Formats a label followed by text on one line. Long text is truncated at the start.
pub fn labelled(name: &str, text: &str) -> String {
    format!("{name:<12} {}", one_line(text))
}

/// Maximum number of characters to show.
const SHOWN_CHARACTERS: usize = 240;

/// Joins the lines of `text` and truncates the result at the start if it is long.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let cut = line.chars().count().saturating_sub(SHOWN_CHARACTERS);
    match cut {
        0 => line,
        _ => format!("…{}", line.chars().skip(cut).collect::<String>()),
    }
}

/// Truncates text to at most `most` columns of a terminal. Chinese characters and emoji take two.
pub fn shortened(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(start, character)| start + character.len_utf8());
    // The width of a sequence of emoji is not the sum of its characters' widths.
    let fitting = ends.take(most - 1).take_while(|end| text[..*end].width() < most);
    format!("{}…", &text[..fitting.last().unwrap_or(0)])
}

/// Returns whether to draw table borders: on a terminal, or if the environment variable
/// `CLICOLOR_FORCE` is set to a value other than 0.
fn has_frames() -> bool {
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    is_forced || io::stdout().is_terminal()
}

/// Creates a table whose columns `right` are right-aligned.
pub fn table(
    header: impl Into<Row>,
    rows: impl IntoIterator<Item: Into<Row>>,
    right: impl RangeBounds<usize>,
) -> Table {
    let mut table = Table::new();
    let style = if has_frames() { presets::UTF8_BORDERS_ONLY } else { presets::NOTHING };
    table.load_style(style).set_header(header).add_rows(rows);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(i, _)| right.contains(i)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Progress of a training run, shown as a bar on a terminal and as occasional lines elsewhere.
#[derive(Clone)]
pub struct Progress {
    bar: ProgressBar,
    steps: u64,
    is_terminal: bool,
}

/// Number of progress lines printed if there is no terminal.
const LINES: u64 = 20;

impl Progress {
    /// Creates a progress bar with `steps` steps.
    pub fn new(steps: u64) -> Self {
        let style = "{wide_bar} {pos}/{len}  {msg}  {elapsed} elapsed, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is valid");
        let bar = match is_quiet() {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(steps).with_style(style),
        };
        // Shows the bar before the first step and keeps its clock running during long steps,
        // validations and checkpoints.
        bar.enable_steady_tick(Duration::from_secs(1));
        Self { bar, steps, is_terminal: io::stderr().is_terminal() }
    }

    /// Sets the number of steps completed earlier.
    pub fn begin_at(&self, done: u64) {
        self.bar.set_position(done);
        self.bar.reset_eta();
    }

    /// Advances by one step. `message` is a short status.
    pub fn step(&self, message: String) {
        self.bar.inc(1);
        let done = self.bar.position();
        let is_due = done == 1 || done.is_multiple_of(self.steps.div_ceil(LINES));
        if !self.is_terminal && is_due {
            say_aside(format_args!("{done}/{}  {message}", self.steps));
        }
        self.bar.set_message(visible(&message).into_owned());
    }

    /// Prints a line above the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| say(format_args!("{line}")));
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_its_beginning() {
        assert_eq!(one_line(" a\n b "), "a b");
        let long = format!("{}end", "ä".repeat(SHOWN_CHARACTERS));
        let line = one_line(&long);
        assert_eq!(line.chars().count(), SHOWN_CHARACTERS + 1);
        assert!(line.starts_with("…ä") && line.ends_with("end"));
        assert_eq!(one_line(&"x".repeat(SHOWN_CHARACTERS)), "x".repeat(SHOWN_CHARACTERS));
    }

    #[test]
    fn texts_are_shortened_to_columns_of_a_terminal() {
        for (text, most, expect) in [
            ("abcd", 4, "abcd"),
            ("abcde", 4, "abc…"),
            ("漢字", 4, "漢字"),
            ("漢字漢", 5, "漢字…"),
            ("漢字漢", 4, "漢…"),
            ("😀😀😀", 5, "😀😀…"),
            ("e\u{301}e\u{301}", 2, "e\u{301}e\u{301}"),
            ("☺\u{fe0f}☺\u{fe0f}☺\u{fe0f}", 5, "☺\u{fe0f}☺\u{fe0f}…"),
        ] {
            assert_eq!(shortened(text, most), expect, "{text} {most}");
            assert!(shortened(text, most).width() <= most, "{text} {most}");
        }
    }
}
