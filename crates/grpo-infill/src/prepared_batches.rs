//! Batches that a thread prepares ahead of the training step.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use grpo_data::DataError;

use crate::{MaskedStream, MaskedText};

/// Maximum number of batches that wait for the training step. The thread works on one more.
const AHEAD: usize = 4;

/// A [`MaskedStream`] whose upcoming batches are prepared by a thread. The batches are the same as
/// without the thread, regardless of the order in which they are requested.
pub(crate) struct PreparedBatches {
    stream: MaskedStream,
    worker: Mutex<Option<Worker>>,
}

/// A thread that generates consecutive batches. It ends when its channel is dropped.
struct Worker {
    /// Index of the batch that is received next.
    next: u64,
    size: usize,
    batches: Receiver<Result<Vec<MaskedText>, DataError>>,
}

impl PreparedBatches {
    /// Creates the batches. The thread starts with the first request.
    pub(crate) fn new(stream: MaskedStream) -> Self {
        Self { stream, worker: Mutex::new(None) }
    }

    /// Returns the batch at `index` with `size` texts.
    ///
    /// # Errors
    /// See [`MaskedStream::batch`].
    pub(crate) fn batch(&self, index: u64, size: usize) -> Result<Vec<MaskedText>, DataError> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let current = worker.take().filter(|worker| (worker.next, worker.size) == (index, size));
        let current = current.unwrap_or_else(|| self.start(index, size));
        match current.batches.recv() {
            Ok(batch) => {
                *worker = Some(Worker { next: index + 1, ..current });
                batch
            }
            // The thread could not be started or ended early.
            Err(_) => self.stream.batch(index, size),
        }
    }

    fn start(&self, first: u64, size: usize) -> Worker {
        let (sender, batches) = sync_channel(AHEAD);
        let stream = self.stream.clone();
        let prepare = move || {
            for index in first.. {
                let batch = stream.batch(index, size);
                let is_last = batch.is_err();
                if sender.send(batch).is_err() || is_last {
                    break;
                }
            }
        };
        // Without a thread, the channel is closed and each batch is generated on request.
        drop(thread::Builder::new().name("batches".to_owned()).spawn(prepare));
        Worker { next: first, size, batches }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        Corruption, MASKING, Masking, MaskingPlan, PassageOptions, PassageUnit, Passages, Split,
    };

    fn stream(max_ratio: f64) -> MaskedStream {
        let options = PassageOptions {
            file: "text".into(),
            unit: PassageUnit::Window,
            length: 6,
            validation_fraction: 0.2,
        };
        let passages = Passages::from_text(&"abcdefgh".repeat(10), &options, None);
        let stages = vec![Masking::Random { min_ratio: 0.0, max_ratio }];
        let plan = MaskingPlan::new(stages, Corruption::None).unwrap();
        MaskedStream::new(Arc::new(passages.unwrap()), Split::Train, plan, 1, MASKING).unwrap()
    }

    #[test]
    fn batches_are_those_of_the_stream_in_any_order() {
        let (stream, prepared) = (stream(0.5), PreparedBatches::new(stream(0.5)));
        for (index, size) in [(0, 3), (1, 3), (2, 3), (2, 3), (9, 3), (10, 2), (11, 2), (0, 2)] {
            assert_eq!(
                prepared.batch(index, size).unwrap(),
                stream.batch(index, size).unwrap(),
                "batch {index} of {size}"
            );
        }
    }
}
