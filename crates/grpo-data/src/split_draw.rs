//! Draws that decide on which side of a split an item is.

use crate::{CounterRng, Purpose};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// A draw for this content, so that neither the order of the file nor its other items matter.
pub fn split_draw(seed: u64, content: &[u8]) -> [u32; 4] {
    let hash = Sha256::digest(content);
    let counter = std::array::from_fn(|i| {
        u32::from_le_bytes([hash[4 * i], hash[4 * i + 1], hash[4 * i + 2], hash[4 * i + 3]])
    });
    CounterRng::new(seed, Purpose::DataSplit).bits(counter)
}

/// The draw below which items are held out, so that `fraction` of the distinct draws are: the nearest whole number, and at
/// least one of two or more if any are wanted.
pub fn split_limit(draws: impl IntoIterator<Item = [u32; 4]>, fraction: f64) -> [u32; 4] {
    let draws: BTreeSet<[u32; 4]> = draws.into_iter().collect();
    let wanted = match draws.len() {
        0 | 1 => 0,
        _ if fraction == 0.0 => 0,
        distinct => ((fraction * distinct as f64).round() as usize).clamp(1, distinct - 1),
    };
    draws.into_iter().nth(wanted).unwrap_or([0; 4])
}
