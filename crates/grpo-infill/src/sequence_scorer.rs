//! Sequence scorers, which assign a number to an entire text.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_kernels::{gather_rows, indices};
use grpo_model::{
    Description, Dropout, HeadKind, LanguageModel, ModelConfig, ModelError, ModelFolder, ModelSpec,
    Positions, TokenBatch, Transformer, parameters,
};

use crate::families::{SEQUENCE_SCORER, formats};

/// A bidirectional transformer that reads `[CLS] + text` and returns `σ(A · w·h_CLS + B)`. The
/// score ranges from 0 for natural text to 1 for corrupted text.
///
/// Padding cannot affect a score, because sequences are packed and PAD tokens are removed.
#[derive(Module, Debug)]
pub struct SequenceScorer {
    model: Transformer,
}

impl SequenceScorer {
    /// Creates a scorer from a model of the `sequence_scorer` family.
    ///
    /// # Errors
    /// Returns an error if the model does not have a score head.
    pub fn new(model: Transformer) -> Result<Self, ModelError> {
        match model.description().head {
            HeadKind::Score => Ok(Self { model }),
            _ => Err(ModelError::Unfit("a judge must be a sequence_scorer model".to_owned())),
        }
    }

    /// Creates a scorer that reuses the blocks, the token embedding and the final norm of `trunk`.
    /// The score head is initialised randomly from `seed`.
    ///
    /// # Errors
    /// Returns an error if the configuration is not a sequence scorer, or if its sizes differ from
    /// those of `trunk`. Only `block_size` may differ.
    pub fn from_trunk(
        config: &ModelConfig,
        trunk: &Transformer,
        seed: u64,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let (own, other) = (config.description(), trunk.description());
        let comparable = |of: &Description| Description {
            context: own.context,
            head: own.head,
            critic: own.critic,
            ..of.clone()
        };
        if comparable(own) != comparable(other) {
            return Err(ModelError::Unfit(format!(
                "cannot start the scorer from the weights of this model: it has {}, but the scorer has {}; only block_size may differ",
                words(other),
                words(own)
            )));
        }
        let scorer = Self::new(Transformer::random(config, seed, device)?)?;
        let values = parameters(trunk)
            .into_iter()
            .map(|parameter| (parameter.path.clone(), parameter.value()))
            .collect();
        let paths = parameters(&scorer.model).into_iter().map(|parameter| parameter.path);
        let mut take = TakeTrunk { paths: paths.collect(), values, device: device.clone() };
        Ok(Self { model: scorer.model.map(&mut take) })
    }

    /// Loads a model directory of the `sequence_scorer` family.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid, or if the model belongs to a different
    /// family.
    pub fn load(folder: &Path, device: &Device) -> Result<(ModelSpec, Self), ModelError> {
        let family = ModelSpec::family_name(folder)?;
        if family != SEQUENCE_SCORER.name {
            return Err(ModelError::Unfit(format!(
                "{} is not a judge: its model family is {family}; expected sequence_scorer, as written by `grpo train-judge`",
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

    /// Returns the maximum text length in characters. Longer texts are truncated.
    pub fn longest_text(&self) -> usize {
        self.model.description().context - 1
    }

    /// Returns the ID of the CLS token, which precedes each text. It is the last one in the
    /// vocabulary.
    pub fn cls_id(&self) -> u32 {
        self.model.description().vocabulary as u32 - 1
    }

    fn pad_id(&self) -> u32 {
        self.cls_id() - 1
    }

    /// Creates the input batch for `texts`. Each text is prefixed with CLS, stripped of PAD and
    /// truncated to the maximum length.
    ///
    /// # Panics
    /// Panics if `cls` differs from [`Self::cls_id`].
    pub fn batch(&self, texts: &[&[u32]], cls: u32) -> TokenBatch {
        assert_eq!(cls, self.cls_id(), "CLS must be the last id of the scorer's vocabulary");
        let (pad, longest) = (self.pad_id(), self.longest_text());
        let mut batch = TokenBatch::new();
        for text in texts {
            let text = text.iter().copied().filter(|&id| id != pad).take(longest);
            batch.push(&std::iter::once(cls).chain(text).collect::<Vec<u32>>());
        }
        batch
    }

    /// Scores a batch created by [`Self::batch`]. The result has shape `[sequences]`, and supports
    /// autodiff if the parameters do.
    pub fn forward(&self, tokens: &TokenBatch, dropout: &mut Dropout) -> Tensor<1> {
        let hidden = self.model.hidden(tokens, dropout);
        let first = (0..tokens.sequences()).map(|index| tokens.rows(index).start);
        let first = indices(first, &hidden.device());
        let score = self.model.score(gather_rows(hidden, first));
        score.expect("a sequence scorer has a score head")
    }

    /// Scores a single text without autodiff. The result ranges from 0 (natural) to 1 (corrupted).
    pub fn score(&self, text: &[u32]) -> f64 {
        let tokens = self.batch(&[text], self.cls_id());
        let off_tape;
        let scorer = if self.model.device().is_autodiff() {
            off_tape = self.valid();
            &off_tape
        } else {
            self
        };
        let score = scorer.forward(&tokens, &mut Dropout::off()).into_data();
        score.iter::<f64>().next().expect("the output has one score per text")
    }
}

/// Describes the properties of a model that have to match, for use in an error message.
fn words(of: &Description) -> String {
    let positions = match &of.positions {
        Positions::Rotary(rotary) => format!("rope_theta {}", rotary.base),
        Positions::Learned => "learned positions".to_owned(),
    };
    format!(
        "{} ids, {} blocks of width {}, {} heads and {positions}",
        of.vocabulary, of.layers, of.width, of.heads
    )
}

/// Copies parameter values from a trunk.
struct TakeTrunk {
    /// Paths of the remaining parameters.
    paths: VecDeque<String>,
    values: BTreeMap<String, Tensor<1>>,
    device: Device,
}

impl ModuleMapper for TakeTrunk {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path =
            self.paths.pop_front().expect("the mapper visits the same parameters as the visitor");
        let Some(values) = self.values.remove(&path) else { return param };
        let shape = param.dims();
        let values: Vec<f32> = values.into_data().iter().collect();
        Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), &self.device))
    }
}
