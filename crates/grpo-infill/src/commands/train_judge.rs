//! The `grpo train-judge` command. It trains a sequence scorer to predict which fraction of a text
//! was replaced by an infiller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    Corruption, FillSettings, InfillerConfig, JudgeConfig, JudgeData, JudgeGate, JudgeObjective,
    JudgeReport, JudgeScaling, JudgeValidationConfig, MASKING, MaskedData, MaskedLmConfig,
    MaskedLmObjective, MaskedStream, Masking, MaskingPlan, PassageOptions, Passages,
    SequenceScorer, Split, measure_judge,
};
use anyhow::Context;
use burn::tensor::Device;
use grpo_data::schema::Keys;
use grpo_model::{Frozen, ModelSpec, Transformer};
use grpo_train::{GuardConfig, StepsConfig, TransferConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sections::{InfillerFiles, JudgeFiles, LoadedInfiller, against, read_passages};
use grpo_task::args::RunArguments;
use grpo_task::checkpoint::CheckpointSection;
use grpo_task::config::Origin;
use grpo_task::device;
use grpo_task::output::{say, say_checked};
use grpo_task::phase::Phase;
use grpo_task::supervised_run::{ModelFiles, ModelSizes, Request, SupervisedRun};
use grpo_task::task::{CommandGroup, TaskCommand};

/// The `grpo train-judge` configuration file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgeFile {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    run: PathBuf,
    /// Determines all random numbers.
    #[schemars(extend("x-basic" = true))]
    seed: u64,
    /// Infiller that fills the blanks; the judge has its characters.
    #[schemars(extend("x-basic" = true))]
    infiller: PathBuf,
    /// Start from the infiller's embeddings, blocks and norm; otherwise `[model]` has the sizes
    /// (`n_layer`, `n_head`, `n_embd`).
    #[serde(default = "yes")]
    start_from_infiller: bool,
    data: PassageOptions,
    masking: MaskingPlan,
    /// Size of a judge trained from scratch.
    #[serde(default)]
    model: Option<JudgeSection>,
    judge: StepsConfig,
    /// Masked language model pretraining for a judge trained from scratch.
    #[serde(default)]
    masked_lm: Option<StepsConfig>,
    /// Fraction of unchanged training texts.
    #[serde(default = "default_natural_share")]
    #[schemars(range(min = 0, max = 0.99))]
    natural_share: f64,
    #[serde(default)]
    fill: FillSettings,
    #[serde(default)]
    scaling: JudgeScaling,
    #[serde(default)]
    transfer: TransferConfig,
    #[serde(default)]
    validation: JudgeValidationConfig,
    #[serde(default)]
    gate: JudgeGate,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<GuardConfig>,
    #[serde(default)]
    save: CheckpointSection,
}

