//! Masked texts, packed, and their targets: the places where the loss counts. A blank is a target that the model reads as MASK.

use crate::Characters;
use crate::MaskedText;
use burn::tensor::{Device, Int, Tensor, TensorData};
use grpo_kernels::indices;
use grpo_logprob::Targets;
use grpo_model::TokenBatch;

use crate::fill::Blank;

/// Texts one behind another, and their targets, `n` of them.
pub(super) struct MaskedBatch {
    pub(super) inputs: TokenBatch,
    /// Row among the tokens.
    rows: Vec<usize>,
    /// The text that it is in.
    pub(super) texts: Vec<usize>,
    /// The place in that text.
    places: Vec<usize>,
    /// The true character.
    pub(super) truths: Vec<u32>,
    /// Whether the model reads MASK there, and not a character that may be the wrong one.
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

    /// Rows among the tokens, `[n]`.
    pub(super) fn places(&self, device: &Device) -> Tensor<1, Int> {
        indices(self.rows.iter().copied(), device)
    }

    /// The true characters, `[n]`.
    pub(super) fn truths(&self, device: &Device) -> Tensor<1, Int> {
        let ids: Vec<i32> = self.truths.iter().map(|&id| id as i32).collect();
        Tensor::from_data(TensorData::new(ids, [self.truths.len()]), device)
    }

    /// The true characters under the distribution of characters: MASK, PAD and CLS have no part in it.
    pub(super) fn targets(&self) -> Targets {
        Targets::new(self.truths.clone(), self.vocabulary).without(&self.never)
    }

    /// Where each place is in a step in which `first` texts stand before these.
    pub(super) fn blanks(&self, step: u64, first: usize) -> Vec<Blank> {
        let places = self.texts.iter().zip(&self.places);
        places.map(|(&text, &place)| Blank { step, text: first + text, place }).collect()
    }
}
