//! Random draws that determine which items are held out.

use crate::{CounterRng, Purpose};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Selection of held-out items.
const DATA_SPLIT: Purpose = Purpose::new(7);

/// Returns the draw for an item. It depends only on the item's content and the seed, not on its
/// position in a file or on other items.
pub fn split_draw(seed: u64, content: &[u8]) -> [u32; 4] {
    let hash = Sha256::digest(content);
    let counter = std::array::from_fn(|i| {
        u32::from_le_bytes([hash[4 * i], hash[4 * i + 1], hash[4 * i + 2], hash[4 * i + 3]])
    });
    CounterRng::new(seed, DATA_SPLIT).bits(counter)
}

/// Returns the threshold for holding out items: all items with a smaller draw are held out.
///
/// The fraction refers to distinct draws, and the number of held-out draws is rounded to the
/// nearest integer. If `fraction` is positive and there are at least two draws, at least one of
/// them is held out and at least one is kept.
pub fn split_limit(draws: impl IntoIterator<Item = [u32; 4]>, fraction: f64) -> [u32; 4] {
    let draws: BTreeSet<[u32; 4]> = draws.into_iter().collect();
    let wanted = match draws.len() {
        0 | 1 => 0,
        _ if fraction == 0.0 => 0,
        distinct => ((fraction * distinct as f64).round() as usize).clamp(1, distinct - 1),
    };
    draws.into_iter().nth(wanted).unwrap_or([0; 4])
}