fn yes() -> bool {
    true
}
fn default_natural_share() -> f64 {
    0.1
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JudgeSection {
    /// Transformer blocks.
    #[schemars(range(min = 1, max = 1024))]
    n_layer: usize,
    /// Attention heads; divides `n_embd`.
    #[schemars(range(min = 1, max = 4096))]
    n_head: usize,
    /// Width. The context is `data.length`.
    #[schemars(range(min = 1, max = 65536))]
    n_embd: usize,
}

const EXAMPLES: &str = "Examples:
  grpo train-judge configs/infill/judge.toml
  grpo train-judge --resume runs/infill/judge";

/// Returns the `train-judge` subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Train a judge that scores filled-in text",
        "The judge predicts what fraction of a text was replaced by an infiller. It is trained on natural text and on text whose blanks the infiller filled, then tested on held-out text. The exit code is 0 if the judge passes the gate in the configuration, and 1 if it must not be used as a reward.",
    ];
    TaskCommand::new("train-judge", &about, CommandGroup::Train, |_, arguments| run(arguments))
        .with_examples(EXAMPLES)
        .with_configuration(Keys::of::<JudgeFile>())
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let Request { file, origin, start } =
        Request::read(arguments, "train-judge", |file: &mut JudgeFile| &mut file.run)?;
    let settings = file.settings(&origin)?;
    if arguments.check {
        let inputs = [("infiller", &file.infiller), ("data", &file.data.file)];
        say_checked(arguments.configuration()?, &file.run, arguments.force, inputs)?;
        return Ok(());
    }
    let device = device::device()?.autodiff();
    let phase = Phase::begin(format!("loading {} and the texts", file.infiller.display()));
    let infiller = LoadedInfiller::load(&file.infiller, &device)
        .with_context(|| format!("infiller = \"{}\"", file.infiller.display()))?;
    infiller.sees(&file.data, &file.infiller)?;
    let passages = read_passages(&file.data, Some(infiller.characters()))?;
    let (spec, mut judge) = beginning(&file, &infiller, &device)?;
    drop(phase);
    let plan = file.masking.clone().for_judge();
    let train = MaskedStream::new(passages.clone(), Split::Train, plan, file.seed, MASKING);
    let train = train
        .and_then(MaskedStream::checked)
        .with_context(|| format!("{}masking", origin.place("masking.stages")))?;
    let data = JudgeData { passages, train, infiller: Frozen::snapshot(&infiller.model) };
    data.check(&settings).map_err(|error| origin.explain(error))?;
    let own_trunk =
        file.masked_lm.map(|steps| OwnTrunk::of(&file, steps, &spec, &data.passages, &device));
    let own_trunk = own_trunk.transpose()?;
    let text = [("text", file.data.file.clone())];
    let files: Vec<_> = infiller.files.iter().cloned().chain(text).collect();
    let run = start.folder(&file, &file.run, file.seed, &files)?;
    // If there is a checkpoint, the judge in it already includes the trunk.
    if let (Some(own_trunk), false) = (own_trunk, run.has_checkpoint()) {
        let trunk = own_trunk.trained(&file, &run)?;
        judge = SequenceScorer::from_trunk(&spec.config, &trunk, file.seed, &device)?;
    }
    let trainer = JudgeObjective::trainer(judge, &data, &settings, file.seed);
    let trainer = trainer.and_then(|trainer| trainer.with_guards(&file.guards));
    let mut trainer = trainer.map_err(|error| origin.explain(error))?;
    let mut files = JudgeFiles { spec: &spec, report: None };
    let ending = run.train(&mut trainer, &mut files, &file.save)?;
    run.refuse_stopped(ending)?;
    let (judge, train_step) = run.best(&trainer, &files)?;
    let validation = measure_judge(&judge, &data, &settings, file.seed)?;
    let (gate, texts) = (file.gate, file.validation);
    let passed = gate.passes(&validation);
    let report = JudgeReport { passed, gate, validation, texts, train_step };
    files.report = Some(report);
    let target = run.save("model", |folder| files.write(folder, &judge))?;
    verdict(&report, &target)
}

impl JudgeFile {
    /// Returns the settings after checking everything that can be checked without a model.
    fn settings(&self, origin: &Origin) -> anyhow::Result<JudgeConfig> {
        let settings = JudgeConfig {
            steps: self.judge,
            natural_share: self.natural_share,
            fill: self.fill,
            scaling: self.scaling,
            transfer: self.transfer,
            validation: self.validation,
            gate: self.gate,
        };
        let checked = settings.check().and_then(|()| match &self.masked_lm {
            Some(steps) => steps.check("masked_lm"),
            None => Ok(()),
        });
        checked.map_err(|error| origin.explain(error))?;
        self.data.check("data").map_err(|fault| origin.locate(fault))?;
        if let Some(&JudgeSection { n_layer, n_head, n_embd }) = self.new_model()? {
            ModelSizes { n_layer, n_head, n_embd }.check(origin)?;
        }
        self.save.check(origin)?;
        anyhow::ensure!(
            self.masked_lm.is_none() || !self.start_from_infiller,
            "{}[masked_lm] is only valid for a judge trained from scratch; remove it, or set start_from_infiller = false",
            origin.place("masked_lm")
        );
        anyhow::ensure!(
            self.masking.corruption() == Corruption::None,
            "{}a judge learns from blanks that the infiller fills, but masking.corruption = \"bert\" also inserts random characters; remove it",
            origin.place("masking.corruption")
        );
        Ok(settings)
    }

