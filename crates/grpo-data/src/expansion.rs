//! Protection against decompression bombs.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Uncompressed size in bytes that is always accepted.
const ALWAYS: u64 = 4 << 20;

/// Maximum ratio of uncompressed to compressed size. Typical text has a ratio between 3 and 30. A
/// file of nothing but newlines reaches 1000 with gzip, and Parquet has no upper bound.
const TIMES: u64 = 100;

/// Checks whether `expanded` bytes are plausible for `stored` compressed bytes.
///
/// # Errors
/// Returns an error if the ratio is too large.
pub(crate) fn check_expansion(stored: u64, expanded: u64) -> io::Result<()> {
    if expanded <= ALWAYS || expanded / TIMES <= stored {
        return Ok(());
    }
    let fault = format!(
        "its data is more than {TIMES} times larger than the file; provide the data uncompressed if that is intended"
    );
    Err(io::Error::new(ErrorKind::FileTooLarge, fault))
}

/// A reader that counts the bytes read from its source.
pub(crate) struct Counted<R> {
    source: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A decompressor that returns an error if its output is too large for its input.
pub(crate) struct Decompressed<D> {
    decoder: D,
    stored: Arc<AtomicU64>,
    expanded: u64,
}

impl<D: Read> Decompressed<D> {
    pub(crate) fn new<R: Read>(source: R, decoder: impl FnOnce(Counted<R>) -> D) -> Self {
        let stored = Arc::new(AtomicU64::new(0));
        let decoder = decoder(Counted { source, count: Arc::clone(&stored) });
        Self { decoder, stored, expanded: 0 }
    }
}

impl<D: Read> Read for Decompressed<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.expanded += read as u64;
        check_expansion(self.stored.load(Ordering::Relaxed), self.expanded)?;
        Ok(read)
    }
}
