//! A small model that sees only the neighbours of a blank, and texts with blanks.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::Prompt;
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::Head;
use grpo_logprob::{SamplingDistribution, SamplingSettings};
use grpo_model::{CacheSlot, Dropout, KvCache, LanguageModel, TokenBatch};

use crate::support::{prompt, shakes};

/// Seven characters, followed by MASK, PAD and CLS.
pub(crate) const SIZE: usize = 10;
pub(crate) const MASK: u32 = 7;
pub(crate) const SPECIALS: [u32; 3] = [7, 8, 9];
const WIDTH: usize = 6;
/// Context length of the model.
pub(crate) const LENGTH: usize = 16;

/// A model in which the hidden state of a token is the sum of its own embedding and those of its
/// neighbours.
#[derive(Module, Debug)]
pub(crate) struct Neighbours {
    table: Param<Tensor<2>>,
    head: Param<Tensor<2>>,
}

/// Returns the parameters of the model, in row-major order. `scale` multiplies the logits.
fn numbers(scale: f32) -> [Vec<f32>; 2] {
    let table = shakes().take(SIZE * WIDTH).map(|x| x * 2.0).collect();
    let head = shakes().skip(1000).take(WIDTH * SIZE).map(|x| x * 3.0 * scale).collect();
    [table, head]
}

impl Neighbours {
    pub(crate) fn new(scale: f32) -> Self {
        let [table, head] = numbers(scale);
        let tensor = |numbers, shape| {
            Param::from_tensor(Tensor::from_data(TensorData::new(numbers, shape), &Device::flex()))
        };
        Self { table: tensor(table, [SIZE, WIDTH]), head: tensor(head, [WIDTH, SIZE]) }
    }
}

impl LanguageModel for Neighbours {
    fn hidden(&self, tokens: &TokenBatch, _dropout: &mut Dropout) -> Tensor<2> {
        let device = self.table.device();
        let own = gather_rows(self.table.val(), tokens.flat_ids(&device));
        // A row of zeros after the last one represents positions beyond either end.
        let none = tokens.tokens();
        let padded = Tensor::cat(vec![own.clone(), Tensor::zeros([1, WIDTH], &device)], 0);
        let of = |sequence: usize| tokens.rows(sequence);
        let before = (0..tokens.sequences())
            .flat_map(|s| of(s).map(move |i| if i == of(s).start { none } else { i - 1 }));
        let behind = (0..tokens.sequences())
            .flat_map(|s| of(s).map(move |i| if i + 1 == of(s).end { none } else { i + 1 }));
        own + gather_rows(padded.clone(), indices(before, &device))
            + gather_rows(padded, indices(behind, &device))
    }

    fn extend(&self, _: &TokenBatch, _: &mut KvCache, _: &[CacheSlot]) -> Tensor<2> {
        panic!("what sees behind itself cannot be continued")
    }

    fn head(&self) -> Head {
        Head::new(self.head.val())
    }

    fn vocabulary_size(&self) -> usize {
        SIZE
    }

    fn context_length(&self) -> usize {
        LENGTH
    }
}

/// Computes the logits at `place` in a text with plain loops.
pub(crate) fn logits(ids: &[u32], place: usize) -> Vec<f64> {
    let [table, head] = numbers(1.0);
    let around = place.saturating_sub(1)..(place + 2).min(ids.len());
    let hidden = (0..WIDTH).map(|w| {
        let cells = around.clone().map(|i| f64::from(table[ids[i] as usize * WIDTH + w]));
        cells.sum::<f64>()
    });
    let hidden: Vec<f64> = hidden.collect();
    let logit = |v| (0..WIDTH).map(|w| hidden[w] * f64::from(head[w * SIZE + v])).sum();
    (0..SIZE).map(logit).collect()
}

/// Returns a distribution that never draws MASK, PAD or CLS.
pub(crate) fn characters(settings: SamplingSettings) -> SamplingDistribution {
    let settings = SamplingSettings { forbidden: SPECIALS.to_vec(), ..settings };
    settings.checked(SIZE).unwrap()
}

/// Texts of different lengths: only blanks, blanks at the ends, adjacent blanks, and a single
/// blank.
pub(crate) fn blanked() -> Vec<Prompt> {
    let texts: [&[u32]; 5] = [
        &[7; 16],
        &[7, 1, 2, 7],
        &[0, 7, 7, 7, 4, 5, 7, 6, 7, 7, 1],
        &[3, 3, 7, 3],
        &[7, 0, 7, 1, 7, 2, 7, 3, 7, 4],
    ];
    texts.iter().zip(0..).map(|(ids, index)| prompt(index, ids)).collect()
}
