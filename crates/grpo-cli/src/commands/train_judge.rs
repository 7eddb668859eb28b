//! `grpo train-judge`: a sequence scorer learns how much of a text an infiller has replaced.

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{Corruption, Half, MaskedStream, MaskingPlan, Purpose};
use grpo_model::{Frozen, InfillerConfig, ModelConfig, ModelSpec, SequenceScorer, Transformer};
use grpo_run::DataFile;
use grpo_train::{
    FillSettings, JudgeConfig, JudgeData, JudgeGate, JudgeMeasures, JudgeReport, JudgeScaling,
    JudgeValidationConfig, StepsConfig, TransferConfig, Validated, train_judge,
};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::infill::{JUDGE_REPORT, LoadedInfiller, PassageSection, StepsFiles, save_model};
use crate::output::say;
use crate::run_files::create_run;
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
    };
    let checked = settings.check().and_then(|()| file.gate.check());
    checked.map_err(|error| origin.explain(error))?;
    anyhow::ensure!(
        file.masking.corruption() == Corruption::None,
        "{}a judge learns from blanks that the infiller fills, and masking.corruption = \"bert\" leaves random characters beside them; leave it out",
        origin.place("masking.corruption")
    );
    let device = device::device().autodiff();
    let infiller = LoadedInfiller::load(&file.infiller, &device)
        .with_context(|| format!("infiller = \"{}\"", file.infiller.display()))?;
    infiller.sees(&file.data, &file.infiller)?;
    let passages = file.data.read(Some(infiller.characters()))?;
    let (spec, judge) = beginning(&file, &infiller, &device)?;
    let plan = file.masking.clone().for_judge();
    let train = MaskedStream::new(passages.clone(), Half::Train, plan, file.seed, Purpose::Masking)
        .context("masking")?;
    let data = JudgeData { passages, train, infiller: Frozen::snapshot(&infiller.model) };
    let files = infiller.files.iter();
    let mut files: Vec<DataFile> =
        files.map(|(_, path)| DataFile::measure("infiller", path)).collect::<Result<_, _>>()?;
    files.push(DataFile::measure("text", &file.data.file)?);
    let info = config::run_info(file.seed, files);
    let folder = create_run(&file.run, arguments.force, &config::resolved(&file)?, &info)?;
    let target = folder.path().join("model");
    let mut report = None;
    let save = |validated: &Validated<JudgeMeasures>, judge: &SequenceScorer| {
        let saved = JudgeReport {
            passed: file.gate.passes(&validated.measures),
            gate: file.gate,
            validation: validated.measures,
            texts: file.validation,
            train_step: validated.train_step,
        };
        let json = serde_json::to_string_pretty(&saved)? + "\n";
        report = Some(saved);
        save_model(&target, &spec, judge.model(), &[(JUDGE_REPORT, json)])
    };
    let mut observer = StepsFiles::new(&folder, words, save)?;
    let trained = train_judge(judge, &data, &settings, file.seed, &mut observer);
    observer.finish();
    drop(observer);
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    let report = report.expect("the first look is the best so far");
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
    let found = format!(
        "zero_p90 = {:.3} (at most {}), Spearman = {:.3} (at least {})",
        validation.zero_p90, gate.max_zero_p90, validation.spearman, gate.min_spearman
    );
    anyhow::ensure!(
        passed,
        "the judge did not pass, so it is no reward: {found}; train it longer or larger"
    );
    say(format_args!("{:<12} {found}", "passed"));
    Ok(())
}
