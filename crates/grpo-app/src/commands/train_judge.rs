//! `grpo train-judge`: a sequence scorer learns how much of a text an infiller has replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{Corruption, Half, MaskedStream, Masking, MaskingPlan, Passages, Purpose};
use grpo_model::{Frozen, InfillerConfig, ModelConfig, ModelSpec, SequenceScorer, Transformer};
use grpo_run::{DataFile, RunFolder};
use grpo_train::{
    FillSettings, JudgeConfig, JudgeData, JudgeGate, JudgeMeasures, JudgeReport, JudgeScaling,
    JudgeValidationConfig, MaskedData, MaskedLmConfig, MaskedLmMeasures, StepsConfig,
    TransferConfig, Validated, measure_judge, train_judge, train_masked_lm,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::infill::{
    LoadedInfiller, PassageSection, StepsFiles, against, checked as stream_checked, infiller_words,
    save_model,
};
use crate::output::{say, say_checked};
use crate::run_files::create_run;
use crate::task::TaskCommand;
use crate::{config, device};

/// Configuration of `grpo train-judge`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeFile {
    /// Folder of the run.
    run: PathBuf,
    seed: u64,
    /// Model folder of the infiller whose fills are judged; the judge takes its characters.
    infiller: PathBuf,
    /// Whether the judge begins with what the infiller knows of texts.
    #[serde(default = "yes")]
    start_from_infiller: bool,
    data: PassageSection,
    masking: MaskingPlan,
    /// Sizes, where the judge begins with nothing.
    #[serde(default)]
    model: Option<JudgeSection>,
    judge: StepsConfig,
    /// How a judge that begins with nothing first learns to fill blanks itself, as an infiller does.
    #[serde(default)]
    masked_lm: Option<StepsConfig>,
    /// Part of the training texts that nothing is replaced in.
    #[serde(default = "default_natural_share")]
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
}

