//! Limits on the expansion of compressed files.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that any file may contain.
const ALWAYS: u64 = 64 << 20;

/// Bytes of content per stored byte. Texts have 3 to 30; a file of line ends alone has 1000 in gzip
/// and any number in Parquet.
const TIMES: u64 = 500;

/// Checks whether `stored` bytes may expand to `expanded` bytes.
///
/// # Errors
/// Returns an error if the file is a decompression bomb.
pub(crate) fn check_expansion(stored: u64, expanded: u64) -> io::Result<()> {
    if expanded <= ALWAYS || expanded / TIMES <= stored {
        return Ok(());
    }
    let fault = format!(
        "its data is more than {TIMES} times larger than the file; provide the data uncompressed if that is intended"
    );
    Err(io::Error::new(ErrorKind::FileTooLarge, fault))
}

/// Counts the bytes read from a source.
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

/// A decompressor that fails if its output is too large for its input.
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
