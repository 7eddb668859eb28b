//! Detects unclosed quotes in CSV files. The CSV reader accepts them and treats the rest of the
//! file as a single cell.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A reader that passes bytes through and tracks quotes. At the end, it stores the line of an
/// unclosed quote.
pub(super) struct Quotes<R> {
    source: R,
    /// The character that separates cells.
    delimiter: u8,
    state: State,
    line: u64,
    /// Line of the last opening quote.
    opened: u64,
    unclosed: Unclosed,
}

/// The line of an unclosed quote, available after the end of the file has been reached.
#[derive(Clone, Default)]
pub(super) struct Unclosed(Arc<AtomicU64>);

impl Unclosed {
    pub(super) fn line(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&line| line > 0)
    }
}

/// The state of the CSV parser. A quote is only special at the beginning of a cell.
#[derive(Clone, Copy, PartialEq)]
enum State {
    CellStart,
    Plain,
    Quoted,
    /// After a quote inside a quoted cell, which either ends the cell or is the first of two
    /// quotes.
    AfterQuote,
}

impl<R: Read> Quotes<R> {
    pub(super) fn new(source: R, delimiter: u8) -> (Self, Unclosed) {
        let unclosed = Unclosed::default();
        let state = State::CellStart;
        (
            Self { source, delimiter, state, line: 1, opened: 0, unclosed: unclosed.clone() },
            unclosed,
        )
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
            _ => State::Plain,
        };
        self.line += u64::from(byte == b'\n');
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        buffer[..read].iter().for_each(|&byte| self.pass(byte));
        if read == 0 && !buffer.is_empty() && self.state == State::Quoted {
            self.unclosed.0.store(self.opened, Ordering::Relaxed);
        }
        Ok(read)
    }
}
