//! Activations of the rollout, which the first update uses again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use burn::tensor::{Device, Tensor};
use grpo_kernels::KeptRows;

use crate::TokenBatch;

/// Outputs of linear layers that sampling has computed and that the first update after it needs for the
/// same tokens and weights (docs/decisions/0040).
///
/// On the CPU, sampling and training compute the same bits, so results do not depend on what is kept.
/// Clones share what is kept. A sampler records it, and the trainer looks up its micro-batches.
#[derive(Clone, Debug)]
pub struct RolloutActivations(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    /// Largest size in bytes.
    budget: usize,
    /// Version of the policy that sampled. `None` if nothing is kept.
    version: Option<u64>,
    recorded: Arc<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// One for each engine that sampled at the same time.
    recorders: Vec<Recorder>,
    /// Recorder and index of each sequence, by its ids.
    sequences: BTreeMap<Vec<u32>, [usize; 2]>,
}

impl RolloutActivations {
    /// Creates an empty store of at most `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let recorded = Arc::new(Recorded::default());
        Self(Arc::new(Mutex::new(Kept { budget, version: None, recorded })))
    }

    /// Forgets everything and returns a recorder for each of the engines that will sample.
    pub fn begin(&self, engines: usize) -> Vec<Recorder> {
        let mut kept = self.lock();
        kept.version = None;
        // If they are still in use, their memory cannot be used again.
        let earlier = Arc::try_unwrap(std::mem::take(&mut kept.recorded)).unwrap_or_default();
        let mut recorders = earlier.recorders;
        recorders.resize_with(engines, Recorder::default);
        let budget = kept.budget / engines.max(1);
        recorders.iter_mut().for_each(|recorder| recorder.clear(budget));
        recorders
    }

    /// Keeps what was recorded while the policy of this version sampled.
    pub fn finish(&self, mut recorders: Vec<Recorder>, version: u64) {
        // An engine may have had nothing to do.
        recorders.retain(|recorder| recorder.rows > 0);
        let mut sequences = BTreeMap::new();
        for (number, recorder) in recorders.iter().enumerate() {
            for (index, sequence) in recorder.sequences.iter().enumerate() {
                sequences.insert(sequence.ids.clone(), [number, index]);
            }
        }
        let mut kept = self.lock();
        kept.recorded = Arc::new(Recorded { recorders, sequences });
        kept.version = Some(version);
    }

    /// Returns the activations of all tokens of a batch for the policy of this version. Returns `None` if
    /// those of any token are missing.
    pub fn of(&self, tokens: &TokenBatch, version: u64) -> Option<KnownActivations> {
        let recorded = {
            let kept = self.lock();
            (kept.version == Some(version)).then(|| Arc::clone(&kept.recorded))
        }?;
        let places = recorded.places(tokens)?;
        Some(KnownActivations { recorded, places: places.into() })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl Recorded {
    /// Returns recorder and row of each token.
    fn places(&self, tokens: &TokenBatch) -> Option<Vec<[u32; 2]>> {
        if tokens.prefixes().iter().any(|prefix| !prefix.is_empty()) {
            return None;
        }
        let mut places = vec![None; tokens.tokens()];
        for (sequence, behind) in tokens.behind().enumerate() {
            let shared = behind.map_or(0..0, |first| tokens.rows(first));
            let rows = shared.chain(tokens.rows(sequence));
            let ids: Vec<u32> = rows.clone().map(|row| tokens.id(row)).collect();
            let Some(&[recorder, index]) = self.sequences.get(&ids) else { continue };
            for (row, &kept) in rows.zip(&self.recorders[recorder].sequences[index].rows) {
                places[row] = Some([recorder as u32, kept]);
            }
        }
        places.into_iter().collect()
    }
}

/// Records the outputs of linear layers while an engine samples.
///
/// If they would exceed the budget, the layers with the fewest inputs are given up first: computing one
/// of their outputs again takes the least time.
#[derive(Debug, Default)]
pub struct Recorder {
    budget: usize,
    bytes: usize,
    /// By the number of the layer.
    layers: BTreeMap<usize, Layer>,
    /// Number of rows in each layer.
    rows: usize,
    sequences: Vec<KeptSequence>,
}

#[derive(Debug)]
struct Layer {
    inputs: usize,
    /// `None` if the layer was given up.
    outputs: Option<KeptRows>,
}

#[derive(Debug)]
struct KeptSequence {
    ids: Vec<u32>,
    /// Row of each id.
    rows: Vec<u32>,
}

impl Recorder {
    fn clear(&mut self, budget: usize) {
        (self.budget, self.bytes, self.rows) = (budget, 0, 0);
        self.sequences.clear();
        self.layers.values_mut().flat_map(|layer| &mut layer.outputs).for_each(KeptRows::clear);
    }

    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Records the output `y` of a layer with this number of inputs.
    pub(crate) fn record(&mut self, number: usize, inputs: usize, y: &Tensor<2>) {
        let [rows, columns] = y.dims();
        let new = || Layer { inputs, outputs: Some(KeptRows::new(columns)) };
        self.layers.entry(number).or_insert_with(new);
        let bytes = rows * columns * size_of::<f32>();
        while self.bytes + bytes > self.budget && self.give_up_a_layer() {}
        if let Some(outputs) = self.layers.get_mut(&number).and_then(|of| of.outputs.as_mut()) {
            outputs.push(y);
            self.bytes += bytes;
        }
    }

    /// Frees the outputs of the layer that is fastest to compute. Returns whether there was one.
    fn give_up_a_layer(&mut self) -> bool {
        let kept = self.layers.iter_mut().filter(|(_, layer)| layer.outputs.is_some());
        let least = kept.min_by_key(|(number, layer)| (layer.inputs, Reverse(**number)));
        let outputs = least.and_then(|(_, layer)| layer.outputs.take());
        self.bytes -= outputs.as_ref().map_or(0, KeptRows::bytes);
        outputs.is_some()
    }

    /// Ends a pass over this number of tokens.
    pub(crate) fn pass_done(&mut self, tokens: usize) {
        self.rows += tokens;
    }

    /// Records which rows belong to a sequence.
    pub(crate) fn keep(&mut self, ids: &[u32], rows: Vec<u32>) {
        self.sequences.push(KeptSequence { ids: ids.to_vec(), rows });
    }
}

/// Activations of all tokens of a batch.
#[derive(Clone, Debug)]
pub struct KnownActivations {
    recorded: Arc<Recorded>,
    /// Recorder and row of each token.
    places: Arc<[[u32; 2]]>,
}

impl KnownActivations {
    /// Returns the output of a linear layer for all tokens, unless it was given up.
    pub(crate) fn output(&self, number: usize, device: &Device) -> Option<Tensor<2>> {
        fn layer(recorder: &Recorder, number: usize) -> Option<&KeptRows> {
            recorder.layers.get(&number)?.outputs.as_ref()
        }
        let recorders = self.recorded.recorders.iter();
        let stores: Option<Vec<&KeptRows>> =
            recorders.map(|recorder| layer(recorder, number)).collect();
        Some(KeptRows::gather(&stores?, &self.places, device))
    }
}
