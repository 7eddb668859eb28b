//! The table of fragment contributions for the SA score, in a compressed format.
//!
//! It contains 705,292 Morgan environments with 3,549 distinct contributions (see `data/LICENSE`
//! for the source). The file is written by `tests/peers/rdkit/make_sa_table.py`, which also
//! documents the format.

use std::sync::LazyLock;

/// Returns the contribution of a Morgan environment, or `None` if it is unknown.
pub(crate) fn contribution(identifier: u32) -> Option<f64> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        unpack(include_bytes!("../data/sa_fragments.bin"))
            .expect("the embedded table is well-formed")
    });
    TABLE.get(identifier).map(|scaled| f64::from(scaled) / SCALE)
}

/// Scale of the fixed-point contributions.
const SCALE: f64 = 10_000.0;

/// A table with 65,536 buckets that are indexed by the upper half of the identifier.
///
/// Identifiers are hashes, so each bucket has about eleven entries. Building this table takes one
/// third of the time needed for a hash table, which matters because it delays the first score in
/// every program.
struct Table {
    /// Index of the first entry of each bucket in `entries`, followed by the total number of
    /// entries.
    starts: Vec<u32>,
    /// Lower half of the identifier and index of its contribution.
    entries: Vec<(u16, u16)>,
    /// Distinct contributions multiplied by [`SCALE`].
    scaled: Vec<i32>,
}

impl Table {
    fn get(&self, identifier: u32) -> Option<i32> {
        let (bucket, low) = halves(identifier);
        let bucket = self.starts[bucket] as usize..self.starts[bucket + 1] as usize;
        let (_, group) = self.entries[bucket].iter().find(|entry| entry.0 == low)?;
        Some(self.scaled[usize::from(*group)])
    }

    /// Creates a table from (identifier, index into `scaled`) pairs with a counting sort.
    fn new(pairs: &[(u32, u16)], scaled: Vec<i32>) -> Self {
        let mut starts = vec![0u32; BUCKETS + 1];
        for &(identifier, _) in pairs {
            starts[halves(identifier).0 + 1] += 1;
        }
        for bucket in 0..BUCKETS {
            starts[bucket + 1] += starts[bucket];
        }
        let mut next = starts.clone();
        let mut entries = vec![(0, 0); pairs.len()];
        for &(identifier, group) in pairs {
            let (bucket, low) = halves(identifier);
            entries[next[bucket] as usize] = (low, group);
            next[bucket] += 1;
        }
        Self { starts, entries, scaled }
    }
}

const BUCKETS: usize = 1 << 16;

fn halves(identifier: u32) -> (usize, u16) {
    ((identifier >> 16) as usize, identifier as u16)
}

/// Decompresses a table. Returns `None` if the data is invalid.
fn unpack(bytes: &[u8]) -> Option<Table> {
    let rest = bytes.strip_prefix(b"SAF1")?;
    let (groups, rest) = rest.split_first_chunk::<4>()?;
    let groups = u32::from_le_bytes(*groups) as usize;
    let (headers, packed) = rest.split_at_checked(groups.checked_mul(9)?)?;
    let headers = headers.chunks_exact(9);

    let total: usize = headers.clone().map(|header| count_of(header) as usize).sum();
    // Each identifier needs at least one bit. This limits the allocation if the header is invalid.
    if total > packed.len() * 8 {
        return None;
    }
    let mut pairs = Vec::with_capacity(total);
    let mut scaled = Vec::with_capacity(groups);
    let mut bits = Bits::new(packed);
    for header in headers {
        let group = u16::try_from(scaled.len()).ok()?;
        scaled.push(i32::from_le_bytes([header[0], header[1], header[2], header[3]]));
        let mut identifier = 0u32;
        for _ in 0..count_of(header) {
            identifier = identifier.checked_add(bits.rice(u32::from(header[8]))?)?;
            pairs.push((identifier, group));
        }
    }
    Some(Table::new(&pairs, scaled))
}

fn count_of(header: &[u8]) -> u32 {
    u32::from_le_bytes([header[4], header[5], header[6], header[7]])
}

