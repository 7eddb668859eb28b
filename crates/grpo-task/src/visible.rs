//! Escapes untrusted text before it is printed to a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

pub use grpo_data::number_cell;

use crate::output::note_closed;

/// Escapes control characters that a terminal would interpret, e.g. as `\u001b`. All output of the
/// program is escaped. Otherwise, untrusted text could set the terminal title or hide lines of an
/// audit. JSON remains valid, since these are JSON escape sequences.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_hidden(character) {
            true => {
                let _into_memory = write!(shown, "\\u{:04x}", u32::from(character));
            }
            false => shown.push(character),
        }
    }
    shown.into()
}

/// Returns a text as a cell of a CSV table: escaped, and quoted if a spreadsheet would interpret it as
/// a formula.
pub fn text_cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = visible(text);
    if is_formula { format!("'{text}") } else { text.into_owned() }
}

/// Returns whether a character must be escaped. This includes control characters other than line
/// feed and tab, characters that change the writing direction, and Unicode line separators.
fn is_hidden(character: char) -> bool {
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(character, '\u{2028}' | '\u{2029}');
    turns || breaks || (character.is_control() && !matches!(character, '\n' | '\t'))
}

/// A writer that escapes its input.
pub struct Visible<W> {
    output: W,
    /// First bytes of an incomplete UTF-8 character.
    unfinished: Vec<u8>,
}

/// Returns standard output for data such as JSON, CSV or plain text.
pub fn data_output() -> Visible<io::StdoutLock<'static>> {
    note_closed();
    Visible::new(io::stdout().lock())
}

impl<W: Write> Visible<W> {
    /// Creates a writer that writes to `output`.
    pub fn new(output: W) -> Self {
        Self { output, unfinished: Vec::new() }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unfinished.extend_from_slice(bytes);
        let whole = match str::from_utf8(&self.unfinished) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.unfinished.len(),
        };
        let text = String::from_utf8_lossy(&self.unfinished[..whole]);
        self.output.write_all(visible(&text).as_bytes())?;
        self.unfinished.drain(..whole);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_terminal_control_characters() {
        let check = |text: &str, expect: &str| {
            assert_eq!(visible(text), expect);
            // One byte at a time.
            let mut output = Visible::new(Vec::new());
            text.bytes().for_each(|byte| output.write_all(&[byte]).unwrap());
            assert_eq!(String::from_utf8(output.output).unwrap(), expect);
        };
        check("a\tb\né🦀 ✓", "a\tb\né🦀 ✓");
        check("\x1b]0;title\x07", "\\u001b]0;title\\u0007");
        check("\u{9b}31m", "\\u009b31m");
        check("ok\rno\x08\x7f", "ok\\u000dno\\u0008\\u007f");
        check("\u{202e}gpj\u{2066}", "\\u202egpj\\u2066");
        check("\u{2028}error: x", "\\u2028error: x");
    }

    #[test]
    fn json_stays_the_same_value() {
        let text = "a\u{9b}b\u{202e}\x7f\x1b\n\"";
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
    }
}
