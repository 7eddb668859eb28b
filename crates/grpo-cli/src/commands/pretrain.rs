//! `grpo pretrain`: a new model from a file of molecules.

use std::path::PathBuf;

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{Corpus, CorpusOptions, MoleculeReader, ReadOptions, Vocabulary, smiles_tokens};
use grpo_model::{Architecture, ModelFolder, MolGpt, MolGptConfig};
use grpo_run::{DataFile, JsonLinesWriter};
use grpo_train::{PretrainConfig, PretrainEpoch, PretrainObserver, PretrainStep, TrainError};
use serde::{Deserialize, Serialize};

use crate::args::RunArguments;
use crate::generate::load_model;
use crate::output::{Progress, say};
use crate::run_files::{create_run, observer_error, save_model};
use crate::{config, device};

/// Configuration of `grpo pretrain`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PretrainFile {
    /// Folder of the run.
    run: PathBuf,
    seed: u64,
    /// Model folder to go on from, with its vocabulary and sizes; without it a new model is made.
    #[serde(default)]
    start: Option<PathBuf>,
    data: DataSection,
    /// Sizes of a new model.
    #[serde(default)]
    model: Option<ModelSection>,
    pretrain: PretrainConfig,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataSection {
    /// `.smi`, `.smi.gz`, `.csv` or `.csv.gz`.
    file: PathBuf,
    /// Column of the SMILES in a CSV file.
    #[serde(default)]
    smiles_column: Option<String>,
    /// A token list (`*_stoi.json`); without it the tokens of the file are taken.
    #[serde(default)]
    vocabulary: Option<PathBuf>,
    #[serde(default = "default_validation_fraction")]
    validation_fraction: f64,
    #[serde(default = "default_min_molecules")]
    min_molecules: usize,
}

