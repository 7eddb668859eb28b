//! Devices, pipes and standard output as output files.
#![expect(clippy::disallowed_methods, reason = "output files that the user chose")]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Returns whether a path is a device or pipe such as `/dev/stdout`.
pub fn is_device(path: &Path) -> bool {
    // These may refer to a regular file that was opened by the shell.
    const OPEN_FILES: [&str; 4] = ["/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd"];
    OPEN_FILES.iter().any(|open| path.starts_with(open))
        || std::fs::metadata(path).is_ok_and(|data| !data.is_file())
}

/// Opens a device or pipe for writing, without waiting for a process that reads it. Nothing is
/// truncated: `/dev/stdout` may be a file that a shell appends to.
pub(super) fn open_device(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true);
    let mut file = open(&mut options, path)?;
    // A device such as /dev/full refuses it now, and not only the results of a long command.
    file.write(&[]).map(drop)?;
    Ok(file)
}

#[cfg(unix)]
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    if path.metadata()?.file_type().is_socket() {
        return Err(io::Error::other("it is a socket; use a file"));
    }
    let opened = options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits()).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == nix::errno::Errno::ENXIO as i32 => io::Error::other(
            "it is a named pipe that no program reads; start the reader first, or use a file",
        ),
        _ => error,
    })?;
    // From here on, writing waits for the reader.
    let flags = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

#[cfg(not(unix))]
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.open(path)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_full_device_is_refused_before_anything_is_written() {
        let error = open_device(Path::new("/dev/full")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        open_device(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn a_named_pipe_needs_a_reader_and_a_file_keeps_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let error = open_device(&pipe).unwrap_err().to_string();
        assert!(error.starts_with("it is a named pipe that no program reads"), "{error}");
        let socket = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(open_device(&socket).unwrap_err().to_string(), "it is a socket; use a file");
        // More than a pipe holds, so writing has to wait.
        let text = vec![b'x'; 1 << 20];
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut read = Vec::new();
                File::options().read(true).open(pipe).unwrap().read_to_end(&mut read).unwrap();
                read
            }
        });
        let mut file = loop {
            match open_device(&pipe) {
                Ok(file) => break file,
                Err(_) => std::thread::yield_now(),
            }
        };
        file.write_all(&text).unwrap();
        drop(file);
        assert_eq!(reader.join().unwrap(), text);
        let log = folder.path().join("log");
        std::fs::write(&log, "earlier\n").unwrap();
        open_device(&log).unwrap().write_all(b"later\n").unwrap();
        assert_eq!(grpo_data::regular_file::read(&log).unwrap(), b"earlier\nlater\n");
    }
}
