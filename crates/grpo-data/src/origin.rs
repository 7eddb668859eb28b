//! Byte sources and their errors.

use crate::DataError;
use crate::expansion::Decompressed;
use crate::regular_file;
use crate::shell::shell_word;
use crate::system_fault::note_system_fault;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// A stream of bytes.
pub type Bytes = Box<dyn Read + Send>;

/// The file from which bytes are read, for use in error messages.
pub struct FileOrigin {
    /// Path of the file.
    pub path: PathBuf,
    /// Whether the file is compressed.
    pub compressed: bool,
}

/// Converts a table to JSON lines. Empty cells are left out, and cells of columns with counts or times
/// become numbers. The separator is the most frequent of `SEPARATORS` in the header.
const TABLE_TO_JSON_LINES: &str = r#"import csv, json, sys; sys.stdin.reconfigure(encoding="utf-8-sig", newline=""); rows = list(sys.stdin); separator = max("SEPARATORS", key="".join(rows[:1]).count); numbers = ("likes", "retweets", "followers", "seconds"); [print(json.dumps({key: json.loads(cell) if key.endswith(numbers) else cell for key, cell in row.items() if key and cell})) for row in csv.DictReader(rows, delimiter=separator)]"#;

/// Why no command reads `-`.
pub const STANDARD_INPUT: &str = "`-`: standard input is not read, because the ending of a file's name tells its format; write the data to a file first";

/// What to do about a `.tsv` file where `.csv` files are read, as the end of a message.
pub const TSV_REMEDY: &str = "; rename it to end in `.csv`, which may have tabs between its cells";

/// Returns the name that a file had before it was renamed to `NAME.old-1` or a higher number.
fn original_name(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once(".old-") {
        Some((original, number)) if is_number(number) => original,
        _ => name,
    }
}

/// What the records of a file of JSON lines need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records<'a> {
    /// These keys. A line of plain text is not a record.
    Keys(&'a str),
    /// This key, whose value is a line of text: `prompt` or `text`.
    Lines(&'a str),
}

/// Endings of the names of files of records, as a message shows them.
pub const RECORD_ENDINGS: &str = "`.jsonl`, `.jsonl.gz`, `.json`, `.json.gz` or `.parquet`";

impl FileOrigin {
    /// Returns whether files of this name have records.
    pub fn has_records(path: &Path) -> bool {
        let (origin, ending) = Self::new(path);
        match ending.as_str() {
            "jsonl" | "json" => true,
            "parquet" => !origin.compressed,
            _ => false,
        }
    }

    /// Creates the origin for a file, and also returns its lower-case extension without `.gz`.
    /// Files whose name ends in `.gz` are compressed. What follows the name of a file that was renamed
    /// to keep it, as in `x.jsonl.old-1`, is ignored.
    pub fn new(path: &Path) -> (Self, String) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let name = original_name(&name);
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending).to_owned();
        (Self { path: path.into(), compressed: plain.len() < name.len() }, ending)
    }

    /// Returns a stream of the decompressed bytes. Reading a decompression bomb returns an error.
    pub fn decoded(&self, source: impl Read + Send + 'static) -> Bytes {
        match self.compressed {
            true => Box::new(Decompressed::new(source, |source| {
                MultiGzDecoder::new(BufReader::new(source))
            })),
            false => Box::new(source),
        }
    }

    /// Returns an error for an unknown file extension. `expected` lists the supported ones.
    pub fn unknown_format(&self, expected: &str, records: Records<'_>) -> DataError {
        if *self.path == *Path::new("-") {
            return DataError::Invalid(STANDARD_INPUT.to_owned());
        }
        if self.path.is_dir() {
            return DataError::Invalid(format!(
                "`{}` is a folder; expected a file with a name ending in {expected}",
                self.path.display()
            ));
        }
        let (_, ending) = Self::new(&self.path);
        let path = self.path.display();
        let is = match ending.as_str() {
            "csv" | "tsv" => "is a table",
            "txt" | "md" => "is plain text",
            "smi" | "smiles" => "is a list of molecules",
            "xls" | "xlsx" | "ods" => "is a spreadsheet",
            "zip" | "xz" | "bz2" | "zst" | "7z" | "tar" | "tgz" => "is an archive",
            _ => {
                return DataError::Invalid(format!(
                    "cannot determine the format of `{path}` from its name; expected a name ending in {expected}"
                ));
            }
        };
        DataError::Invalid(format!(
            "`{path}` {is}, which cannot be read here; expected a name ending in {expected}{}",
            self.conversion(&ending, expected, records)
        ))
    }

    /// Returns how to turn the file into one of the `expected` formats: by another name, or with a command
    /// that converts it to JSON lines.
    fn conversion(&self, ending: &str, expected: &str, records: Records<'_>) -> String {
        let renamed = match ending {
            "txt" | "smiles" if expected.contains(".smi") => {
                "; if each line is a SMILES, rename it to end in `.smi`"
            }
            "tsv" if expected.contains(".csv") => TSV_REMEDY,
            _ => "",
        };
        // A text can be anything, but the other files are molecules where molecules are read.
        if !expected.contains(".jsonl") || !(renamed.is_empty() || ending == "txt") {
            return renamed.to_owned();
        }
        let needs = match records {
            Records::Keys(keys) => format!("; each record requires {keys}"),
            Records::Lines(_) => String::new(),
        };
        match (ending, records) {
            ("csv" | "tsv", _) => {
                let separators = if ending == "tsv" { r"\t" } else { r",;\t" };
                let program = TABLE_TO_JSON_LINES.replace("SEPARATORS", separators);
                let command = self.redirected(&format!("python3 -c '{program}'"));
                format!("; convert it with `{command}`{needs}")
            }
            ("txt" | "md" | "smi" | "smiles", Records::Lines(key)) => {
                // Blank lines are neither prompts nor texts.
                let program = format!(r#"sub("\\s+$"; "") | select(. != "") | {{{key}: .}}"#);
                let command = self.redirected(&format!("jq -Rc '{program}'"));
                format!("{renamed}; `{command}` makes each line a {key}")
            }
            _ => needs,
        }
    }

    /// Returns a command line in which `command` reads the file and writes JSON lines next to it.
    fn redirected(&self, command: &str) -> String {
        let name = if self.compressed { self.path.with_extension("") } else { self.path.clone() };
        let new = Some(name.with_extension("jsonl")).filter(|new| !new.exists());
        let new = new.unwrap_or_else(|| "NEW.jsonl".into());
        let [old, new] = [&self.path, &new].map(|path| shell_word(&path.to_string_lossy()));
        match self.compressed {
            true => format!("gzip -dc < {old} | {command} > {new}"),
            false => format!("{command} < {old} > {new}"),
        }
    }

    /// Decodes a line as UTF-8.
    ///
    /// # Errors
    /// Returns an error if the line is not valid UTF-8.
    pub fn text<'a>(&self, bytes: &'a [u8], line: u64) -> Result<&'a str, DataError> {
        str::from_utf8(bytes).map_err(|_| not_utf8(&self.path, line))
    }

    /// Converts an I/O error that occurred after `line` complete lines.
    pub fn io_error(&self, source: io::Error, line: u64) -> DataError {
        if source.kind() == io::ErrorKind::FileTooLarge {
            let path = self.path.display();
            return DataError::Invalid(format!(
                "`{path}` cannot be read after line {line}: {source}"
            ));
        }
        note_system_fault(&self.path, &source);
        // Decompressors use these kinds for damaged data. Disk errors have different kinds.
        let damaged = matches!(
            source.kind(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        );
        if self.compressed && damaged {
            DataError::Invalid(format!(
                "`{}` cannot be decompressed after line {line}: {source}; compress the file again, or remove `.gz` from its name if it is plain text",
                self.path.display()
            ))
        } else {
            DataError::Unreadable { path: self.path.clone(), source }
        }
    }
}