fn default_validation_fraction() -> f64 {
    0.02
}
fn default_min_molecules() -> usize {
    1000
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelSection {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    /// Longest sequence in tokens, the beginning mark among them.
    block_size: usize,
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = config::load::<PretrainFile>(&arguments.config, &arguments.set)?;
    let origin = loaded.origin;
    let mut file = loaded.value;
    if let Some(run) = &arguments.run {
        file.run.clone_from(run);
    }
    file.pretrain.check().map_err(|error| origin.explain(error))?;
    anyhow::ensure!(
        (0.0..1.0).contains(&file.data.validation_fraction),
        "{}data.validation_fraction = {} is out of range; expected 0 or more, and less than 1",
        origin.place("data.validation_fraction"),
        file.data.validation_fraction
    );
    let device = device::device().autodiff();
    let ModelFolder { config, vocabulary, model } = starting_point(&file, &device)?;
    let corpus = corpus(&file, &config, &vocabulary)?;
    anyhow::ensure!(
        !corpus.validation.is_empty(),
        "no molecule of {} is left for validation, so the best model could not be told; raise data.validation_fraction (it is {})",
        file.data.file.display(),
        file.data.validation_fraction
    );
    say(format_args!("{}: {}", file.data.file.display(), corpus.report));
    for dropped in &corpus.report.examples {
        say(format_args!("  left out: {dropped}"));
    }

    let data =
        [("molecules", Some(&file.data.file)), ("vocabulary", file.data.vocabulary.as_ref())]
            .into_iter()
            .filter_map(|(role, path)| Some(DataFile::measure(role, path?)))
            .collect::<Result<_, _>>()?;
    let info = config::run_info(file.seed, data);
    let text = config::resolved(&file)?;
    let folder = create_run(&file.run, arguments.force, &text, &info)?;
    let boundary = vocabulary.boundary();
    let mut observer = Observer {
        metrics: JsonLinesWriter::open(&folder.metrics_path())?,
        progress: None,
        target: folder.path().join("model"),
        config,
        vocabulary,
        valid_loss: None,
    };
    let trained =
        grpo_train::pretrain(model, &corpus, boundary, &file.pretrain, file.seed, &mut observer);
    observer.progress.iter().for_each(Progress::finish);
    trained.with_context(|| format!("the training of {} ended early", file.run.display()))?;
    say(format_args!("model        {}", observer.target.display()));
    Ok(())
}

/// The model that the training begins with.
fn starting_point(file: &PretrainFile, device: &Device) -> anyhow::Result<ModelFolder> {
    let sizes = match (&file.start, &file.model) {
        (Some(start), None) => {
            anyhow::ensure!(
                file.data.vocabulary.is_none(),
                "start = \"{}\" brings its own vocabulary; leave data.vocabulary out",
                start.display()
            );
            return load_model(start, device)
                .with_context(|| format!("start = \"{}\"", start.display()));
        }
        (None, Some(sizes)) => sizes,
        (Some(_), Some(_)) => anyhow::bail!(
            "the configuration has both `start` and [model]; a model that is gone on from has its sizes already, so leave one of them out"
        ),
        (None, None) => anyhow::bail!(
            "the configuration has neither [model] (sizes of a new model) nor `start` (a model folder to go on from)"
        ),
    };
    let vocabulary = vocabulary(&file.data)?;
    let config = MolGptConfig {
        architecture: Architecture::MolGpt,
        vocab_size: vocabulary.len(),
        block_size: sizes.block_size,
        n_layer: sizes.n_layer,
        n_head: sizes.n_head,
        n_embd: sizes.n_embd,
    }
    .checked()
    .context("[model]")?;
    let model = MolGpt::random(&config, file.seed, device);
    Ok(ModelFolder { config, vocabulary, model })
}

fn vocabulary(data: &DataSection) -> anyhow::Result<Vocabulary> {
    if let Some(path) = &data.vocabulary {
        return Ok(Vocabulary::from_json_file(path)?);
    }
    let reader = MoleculeReader::open(&data.file, &read_options(data))?;
    let smiles: Vec<String> =
        reader.map(|record| Ok(record?.smiles)).collect::<Result<_, grpo_data::DataError>>()?;
    // A row that is no SMILES gives no tokens; the corpus counts and reports it.
    let readable = smiles.iter().filter(|smiles| smiles_tokens(smiles).all(|token| token.is_ok()));
    Ok(Vocabulary::from_smiles(readable.map(String::as_str))?)
}

fn corpus(
    file: &PretrainFile,
    config: &MolGptConfig,
    vocabulary: &Vocabulary,
) -> anyhow::Result<Corpus> {
    let options = CorpusOptions {
        // One place is the beginning mark's.
        max_tokens: config.block_size - 1,
        validation_fraction: file.data.validation_fraction,
        seed: file.seed,
        min_molecules: file.data.min_molecules,
    };
    Ok(Corpus::read(&file.data.file, &read_options(&file.data), vocabulary, &options)?)
}

fn read_options(data: &DataSection) -> ReadOptions {
    ReadOptions { smiles_column: data.smiles_column.clone(), keep_empty: false }
}

/// Writes metrics and the best model, and moves the bar.
struct Observer {
    metrics: JsonLinesWriter,
    progress: Option<Progress>,
    target: PathBuf,
    config: MolGptConfig,
    vocabulary: Vocabulary,
    /// Of the last whole epoch.
    valid_loss: Option<f64>,
}

impl PretrainObserver<MolGpt> for Observer {
    fn step(&mut self, step: &PretrainStep, steps: u64) -> Result<(), TrainError> {
        self.metrics.append(step).map_err(observer_error)?;
        let progress = self.progress.get_or_insert_with(|| Progress::new(steps));
        progress.step(format!(
            "loss {:.4}  lr {:.1e}{}",
            step.step_train_loss,
            step.learning_rate,
            self.valid_loss.map(|loss| format!("  validation {loss:.4}")).unwrap_or_default()
        ));
        Ok(())
    }

    fn epoch(&mut self, epoch: &PretrainEpoch, model: &MolGpt) -> Result<(), TrainError> {
        self.metrics.append(epoch).map_err(observer_error)?;
        self.valid_loss = Some(epoch.epoch_valid_loss);
        if epoch.best {
            save_model(&self.target, &self.config, &self.vocabulary, model)
                .map_err(observer_error)?;
        }
        let line = format!(
            "epoch {}: training loss {:.4}, validation loss {:.4}{}",
            epoch.epoch,
            epoch.epoch_train_loss,
            epoch.epoch_valid_loss,
            if epoch.best { ", saved" } else { "" }
        );
        self.progress.iter().for_each(|progress| progress.say(&line));
        Ok(())
    }
}
