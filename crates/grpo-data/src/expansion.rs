//! How much more data a compressed file may hold than it has bytes.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that any file may hold.
const ALWAYS: u64 = 64 << 20;

/// Bytes that a file may hold for each of its own. Texts have 3 to 30; a file of nothing but line ends has 1000 in gzip and
/// any number in Parquet.
const TIMES: u64 = 500;

/// Says whether `stored` bytes of a file may stand for `expanded` bytes of data.
///
/// # Errors
/// The file is a bomb.
pub(crate) fn check_expansion(stored: u64, expanded: u64) -> io::Result<()> {
    if expanded <= ALWAYS || expanded / TIMES <= stored {
        return Ok(());
    }
    let fault = format!(
        "its data is more than {TIMES} times as large as the file; give the data uncompressed if that is right"
    );
    Err(io::Error::new(ErrorKind::FileTooLarge, fault))
}

/// Counts what is read from a source.
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

/// A decompressor that stops where its data is out of proportion to what it was made from.
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
