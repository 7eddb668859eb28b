//! Batches of masked texts and their targets.
//!
//! A target is a position that contributes to the loss. A blank is a target that the model sees as
//! MASK.

use crate::Characters;
use crate::MaskedText;
use burn::tensor::{Device, Int, Tensor, TensorData};
use grpo_kernels::indices;
use grpo_logprob::Targets;
use grpo_model::TokenBatch;

use crate::fill::Blank;

/// A batch of concatenated texts with `n` targets. Vectors have one element per target.
pub(super) struct MaskedBatch {
    pub(super) inputs: TokenBatch,
    /// Row in the batch.
    rows: Vec<usize>,
    /// Index of the text.
    pub(super) texts: Vec<usize>,
    /// Position within the text.
    places: Vec<usize>,
    /// Correct character.
    pub(super) truths: Vec<u32>,
    /// Whether the model sees MASK at this position.
    pub(super) is_blank: Vec<bool>,
    vocabulary: usize,
    never: [u32; 3],
}

impl MaskedBatch {
    pub(super) fn new(texts: &[MaskedText], characters: &Characters) -> Self {
        let inputs: TokenBatch = texts.iter().map(|text| text.ids.as_slice()).collect();
        let mut batch = Self {
            inputs,
            rows: Vec::new(),
            texts: Vec::new(),
            places: Vec::new(),
            truths: Vec::new(),
            is_blank: Vec::new(),
            vocabulary: characters.len(),
            never: characters.specials(),
        };
        for (index, text) in texts.iter().enumerate() {
            let first = batch.inputs.rows(index).start;
            for place in (0..text.ids.len()).filter(|&place| text.is_target[place]) {
                batch.rows.push(first + place);
                batch.texts.push(index);
                batch.places.push(place);
                batch.truths.push(text.original[place]);
                batch.is_blank.push(text.ids[place] == characters.mask_id());
            }
        }
        batch
    }

    /// Returns the rows of the targets as a tensor, `[n]`.
    pub(super) fn places(&self, device: &Device) -> Tensor<1, Int> {
        indices(self.rows.iter().copied(), device)
    }

    /// Returns the correct characters as a tensor, `[n]`.
    pub(super) fn truths(&self, device: &Device) -> Tensor<1, Int> {
        let ids: Vec<i32> = self.truths.iter().map(|&id| id as i32).collect();
        Tensor::from_data(TensorData::new(ids, [self.truths.len()]), device)
    }

    /// Returns the targets for scoring. Their distribution excludes MASK, PAD and CLS.
    pub(super) fn targets(&self) -> Targets {
        Targets::new(self.truths.clone(), self.vocabulary).without(&self.never)
    }

    /// Returns the coordinates of each target. `first` is the number of preceding texts in the
    /// step.
    pub(super) fn blanks(&self, step: u64, first: usize) -> Vec<Blank> {
        let places = self.texts.iter().zip(&self.places);
        places.map(|(&text, &place)| Blank { step, text: first + text, place }).collect()
    }
}
