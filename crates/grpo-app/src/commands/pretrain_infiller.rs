//! `grpo pretrain` with the section `[masked_lm]`: an infiller learns which characters stand in the blanks of a text.

use std::path::PathBuf;

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{Characters, Codec, Codecs, Half, MaskedStream, MaskingPlan, Passages, Purpose};
use grpo_model::{InfillerConfig, ModelConfig, ModelSpec, SequenceScorer, Transformer};
use grpo_run::DataFile;
use grpo_train::{
    CriticConfig, DEFAULT_EVAL_BATCHES, MaskedData, MaskedLmConfig, MaskedLmMeasures,
    ModifierConfig, StepsConfig, TransferConfig, Validated, train_masked_lm,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::infill::{
    LoadedInfiller, PassageSection, StepsFiles, checked, infiller_words, passed, save_model,
};
use crate::output::{say, say_checked};
use crate::run_files::create_run;
use crate::task::Tasks;
use crate::{config, device};

/// Configuration of `grpo pretrain` for an infiller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskedLmFile {
    /// Folder of the run.
    run: PathBuf,
    seed: u64,
    /// Model folder to go on from, with its characters and sizes; without it a new model is made.
    #[serde(default)]
    start: Option<PathBuf>,
    data: PassageSection,
    masking: MaskingPlan,
    /// Sizes of a new model.
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
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InfillerSection {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    /// Whether there is a second head, which says of each character whether it is wrong.
    #[serde(default)]
    critic: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ValidationSection {
    /// Batches of a look at the validation half.
    batches: u64,
}

impl Default for ValidationSection {
    fn default() -> Self {
        Self { batches: DEFAULT_EVAL_BATCHES }
    }
}

pub(crate) fn run(_: &Tasks, arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<MaskedLmFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    let settings = MaskedLmConfig {
        steps: file.masked_lm,
        eval_batches: file.validation.batches,
        modifiers: file.modifiers.clone(),
        critic: file.critic,
        transfer: file.transfer,
    };
    settings.check().map_err(|error| origin.explain(error))?;
    if arguments.check {
        say_checked(&arguments.config);
        return Ok(());
    }
    let device = device::device().autodiff();
    let mut beginning = Beginning::of(&file, &device)?;
    let judge = file.modifiers.judge.as_ref().map(|weighting| {
        let folder = &weighting.model;
        let (spec, judge) = SequenceScorer::load(folder, &Codecs::new(vec![Characters::CODEC]), &device.clone().inner())?;
        anyhow::ensure!(
            spec.codec.own::<Characters>() == Some(beginning.passages.characters()),
            "{}: the judge has other characters than the text; take one that was trained on the same",
            folder.display()
        );
        if !weighting.accept_failed_judge {
            passed(folder).map_err(|fault| {
                anyhow::anyhow!("{fault:#}, or set modifiers.judge.accept_failed_judge = true")
            })?;
        }
        anyhow::Ok(judge)
    });
    let judge = judge.transpose().context("modifiers.judge.model")?;
    let stream = |half, purpose| {
        let passages = beginning.passages.clone();
        checked(MaskedStream::new(passages, half, file.masking.clone(), file.seed, purpose))
            .with_context(|| format!("{}masking", origin.place("masking.stages")))
    };
    let data = MaskedData {
        characters: beginning.passages.characters().clone(),
        train: stream(Half::Train, Purpose::Masking)?,
        validation: stream(Half::Validation, Purpose::Evaluation)?,
    };
    settings
        .check_with(&beginning.model, &data, judge.as_ref())
        .map_err(|error| origin.explain(error))?;
    let files = std::mem::take(&mut beginning.files);
    let mut files: Vec<DataFile> =
        files.iter().map(|(role, path)| DataFile::measure(role, path)).collect::<Result<_, _>>()?;
    files.push(DataFile::measure("text", &file.data.file)?);
    let info = config::run_info(file.seed, files);
    let folder = create_run(&file.run, arguments.force, &config::resolved(&file)?, &info)?;
    let target = folder.path().join("model");
    let Beginning { spec, model, .. } = beginning;
    let save = |_: &Validated<MaskedLmMeasures>, model: &Transformer| {
        save_model(&target, &spec, model, None)
    };
    let mut observer = StepsFiles::new(&folder.metrics_path(), infiller_words, Some(save))?;
    let trained =
        train_masked_lm(model, &data, judge.as_ref(), &settings, file.seed, &mut observer);
    observer.finish();
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    say(format_args!("{:<12} {}", "model", target.display()));
    Ok(())
}

/// What the training begins with.
struct Beginning {
    spec: ModelSpec,
    model: Transformer,
    passages: std::sync::Arc<Passages>,
    files: Vec<(&'static str, PathBuf)>,
}

impl Beginning {
    fn of(file: &MaskedLmFile, device: &Device) -> anyhow::Result<Self> {
        match (&file.start, &file.model) {
            (Some(start), None) => {
                let loaded = LoadedInfiller::load(start, device)
                    .with_context(|| format!("start = \"{}\"", start.display()))?;
                loaded.sees(&file.data, start)?;
                let passages = file.data.read(Some(loaded.characters()))?;
                let LoadedInfiller { spec, model, files } = loaded;
                Ok(Self { spec, model, passages, files })
            }
            (None, Some(sizes)) => {
                let passages = file.data.read(None)?;
                let characters = passages.characters();
                let InfillerSection { n_layer, n_head, n_embd, critic } = *sizes;
                let (vocabulary, length) = (characters.len(), file.data.length);
                let sizes = InfillerConfig {
                    critic,
                    ..InfillerConfig::new(vocabulary, length, n_layer, n_head, n_embd)
                };
                let config = ModelConfig::infiller(&sizes).context("[model]")?;
                let model = Transformer::random(&config, file.seed, device)?;
                let codec = Codec::from_text_codec(characters.clone());
                let spec = ModelSpec { config, codec };
                Ok(Self { spec, model, passages, files: Vec::new() })
            }
            (Some(_), Some(_)) => anyhow::bail!(
                "the configuration has both `start` and [model]; a model that is gone on from has its sizes already, so leave one of them out"
            ),
            (None, None) => anyhow::bail!(
                "the configuration has neither [model] (sizes of a new model) nor `start` (a model folder to go on from)"
            ),
        }
    }
}
