//! Detects invalid quoting in CSV files. The CSV reader accepts it: it treats the rest of the file
//! after an unclosed quote as a single cell, and joins a quoted field with whatever follows it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A reader that passes bytes through and stores the line of the first invalid quote.
#[derive(Debug)]
pub struct CsvQuotes<R> {
    source: R,
    /// The character that separates cells.
    delimiter: u8,
    state: State,
    line: u64,
    /// Line of the last opening quote.
    opened: u64,
    faults: CsvQuoteFaults,
}

/// The lines of invalid quotes, or 0.
#[derive(Clone, Debug, Default)]
pub struct CsvQuoteFaults {
    /// Set when the end of the file has been reached.
    unclosed: Arc<AtomicU64>,
    /// Line of the first cell with text after its closing quote.
    followed: Arc<AtomicU64>,
}

impl CsvQuoteFaults {
    /// Returns the line of an invalid quote, what is wrong with it and how to fix it.
    pub fn first(&self) -> Option<(u64, &'static str)> {
        let faults = [
            (
                &self.followed,
                "has text after a quoted field; quote the whole field, and escape quotes inside it by doubling them",
            ),
            (
                &self.unclosed,
                "has an unterminated quoted field; close it, and escape quotes inside it by doubling them",
            ),
        ];
        let lines = faults.map(|(line, fault)| (line.load(Ordering::Relaxed), fault));
        lines.into_iter().find(|(line, _)| *line > 0)
    }
}

/// The state of the CSV parser. A quote is only special at the beginning of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    CellStart,
    Plain,
    Quoted,
    /// After a quote inside a quoted cell, which either ends the cell or is the first of two
    /// quotes.
    AfterQuote,
    /// After the end of a quoted cell and at least one space.
    Closed,
}

impl<R: Read> CsvQuotes<R> {
    /// Creates a reader, and the place where it reports faults. `delimiter` separates cells.
    pub fn new(source: R, delimiter: u8) -> (Self, CsvQuoteFaults) {
        let faults = CsvQuoteFaults::default();
        let (state, of_reader) = (State::CellStart, faults.clone());
        (Self { source, delimiter, state, line: 1, opened: 0, faults: of_reader }, faults)
    }

    fn pass(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::CellStart, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::AfterQuote, b'"') => State::Quoted,
            (State::Quoted, b'"') => State::AfterQuote,
            (State::Quoted, _) => State::Quoted,
            (_, b'\n') => State::CellStart,
            (_, byte) if byte == self.delimiter => State::CellStart,
            // Cells are trimmed.
            (State::AfterQuote | State::Closed, b' ') => State::Closed,
            (State::AfterQuote | State::Closed, _) => {
                let followed = &self.faults.followed;
                let _earlier =
                    followed.compare_exchange(0, self.line, Ordering::Relaxed, Ordering::Relaxed);
                State::Plain
            }
            _ => State::Plain,
        };
        self.line += u64::from(byte == b'\n');
    }
}

impl<R: Read> Read for CsvQuotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        buffer[..read].iter().for_each(|&byte| self.pass(byte));
        if read == 0 && !buffer.is_empty() && self.state == State::Quoted {
            self.faults.unclosed.store(self.opened, Ordering::Relaxed);
        }
        Ok(read)
    }
}