    /// Returns the sizes of a new judge, unless it starts from the infiller.
    fn new_model(&self) -> anyhow::Result<Option<&JudgeSection>> {
        match (self.start_from_infiller, &self.model) {
            (true, None) => Ok(None),
            (false, Some(sizes)) => Ok(Some(sizes)),
            (true, Some(_)) => anyhow::bail!(
                "a judge that starts from the infiller has the infiller's sizes; remove [model], or set start_from_infiller = false"
            ),
            (false, None) => anyhow::bail!(
                "start_from_infiller = false creates a new judge and requires its sizes; add [model]"
            ),
        }
    }
}

/// Creates the untrained judge along with its configuration and codec.
fn beginning(
    file: &JudgeFile,
    infiller: &LoadedInfiller,
    device: &Device,
) -> anyhow::Result<(ModelSpec, SequenceScorer)> {
    let of_infiller = InfillerConfig::of(&infiller.spec.config).expect("the model is an infiller");
    let codec = infiller.spec.codec.clone();
    match file.new_model()? {
        None => {
            let config = of_infiller.sequence_scorer()?;
            let judge = SequenceScorer::from_trunk(&config, &infiller.model, file.seed, device)?;
            Ok((ModelSpec { config, codec }, judge))
        }
        Some(sizes) => {
            let JudgeSection { n_layer, n_head, n_embd } = *sizes;
            let (vocabulary, length) = (of_infiller.vocab_size, file.data.length);
            let sizes = InfillerConfig::new(vocabulary, length, n_layer, n_head, n_embd);
            let config = sizes.sequence_scorer().context("[model]")?;
            let judge = SequenceScorer::new(Transformer::random(&config, file.seed, device)?)?;
            Ok((ModelSpec { config, codec }, judge))
        }
    }
}

/// An infiller with the size of the judge. It is trained with the same masking, but without line
/// replacement. Only its trunk is kept.
struct OwnTrunk {
    model: Transformer,
    spec: ModelSpec,
    data: MaskedData,
    config: MaskedLmConfig,
}

/// Name of the training stage for the trunk.
const TRUNK: &str = "trunk";

impl OwnTrunk {
    fn of(
        file: &JudgeFile,
        steps: StepsConfig,
        spec: &ModelSpec,
        passages: &Arc<Passages>,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let sizes = InfillerConfig::of(&spec.config).expect("the sizes are those of a judge");
        let config = sizes.infiller()?;
        let model = Transformer::random(&config, file.seed, device)?;
        let spec = ModelSpec { config, codec: spec.codec.clone() };
        let stages = file.masking.stages().iter();
        let stages = stages.filter(|stage| !matches!(stage, Masking::Line { .. })).cloned();
        let plan = MaskingPlan::new(stages.collect(), Corruption::None)
            .context("[masked_lm] fills blanks, but [masking] only replaces lines")?;
        let data = MaskedData::new(passages, &plan, file.seed).context("masking")?;
        Ok(Self { model, spec, data, config: MaskedLmConfig::plain(steps) })
    }

    fn trained(self, file: &JudgeFile, run: &SupervisedRun) -> anyhow::Result<Transformer> {
        let Self { model, spec, data, config } = self;
        let run = run.stage(TRUNK)?;
        let mut trainer = MaskedLmObjective::trainer(model, &data, None, &config, file.seed)?;
        let mut files = InfillerFiles { spec: &spec, keeps_best: false };
        let ending = run.train(&mut trainer, &mut files, &file.save)?;
        run.refuse_stopped(ending)?;
        Ok(trainer.into_model())
    }
}

/// Reports whether the judge is good enough to be used as a reward. Returns an error if it isn't.
fn verdict(report: &JudgeReport, target: &Path) -> anyhow::Result<()> {
    let JudgeReport { passed, gate, validation, .. } = report;
    say(format_args!("{:<12} {}", "judge", target.display()));
    let found = against(gate, validation);
    anyhow::ensure!(
        passed,
        "the judge did not pass its gate and cannot be used as a reward: {found}; train it longer, or train a larger one"
    );
    say(format_args!("{:<12} {found}", "passed"));
    Ok(())
}
