//! Reads the header of a file with limits on what it may claim.

use std::io::Read;

use crate::error::{GgufError, Result, damaged};

/// Most memory that a header may take, in bytes. That of a model with 256,000 tokens takes about 60
/// MiB.
const MOST_MEMORY: u64 = 512 << 20;

/// A header that is being read.
pub(crate) struct Source<R> {
    reader: R,
    /// Position in the file.
    at: u64,
    /// Length of the file.
    length: u64,
    /// Memory that the header may still take.
    memory: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(reader: R, length: u64) -> Self {
        Self { reader, at: 0, length, memory: MOST_MEMORY }
    }

    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Returns how many bytes follow.
    pub(crate) fn left(&self) -> u64 {
        self.length.saturating_sub(self.at)
    }

    /// Counts memory that is about to be taken.
    pub(crate) fn take_memory(&mut self, bytes: u64) -> Result<()> {
        match self.memory.checked_sub(bytes) {
            Some(rest) => {
                self.memory = rest;
                Ok(())
            }
            None => damaged(format!(
                "its header takes more than {} MiB, so it is damaged",
                MOST_MEMORY >> 20
            )),
        }
    }

    /// Reads a fixed number of bytes.
    pub(crate) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    /// Reads a text: its length, then its bytes.
    pub(crate) fn text(&mut self, what: &str) -> Result<String> {
        let length = self.u64(what)?;
        if length > self.left() {
            return damaged(format!(
                "{what} has {length} bytes, but only {} follow; the file is truncated or damaged, so download it again",
                self.left()
            ));
        }
        self.take_memory(length)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes, what)?;
        String::from_utf8(bytes)
            .map_err(|_| GgufError::Damaged(format!("{what} is not UTF-8 text")))
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        if bytes.len() as u64 > self.left() {
            return damaged(format!(
                "it ends at byte {} within {what}; the file is truncated, so download it again",
                self.length
            ));
        }
        self.reader.read_exact(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
