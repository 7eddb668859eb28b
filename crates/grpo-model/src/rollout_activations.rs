//! Activations of a rollout, which the first update uses again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use burn::tensor::{Device, Tensor};
use grpo_kernels::KeptRows;

use crate::TokenBatch;

/// Outputs of linear layers that sampling has computed and that the first update after it needs for the
/// same tokens and weights (docs/decisions/0040).
///
/// Where sampling and training compute the same bits, results do not depend on what is kept. Clones
/// share the store. A sampler records into it, and the trainer looks up its micro-batches.
#[derive(Clone, Debug)]
pub struct RolloutActivations(Arc<Mutex<Store>>);

#[derive(Debug)]
struct Store {
    /// Maximum size in bytes.
    budget: usize,
    /// Version of the policy that sampled. `None` if nothing is kept.
    version: Option<u64>,
    recorded: Arc<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// One for each engine that sampled at the same time.
    recorders: Vec<Recorder>,
    /// Recorder and rows of each sequence, by its ids.
    sequences: BTreeMap<Vec<u32>, (u32, Vec<u32>)>,
}

impl RolloutActivations {
    /// Creates an empty store of at most `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let recorded = Arc::new(Recorded::default());
        Self(Arc::new(Mutex::new(Store { budget, version: None, recorded })))
    }

    /// Lowers the maximum size to this number of bytes.
    pub fn limit(&self, bytes: usize) {
        let mut store = self.lock();
        store.budget = store.budget.min(bytes);
    }

    /// Forgets everything and returns a recorder for each of the engines that will sample.
    pub fn start_rollout(&self, engines: usize) -> Vec<Recorder> {
        let mut store = self.lock();
        store.version = None;
        // If they are still in use, their memory cannot be used again.
        let earlier = Arc::try_unwrap(std::mem::take(&mut store.recorded)).unwrap_or_default();
        let mut recorders = earlier.recorders;
        recorders.resize_with(engines, Recorder::default);
        let budget = store.budget / engines.max(1);
        recorders.iter_mut().for_each(|recorder| recorder.clear(budget));
        recorders
    }

    /// Keeps what was recorded while the policy of this version sampled.
    pub fn finish_rollout(&self, mut recorders: Vec<Recorder>, version: u64) {
        // An engine may have had nothing to do.
        recorders.retain(|recorder| recorder.rows > 0);
        let kept_by_all = recorders.iter().map(Recorder::kept_layers).reduce(|a, b| &a & &b);
        let mut sequences = BTreeMap::new();
        for (index, recorder) in recorders.iter_mut().enumerate() {
            recorder.keep_only(kept_by_all.as_ref());
            let own = recorder.sequences.drain(..);
            sequences.extend(own.map(|(ids, rows)| (ids, (index as u32, rows))));
        }
        let mut store = self.lock();
        store.recorded = Arc::new(Recorded { recorders, sequences });
        store.version = Some(version);
    }

    /// Returns the activations of all tokens of a batch for the policy of this version. Returns `None`
    /// if those of any token are missing.
    pub fn look_up(&self, tokens: &TokenBatch, version: u64) -> Option<KnownActivations> {
        let recorded = {
            let store = self.lock();
            (store.version == Some(version)).then(|| Arc::clone(&store.recorded))
        }?;
        let rows = recorded.rows(tokens)?.into();
        Some(KnownActivations { recorded, rows })
    }

    /// Forgets everything, because versions of the policy will be used again.
    pub fn forget(&self) {
        self.lock().version = None;
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl Recorded {
    /// Returns recorder and row for each token.
    fn rows(&self, tokens: &TokenBatch) -> Option<Vec<[u32; 2]>> {
        if tokens.prefixes().iter().any(|prefix| !prefix.is_empty()) {
            return None;
        }
        let mut found = vec![None; tokens.tokens()];
        for (sequence, behind) in tokens.behind().enumerate() {
            let shared = behind.map_or(0..0, |first| tokens.rows(first));
            let own = shared.chain(tokens.rows(sequence));
            let ids: Vec<u32> = own.clone().map(|row| tokens.id(row)).collect();
            let Some((recorder, rows)) = self.sequences.get(&ids) else { continue };
            own.zip(rows).for_each(|(token, &row)| found[token] = Some([*recorder, row]));
        }
        found.into_iter().collect()
    }
}

/// Records the outputs of linear layers while an engine samples.
///
/// If they would exceed the budget, the layers with the fewest inputs are given up first, because each
/// of their outputs costs the fewest multiplications. The process does not record them again.
#[derive(Debug, Default)]
pub struct Recorder {
    budget: usize,
    bytes: usize,
    /// By the number of the layer.
    layers: BTreeMap<usize, Layer>,
    /// Number of rows in each layer.
    rows: usize,
    /// Ids and rows of the sequences that training needs.
    sequences: Vec<(Vec<u32>, Vec<u32>)>,
}

#[derive(Debug)]
struct Layer {
    inputs: usize,
    /// `None` if the layer was given up.
    outputs: Option<KeptRows>,
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

    fn kept_layers(&self) -> BTreeSet<usize> {
        let kept = self.layers.iter().filter(|(_, layer)| layer.outputs.is_some());
        kept.map(|(number, _)| *number).collect()
    }

    /// Frees the outputs of all other layers.
    fn keep_only(&mut self, layers: Option<&BTreeSet<usize>>) {
        for (number, layer) in &mut self.layers {
            if layers.is_none_or(|layers| !layers.contains(number)) {
                layer.outputs = None;
            }
        }
    }

    /// Ends a pass over this number of tokens.
    ///
    /// # Panics
    /// Panics if a layer did not record a row for each of them.
    pub(crate) fn pass_done(&mut self, tokens: usize) {
        self.rows += tokens;
        let is_complete = |outputs: &KeptRows| outputs.rows() == self.rows;
        let mut kept = self.layers.values().filter_map(|layer| layer.outputs.as_ref());
        assert!(kept.all(is_complete), "each pass runs all linear layers once");
    }

    /// Notes which rows belong to a sequence.
    pub(crate) fn keep(&mut self, ids: &[u32], rows: Vec<u32>) {
        self.sequences.push((ids.to_vec(), rows));
    }
}

/// Activations of all tokens of a batch.
#[derive(Clone, Debug)]
pub struct KnownActivations {
    recorded: Arc<Recorded>,
    /// Recorder and row for each token.
    rows: Arc<[[u32; 2]]>,
}

impl KnownActivations {
    /// Returns the output of a linear layer for all tokens, unless it was given up.
    pub(crate) fn output(&self, number: usize, device: &Device) -> Option<Tensor<2>> {
        let recorders = self.recorded.recorders.iter();
        let stores: Option<Vec<&KeptRows>> =
            recorders.map(|recorder| recorder.layers.get(&number)?.outputs.as_ref()).collect();
        Some(KeptRows::gather(&stores?, &self.rows, device))
    }
}
