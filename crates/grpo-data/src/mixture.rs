//! How often the items of several files are used.

use std::ops::Range;

use crate::{ConfigFault, CounterRng};

/// The items of an epoch: those of several files, each with a weight.
///
/// A file with weight *w* and *n* items has round(*w* · *n*) places in each epoch, at least one. Its items take
/// these places in turn, pass after pass, so that over all epochs each is used equally often. With weight 1,
/// each item is used once per epoch; with weight 0.5, once in two epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    parts: Vec<Part>,
    /// Number of items per epoch.
    epoch: u32,
}

/// The items of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    items: Range<u32>,
    /// Number of places per epoch.
    places: u32,
}

impl From<usize> for Mixture {
    /// Uses each of the items `0..items` once per epoch.
    ///
    /// # Panics
    /// Panics if `items` does not fit in 32 bits.
    fn from(items: usize) -> Self {
        let items = u32::try_from(items).expect("a data set has fewer than 2^32 items");
        Self { parts: vec![Part { items: 0..items, places: items }], epoch: items }
    }
}

impl Mixture {
    /// Creates a mixture from the number of items and the weight of each file. Items are numbered in the
    /// order of the files. A file without items has no place.
    ///
    /// # Errors
    /// Returns an error if an epoch would have more than 2^32 - 1 items.
    pub fn new(files: &[(usize, f64)]) -> Result<Self, ConfigFault> {
        let (mut parts, mut items, mut epoch) = (Vec::new(), 0_u64, 0_u64);
        for &(count, weight) in files.iter().filter(|(count, _)| *count > 0) {
            let end = items.saturating_add(count as u64);
            let places = ((count as f64 * weight).round() as u64).max(1);
            epoch = epoch.saturating_add(places);
            if end.max(epoch) > u64::from(u32::MAX) {
                return ConfigFault::refuse(format!(
                    "the data files have more than {} records per epoch, each counted with the weight of its file; use smaller weights",
                    u32::MAX
                ));
            }
            parts.push(Part { items: items as u32..end as u32, places: places as u32 });
            items = end;
        }
        Ok(Self { parts, epoch: epoch as u32 })
    }

    /// Returns the number of items per epoch.
    pub fn epoch(&self) -> usize {
        self.epoch as usize
    }

    /// Returns how often an item is used per epoch, on average.
    ///
    /// # Panics
    /// Panics if there is no such item.
    pub fn frequency(&self, item: usize) -> f64 {
        let is_in = |part: &&Part| part.items.contains(&(item as u32));
        let part = self.parts.iter().find(is_in).expect("an item belongs to a file");
        f64::from(part.places) / f64::from(part.items.end - part.items.start)
    }

    /// Returns the items of an epoch in the order of the files, each as often as it is used.
    pub(crate) fn items_of(&self, epoch: u32, rng: &CounterRng) -> Vec<u32> {
        let mut all = Vec::with_capacity(self.epoch());
        for (index, part) in self.parts.iter().enumerate() {
            let count = u64::from(part.items.end - part.items.start);
            let places = u64::from(part.places);
            let mut pass = u64::MAX;
            let mut order: Vec<u32> = Vec::new();
            for place in u64::from(epoch) * places..(u64::from(epoch) + 1) * places {
                if pass != place / count {
                    pass = place / count;
                    order = part.items.clone().collect();
                    // In epochs of whole passes, each item is used equally often in any order.
                    if !places.is_multiple_of(count) {
                        // The last word keeps this random stream separate from those of batches and epochs.
                        shuffle(&mut order, rng, [pass as u32, index as u32, 2]);
                    }
                }
                all.push(order[(place % count) as usize]);
            }
        }
        all
    }
}

/// Shuffles items with Fisher-Yates. Every swap uses a different counter, which ends in `counter`.
pub(crate) fn shuffle(items: &mut [u32], rng: &CounterRng, counter: [u32; 3]) {
    let [a, b, c] = counter;
    for i in (1..items.len()).rev() {
        let j = rng.below([i as u32, a, b, c], i as u64 + 1);
        items.swap(i, j as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EpochOrder;
    use proptest::prelude::*;

    fn drawn(mixture: &Mixture, epochs: usize, seed: u64) -> Vec<usize> {
        let mut order = EpochOrder::new(seed, mixture.clone());
        (0..epochs * mixture.epoch()).map(|_| order.next_item()).collect()
    }

    fn counts(items: &[usize], of: usize) -> Vec<usize> {
        (0..of).map(|item| items.iter().filter(|found| **found == item).count()).collect()
    }

    proptest! {
        /// Weights of 1 give the order of one file with all items.
        #[test]
        fn weights_of_one_are_one_file(seed: u64, sizes in prop::collection::vec(0usize..40, 1..4)) {
            let all: usize = sizes.iter().sum();
            prop_assume!(all > 0);
            let files: Vec<(usize, f64)> = sizes.iter().map(|&size| (size, 1.0)).collect();
            let mixed = Mixture::new(&files).unwrap();
            prop_assert_eq!(mixed.epoch(), all);
            prop_assert_eq!(drawn(&mixed, 3, seed), drawn(&all.into(), 3, seed));
        }

        /// After any number of epochs, the items of a file have been used equally often, up to 1.
        #[test]
        fn the_items_of_a_file_take_turns(
            seed: u64,
            files in prop::collection::vec((1usize..20, 0.05f64..4.0), 1..4),
            epochs in 1usize..6,
        ) {
            let mixture = Mixture::new(&files).unwrap();
            let items = drawn(&mixture, epochs, seed);
            let mut start = 0;
            for &(size, weight) in &files {
                let places = ((size as f64 * weight).round() as usize).max(1);
                let counts = &counts(&items, start + size)[start..];
                prop_assert_eq!(counts.iter().sum::<usize>(), epochs * places);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                prop_assert!(most - least <= 1, "{:?}", counts);
                let expected = places as f64 / size as f64;
                prop_assert_eq!(mixture.frequency(start), expected);
                start += size;
            }
        }

        #[test]
        fn an_order_of_several_files_resumes_anywhere(seed: u64, before in 0usize..200) {
            let mixture = Mixture::new(&[(7, 0.4), (5, 2.5), (3, 1.0)]).unwrap();
            let mut order = EpochOrder::new(seed, mixture.clone());
            for _ in 0..before {
                order.next_item();
            }
            let mut resumed = EpochOrder::resume(seed, mixture, order.position()).unwrap();
            for _ in 0..100 {
                prop_assert_eq!(resumed.next_item(), order.next_item());
            }
        }
    }

    /// Of a sorted file with half the weight, the first epoch has a random half, not the first one.
    #[test]
    fn a_part_of_a_file_is_drawn_at_random() {
        let mixture = Mixture::new(&[(100, 0.5)]).unwrap();
        let mut first = drawn(&mixture, 1, 3);
        first.sort_unstable();
        assert_ne!(first, (0..50).collect::<Vec<_>>());
        assert_ne!(counts(&drawn(&mixture, 1, 4), 100), counts(&first, 100));
        assert_eq!(counts(&drawn(&mixture, 2, 3), 100), [1; 100]);
    }

    #[test]
    fn an_epoch_has_a_limit() {
        assert_eq!(Mixture::new(&[(0, 1.0), (3, 0.01)]).unwrap().epoch(), 1);
        let fault = Mixture::new(&[(5_000_000, 1000.0)]).unwrap_err().to_string();
        assert!(fault.ends_with("; use smaller weights"), "{fault}");
    }
}
