//! Sentence vectors (Reimers & Gurevych 2019, "Sentence-BERT").

use burn::tensor::{Tensor, TensorData};

use crate::{Dropout, ModelError, TokenBatch, Transformer};

/// An encoder that gives one vector for a text: the mean of its tokens' hidden states.
#[derive(Clone, Debug)]
pub struct SentenceEncoder(Transformer);

impl SentenceEncoder {
    /// Takes a model in which all tokens see each other; it is taken off the tape.
    ///
    /// # Errors
    /// [`ModelError::NotAnEncoder`].
    pub fn new(model: Transformer) -> Result<Self, ModelError> {
        use burn::module::Module;
        if model.description().causal {
            return Err(ModelError::NotAnEncoder);
        }
        let on_tape = crate::CausalLm::device(&model).is_autodiff();
        Ok(Self(if on_tape { model.valid() } else { model }))
    }

    /// The mean of the hidden states of each row's tokens, without padding, `[rows, width]`.
    pub fn mean_pooled(&self, tokens: &TokenBatch) -> Tensor<2> {
        let (rows, columns) = (tokens.rows(), tokens.columns());
        let device = crate::CausalLm::device(&self.0);
        let hidden = self.0.run(tokens, None, None, None, &mut Dropout::off(), &device);
        let width = hidden.dims()[1];
        let mut share = vec![0.0_f32; rows * columns];
        for (row, span) in share.chunks_mut(columns).zip(tokens.spans().iter()) {
            row[span.clone()].fill(1.0 / span.len() as f32);
        }
        let share = Tensor::<3>::from_data(TensorData::new(share, [rows, 1, columns]), &device);
        share.matmul(hidden.reshape([rows, columns, width])).reshape([rows, width])
    }

    /// As [`Self::mean_pooled`], of length 1: products of two are cosines.
    pub fn unit(&self, tokens: &TokenBatch) -> Tensor<2> {
        let pooled = self.mean_pooled(tokens);
        let length = pooled.clone().square().sum_dim(1).sqrt();
        // As PyTorch's `normalize`: a vector of nothing stays one.
        pooled / length.clamp_min(1e-12)
    }
}
