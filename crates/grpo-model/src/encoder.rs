//! Sentence vectors (Reimers & Gurevych 2019, "Sentence-BERT").

use burn::tensor::Tensor;

use crate::{Dropout, ModelError, TokenBatch, Transformer};

/// An encoder that gives one vector for a text: the mean of its tokens' hidden states.
#[derive(Clone, Debug)]
pub struct SentenceEncoder(Transformer);

impl SentenceEncoder {
    /// Takes a model in which all tokens see each other; it is taken off the tape.
    ///
    /// # Errors
    /// A causal model.
    pub fn new(model: Transformer) -> Result<Self, ModelError> {
        use burn::module::Module;
        if model.description().causal {
            let problem =
                "a sentence encoder is a model like BERT, in which all tokens see each other";
            return Err(ModelError::Unfit(problem.to_owned()));
        }
        let on_tape = crate::LanguageModel::device(&model).is_autodiff();
        Ok(Self(if on_tape { model.valid() } else { model }))
    }

    /// The mean of the hidden states of each sequence's tokens, `[sequences, width]`.
    pub fn mean_pooled(&self, tokens: &TokenBatch) -> Tensor<2> {
        let device = crate::LanguageModel::device(&self.0);
        let hidden = self.0.run(tokens, None, None, None, &mut Dropout::off(), &device);
        let means = (0..tokens.sequences()).map(|index| {
            let rows = tokens.rows(index);
            hidden.clone().slice([rows]).mean_dim(0)
        });
        Tensor::cat(means.collect(), 0)
    }

    /// As [`Self::mean_pooled`], of length 1: products of two are cosines.
    pub fn unit(&self, tokens: &TokenBatch) -> Tensor<2> {
        let pooled = self.mean_pooled(tokens);
        let length = pooled.clone().square().sum_dim(1).sqrt();
        // As PyTorch's `normalize`: a vector of nothing stays one.
        pooled / length.clamp_min(1e-12)
    }
}
