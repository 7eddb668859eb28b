//! Words, bars and files of the commands.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use indicatif::{ProgressBar, ProgressStyle};

/// An error and its causes as one sentence; a cause that the sentence already holds is not said twice.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence.push_str(": ");
            sentence.push_str(&cause);
        }
    }
    sentence
}

/// Whether the reader of our standard output went away, as `head` does: no error of ours.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        let csv = cause.downcast_ref::<csv::Error>().and_then(|error| match error.kind() {
            csv::ErrorKind::Io(io) => Some(io),
            _ => None,
        });
        io.or(csv).is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// A line on standard output. Where nobody reads it any more, as behind `| head`, the work goes on.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _unread = writeln!(io::stdout(), "{line}");
}

/// That a configuration was looked through, and nothing was found.
pub(crate) fn say_checked(configuration: &Path) {
    say(format_args!("{}: keys and values are good ones", configuration.display()));
}

/// A text behind its name: one line, and only the end of a long one.
pub(crate) fn labelled(name: &str, text: &str) -> String {
    format!("{name:<12} {}", one_line(text))
}

/// Characters of a text that are shown.
const SHOWN_CHARACTERS: usize = 240;

/// The text's end, where it is long, without line ends.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let cut = line.chars().count().saturating_sub(SHOWN_CHARACTERS);
    match cut {
        0 => line,
        _ => format!("…{}", line.chars().skip(cut).collect::<String>()),
    }
}

/// How far a training has come: a bar where standard error is a terminal, a line now and then where it is not.
pub(crate) struct Progress {
    bar: ProgressBar,
    steps: u64,
    is_terminal: bool,
}

/// Lines of a whole training where there is no terminal.
const LINES: u64 = 20;

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        let style = "{wide_bar} {pos}/{len}  {msg}  {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is right");
        let bar = ProgressBar::new(steps).with_style(style);
        Self { bar, steps, is_terminal: io::stderr().is_terminal() }
    }

    /// So many steps were done before.
    pub(crate) fn begin_at(&self, done: u64) {
        self.bar.set_position(done);
        self.bar.reset_eta();
    }

    /// One more step is done; `message` is of that step.
    pub(crate) fn step(&self, message: String) {
        self.bar.inc(1);
        let done = self.bar.position();
        let is_due = done == 1 || done.is_multiple_of(self.steps.div_ceil(LINES));
        if !self.is_terminal && is_due {
            let _unread = writeln!(io::stderr(), "{done}/{}  {message}", self.steps);
        }
        self.bar.set_message(message);
    }

    /// A line above the bar.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| say(format_args!("{line}")));
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A file that takes its name only when it is complete; compressed where the name ends in `.gz`.
pub(crate) struct FileInPlace {
    path: PathBuf,
    /// `None` for a device or pipe, such as `/dev/null`: it is written to, never replaced.
    temporary: Option<PathBuf>,
    sink: Option<Sink>,
}

enum Sink {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl FileInPlace {
    /// A file that is none of `inputs`, which it would replace.
    pub(crate) fn create_beside(path: &Path, inputs: &[&Path]) -> anyhow::Result<Self> {
        let is_same = |input: &&&Path| matches!((input.canonicalize(), path.canonicalize()), (Ok(a), Ok(b)) if a == b);
        anyhow::ensure!(
            inputs.iter().find(is_same).is_none(),
            "{} is the input; give -o another file",
            path.display()
        );
        Self::create(path)
    }

    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().with_context(|| format!("{} is no file", path.display()))?;
        anyhow::ensure!(!path.is_dir(), "{} is a folder, not a file", path.display());
        let is_device = std::fs::metadata(path).is_ok_and(|data| !data.is_file());
        let temporary = (!is_device).then(|| {
            path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()))
        });
        let file = File::create(temporary.as_deref().unwrap_or(path))
            .with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::new(file);
        let sink = if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            Sink::Gzip(Box::new(GzEncoder::new(file, Compression::best())))
        } else {
            Sink::Plain(file)
        };
        Ok(Self { path: path.to_owned(), temporary, sink: Some(sink) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
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
        // After `finish` there is no such file any more; before it, half a file is worth nothing.
        let _gone = self.temporary.as_ref().map(std::fs::remove_file);
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
