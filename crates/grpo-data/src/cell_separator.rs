//! The character that separates the cells of a CSV file.

use std::io::{BufRead, BufReader, Cursor, Read};

use crate::{Bytes, DataError, FileOrigin};

/// Characters that separate cells. The first of them in a header separates its cells.
const KNOWN: [u8; 3] = [b',', b';', b'\t'];

/// Start of a line that names the character.
const SEP: &[u8] = b"sep=";

/// Detects the character that separates cells from the first line that is not empty: a comma, or a
/// semicolon or tab if the line contains no comma. Also returns a source that starts at the beginning.
/// At most about `longest` bytes are read.
///
/// Excel writes and reads a first line such as `sep=;`, which names the character. It becomes an empty
/// line, so that line numbers stay the same.
///
/// # Errors
/// Returns an error if the source cannot be read, or if that line names another character.
pub fn cell_separator(
    source: Bytes,
    longest: usize,
    origin: &FileOrigin,
) -> Result<(u8, Bytes), DataError> {
    let mut source = BufReader::new(source);
    let mut head = Vec::new();
    let mut line_start = 0;
    while head[line_start..].trim_ascii().is_empty() && head.len() <= longest {
        line_start = head.len();
        let mut limited = source.by_ref().take(longest as u64 + 1);
        let read =
            limited.read_until(b'\n', &mut head).map_err(|error| origin.io_error(error, 0))?;
        if read == 0 {
            break;
        }
    }
    if let Some(named) = named_separator(&head[line_start..]) {
        let lines = head.iter().filter(|byte| **byte == b'\n').count();
        let known = KNOWN.into_iter().find(|known| char::from(*known) == named);
        let Some(separator) = known else {
            let fault = format!(
                "this line names the separator `{named}`; expected a comma, a semicolon or a tab: save the file with one of these"
            );
            let before = head[..line_start].iter().filter(|byte| **byte == b'\n').count();
            return Err(DataError::Invalid(fault).at_line(&origin.path, before as u64 + 1));
        };
        return Ok((separator, Box::new(Cursor::new(vec![b'\n'; lines]).chain(source))));
    }
    let separator = KNOWN.into_iter().find(|separator| head.contains(separator));
    Ok((separator.unwrap_or(b','), Box::new(Cursor::new(head).chain(source))))
}

/// Returns the character that a line such as `sep=;` names.
fn named_separator(line: &[u8]) -> Option<char> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let line = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")).unwrap_or(line);
    let (name, separator) = line.split_at_checked(SEP.len())?;
    let mut separator = std::str::from_utf8(separator).ok()?.chars();
    let named = separator.next().filter(|_| name.eq_ignore_ascii_case(SEP))?;
    // Anything else is data, such as a column `sep=x`.
    (separator.next().is_none() && !named.is_alphanumeric()).then_some(named)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_line_decides() {
        let (origin, _) = FileOrigin::new(Path::new("a.csv"));
        for (text, expected) in [
            ("a,b\n1;2\n", b','),
            ("a;b,c\n", b','),
            ("a;b\tc\n1,2\n", b';'),
            ("\n \na\tb\n1,2;3\n", b'\t'),
            ("a\n1;2\n", b','),
            ("", b','),
        ] {
            let source: Bytes = Box::new(text.as_bytes());
            let (separator, mut source) = cell_separator(source, 100, &origin).unwrap();
            assert_eq!(separator, expected, "{text:?}");
            let mut whole = String::new();
            source.read_to_string(&mut whole).unwrap();
            assert_eq!(whole, text);
        }
        for (text, expected, rest) in [
            ("sep=;\r\na,b;c\n", b';', "\na,b;c\n"),
            ("SEP=\t\na,b\n", b'\t', "\na,b\n"),
            ("\"sep=,\"\na;b\n", b',', "\na;b\n"),
            ("sep=x\n1\n", b',', "sep=x\n1\n"),
            ("sep=||\n1\n", b',', "sep=||\n1\n"),
            // The line numbers of what follows stay the same.
            ("\n \r\nsep=;\na;b\n", b';', "\n\n\na;b\n"),
        ] {
            let source: Bytes = Box::new(text.as_bytes());
            let (separator, mut source) = cell_separator(source, 100, &origin).unwrap();
            assert_eq!(separator, expected, "{text:?}");
            let mut whole = String::new();
            source.read_to_string(&mut whole).unwrap();
            assert_eq!(whole, rest);
        }
        for (text, line, named) in [("sep=|\na|b\n", 1, "`|`"), ("\n\"sep=·\"", 2, "`·`")] {
            let refused = cell_separator(Box::new(text.as_bytes()), 100, &origin).err().unwrap();
            let refused = refused.to_string();
            assert!(refused.starts_with(&format!("a.csv:{line}: ")), "{refused}");
            assert!(
                refused.contains(&format!("names the separator {named}; expected")),
                "{refused}"
            );
        }
        // A line that is too long is not read to its end.
        let long: Bytes = Box::new(std::io::repeat(b'a'));
        assert_eq!(cell_separator(long, 100, &origin).unwrap().0, b',');
    }
}
