//! `grpo pretrain`: next-token prediction on a file of molecules or texts.

mod files;

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{
    ChatOptions, Codec, Corpus, CorpusOptions, DataError, ExampleFile, Examples, MoleculeReader,
    ReadOptions, ReplyExamples, ReplyTemplate, Vocabulary, smiles_tokens,
};
use grpo_model::{
    LanguageModel, LoraConfig, ModelConfig, ModelSpec, MolGptConfig, Policy, Transformer,
    WeightPrecision,
};
use grpo_report::command_of;
use grpo_train::{GuardConfig, NextTokenObjective, PretrainConfig};
use serde::{Deserialize, Serialize};

use self::files::{PolicyFiles, summary};
use crate::args::RunArguments;
use crate::checkpoint::CheckpointSection;
use crate::config::Origin;
use crate::device;
use crate::models::{Loaded, Trained, Writer, load};
use crate::output::{say, say_checked};
use crate::prompts::check_replies;
use crate::supervised_run::{self, Request};

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
    /// Adapter folder to go on training, on `start` as it is.
    #[serde(default)]
    adapter: Option<PathBuf>,
    /// How the matrices of `start` are held where only an adapter is trained on it.
    #[serde(default)]
    base_precision: WeightPrecision,
    /// A new adapter to train, on `start` as it is.
    #[serde(default)]
    lora: Option<LoraConfig>,
    data: DataSection,
    /// Sizes of a new model.
    #[serde(default)]
    model: Option<ModelSection>,
    pretrain: PretrainConfig,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<GuardConfig>,
    #[serde(default)]
    save: CheckpointSection,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataSection {
    /// `.smi`, `.smi.gz`, `.csv` or `.csv.gz` of molecules; `.jsonl`, `.jsonl.gz` or `.parquet` of texts.
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
    /// Texts of more tokens are left out; without it, those that the model cannot see as a whole.
    #[serde(default)]
    max_tokens: Option<usize>,
    /// The chat template's switch for thinking before the answer.
    #[serde(default)]
    thinking: Option<bool>,
    /// `file`, which can be a folder, holds tweets and their replies.
    #[serde(default)]
    replies: Option<ReplyTemplate>,
}

impl DataSection {
    /// Whether `file` has records with keys, and not molecules.
    fn is_of_records(&self) -> bool {
        self.replies.is_some() || is_of_records(&self.file)
    }
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
    let keys = supervised_run::keys(arguments)?;
    if keys.contains_key("masked_lm") && !keys.contains_key("judge") {
        return super::pretrain_infiller::run(arguments);
    }
    if let (Some(path), true) = (&arguments.config, command_of(&keys) == "train") {
        let path = path.display();
        anyhow::bail!("{path} is a configuration of `grpo train`: say `grpo train {path}`");
    }
    let Request { file, origin, start } =
        Request::read(arguments, "pretrain", |file: &mut PretrainFile| &mut file.run)?;
    file.check(&origin)?;
    if let (true, Some(configuration)) = (arguments.check, &arguments.config) {
        say_checked(configuration);
        return Ok(());
    }
    let device = device::device().autodiff();
    let loaded = starting_point(&file, &device)?;
    let Source { examples, report, files: read } = examples(&file, &loaded)?;
    let is_of_molecules = loaded.spec.codec.vocabulary().is_some();
    anyhow::ensure!(
        !examples.validation.is_empty(),
        "no {} of {} is left for validation, so the best model could not be told; raise data.validation_fraction (it is {})",
        if is_of_molecules { "molecule" } else { "text" },
        file.data.file.display(),
        file.data.validation_fraction
    );
    say(format_args!("{}: {}", file.data.file.display(), report[0]));
    for line in &report[1..] {
        say(format_args!("  {line}"));
    }

    let kind = loaded.kind();
    let Loaded { spec, policy, adapter, mut files } = loaded;
    let role = if is_of_molecules { "molecules" } else { "texts" };
    files.extend(read.into_iter().map(|path| (role, path)));
    files.extend(file.data.vocabulary.iter().map(|path| ("vocabulary", path.clone())));
    for embedder in file.pretrain.embedders() {
        files.extend(embedder.files()?);
    }
    let trainer =
        NextTokenObjective::trainer(policy, &spec.codec, &examples, &file.pretrain, file.seed);
    let trainer = trainer.and_then(|trainer| trainer.with_guards(&file.guards));
    let mut trainer = trainer.map_err(|error| origin.explain(error))?;
    let run = start.folder(&file, &file.run, file.seed, &files)?;
    let mut files = PolicyFiles::new(Writer { spec, adapter }, kind, &file.pretrain);
    let ending = run.train(&mut trainer, &mut files, &file.save)?;
    summary(&run)?;
    say(format_args!("{kind:<12} {}", run.target(kind).display()));
    run.refuse_stopped(ending)
}

impl PretrainFile {
    /// Refuses what is out of range, as far as that goes without a model.
    fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        self.pretrain.check().map_err(|error| origin.explain(error))?;
        if let Some(lora) = &self.lora {
            lora.check().map_err(|error| anyhow::anyhow!("{}{error}", origin.place("lora")))?;
        }
        let fraction = self.data.validation_fraction;
        anyhow::ensure!(
            (0.0..1.0).contains(&fraction),
            "{}data.validation_fraction = {fraction} is out of range; expected 0 or more, and less than 1",
            origin.place("data.validation_fraction")
        );
        self.save.check(origin)?;
        check_replies(self.data.replies.as_ref(), self.data.thinking, origin)
    }
}