fn not_utf8(path: &Path, line: u64) -> DataError {
    DataError::Invalid(format!(
        "line {line} of `{}` is not UTF-8 text; save the file as UTF-8 (a compressed file's name must end in `.gz`)",
        path.display()
    ))
}

/// Opens a regular file for reading.
///
/// # Errors
/// Returns an error if the file does not exist, cannot be opened, or is not a regular file.
pub fn open_file(path: &Path) -> Result<File, DataError> {
    regular_file::open(path).map_err(|source| reading_error(path, source))
}

/// Reads a small text file.
///
/// # Errors
/// Returns an error if the file does not exist or cannot be read.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    regular_file::read_to_string(path).map_err(|source| reading_error(path, source))
}

/// Like [`read_text`], but returns `None` if the file does not exist.
pub(crate) fn read_text_if_there(path: &Path) -> Result<Option<String>, DataError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(DataError::MissingFile { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn reading_error(path: &Path, source: io::Error) -> DataError {
    match source.kind() {
        io::ErrorKind::NotFound => DataError::MissingFile { path: path.into() },
        _ => DataError::Unreadable { path: path.into(), source },
    }
}

/// Reads a UTF-8 text file. Files whose name ends in `.gz` are decompressed.
///
/// # Errors
/// Returns an error if the file is missing, unreadable, larger than 1 GiB, not UTF-8, or a damaged
/// gzip file.
pub fn read_text_file(path: &Path) -> Result<String, DataError> {
    let (origin, _) = FileOrigin::new(path);
    let mut bytes = Vec::new();
    let read = regular_file::read_whole(origin.decoded(open_file(path)?), &mut bytes);
    read.map_err(|error| origin.io_error(error, line_ends(&bytes)))?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        not_utf8(path, line_ends(before) + 1)
    })
}

fn line_ends(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_files_keep_their_format() {
        for (name, ending, compressed) in [
            ("x.jsonl", "jsonl", false),
            ("x.jsonl.old-1", "jsonl", false),
            ("X.SMI.gz.old-12", "smi", true),
            ("x.csv.old-", "old-", false),
            ("x.csv.old-a", "old-a", false),
        ] {
            let (origin, found) = FileOrigin::new(Path::new(name));
            assert_eq!(found, ending);
            assert_eq!(origin.compressed, compressed);
        }
    }
}