/// A bit reader that starts with the most significant bit.
struct Bits<'a> {
    bytes: &'a [u8],
    /// The most significant `filled` bits are the next bits to read. The remaining bits are either
    /// the bits that follow in `bytes` or zeros.
    window: u64,
    filled: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, window: 0, filled: 0 }
    }

    /// Reads a Rice code: the high part in unary, followed by `low` bits.
    fn rice(&mut self, low: u32) -> Option<u32> {
        let mut high = 0;
        loop {
            self.refill();
            let ones = self.window.leading_ones();
            if ones < self.filled {
                self.skip(ones + 1);
                high += ones;
                break;
            }
            if self.bytes.is_empty() {
                return None;
            }
            high += self.filled;
            self.skip(self.filled);
        }
        if low > self.filled {
            self.refill();
        }
        if low > self.filled.min(31) {
            return None;
        }
        let value = if low == 0 { 0 } else { (self.window >> (64 - low)) as u32 };
        self.skip(low);
        high.checked_shl(low)?.checked_add(value)
    }

    /// Refills the window to at least 57 bits if enough input remains.
    fn refill(&mut self) {
        if self.filled > 56 {
            return;
        }
        if let Some(word) = self.bytes.first_chunk::<8>() {
            // Only complete bytes are consumed. Additional bits are already correct and will be
            // read again.
            self.window |= u64::from_be_bytes(*word) >> self.filled;
            let whole = (63 - self.filled) / 8;
            self.bytes = &self.bytes[whole as usize..];
            self.filled += whole * 8;
            return;
        }
        while self.filled <= 56
            && let Some((&byte, rest)) = self.bytes.split_first()
        {
            self.window |= u64::from(byte) << (56 - self.filled);
            self.filled += 8;
            self.bytes = rest;
        }
    }

    fn skip(&mut self, count: u32) {
        self.window = self.window.checked_shl(count).unwrap_or(0);
        self.filled -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_every_fragment() {
        let table = unpack(include_bytes!("../data/sa_fragments.bin")).unwrap();
        let identifiers: Vec<u32> = (0..BUCKETS)
            .flat_map(|bucket| {
                let entries = table.starts[bucket] as usize..table.starts[bucket + 1] as usize;
                table.entries[entries]
                    .iter()
                    .map(move |(low, _)| (bucket as u32) << 16 | u32::from(*low))
            })
            .collect();
        assert_eq!(identifiers.len(), 705_292);
        // A checksum of RDKit's pickle file, computed in Python: sum(id % 9973 * round(score *
        // 10000)).
        let checksum: i64 = identifiers
            .iter()
            .map(|&id| i64::from(id % 9973) * i64::from(table.get(id).unwrap()))
            .sum();
        assert_eq!(checksum, -96267210051129);
        assert_eq!(contribution(910_163_969), Some(-2.8254));
        assert_eq!(contribution(7), None);
    }

    #[test]
    fn damaged_bytes_are_no_table() {
        let bytes = include_bytes!("../data/sa_fragments.bin");
        for length in [0, 3, 8, 100, 40_000, bytes.len() / 2, bytes.len() - 8] {
            assert!(unpack(&bytes[..length]).is_none(), "{length} bytes");
        }
        assert!(unpack(b"SAF2\0\0\0\0").is_none());
        assert!(unpack(b"SAF1\xff\xff\xff\xff").is_none());
    }

    #[test]
    fn reads_rice_codes() {
        // With k = 2, 0 is 000, 5 is 1001 and 14 is 111010. With k = 0, 3 is 1110.
        let bytes = [0b0001_0011, 0b1101_0111, 0b0000_0000];
        let mut bits = Bits::new(&bytes);
        assert_eq!(
            [bits.rice(2), bits.rice(2), bits.rice(2), bits.rice(0)],
            [Some(0), Some(5), Some(14), Some(3)]
        );
        // A unary part that is longer than the window: 128 ones and a zero.
        let mut long = vec![0xff; 16];
        long.push(0);
        assert_eq!(Bits::new(&long).rice(0), Some(128));
        assert_eq!(Bits::new(&long[..16]).rice(0), None);
    }
}
