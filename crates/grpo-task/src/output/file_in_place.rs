//! Output files that appear when they are complete.
#![expect(clippy::disallowed_methods, reason = "output files that the user chose")]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use grpo_data::system_fault;

use super::device::{is_device, open_device};
use super::formats::Formats;
use super::incomplete;
use super::paths::{check_output, check_path, refuse_opened};

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
    /// Creates the file of `-o`. See [`Self::create_for`].
    ///
    /// # Errors
    /// Returns an error if the file would replace an input, cannot be created, or has the name of
    /// another format.
    pub fn create_beside(
        path: &Path,
        formats: Formats,
        inputs: &[&Path],
        force: bool,
    ) -> anyhow::Result<Self> {
        Self::create_for("-o", path, formats, inputs, force)
    }

    /// Creates an output file. Commands do this before they compute, so that a path that cannot be
    /// used costs no time. `option` is the option that sets the path, and `formats` what it can contain.
    ///
    /// # Errors
    /// Returns an error if the file would replace one of `inputs`, a file that was read or, without
    /// `force`, an existing file, if it has the name of another format, or if it cannot be created.
    pub fn create_for(
        option: &str,
        path: &Path,
        formats: Formats,
        inputs: &[&Path],
        force: bool,
    ) -> anyhow::Result<Self> {
        check_output(option, path, formats, inputs, force)?;
        Self::create(path)
    }

    /// Writes a whole text and completes the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write_text(self, text: &str) -> anyhow::Result<()> {
        self.with_text(text)?.finish()
    }

    /// Writes a whole text. The file does not get its name yet.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn with_text(mut self, text: &str) -> anyhow::Result<Self> {
        let written = self.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self)
    }

    /// Creates a file that replaces any existing one once it has been fully written.
    ///
    /// # Errors
    /// Returns an error if the file is one that was read, or cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        check_path(path)?;
        let name = path.file_name().with_context(|| format!("{} is not a file", path.display()))?;
        let is_device = is_device(path);
        let (temporary, file) = match is_device {
            true => open_device(path).map(|file| (None, file)),
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
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, if it would replace a file that was read in
    /// the meantime, or if another file could not be read for lack of resources.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.check()?;
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

impl FileInPlace {
    /// Completes several files. If one must not be, none gets its name.
    ///
    /// # Errors
    /// Returns an error if [`Self::finish`] fails.
    pub fn finish_all(files: impl IntoIterator<Item = Self>) -> anyhow::Result<()> {
        let files: Vec<Self> = files.into_iter().collect();
        files.iter().try_for_each(Self::check)?;
        files.into_iter().try_for_each(Self::finish)
    }

    /// Checks that the content is complete and replaces no input.
    fn check(&self) -> anyhow::Result<()> {
        refuse_opened(&self.path)?;
        match system_fault() {
            Some(fault) => Err(anyhow::anyhow!(fault)),
            None => Ok(()),
        }
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

    /// Inputs are those that no argument names, too, and those that are read after the output is created.
    #[test]
    fn files_that_were_read_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["early", "late", "other"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink(at("early"), at("link")).unwrap();
        std::fs::hard_link(at("early"), at("hard")).unwrap();
        let read = |name: &str| grpo_data::regular_file::read(&at(name)).unwrap();
        read("early");
        for name in ["early", "link", "hard"] {
            let error = FileInPlace::create(&at(name)).err().unwrap().to_string();
            assert!(error.contains("is an input of this command"), "{error}");
        }
        let [first, late] = ["other", "late"].map(|name| FileInPlace::create(&at(name)).unwrap());
        read("late");
        assert!(FileInPlace::finish_all([first, late]).is_err());
        for name in ["early", "late", "other"] {
            assert_eq!(read(name), name.as_bytes());
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }
}
