//! Sentence embeddings (Reimers & Gurevych 2019, "Sentence-BERT").

use burn::tensor::Tensor;

use crate::{Dropout, ModelError, TokenBatch, Transformer};

/// A sentence encoder with mean pooling.
#[derive(Clone, Debug)]
pub struct SentenceEncoder(Transformer);

impl SentenceEncoder {
    /// Creates an encoder from a bidirectional model. Autodiff is removed.
    ///
    /// # Errors
    /// Returns an error if the model is causal.
    pub fn new(model: Transformer) -> Result<Self, ModelError> {
        use burn::module::Module;
        if model.description().causal {
            let problem = "a sentence encoder requires bidirectional attention, as in BERT";
            return Err(ModelError::Unfit(problem.to_owned()));
        }
        let on_tape = crate::LanguageModel::device(&model).is_autodiff();
        Ok(Self(if on_tape { model.valid() } else { model }))
    }

    /// Returns the hidden state of each token. The shape is `[tokens, width]`.
    pub fn hidden(&self, tokens: &TokenBatch) -> Tensor<2> {
        let device = crate::LanguageModel::device(&self.0);
        self.0.run(tokens, None, None, &mut Dropout::off(), &device)
    }

    /// Returns the mean hidden state of each sequence. The shape is `[sequences, width]`.
    pub fn mean_pooled(&self, tokens: &TokenBatch) -> Tensor<2> {
        let hidden = self.hidden(tokens);
        let means = (0..tokens.sequences()).map(|index| {
            let rows = tokens.rows(index);
            hidden.clone().slice([rows]).mean_dim(0)
        });
        Tensor::cat(means.collect(), 0)
    }

    /// Like [`Self::mean_pooled`], with each vector normalised to length 1.
    pub fn unit(&self, tokens: &TokenBatch) -> Tensor<2> {
        let pooled = self.mean_pooled(tokens);
        let length = pooled.clone().square().sum_dim(1).sqrt();
        // Like PyTorch's `normalize`, this leaves a zero vector unchanged.
        pooled / length.clamp_min(1e-12)
    }
}
