//! Normalization of line endings.

use std::io::{self, Read};

/// Converts `\r\n` and `\r` to `\n` and appends a missing `\n` at the end. Line numbers are then
/// the same as in a text editor.
pub(super) struct LineEnds<R> {
    source: R,
    after_return: bool,
    last: u8,
}

impl<R: Read> LineEnds<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, after_return: false, last: b'\n' }
    }
}

impl<R: Read> Read for LineEnds<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let read = self.source.read(buffer)?;
            if read == 0 {
                let missing = self.last != b'\n';
                if missing {
                    buffer[0] = b'\n';
                    self.last = b'\n';
                }
                return Ok(usize::from(missing));
            }
            let mut kept = 0;
            for at in 0..read {
                let byte = buffer[at];
                let second_half = byte == b'\n' && self.after_return;
                self.after_return = byte == b'\r';
                if !second_half {
                    buffer[kept] = if self.after_return { b'\n' } else { byte };
                    kept += 1;
                }
            }
            if kept > 0 {
                self.last = buffer[kept - 1];
                return Ok(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    proptest! {
        #[test]
        fn line_ends_are_the_same_however_the_bytes_arrive(text in "[a\r\n]{0,20}", chunk in 1usize..5) {
            let mut expect = text.replace("\r\n", "\n").replace('\r', "\n");
            if !expect.is_empty() && !expect.ends_with('\n') {
                expect.push('\n');
            }
            let mut found = String::new();
            let mut reader = BufReader::with_capacity(chunk, LineEnds::new(text.as_bytes()));
            reader.read_to_string(&mut found).unwrap();
            prop_assert_eq!(found, expect);
        }
    }
}
