//! The order of training items.

use crate::mixture::shuffle;
use crate::{CounterRng, DataError, Mixture, Purpose};
use serde::{Deserialize, Serialize};

/// An endless iterator over the items of a data set. Each epoch uses every item once, or as often as its
/// [`Mixture`] says, in an order that depends only on the seed and the epoch.
#[derive(Clone, Debug)]
pub struct EpochOrder {
    rng: CounterRng,
    mixture: Mixture,
    position: OrderPosition,
    /// The items in the order of the current epoch.
    items: Vec<u32>,
}

/// A position in an [`EpochOrder`]. Together with the seed and the number of items, it determines
/// the complete state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPosition {
    /// Number of completed epochs.
    pub epoch: u32,
    /// Number of completed items in the current epoch, less than the number of items.
    pub index: u32,
}

impl OrderPosition {
    /// Returns the position after a total of `done` items.
    ///
    /// # Panics
    /// Panics if `len` is 0.
    pub fn after(done: u64, len: usize) -> Self {
        let len = len as u64;
        Self { epoch: (done / len) as u32, index: (done % len) as u32 }
    }
}

impl EpochOrder {
    /// Creates an order that starts at the first epoch. `items` is the number of items, or a mixture of those
    /// of several files.
    ///
    /// # Panics
    /// Panics if there are no items, or if their number does not fit in 32 bits.
    pub fn new(seed: u64, items: impl Into<Mixture>) -> Self {
        Self::starting_at(seed, items.into(), OrderPosition::default())
    }

    /// Creates an order that resumes at a saved position.
    ///
    /// # Errors
    /// Returns an error if the position is outside of an epoch.
    ///
    /// # Panics
    /// Panics if [`Self::new`] does.
    pub fn resume(
        seed: u64,
        items: impl Into<Mixture>,
        position: OrderPosition,
    ) -> Result<Self, DataError> {
        let mixture = items.into();
        if position.index as usize >= mixture.epoch() {
            return Err(DataError::Invalid(format!(
                "the saved position {} is outside the {} items of this data set; resume with the data that the run was started with",
                position.index,
                mixture.epoch()
            )));
        }
        Ok(Self::starting_at(seed, mixture, position))
    }

    fn starting_at(seed: u64, mixture: Mixture, position: OrderPosition) -> Self {
        assert!(mixture.epoch() > 0, "an order of 0 items has no next item");
        let rng = CounterRng::new(seed, Purpose::DATA_ORDER);
        let items = shuffled(&rng, position.epoch, &mixture);
        Self { rng, mixture, position, items }
    }

    /// Returns the next item. The order never ends.
    pub fn next_item(&mut self) -> usize {
        let item = self.items[self.position.index as usize];
        self.position.index += 1;
        if self.position.index as usize == self.items.len() {
            self.position.epoch += 1;
            self.position.index = 0;
            self.items = shuffled(&self.rng, self.position.epoch, &self.mixture);
        }
        item as usize
    }

    /// Returns the position of the next item.
    pub fn position(&self) -> OrderPosition {
        self.position
    }
}

/// Returns the items of an epoch in random order.
fn shuffled(rng: &CounterRng, epoch: u32, mixture: &Mixture) -> Vec<u32> {
    let mut items = mixture.items_of(epoch, rng);
    shuffle(&mut items, rng, [epoch, 0, 0]);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn epoch(order: &mut EpochOrder, len: usize) -> Vec<usize> {
        (0..len).map(|_| order.next_item()).collect()
    }

    proptest! {
        #[test]
        fn every_epoch_visits_each_item_once(seed: u64, len in 1usize..300) {
            let mut order = EpochOrder::new(seed, len);
            for number in 0..3 {
                prop_assert_eq!(order.position(), OrderPosition { epoch: number, index: 0 });
                let mut items = epoch(&mut order, len);
                items.sort_unstable();
                prop_assert_eq!(items, (0..len).collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_walk_goes_on_from_any_position(seed: u64, len in 1usize..50, before in 0usize..200) {
            let mut order = EpochOrder::new(seed, len);
            for _ in 0..before {
                order.next_item();
            }
            let mut resumed = EpochOrder::resume(seed, len, order.position()).unwrap();
            for _ in 0..120 {
                prop_assert_eq!(resumed.next_item(), order.next_item());
            }
            prop_assert_eq!(resumed.position(), order.position());
        }
    }

    #[test]
    fn seeds_and_epochs_have_orders_of_their_own() {
        let mut order = EpochOrder::new(1, 100);
        let (first, second) = (epoch(&mut order, 100), epoch(&mut order, 100));
        assert_ne!(first, second);
        assert_ne!(first, epoch(&mut EpochOrder::new(2, 100), 100));
        assert_ne!(first, (0..100).collect::<Vec<_>>());
    }

    /// Each of the 24 permutations of four items is expected 1,000 times in 24,000 epochs, with a
    /// standard deviation of 31. The tolerance of 160 is about five standard deviations.
    #[test]
    fn all_orders_are_equally_frequent() {
        let mut counts = BTreeMap::new();
        let mut order = EpochOrder::new(3, 4);
        for _ in 0..24_000 {
            *counts.entry(epoch(&mut order, 4)).or_insert(0i32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|count| (count - 1000).abs() < 160), "{counts:?}");
    }

    #[test]
    fn a_position_of_a_larger_data_set_is_refused() {
        let position = OrderPosition { epoch: 0, index: 10 };
        assert!(EpochOrder::resume(1, 11, position).is_ok());
        let error = EpochOrder::resume(1, 10, position).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the saved position 10 is outside the 10 items of this data set; resume with the data that the run was started with"
        );
    }
}
