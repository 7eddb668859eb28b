//! Random draws that decide which items are held out.

use crate::{CounterRng, Purpose};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Returns the draw for a content. It does not depend on the order or the other items of a file.
pub fn split_draw(seed: u64, content: &[u8]) -> [u32; 4] {
    let hash = Sha256::digest(content);
    let counter = std::array::from_fn(|i| {
        u32::from_le_bytes([hash[4 * i], hash[4 * i + 1], hash[4 * i + 2], hash[4 * i + 3]])
    });
    CounterRng::new(seed, Purpose::DataSplit).bits(counter)
}

/// Returns the draw below which items are held out, so that the nearest whole number to `fraction`
/// of the distinct draws is held out, and at least one of two or more if `fraction` is above 0.
pub fn split_limit(draws: impl IntoIterator<Item = [u32; 4]>, fraction: f64) -> [u32; 4] {
    let draws: BTreeSet<[u32; 4]> = draws.into_iter().collect();
    let wanted = match draws.len() {
        0 | 1 => 0,
        _ if fraction == 0.0 => 0,
        distinct => ((fraction * distinct as f64).round() as usize).clamp(1, distinct - 1),
    };
    draws.into_iter().nth(wanted).unwrap_or([0; 4])
}
