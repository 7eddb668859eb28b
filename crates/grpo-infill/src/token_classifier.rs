//! Token classifiers, which assign each token in a text to a class.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use grpo_kernels::{gather_rows, indices};
use grpo_logprob::{Targets, score};
use grpo_model::{
    Dropout, HeadKind, LanguageModel, ModelError, ModelFolder, ModelSpec, TokenBatch, Transformer,
};

use crate::families::{TOKEN_CLASSIFIER, formats};

/// A bidirectional transformer with a linear layer that computes a logit per class for each token.
///
/// Sequences are packed, so a token cannot see other texts.
#[derive(Module, Debug)]
pub struct TokenClassifier {
    model: Transformer,
}

impl TokenClassifier {
    /// Creates a classifier from a model of the `token_classifier` family.
    ///
    /// # Errors
    /// Returns an error if the model has no classes.
    pub fn new(model: Transformer) -> Result<Self, ModelError> {
        match model.description().head {
            HeadKind::Classes(_) => Ok(Self { model }),
            _ => Err(ModelError::Unfit(
                "a token classifier must be a token_classifier model".to_owned(),
            )),
        }
    }

    /// Loads a model directory of the `token_classifier` family.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid, or if the model belongs to a different
    /// family.
    pub fn load(folder: &Path, device: &Device) -> Result<(ModelSpec, Self), ModelError> {
        let family = ModelSpec::family_name(folder)?;
        if family != TOKEN_CLASSIFIER.name {
            return Err(ModelError::Unfit(format!(
                "{} is not a token classifier: its model family is {family}; expected token_classifier",
                folder.display()
            )));
        }
        let ModelFolder { spec, model, .. } = ModelFolder::load(folder, &formats(), device)?;
        Ok((spec, Self::new(model)?))
    }

    /// Returns the underlying transformer.
    pub fn model(&self) -> &Transformer {
        &self.model
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        match self.model.description().head {
            HeadKind::Classes(classes) => classes,
            _ => unreachable!("checked when the classifier was created"),
        }
    }

    /// Computes a logit per class for each token, `[tokens, classes]`. Supports autodiff if the
    /// parameters do.
    pub fn logits(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<2> {
        let hidden = self.model.hidden(tokens, dropout);
        self.model.logits(hidden)
    }

    /// Computes the mean cross-entropy in nats, `[1]`, over the tokens with a label. `labels` has one
    /// entry per token of the batch. Supports autodiff if the parameters do.
    ///
    /// # Errors
    /// Returns an error if the number of labels is wrong, no token has a label, or a label is not a
    /// class.
    pub fn cross_entropy(
        &self,
        tokens: &TokenBatch,
        labels: &[Option<u32>],
        dropout: &mut Dropout,
    ) -> Result<Tensor<1>, ModelError> {
        let fault = |message: String| Err(ModelError::Unfit(message));
        let (count, classes) = (tokens.tokens(), self.classes());
        if labels.len() != count {
            return fault(format!(
                "expected {count} labels, one per token, found {}",
                labels.len()
            ));
        }
        let labelled: Vec<(usize, u32)> =
            labels.iter().enumerate().filter_map(|(i, label)| Some((i, (*label)?))).collect();
        if labelled.is_empty() {
            return fault("no token has a label, so there is no cross-entropy".to_owned());
        }
        if let Some((token, label)) = labelled.iter().find(|(_, label)| *label as usize >= classes)
        {
            return fault(format!(
                "the label of token {token} is {label}; expected a class from 0 to {}",
                classes - 1
            ));
        }
        let hidden = self.model.hidden(tokens, dropout);
        let rows = indices(labelled.iter().map(|(token, _)| *token), &hidden.device());
        let head = self.model.head();
        let targets = Targets::new(labelled.iter().map(|(_, label)| *label).collect(), classes);
        let scores = score(gather_rows(hidden, rows), &head, &targets);
        Ok(scores.logprobs.mean().neg())
    }
}
