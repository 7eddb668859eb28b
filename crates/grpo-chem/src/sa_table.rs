//! The fragment contributions of the SA score, embedded in packed form.
//!
//! 705,292 identifiers of Morgan environments with 3,549 distinct contributions; `data/LICENSE` names their source.
//! `tests/peers/rdkit/make_sa_table.py` packs them and documents the format.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::LazyLock;

/// The contribution of a Morgan environment, or `None` where the table lacks it.
pub(crate) fn contribution(identifier: u32) -> Option<f64> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        unpack(include_bytes!("../data/sa_fragments.bin"))
            .expect("the embedded table is well-formed")
    });
    TABLE.get(&identifier).map(|&scaled| f64::from(scaled) / SCALE)
}

/// Contributions are stored as integers of this many parts.
const SCALE: f64 = 10_000.0;

type Table = HashMap<u32, i32, BuildHasherDefault<Spread>>;

/// Identifiers are hashes already; one multiplication spreads them over the 64 bits that the map looks at.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// `None` where the bytes are not a table.
fn unpack(bytes: &[u8]) -> Option<Table> {
    let rest = bytes.strip_prefix(b"SAF1")?;
    let (groups, mut rest) = rest.split_first_chunk::<4>()?;
    let groups = u32::from_le_bytes(*groups) as usize;
    let (headers, packed) = rest.split_at_checked(groups.checked_mul(9)?)?;
    let mut headers = headers.chunks_exact(9);
    rest = packed;

    let total = headers.clone().map(|header| count_of(header) as usize).sum();
    let mut table = Table::with_capacity_and_hasher(total, BuildHasherDefault::default());
    let mut bits = Bits::new(rest);
    headers.try_for_each(|header| {
        let scaled = i32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut identifier = 0u32;
        for _ in 0..count_of(header) {
            identifier = identifier.checked_add(bits.rice(u32::from(header[8]))?)?;
            table.insert(identifier, scaled);
        }
        Some(())
    })?;
    Some(table)
}

fn count_of(header: &[u8]) -> u32 {
    u32::from_le_bytes([header[4], header[5], header[6], header[7]])
}

/// A reader of bits, highest first.
struct Bits<'a> {
    bytes: &'a [u8],
    /// Bits that were read from `bytes` and not yet taken, at the high end; zeros below.
    window: u64,
    filled: u32,
}

impl<'a> Bits<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, window: 0, filled: 0 }
    }

    /// A Rice code: the high part in unary, then `low` bits.
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
            self.skip(self.filled);
            high += ones;
        }
        self.refill();
        if low > self.filled.min(31) {
            return None;
        }
        let value = if low == 0 { 0 } else { (self.window >> (64 - low)) as u32 };
        self.skip(low);
        high.checked_shl(low)?.checked_add(value)
    }

    /// At least 32 bits, where so many are left.
    fn refill(&mut self) {
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
        assert_eq!(table.len(), 705_292);
        // A checksum over RDKit's pickle, from Python: sum(id % 9973 * round(score * 10000)).
        let checksum: i64 =
            table.iter().map(|(&id, &scaled)| i64::from(id % 9973) * i64::from(scaled)).sum();
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
        // k = 2: 0 is 000, 5 is 1001, 14 is 111010; then k = 0: 3 is 1110.
        let bytes = [0b0001_0011, 0b1101_0111, 0b0000_0000];
        let mut bits = Bits::new(&bytes);
        assert_eq!(
            [bits.rice(2), bits.rice(2), bits.rice(2), bits.rice(0)],
            [Some(0), Some(5), Some(14), Some(3)]
        );
    }
}
