//! Dataset batches.

use std::cell::RefCell;

use grpo_data::{CounterRng, EpochOrder, Mixture, OrderPosition, Purpose};

/// Batches of item indices over whole epochs. The seed and the step number determine each batch.
pub struct EpochBatches {
    mixture: Mixture,
    batch_size: usize,
    seed: u64,
    /// Item lengths, if batches are grouped by length.
    lengths: Option<Vec<usize>>,
    /// Epoch that was computed last, along with its batches.
    current: RefCell<(u32, Vec<Vec<usize>>)>,
}

impl EpochBatches {
    /// Creates batches of items in shuffled order. `items` is the number of items, or a mixture of those of
    /// several files.
    ///
    /// # Panics
    /// Panics if `batch_size` is zero or there are no items.
    pub fn new(items: impl Into<Mixture>, batch_size: usize, seed: u64) -> Self {
        let mixture = items.into();
        let items = mixture.epoch();
        assert!(items > 0 && batch_size > 0, "batches of {batch_size} of {items} items");
        let current = RefCell::new((0, Vec::new()));
        Self { mixture, batch_size, seed, lengths: None, current }
    }

    /// Creates batches of items with similar lengths. This reduces padding in attention, which is
    /// required when dropout is enabled or the fused kernel is unavailable. Windows of a shuffled
    /// epoch are sorted by length and split into batches, which are then shuffled again. `lengths` has
    /// the length of each item.
    ///
    /// # Panics
    /// Panics under the same conditions as [`Self::new`].
    pub fn by_length(
        items: impl Into<Mixture>,
        lengths: Vec<usize>,
        batch_size: usize,
        seed: u64,
    ) -> Self {
        Self { lengths: Some(lengths), ..Self::new(items, batch_size, seed) }
    }

    /// Returns the number of steps per epoch. The last batch of an epoch may be smaller than the
    /// others.
    pub fn steps_per_epoch(&self) -> u64 {
        self.mixture.epoch().div_ceil(self.batch_size) as u64
    }

    /// Returns the number of epochs completed after `steps` steps, including fractions.
    pub fn epochs(&self, steps: u64) -> f64 {
        steps as f64 / self.steps_per_epoch() as f64
    }

    /// Returns the items for a step, counted from 0.
    pub fn batch(&self, step: u64) -> Vec<usize> {
        let epoch = (step / self.steps_per_epoch()) as u32;
        let index = (step % self.steps_per_epoch()) as usize;
        let mut current = self.current.borrow_mut();
        if current.1.is_empty() || current.0 != epoch {
            *current = (epoch, self.epoch(epoch));
        }
        current.1[index].clone()
    }

    fn epoch(&self, epoch: u32) -> Vec<Vec<usize>> {
        const BATCHES_OF_A_WINDOW: usize = 32;
        let position = OrderPosition { epoch, index: 0 };
        let order = EpochOrder::resume(self.seed, self.mixture.clone(), position);
        let mut order = order.expect("an epoch starts at its first item");
        let items: Vec<usize> = (0..self.mixture.epoch()).map(|_| order.next_item()).collect();
        let cut = |items: &[usize]| -> Vec<Vec<usize>> {
            items.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
        };
        let Some(lengths) = &self.lengths else { return cut(&items) };
        let rng = CounterRng::new(self.seed, Purpose::DATA_ORDER);
        let mut batches = Vec::new();
        for (window, items) in items.chunks(self.batch_size * BATCHES_OF_A_WINDOW).enumerate() {
            let mut items = items.to_vec();
            items.sort_by_key(|&item| lengths[item]); // stable: ties keep their shuffled order
            let mut cut = cut(&items);
            for last in (1..cut.len()).rev() {
                // The last word keeps this random stream separate from the one that shuffles the
                // items.
                let counter = [last as u32, window as u32, epoch, 1];
                cut.swap(last, rng.below(counter, last as u64 + 1) as usize);
            }
            batches.extend(cut);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_each_sequence_once_in_batches_of_similar_length() {
        let lengths: Vec<usize> = (0..1000).map(|i| 10 + (i * 7919) % 50).collect();
        let batches = EpochBatches::by_length(1000, lengths.clone(), 16, 1);
        let epoch = |epoch: u64| -> Vec<Vec<usize>> {
            let steps = batches.steps_per_epoch();
            (epoch * steps..(epoch + 1) * steps).map(|step| batches.batch(step)).collect()
        };
        let first = epoch(0);
        let mut seen: Vec<usize> = first.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        let padded: usize =
            first.iter().map(|b| b.len() * b.iter().map(|&i| lengths[i]).max().unwrap()).sum();
        let real: usize = lengths.iter().sum();
        assert!((padded as f64) < 1.06 * real as f64, "{padded} places for {real} tokens");

        assert_ne!(first, epoch(1));
        assert_eq!(first, epoch(0));
        // If batches were ordered by length, the loss would oscillate.
        let firsts: Vec<usize> = first.iter().map(|b| lengths[b[0]]).collect();
        assert!(!firsts.is_sorted());
    }

    /// Compares the batches with a simple iteration over the epochs.
    #[test]
    fn batches_follow_the_order_of_the_epochs() {
        let batches = EpochBatches::new(10, 4, 7);
        let mut order = EpochOrder::new(7, 10);
        let walk: Vec<usize> = (0..30).map(|_| order.next_item()).collect();
        let steps: Vec<usize> = (0..9).flat_map(|step| batches.batch(step)).collect();
        assert_eq!((steps, batches.steps_per_epoch(), batches.epochs(9)), (walk, 3, 3.0));
        assert_eq!(EpochBatches::new(10, 4, 7).batch(8), batches.batch(8));
    }
}
