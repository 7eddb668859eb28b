//! Messages, progress bars and output files.

mod device;
mod incomplete;
mod lost;
mod paths;
mod sentence;

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use comfy_table::{CellAlignment, Row, Table, presets};
use flate2::Compression;
use flate2::write::GzEncoder;
use grpo_data::{short_text, without_passwords};
use grpo_run::{RunError, RunFolder};
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use self::incomplete::{begin as remove_at_exit, remove_incomplete};
pub use self::lost::note_closed;
pub(crate) use self::lost::{check_written, note_lost};
pub use self::paths::{is_device, is_same_place, refuse_existing, refuse_input, refuse_same};
pub use self::sentence::{command_line, sentence};
use crate::device::device;
use crate::recorded_folders::refuse_recorded;
use crate::visible::visible;
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
pub(crate) fn set_quiet(quiet: bool) {
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
        say_data(format_args!("{}", without_passwords(&line.to_string())));
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
pub(crate) fn say_error(error: &anyhow::Error) {
    write_line(&format!("error: {}", sentence(error)));
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
    let line = without_passwords(line);
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
    let taken = match RunFolder::check_unused(run) {
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
        if !path.exists() {
            say(format_args!("note         {} does not exist yet", path.display()));
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

/// Formats whole numbers as they are, others with four decimals.
pub(crate) fn short_decimals(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e15 {
        true => format!("{value}"),
        false => format!("{value:.4}"),
    }
}

/// Formats a number with four decimals. NaN becomes a dash.
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
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let cut = line.chars().count().saturating_sub(SHOWN_CHARACTERS);
    match cut {
        0 => line,
        _ => format!("…{}", line.chars().skip(cut).collect::<String>()),
    }
}

/// Truncates text to at most `most` characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => format!("{}…", text.chars().take(most - 1).collect::<String>()),
        None => text.to_owned(),
    }
}

/// Returns whether to draw table borders: on a terminal, or if the environment variable
/// `CLICOLOR_FORCE` is set to a value other than 0.
fn has_frames() -> bool {
    let is_forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| value != "0");
    is_forced || io::stdout().is_terminal()
}

/// Creates a table whose columns `right` are right-aligned.
pub(crate) fn table(
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

/// An output file that appears under its final name only when it is complete. Compressed if the
/// name ends in `.gz`.
pub struct FileInPlace {
    path: PathBuf,
    /// `None` for devices and pipes such as `/dev/null`, which cannot be replaced.
    temporary: Option<PathBuf>,
    sink: Option<Sink>,
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl FileInPlace {
    /// Creates an output file. Returns an error if it would overwrite one of `inputs`, or an
    /// existing file without `force`.
    pub fn create_beside(path: &Path, inputs: &[&Path], force: bool) -> anyhow::Result<Self> {
        Self::create_for("another file for -o", path, inputs, force)
    }

    /// Like [`Self::create_beside`], for a file given by a different option. `other` is the
    /// suggestion in the error message, e.g. `--rejected another file`.
    pub fn create_for(
        other: &str,
        path: &Path,
        inputs: &[&Path],
        force: bool,
    ) -> anyhow::Result<Self> {
        refuse_input(other, path, inputs)?;
        refuse_existing(path, force)?;
        Self::create(path)
    }

    /// Writes a whole text. See [`Self::create_beside`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be created or written.
    pub fn write_text(
        path: &Path,
        inputs: &[&Path],
        force: bool,
        text: &str,
    ) -> anyhow::Result<()> {
        let mut file = Self::create_beside(path, inputs, force)?;
        file.write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
        file.finish()
    }

    /// Creates a file that replaces any existing one once it has been fully written.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().with_context(|| format!("{} is not a file", path.display()))?;
        anyhow::ensure!(!path.is_dir(), "{} is a folder, not a file", path.display());
        refuse_recorded(path)?;
        if let Some(folder) = path.parent().filter(|folder| *folder != Path::new("")) {
            anyhow::ensure!(
                folder.exists(),
                "cannot write {}: the folder {} does not exist; create it first",
                path.display(),
                folder.display()
            );
        }
        let is_device = is_device(path);
        let (temporary, file) = match is_device {
            true => self::device::open_device(path).map(|file| (None, file)),
            false => incomplete::temporary(path, &name.to_string_lossy())
                .map(|(temporary, file)| (Some(temporary), file)),
        }
        .with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::new(file);
        let sink = if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            Sink::Gzip(Box::new(GzEncoder::new(file, Compression::best())))
        } else {
            Sink::Plain(file)
        };
        Ok(Self { path: path.to_owned(), temporary, sink: Some(sink) })
    }

    /// Returns the final path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Completes the file and renames it to its final name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let sink = self.sink.take().expect("a file is finished once");
        let finished = (|| {
            let file = match sink {
                Sink::Plain(file) => file,
                Sink::Gzip(file) => file.finish()?,
            };
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            let Some(temporary) = &self.temporary else { return Ok(()) };
            file.sync_all()?;
            std::fs::rename(temporary, &self.path)
        })();
        finished.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for FileInPlace {
    fn drop(&mut self) {
        // Already renamed after `finish`. Otherwise the file is incomplete and useless.
        self.temporary.iter().for_each(|temporary| incomplete::end(temporary));
    }
}

impl Write for FileInPlace {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.sink.as_mut().expect("a finished file is not written") {
            Sink::Plain(file) => file.write(bytes),
            Sink::Gzip(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.sink.as_mut().expect("a finished file is not written") {
            Sink::Plain(file) => file.flush(),
            Sink::Gzip(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writers for the same path use different temporary files.
    #[test]
    fn two_files_of_one_path_are_two_until_they_are_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut files = [(); 2].map(|()| FileInPlace::create(&path).unwrap());
        for (file, text) in files.iter_mut().zip(["the first\n", "2\n"]) {
            file.write_all(text.as_bytes()).unwrap();
        }
        for (file, text) in files.into_iter().zip(["the first\n", "2\n"]) {
            file.finish().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_are_written_to_and_files_replaced_wherever_they_are() {
        for device in ["/dev/null", "/dev/stdout", "/dev/fd/1"] {
            assert!(is_device(Path::new(device)), "{device}");
        }
        // In-memory file system on Linux.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, "the old one\n").unwrap();
        let mut file = FileInPlace::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "the old one\n");
    }

    #[test]
    fn a_long_text_is_cut_at_its_beginning() {
        assert_eq!(one_line(" a\n b "), "a b");
        let long = format!("{}end", "ä".repeat(SHOWN_CHARACTERS));
        let line = one_line(&long);
        assert_eq!(line.chars().count(), SHOWN_CHARACTERS + 1);
        assert!(line.starts_with("…ä") && line.ends_with("end"));
        assert_eq!(one_line(&"x".repeat(SHOWN_CHARACTERS)), "x".repeat(SHOWN_CHARACTERS));
    }
}
