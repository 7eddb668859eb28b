//! Draws that decide on which side of a split an item is.

use crate::{CounterRng, Purpose};
use sha2::{Digest, Sha256};

/// A draw for this content, so that neither the order of the file nor its other items matter.
pub fn split_draw(seed: u64, content: &[u8]) -> [u32; 4] {
    let hash = Sha256::digest(content);
    let counter = std::array::from_fn(|i| {
        u32::from_le_bytes([hash[4 * i], hash[4 * i + 1], hash[4 * i + 2], hash[4 * i + 3]])
    });
    CounterRng::new(seed, Purpose::DataSplit).bits(counter)
}
