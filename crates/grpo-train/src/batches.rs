//! Which items of a data set are trained on together.

use std::cell::RefCell;

use grpo_data::{CounterRng, EpochOrder, OrderPosition, Purpose};

/// The batches of a training run over whole epochs, as indices of items. A batch is a function of the seed and the step.
pub struct EpochBatches {
    items: usize,
    batch_size: usize,
    seed: u64,
    /// By which the items of a batch are alike, if they are to be.
    lengths: Option<Vec<usize>>,
    /// The epoch that was looked at last, and its batches.
    current: RefCell<(u32, Vec<Vec<usize>>)>,
}

impl EpochBatches {
    /// Batches of items in a shuffled order.
    ///
    /// # Panics
    /// Without items, or with empty batches.
    pub fn new(items: usize, batch_size: usize, seed: u64) -> Self {
        assert!(items > 0 && batch_size > 0, "batches of {batch_size} of {items} items");
        let current = RefCell::new((0, Vec::new()));
        Self { items, batch_size, seed, lengths: None, current }
    }

    /// Batches of items of similar lengths, so that attention makes little padding where it has to make some (with dropout,
    /// and without its fused version): windows of a shuffled epoch are sorted by length, cut into batches, and the batches
    /// of a window are shuffled again.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn by_length(lengths: Vec<usize>, batch_size: usize, seed: u64) -> Self {
        Self { lengths: Some(lengths.clone()), ..Self::new(lengths.len(), batch_size, seed) }
    }

    /// Steps of an epoch. Every item is seen once; the last batch can be smaller.
    pub fn steps_per_epoch(&self) -> u64 {
        self.items.div_ceil(self.batch_size) as u64
    }

    /// Epochs that are done after `steps` steps, with their fraction.
    pub fn epochs(&self, steps: u64) -> f64 {
        steps as f64 / self.steps_per_epoch() as f64
    }

    /// The items of step `step`, counted from 0.
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
        let order = EpochOrder::resume(self.seed, self.items, position);
        let mut order = order.expect("an epoch begins with the first of its items");
        let items: Vec<usize> = (0..self.items).map(|_| order.next_item()).collect();
        let cut = |items: &[usize]| -> Vec<Vec<usize>> {
            items.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
        };
        let Some(lengths) = &self.lengths else { return cut(&items) };
        let rng = CounterRng::new(self.seed, Purpose::DataOrder);
        let mut batches = Vec::new();
        for (window, items) in items.chunks(self.batch_size * BATCHES_OF_A_WINDOW).enumerate() {
            let mut items = items.to_vec();
            items.sort_by_key(|&item| lengths[item]); // stable: ties stay in their shuffled order
            let mut cut = cut(&items);
            for last in (1..cut.len()).rev() {
                // The last word keeps these numbers apart from those of the order itself.
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
        let batches = EpochBatches::by_length(lengths.clone(), 16, 1);
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
        // Not in the order of length, which would make the loss swing.
        let firsts: Vec<usize> = first.iter().map(|b| lengths[b[0]]).collect();
        assert!(!firsts.is_sorted());
    }

    /// As one walk over the items has them.
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
