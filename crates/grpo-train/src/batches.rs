//! Which sequences of an epoch are trained on together.

use grpo_data::{CounterRng, EpochOrder, Purpose};

/// The batches of one epoch, as indices of sequences.
///
/// Batches are of similar lengths, so that attention makes little padding where it has to make some (with dropout, and
/// without its fused version): windows of a shuffled epoch are sorted by length, cut into batches, and the batches of a
/// window are shuffled again.
pub(crate) fn epoch_batches(
    lengths: &[usize],
    batch_size: usize,
    seed: u64,
    order: &mut EpochOrder,
) -> Vec<Vec<usize>> {
    const BATCHES_OF_A_WINDOW: usize = 32;
    let epoch = order.position().epoch;
    let items: Vec<usize> = (0..lengths.len()).map(|_| order.next_item()).collect();
    let rng = CounterRng::new(seed, Purpose::DataOrder);
    let mut batches = Vec::new();
    for (window, items) in items.chunks(batch_size * BATCHES_OF_A_WINDOW).enumerate() {
        let mut items = items.to_vec();
        items.sort_by_key(|&item| lengths[item]); // stable: ties stay in their shuffled order
        let mut cut: Vec<Vec<usize>> = items.chunks(batch_size).map(<[usize]>::to_vec).collect();
        for last in (1..cut.len()).rev() {
            // The last word keeps these numbers apart from those of the order itself.
            let counter = [last as u32, window as u32, epoch, 1];
            cut.swap(last, rng.below(counter, last as u64 + 1) as usize);
        }
        batches.extend(cut);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_each_sequence_once_in_batches_of_similar_length() {
        let lengths: Vec<usize> = (0..1000).map(|i| 10 + (i * 7919) % 50).collect();
        let mut order = EpochOrder::new(1, lengths.len());
        let first = epoch_batches(&lengths, 16, 1, &mut order);
        let mut seen: Vec<usize> = first.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
        let padded: usize =
            first.iter().map(|b| b.len() * b.iter().map(|&i| lengths[i]).max().unwrap()).sum();
        let real: usize = lengths.iter().sum();
        assert!((padded as f64) < 1.06 * real as f64, "{padded} places for {real} tokens");

        let second = epoch_batches(&lengths, 16, 1, &mut order);
        assert_ne!(first, second);
        let again = epoch_batches(&lengths, 16, 1, &mut EpochOrder::new(1, lengths.len()));
        assert_eq!(first, again);
        // Not in the order of length, which would make the loss swing.
        let firsts: Vec<usize> = first.iter().map(|b| lengths[b[0]]).collect();
        assert!(!firsts.is_sorted());
    }
}