fn yes() -> bool {
    true
}
fn default_natural_share() -> f64 {
    0.1
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeSection {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
}

/// The subcommand.
pub(crate) fn command() -> TaskCommand {
    let about = [
        "Train a judge, which says how much of a text an infiller has replaced",
        "From natural texts, and from texts with blanks that the infiller filled. On held-out texts the judge is held against the gate of the configuration: the exit code is 0 where it passes, and 1 where it may not be a reward.",
    ];
    TaskCommand::new("train-judge", &about, "pretrain", |_, arguments| run(arguments))
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<JudgeFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    let settings = JudgeConfig {
        steps: file.judge,
        natural_share: file.natural_share,
        fill: file.fill,
        scaling: file.scaling,
        transfer: file.transfer,
        validation: file.validation,
        gate: file.gate,
    };
    let checked = settings.check().and_then(|()| match &file.masked_lm {
        Some(steps) => steps.check("masked_lm"),
        None => Ok(()),
    });
    checked.map_err(|error| origin.explain(error))?;
    anyhow::ensure!(
        file.masked_lm.is_none() || !file.start_from_infiller,
        "{}[masked_lm] is for a judge that begins with nothing, and this one begins as the infiller; leave it out, or set start_from_infiller = false",
        origin.place("masked_lm")
    );
    anyhow::ensure!(
        file.masking.corruption() == Corruption::None,
        "{}a judge learns from blanks that the infiller fills, and masking.corruption = \"bert\" leaves random characters beside them; leave it out",
        origin.place("masking.corruption")
    );
    if arguments.check {
        say_checked(&arguments.config);
        return Ok(());
    }
    let device = device::device().autodiff();
    let infiller = LoadedInfiller::load(&file.infiller, &device)
        .with_context(|| format!("infiller = \"{}\"", file.infiller.display()))?;
    infiller.sees(&file.data, &file.infiller)?;
    let passages = file.data.read(Some(infiller.characters()))?;
    let (spec, mut judge) = beginning(&file, &infiller, &device)?;
    let plan = file.masking.clone().for_judge();
    let train = MaskedStream::new(passages.clone(), Half::Train, plan, file.seed, Purpose::Masking);
    let train = stream_checked(train)
        .with_context(|| format!("{}masking", origin.place("masking.stages")))?;
    let data = JudgeData { passages, train, infiller: Frozen::snapshot(&infiller.model) };
    settings.check_with(&data).map_err(|error| origin.explain(error))?;
    let own_trunk =
        file.masked_lm.map(|steps| OwnTrunk::of(&file, steps, &spec, &data.passages, &device));
    let own_trunk = own_trunk.transpose()?;
    let files = infiller.files.iter();
    let mut files: Vec<DataFile> =
        files.map(|(_, path)| DataFile::measure("infiller", path)).collect::<Result<_, _>>()?;
    files.push(DataFile::measure("text", &file.data.file)?);
    let info = config::run_info(file.seed, files);
    let folder = create_run(&file.run, arguments.force, &config::resolved(&file)?, &info)?;
    let target = folder.path().join("model");
    if let Some(own_trunk) = own_trunk {
        let trunk = own_trunk.trained(&file, &folder)?;
        judge = SequenceScorer::from_trunk(&spec.config, &trunk, file.seed, &device)?;
    }
    let mut chosen = None;
    // Without a report until the end: a training that ends early leaves no judge that has passed.
    let save = |validated: &Validated<JudgeMeasures>, judge: &SequenceScorer| {
        chosen = Some((judge.clone(), validated.train_step));
        save_model(&target, &spec, judge.model(), None)
    };
    let mut observer = StepsFiles::new(&folder.metrics_path(), words, Some(save))?;
    let trained = train_judge(judge, &data, &settings, file.seed, &mut observer);
    observer.finish();
    drop(observer);
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    let (judge, train_step) = chosen.expect("the first look is the best so far");
    let validation = measure_judge(&judge, &data, &settings, file.seed)?;
    let passed = file.gate.passes(&validation);
    let (gate, texts) = (file.gate, file.validation);
    let report = JudgeReport { passed, gate, validation, texts, train_step };
    save_model(&target, &spec, judge.model(), Some(&report))?;
    verdict(&report, &target)
}

/// The judge, untrained, and what is written with it.
fn beginning(
    file: &JudgeFile,
    infiller: &LoadedInfiller,
    device: &Device,
) -> anyhow::Result<(ModelSpec, SequenceScorer)> {
    let of_infiller = InfillerConfig::of(&infiller.spec.config).expect("it is an infiller");
    let codec = infiller.spec.codec.clone();
    match (file.start_from_infiller, &file.model) {
        (true, None) => {
            let config = ModelConfig::sequence_scorer(&of_infiller)?;
            let judge = SequenceScorer::from_trunk(&config, &infiller.model, file.seed, device)?;
            Ok((ModelSpec { config, codec }, judge))
        }
        (false, Some(sizes)) => {
            let JudgeSection { n_layer, n_head, n_embd } = *sizes;
            let (vocabulary, length) = (of_infiller.vocab_size, file.data.length);
            let sizes = InfillerConfig::new(vocabulary, length, n_layer, n_head, n_embd);
            let config = ModelConfig::sequence_scorer(&sizes).context("[model]")?;
            let judge = SequenceScorer::new(Transformer::random(&config, file.seed, device)?)?;
            Ok((ModelSpec { config, codec }, judge))
        }
        (true, Some(_)) => anyhow::bail!(
            "a judge that begins as the infiller has its sizes already; leave [model] out, or set start_from_infiller = false"
        ),
        (false, None) => anyhow::bail!(
            "start_from_infiller = false makes a new judge, and [model] (its sizes) is not there; add it"
        ),
    }
}

/// An infiller of the judge's own sizes, which fills the same masks, but for replaced lines: it leaves nothing of its
/// training but its trunk.
struct OwnTrunk {
    model: Transformer,
    data: MaskedData,
    config: MaskedLmConfig,
}

/// Its curve, beside that of the judge.
const TRUNK_METRICS: &str = "trunk-metrics.jsonl";

impl OwnTrunk {
    fn of(
        file: &JudgeFile,
        steps: StepsConfig,
        spec: &ModelSpec,
        passages: &Arc<Passages>,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let sizes = InfillerConfig::of(&spec.config).expect("it is a judge's");
        let model = Transformer::random(&ModelConfig::infiller(&sizes)?, file.seed, device)?;
        let stages = file.masking.stages().iter();
        let stages = stages.filter(|stage| !matches!(stage, Masking::Line { .. })).cloned();
        let plan = MaskingPlan::new(stages.collect(), Corruption::None)
            .context("[masked_lm] fills blanks, and [masking] has only lines that are replaced")?;
        let stream = |half, purpose| {
            let passages = passages.clone();
            stream_checked(MaskedStream::new(passages, half, plan.clone(), file.seed, purpose))
                .context("masking")
        };
        let data = MaskedData {
            characters: passages.characters().clone(),
            train: stream(Half::Train, Purpose::Masking)?,
            validation: stream(Half::Validation, Purpose::Evaluation)?,
        };
        Ok(Self { model, data, config: MaskedLmConfig::plain(steps) })
    }

    fn trained(self, file: &JudgeFile, folder: &RunFolder) -> anyhow::Result<Transformer> {
        let Self { model, data, config } = self;
        let none = None::<fn(&Validated<MaskedLmMeasures>, &Transformer) -> anyhow::Result<()>>;
        let metrics = folder.path().join(TRUNK_METRICS);
        let mut observer = StepsFiles::new(&metrics, infiller_words, none)?;
        let trained = train_masked_lm(model, &data, None, &config, file.seed, &mut observer);
        observer.finish();
        trained.with_context(|| format!("the training of {} ended early", file.run.display()))
    }
}

fn words(measures: &JudgeMeasures) -> String {
    let JudgeMeasures { eval_loss, zero_mean, zero_p90, pearson, spearman } = measures;
    format!(
        "mean squared error {eval_loss:.4}, natural texts {zero_mean:.3} (90 % below {zero_p90:.3}), Pearson {pearson:.3}, Spearman {spearman:.3}"
    )
}

/// Says whether the judge may be a reward; where it may not, that is how the command ends.
fn verdict(report: &JudgeReport, target: &Path) -> anyhow::Result<()> {
    let JudgeReport { passed, gate, validation, .. } = report;
    say(format_args!("{:<12} {}", "judge", target.display()));
    let found = against(gate, validation);
    anyhow::ensure!(
        passed,
        "the judge did not pass, so it is no reward: {found}; train it longer or larger"
    );
    say(format_args!("{:<12} {found}", "passed"));
    Ok(())
}