/// The model that the training begins with.
fn starting_point(file: &PretrainFile, device: &Device) -> anyhow::Result<Loaded> {
    let sizes = match (&file.start, &file.model) {
        (Some(start), None) => {
            anyhow::ensure!(
                file.data.vocabulary.is_none(),
                "start = \"{}\" brings its own vocabulary; leave data.vocabulary out",
                start.display()
            );
            let adapter = file.adapter.as_deref();
            let trained = Trained::of(adapter, file.lora.as_ref(), file.base_precision, file.seed)?;
            return load(start, trained, file.base_precision, device)
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
    anyhow::ensure!(
        file.base_precision == WeightPrecision::F32,
        "base_precision is for a model that only an adapter is trained on, and [model] is a new one; leave it out"
    );
    anyhow::ensure!(
        file.adapter.is_none() && file.lora.is_none(),
        "an adapter is trained on a model that is there; name its folder as `start` instead of the sizes in [model]"
    );
    anyhow::ensure!(
        !file.data.is_of_records(),
        "a new model is made for molecules (.smi or .csv); for the texts of {}, name a model folder as `start` (`grpo init` writes one with random weights)",
        file.data.file.display()
    );
    let vocabulary = vocabulary(&file.data)?;
    let sizes = MolGptConfig::new(
        vocabulary.len(),
        sizes.block_size,
        sizes.n_layer,
        sizes.n_head,
        sizes.n_embd,
    );
    let config = ModelConfig::molgpt(&sizes).context("[model]")?;
    let policy = Policy::Whole(Transformer::random(&config, file.seed, device)?);
    let spec = ModelSpec { config, codec: Codec::of_vocabulary(vocabulary) };
    Ok(Loaded { spec, policy, adapter: None, files: Vec::new() })
}

/// What is trained on, what to say of it, line by line, and the files that it is of.
struct Source {
    examples: Examples,
    report: Vec<String>,
    files: Vec<PathBuf>,
}

fn examples(file: &PretrainFile, loaded: &Loaded) -> anyhow::Result<Source> {
    let (codec, data) = (&loaded.spec.codec, &file.data);
    let context = loaded.policy.context_length();
    refuse_keys_without_effect(data)?;
    // The last token is learned, but never fed.
    let longest = data.max_tokens.unwrap_or(context + 1).min(context + 1);
    let fraction = data.validation_fraction;
    let files = vec![data.file.clone()];
    if let Some(template) = &data.replies {
        let thinking = data.thinking.unwrap_or(false);
        let read = ReplyExamples::read(
            &data.file, codec, template, thinking, longest, fraction, file.seed,
        )?;
        let report = read.report.lines();
        return Ok(Source { examples: read.examples, report, files: read.files });
    }
    if is_of_records(&data.file) {
        let options = ChatOptions::for_answer(data.thinking);
        let read = ExampleFile::read(&data.file, codec, &options, longest, fraction, file.seed)?;
        let (train, validation) = (read.examples.train.len(), read.examples.validation.len());
        let report = format!("{}: {train} for training, {validation} for validation", read.report);
        return Ok(Source { examples: read.examples, report: vec![report], files });
    }
    let Some(vocabulary) = codec.vocabulary() else {
        anyhow::bail!(
            "data.file = \"{}\" is a file of molecules, and the model reads texts; give .jsonl or .parquet with `text`, or `prompt` and `completion`",
            data.file.display()
        );
    };
    let corpus = corpus(file, context, vocabulary)?;
    let mut report = vec![corpus.report.to_string()];
    report.extend(corpus.report.examples.iter().map(|dropped| format!("left out: {dropped}")));
    Ok(Source { examples: corpus.examples(vocabulary.boundary()), report, files })
}

/// Refuses keys that are for the other kind of file.
fn refuse_keys_without_effect(data: &DataSection) -> anyhow::Result<()> {
    let (kind, others) = match data.is_of_records() {
        true => (
            "molecules",
            [
                ("smiles_column", data.smiles_column.is_some()),
                ("vocabulary", data.vocabulary.is_some()),
            ],
        ),
        false => (
            "texts",
            [("max_tokens", data.max_tokens.is_some()), ("thinking", data.thinking.is_some())],
        ),
    };
    for (key, given) in others {
        anyhow::ensure!(
            !given,
            "data.{key} is for files of {kind}, and {} is none; leave it out",
            data.file.display()
        );
    }
    Ok(())
}

/// Whether a file has records with keys, and not molecules.
fn is_of_records(path: &Path) -> bool {
    let name = path.to_string_lossy().to_ascii_lowercase();
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    [".jsonl", ".json", ".parquet"].iter().any(|ending| plain.ends_with(ending))
}

fn vocabulary(data: &DataSection) -> anyhow::Result<Vocabulary> {
    if let Some(path) = &data.vocabulary {
        return Ok(Vocabulary::from_json_file(path)?);
    }
    let reader = MoleculeReader::open(&data.file, &read_options(data))?;
    let smiles: Vec<String> =
        reader.map(|record| Ok(record?.smiles)).collect::<Result<_, DataError>>()?;
    // A row that is no SMILES gives no tokens; the corpus counts and reports it.
    let readable = smiles.iter().filter(|smiles| smiles_tokens(smiles).all(|token| token.is_ok()));
    Ok(Vocabulary::from_smiles(readable.map(String::as_str))?)
}

fn corpus(file: &PretrainFile, context: usize, vocabulary: &Vocabulary) -> anyhow::Result<Corpus> {
    let options = CorpusOptions {
        // One place is the beginning mark's.
        max_tokens: context - 1,
        validation_fraction: file.data.validation_fraction,
        seed: file.seed,
        min_molecules: file.data.min_molecules,
    };
    Ok(Corpus::read(&file.data.file, &read_options(&file.data), vocabulary, &options)?)
}

fn read_options(data: &DataSection) -> ReadOptions {
    ReadOptions { smiles_column: data.smiles_column.clone(), keep_empty: false }
}
