//! Shared code of the commands that train infillers and judges.
#![expect(clippy::disallowed_methods, reason = "in a folder that has just been created")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    Characters, INFILLER, JudgeGate, JudgeMeasures, JudgeObjective, JudgeReport, MaskedLmMeasures,
    MaskedLmObjective, PassageOptions, Passages, SequenceScorer, formats,
};
use anyhow::Context;
use burn::tensor::Device;
use grpo_data::regular_file;
use grpo_model::{LanguageModel, ModelFolder, ModelSpec, StoredAs, Transformer};
use grpo_run::VerifiedFolder;

use grpo_task::models::{check_folder, warn_about};
use grpo_task::output::say;
use grpo_task::supervised_run::ModelFiles;

/// File name of a judge's report.
const JUDGE_REPORT: &str = "judge.json";

/// Reads the text of the section `[data]` and prints a summary. Without `characters`, the vocabulary is taken
/// from the file.
pub(crate) fn read_passages(
    options: &PassageOptions,
    characters: Option<&Characters>,
) -> anyhow::Result<Arc<Passages>> {
    let passages = Passages::read(options, characters).context("data")?;
    say(format_args!("{}: {}", options.file.display(), passages.report()));
    Ok(Arc::new(passages))
}

/// An infiller loaded from a model directory.
pub(crate) struct LoadedInfiller {
    pub(crate) spec: ModelSpec,
    pub(crate) model: Transformer,
    /// Files that were read.
    pub(crate) files: Vec<(&'static str, PathBuf)>,
}

impl LoadedInfiller {
    /// Loads a model directory of the `infiller` family, after verifying its manifest.
    pub(crate) fn load(folder: &Path, device: &Device) -> anyhow::Result<Self> {
        let files =
            check_folder(folder, "model", "config.json, characters.json and model.safetensors")?;
        check_infiller(folder)?;
        let ModelFolder { spec, model, .. } = ModelFolder::load(folder, &formats(), device)?;
        warn_about(folder, &model);
        Ok(Self { spec, model, files })
    }

    /// Returns the character vocabulary.
    pub(crate) fn characters(&self) -> &Characters {
        self.spec
            .codec
            .own::<Characters>()
            .expect("an infiller's folder has a character vocabulary")
    }

    /// Checks that the model can read passages of full length.
    pub(crate) fn sees(&self, data: &PassageOptions, folder: &Path) -> anyhow::Result<()> {
        let context = self.spec.config.description().context;
        anyhow::ensure!(
            data.length <= context,
            "data.length = {} exceeds the context of {context} characters (block_size) of {}; lower it",
            data.length,
            folder.display()
        );
        Ok(())
    }
}

/// Checks that a judge has passed its gate.
pub(crate) fn passed(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(JUDGE_REPORT);
    let text = regular_file::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {}, the judge's report; `grpo train-judge` writes it next to the weights",
            path.display()
        )
    })?;
    let JudgeReport { passed, gate, validation, .. } = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a judge's report", path.display()))?;
    anyhow::ensure!(
        passed,
        "{}: the judge did not pass its gate: {}; train a better one",
        folder.display(),
        against(&gate, &validation)
    );
    Ok(())
}

/// Checks that a directory contains an infiller.
pub(crate) fn check_infiller(model: &Path) -> anyhow::Result<()> {
    // Loading the model reports a missing folder or `config.json`.
    match ModelSpec::family_name(model) {
        Ok(family) if family != INFILLER.name => anyhow::bail!(
            "{} is not an infiller: its model belongs to the family {family}; `grpo pretrain` with a [masked_lm] section creates an infiller",
            model.display()
        ),
        _ => Ok(()),
    }
}

/// Formats a judge's results together with the required values.
pub(crate) fn against(gate: &JudgeGate, found: &JudgeMeasures) -> String {
    format!(
        "zero_p90 = {:.3} (at most {}), Spearman = {:.3} (at least {})",
        found.zero_p90, gate.max_zero_p90, found.spearman, gate.min_spearman
    )
}

/// Writes and reads the files of an infiller.
pub(crate) struct InfillerFiles<'a> {
    pub(crate) spec: &'a ModelSpec,
    /// Whether to save the best model.
    pub(crate) keeps_best: bool,
}

impl<'a> ModelFiles<MaskedLmObjective<'a>> for InfillerFiles<'_> {
    const SECTION: &'static str = "masked_lm";

    fn write(&self, folder: &Path, model: &Transformer) -> anyhow::Result<()> {
        self.spec.write(folder, model, StoredAs::F32).map(drop).map_err(Into::into)
    }

    fn read(&self, folder: &VerifiedFolder, like: &Transformer) -> anyhow::Result<Transformer> {
        Ok(ModelFolder::load_model(folder.path(), &like.family().into(), &like.device())?)
    }

    fn folder(&self) -> Option<&'static str> {
        self.keeps_best.then_some("model")
    }

    fn words(&self, measures: &MaskedLmMeasures) -> String {
        let MaskedLmMeasures { eval_loss, eval_accuracy } = measures;
        let right = eval_accuracy.map(|part| format!(", blanks right {:.1} %", 100.0 * part));
        format!("validation loss {eval_loss:.4}{}", right.unwrap_or_default())
    }
}

/// Writes and reads the files of a judge.
pub(crate) struct JudgeFiles<'a> {
    pub(crate) spec: &'a ModelSpec,
    /// Set only at the end, so that an interrupted run never leaves behind a judge that passes.
    pub(crate) report: Option<JudgeReport>,
}

impl<'a> ModelFiles<JudgeObjective<'a>> for JudgeFiles<'_> {
    const SECTION: &'static str = "judge";

    fn write(&self, folder: &Path, judge: &SequenceScorer) -> anyhow::Result<()> {
        self.spec.write(folder, judge.model(), StoredAs::F32)?;
        let Some(report) = &self.report else { return Ok(()) };
        let path = folder.join(JUDGE_REPORT);
        let json = serde_json::to_string_pretty(report)? + "\n";
        std::fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))
    }

    fn read(
        &self,
        folder: &VerifiedFolder,
        like: &SequenceScorer,
    ) -> anyhow::Result<SequenceScorer> {
        Ok(SequenceScorer::load(folder.path(), &like.model().device())?.1)
    }

    fn words(&self, measures: &JudgeMeasures) -> String {
        let JudgeMeasures { eval_loss, zero_mean, zero_p90, pearson, spearman } = measures;
        format!(
            "mean squared error {eval_loss:.4}, natural texts {zero_mean:.3} (90 % below {zero_p90:.3}), Pearson {pearson:.3}, Spearman {spearman:.3}"
        )
    }
}
