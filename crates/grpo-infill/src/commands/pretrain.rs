//! Infiller training: `grpo pretrain` with a `[masked_lm]` section.

use std::path::{Path, PathBuf};

use crate::{
    Characters, CriticConfig, DEFAULT_EVAL_BATCHES, InfillerConfig, MaskedData, MaskedLmConfig,
    MaskedLmObjective, MaskingPlan, ModifierConfig, PassageOptions, Passages, SequenceScorer,
};
use anyhow::Context;
use burn::tensor::Device;
use grpo_data::Codec;
use grpo_model::{ModelSpec, Transformer};
use grpo_train::{GuardConfig, StepsConfig, TransferConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sections::{InfillerFiles, LoadedInfiller, passed, read_passages};
use grpo_task::args::RunArguments;
use grpo_task::checkpoint::CheckpointSection;
use grpo_task::config::Origin;
use grpo_task::device;
use grpo_task::output::{say, say_checked};
use grpo_task::phase::Phase;
use grpo_task::supervised_run::{ModelSizes, Request};
use grpo_task::task::Tasks;

/// The `grpo pretrain` configuration file for an infiller.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MaskedLmFile {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    run: PathBuf,
    /// Initial weights, passages, masks, dropout.
    #[schemars(range(min = 0), extend("x-basic" = true))]
    seed: u64,
    /// Infiller folder to start from, with its characters and sizes; excludes `[model]`.
    #[serde(default)]
    start: Option<PathBuf>,
    data: PassageOptions,
    masking: MaskingPlan,
    /// Size of the new model.
    #[serde(default)]
    model: Option<InfillerSection>,
    masked_lm: StepsConfig,
    #[serde(default)]
    validation: ValidationSection,
    #[serde(default)]
    modifiers: ModifierConfig,
    #[serde(default)]
    critic: Option<CriticConfig>,
    #[serde(default)]
    transfer: TransferConfig,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<GuardConfig>,
    #[serde(default)]
    save: CheckpointSection,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InfillerSection {
    /// Transformer blocks.
    #[schemars(range(min = 1, max = 1024))]
    n_layer: usize,
    /// Attention heads; divides `n_embd`.
    #[schemars(range(min = 1, max = 4096))]
    n_head: usize,
    /// Width. The context is `data.length`.
    #[schemars(range(min = 1, max = 65536))]
    n_embd: usize,
    /// Second head that predicts for each character whether it is wrong.
    #[serde(default)]
    critic: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ValidationSection {
    /// Fixed batches of a validation. They select the model, so its `eval_loss` is slightly better
    /// than on other texts.
    #[schemars(range(min = 1, max = 1e6))]
    batches: u64,
}

impl Default for ValidationSection {
    fn default() -> Self {
        Self { batches: DEFAULT_EVAL_BATCHES }
    }
}

pub(crate) fn run(_: &Tasks, arguments: &RunArguments) -> anyhow::Result<()> {
    let Request { file, origin, start } =
        Request::read(arguments, "pretrain", |file: &mut MaskedLmFile| &mut file.run)?;
    let settings = file.settings(&origin)?;
    if arguments.check {
        let start = file.start.iter().map(|path| ("model", path));
        let judge = file.modifiers.judge.iter().map(|judge| ("judge", &judge.model));
        let inputs = start.chain([("data", &file.data.file)]).chain(judge);
        say_checked(arguments.configuration()?, &file.run, arguments.force, inputs)?;
        return Ok(());
    }
    let device = device::device()?.autodiff();
    let phase = Phase::begin("loading the model and the texts");
    let Beginning { spec, model, passages, mut files } = Beginning::of(&file, &device)?;
    let judge = file.judge(&passages, &device)?;
    drop(phase);
    let data = MaskedData::new(&passages, &file.masking, file.seed)
        .with_context(|| format!("{}masking", origin.place("masking.stages")))?;
    let trainer = MaskedLmObjective::trainer(model, &data, judge.as_ref(), &settings, file.seed);
    let trainer = trainer.and_then(|trainer| trainer.with_guards(&file.guards));
    let mut trainer = trainer.map_err(|error| origin.explain(error))?;
    files.push(("text", file.data.file.clone()));
    let run = start.folder(&file, &file.run, file.seed, &files)?;
    let mut files = InfillerFiles { spec: &spec, keeps_best: true };
    let ending = run.train(&mut trainer, &mut files, &file.save)?;
    say(format_args!("{:<12} {}", "model", run.target("model").display()));
    run.refuse_stopped(ending)
}

impl MaskedLmFile {
    /// Returns the settings after checking everything that can be checked without a model.
    fn settings(&self, origin: &Origin) -> anyhow::Result<MaskedLmConfig> {
        let settings = MaskedLmConfig {
            steps: self.masked_lm,
            eval_batches: self.validation.batches,
            modifiers: self.modifiers.clone(),
            critic: self.critic,
            transfer: self.transfer,
        };
        settings.check().map_err(|error| origin.explain(error))?;
        self.data.check("data").map_err(|fault| origin.locate(fault))?;
        if let ModelSource::New(&InfillerSection { n_layer, n_head, n_embd, .. }) = self.source()? {
            ModelSizes { n_layer, n_head, n_embd }.check(origin)?;
            let sizes = InfillerConfig::new(VOCABULARY, self.data.length, n_layer, n_head, n_embd);
            sizes.infiller().with_context(|| format!("{}[model]", origin.place("model")))?;
        }
        self.save.check(origin)?;
        Ok(settings)
    }

    /// Returns the model that training starts from.
    fn source(&self) -> anyhow::Result<ModelSource<'_>> {
        match (&self.start, &self.model) {
            (Some(start), None) => Ok(ModelSource::Existing(start)),
            (None, Some(sizes)) => Ok(ModelSource::New(sizes)),
            (Some(_), Some(_)) => anyhow::bail!(
                "the configuration has both `start` and [model]; keep `start` to train an existing model, or [model] to create a new one"
            ),
            (None, None) => anyhow::bail!(
                "the configuration has neither [model] (sizes of a new model) nor `start` (an existing model folder); add one of them"
            ),
        }
    }

    /// Loads the judge used to weight texts, if one is configured.
    fn judge(
        &self,
        passages: &Passages,
        device: &Device,
    ) -> anyhow::Result<Option<SequenceScorer>> {
        let judge = self.modifiers.judge.as_ref().map(|weighting| {
            let folder = &weighting.model;
            let (spec, judge) = SequenceScorer::load(folder, &device.clone().inner())?;
            anyhow::ensure!(
                spec.codec.own::<Characters>() == Some(passages.characters()),
                "{}: the judge and the text have different vocabularies; use a judge trained on the same text",
                folder.display()
            );
            if !weighting.accept_failed_judge {
                passed(folder).map_err(|fault| {
                    anyhow::anyhow!("{fault:#}, or set modifiers.judge.accept_failed_judge = true")
                })?;
            }
            anyhow::Ok(judge)
        });
        judge.transpose().context("modifiers.judge.model")
    }
}

/// The model that training starts from.
enum ModelSource<'a> {
    Existing(&'a Path),
    New(&'a InfillerSection),
}

/// Size of a vocabulary, to check the other sizes before the text is read.
const VOCABULARY: usize = 64;

/// The model and data with which a training run starts.
struct Beginning {
    spec: ModelSpec,
    model: Transformer,
    passages: std::sync::Arc<Passages>,
    files: Vec<(&'static str, PathBuf)>,
}

impl Beginning {
    fn of(file: &MaskedLmFile, device: &Device) -> anyhow::Result<Self> {
        match file.source()? {
            ModelSource::Existing(start) => {
                let loaded = LoadedInfiller::load(start, device)
                    .with_context(|| format!("start = \"{}\"", start.display()))?;
                loaded.sees(&file.data, start)?;
                let passages = read_passages(&file.data, Some(loaded.characters()))?;
                let LoadedInfiller { spec, model, files } = loaded;
                Ok(Self { spec, model, passages, files })
            }
            ModelSource::New(sizes) => {
                let passages = read_passages(&file.data, None)?;
                let characters = passages.characters();
                let InfillerSection { n_layer, n_head, n_embd, critic } = *sizes;
                let (vocabulary, length) = (characters.len(), file.data.length);
                let sizes = InfillerConfig {
                    critic,
                    ..InfillerConfig::new(vocabulary, length, n_layer, n_head, n_embd)
                };
                let config = sizes.infiller().context("[model]")?;
                let model = Transformer::random(&config, file.seed, device)?;
                let codec = Codec::from_text_codec(characters.clone());
                let spec = ModelSpec { config, codec };
                Ok(Self { spec, model, passages, files: Vec::new() })
            }
        }
    }
}
