//! `grpo pretrain`: next-token prediction on molecules or text.

mod files;

use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::tensor::Device;
use grpo_data::{ConfigFault, DataFiles, Examples, FileOrigin, RECORD_ENDINGS, Ranges, Records};
use grpo_model::{
    Conditions, LanguageModel, LoraConfig, ModelSpec, Policy, Transformer, WeightPrecision,
};
use grpo_report::command_of;
use grpo_task::args::RunArguments;
use grpo_task::checkpoint::CheckpointSection;
use grpo_task::config::Origin;
use grpo_task::data::{
    DataFormat, NewCodec, NewModel, ReadExamples, ReadFrom, SharedKeys, check_thinking,
};
use grpo_task::device;
use grpo_task::hub;
use grpo_task::models::{Loaded, Trained, Writer, load};
use grpo_task::output::{say, say_checked, say_embedders_checked};
use grpo_task::phase::Phase;
use grpo_task::supervised_run;
use grpo_task::supervised_run::Request;
use grpo_task::task::Tasks;
use grpo_train::{GuardConfig, NextTokenObjective, PretrainConfig};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use toml::Table;

use self::files::{PolicyFiles, summary};
use crate::data_section::{DataSection, of_each_file};

/// The configuration of `grpo pretrain`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PretrainFile {
    /// Run folder, new or empty.
    #[schemars(extend("x-basic" = true))]
    run: PathBuf,
    /// Initial weights, order, held-out molecules, dropout.
    #[schemars(extend("x-basic" = true))]
    seed: u64,
    /// Model folder to start from, with its vocabulary or tokenizer and sizes; excludes `[model]`
    /// and `data.vocabulary`.
    #[serde(default)]
    #[schemars(extend("x-basic" = true))]
    start: Option<PathBuf>,
    /// Adapter folder (PEFT format) to continue training on the unchanged `start`; excludes
    /// `[lora]`.
    #[serde(default)]
    adapter: Option<PathBuf>,
    /// Storage of the block matrices of a base model under an adapter.
    #[serde(default)]
    base_precision: WeightPrecision,
    /// Configuration of a new adapter on top of the frozen `start` model.
    #[serde(default)]
    lora: Option<LoraConfig>,
    /// The training data.
    #[schemars(schema_with = "any_data")]
    data: Table,
    /// Dimensions of a new model.
    #[serde(default)]
    model: Option<ModelSection>,
    pretrain: PretrainConfig,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    guards: Vec<GuardConfig>,
    #[serde(default)]
    save: CheckpointSection,
}

/// Returns a reference to the keys of `[data]` of all formats.
fn any_data(_: &mut SchemaGenerator) -> Schema {
    grpo_data::schema::reference("Data")
}

/// Keys of the `[data]` section that do not depend on the file format.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataKeys {
    /// Molecules (`.smi`, `.smi.gz`, `.csv`, `.csv.gz`; invalid SMILES, and those that `grpo` does
    /// not support, are left out and counted; rows that do not fit the vocabulary or the length,
    /// and Kekulé structures of aromatic molecules if the vocabulary has aromatic atoms, are read
    /// as canonical SMILES and counted) or [records](#files-of-records) with completions. Several files
    /// of records are [a list](#several-files).
    #[schemars(extend("x-basic" = true))]
    file: DataFiles,
    /// Held-out fraction if the file has no split; something must be held out. At least one record;
    /// equal records stay on one side.
    #[serde(default = "default_validation_fraction")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    validation_fraction: f64,
    /// Longer records are dropped and counted. Default: model's context plus 1, which is also the
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    /// `enable_thinking` of the chat template. Default: the template's; false with `replies`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thinking: Option<bool>,
}

fn default_validation_fraction() -> f64 {
    0.02
}

impl DataSection<DataKeys> {
    fn check(&self, has_start: bool) -> Result<(), ConfigFault> {
        let DataKeys { validation_fraction, max_tokens, thinking, .. } = self.keys;
        if !(0.0..1.0).contains(&validation_fraction) {
            let expected = "0 or more and less than 1";
            let key = "data.validation_fraction";
            return Err(ConfigFault::out_of_range(key, validation_fraction, expected));
        }
        self.check_files(&self.keys.file)?;
        let has_max_tokens = max_tokens.is_some();
        self.reader.check(&SharedKeys { thinking, has_max_tokens, has_start })
    }

    fn examples(&self, loaded: &Loaded, seed: u64) -> anyhow::Result<ReadExamples> {
        // The last token is a prediction target but not an input.
        let most = loaded.policy.context_length() + 1;
        let DataKeys { file: files, validation_fraction, max_tokens, thinking } = &self.keys;
        let longest = max_tokens.unwrap_or(most).min(most);
        let ModelSpec { config, codec } = &loaded.spec;
        let read = |file: &Path, fraction: f64| {
            let (config, thinking) = (config.json(), *thinking);
            let from = ReadFrom { file, codec, config, thinking, longest };
            self.reader.examples(&from, fraction, seed)
        };
        if let DataFiles::One(file) = files {
            return read(file, *validation_fraction);
        }
        let mut all = Vec::new();
        let (mut report, mut files_read) = (Vec::new(), Vec::new());
        for file in files.listed() {
            // Examples are held out of all files together.
            let one = read(file.path(), 0.0)?;
            report
                .extend(one.report.iter().map(|line| format!("{}: {line}", file.path().display())));
            files_read.extend(one.files);
            all.push((one.examples.train, file.weight()));
        }
        let examples = Examples::of_files(all, *validation_fraction, seed)?;
        let (epoch, held_out) = (examples.mixture().epoch(), examples.validation.len());
        report.insert(0, format!("{epoch} per epoch for training, {held_out} for validation"));
        Ok(ReadExamples { examples, augmentation: None, report, files: files_read })
    }

    /// Returns the file of a format that reads one.
    fn file(&self) -> &Path {
        self.keys.file.paths().next().map_or(Path::new(""), |path| path)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema, Ranges)]
#[serde(deny_unknown_fields)]
struct ModelSection {
    /// Transformer blocks.
    #[schemars(range(min = 1, max = 1024), extend("x-basic" = true))]
    n_layer: usize,
    /// Attention heads; divides `n_embd`.
    #[schemars(range(min = 1, max = 4096), extend("x-basic" = true))]
    n_head: usize,
    /// Width.
    #[schemars(range(min = 1, max = 65536), extend("x-basic" = true))]
    n_embd: usize,
    /// Context length in tokens, including the start token.
    #[schemars(range(min = 1, max = 1048576), extend("x-basic" = true))]
    block_size: usize,
}

pub(crate) fn run(arguments: &RunArguments, tasks: &Tasks) -> anyhow::Result<()> {
    let keys = supervised_run::keys(arguments)?;
    if command_of(&keys) == "pretrain"
        && let Some(pretraining) = tasks.pretraining(&keys)
    {
        return (pretraining.run)(tasks, arguments);
    }
    let Request { mut file, origin, start } =
        Request::read(arguments, "pretrain", |file: &mut PretrainFile| &mut file.run)?;
    file.check(&origin)?;
    let (section, formats) = (std::mem::take(&mut file.data), tasks.data_formats());
    check_file_name(&section, &formats).map_err(|fault| origin.locate(fault))?;
    let mut data = DataSection::<DataKeys>::parse(section, &formats)
        .map_err(|fault| origin.misread(&fault.below("data")))?;
    data.check(file.start.is_some()).map_err(|fault| origin.locate(fault))?;
    file.data = data.settings()?;
    if arguments.check {
        if let Beginning::New(_) = Beginning::of(&file)? {
            let _is_possible = new_codec(&data)?;
        }
        let PretrainFile { run, start, adapter, .. } = &file;
        let thinking =
            start.as_ref().map(|start| check_thinking(&*data.reader, data.keys.thinking, start));
        let thinking = thinking.transpose()?.flatten();
        let start = start.iter().map(|path| ("model", path));
        let adapter = adapter.iter().map(|path| ("adapter", path));
        let inputs = start.chain(adapter).chain(data.keys.file.paths().map(|path| ("data", path)));
        say_checked(arguments.configuration()?, run, arguments.force, inputs)?;
        say_embedders_checked(file.pretrain.embedders());
        if let Some(note) = thinking {
            say(format_args!("note         {note}"));
        }
        return Ok(());
    }
    find_data(&mut file, &mut data)?;
    let device = device::device()?.autodiff();
    let phase = Phase::begin(format!("loading the model and {}", data.keys.file));
    let loaded = starting_point(&file, &data, tasks, &device)?;
    let ReadExamples { examples, augmentation, report, files: read } =
        data.examples(&loaded, file.seed)?;
    drop(phase);
    anyhow::ensure!(
        !examples.validation.is_empty(),
        "no {} in {} is left for validation, so the best model cannot be selected; {}",
        data.reader.nouns()[0],
        data.keys.file,
        remedy_without_validation(examples.train.len(), data.keys.validation_fraction)
    );
    say(format_args!("{}: {}", data.keys.file, report[0]));
    for line in &report[1..] {
        say(format_args!("  {line}"));
    }

    let kind = loaded.kind();
    let Loaded { spec, policy, adapter, mut files } = loaded;
    files.extend(read);
    for embedder in file.pretrain.embedders() {
        files.extend(embedder.files()?);
    }
    let trainer =
        NextTokenObjective::trainer(policy, &spec.codec, &examples, &file.pretrain, file.seed);
    let trainer = trainer.map(|trainer| trainer.with_augmentation(augmentation));
    let trainer = trainer.and_then(|trainer| trainer.with_guards(&file.guards));
    let mut trainer = trainer.map_err(|error| origin.explain(error))?;
    let run = start.folder(&file, &file.run, file.seed, &files)?;
    let mut files = PolicyFiles::new(Writer { spec, adapter }, kind, &file.pretrain);
    let ending = run.train(&mut trainer, &mut files, &file.save)?;
    summary(&run)?;
    say(format_args!("{kind:<12} {}", run.target(kind).display()));
    run.refuse_stopped(ending)
}

/// Refuses a file whose name is that of no format, with the names of all of them.
fn check_file_name(section: &Table, formats: &[DataFormat]) -> Result<(), ConfigFault> {
    let sections = of_each_file(section);
    let file_of = |section: &Table| section.get("file")?.as_str().map(PathBuf::from);
    let is_unknown = |section: &&Table| {
        !file_of(section).is_none_or(|file| FileOrigin::has_records(&file))
            && !formats.iter().any(|format| (format.is_selected)(section))
    };
    let Some(file) = sections.iter().find(is_unknown).and_then(file_of) else { return Ok(()) };
    let endings = formats.iter().flat_map(|format| format.endings);
    let own: String = endings.map(|ending| format!("`.{ending}`, `.{ending}.gz`, ")).collect();
    let (origin, _) = FileOrigin::new(&file);
    let fault = origin.unknown_format(&format!("{own}{RECORD_ENDINGS}"), Records::Lines("text"));
    Err(ConfigFault::from_sentence("data.file", fault.to_string()))
}

impl PretrainFile {
    /// Checks ranges as far as possible without loading a model.
    fn check(&self, origin: &Origin) -> anyhow::Result<()> {
        self.pretrain.check().map_err(|error| origin.explain(error))?;
        if let Some(lora) = &self.lora {
            lora.check().map_err(|error| anyhow::anyhow!("{}{error}", origin.place("lora")))?;
        }
        if let Some(model @ ModelSection { n_layer, n_head, n_embd, .. }) = self.model {
            supervised_run::ModelSizes { n_layer, n_head, n_embd }.check(origin)?;
            origin.check_ranges("model", &model)?;
        }
        self.save.check(origin)
    }
}

/// Replaces names of data files on the hub by paths in its cache. Files that the cache lacks are downloaded.
fn find_data(file: &mut PretrainFile, data: &mut DataSection<DataKeys>) -> anyhow::Result<()> {
    data.keys.file = hub::data_files("data.file", &data.keys.file)?;
    // A pattern may stand for several files.
    data.check_files(&data.keys.file)?;
    file.data = data.settings()?;
    Ok(())
}

/// Adds the conditions of the `[data]` section to an existing model.
fn with_conditions(
    loaded: Loaded,
    file: &PretrainFile,
    data: &DataSection<DataKeys>,
) -> anyhow::Result<Loaded> {
    let keys = data.reader.new_config(data.file())?;
    if keys.is_empty() {
        return Ok(loaded);
    }
    let Loaded { spec, policy, adapter, files } = loaded;
    let Policy::Whole(model) = policy else {
        anyhow::bail!(
            "[data.conditions] adds layers to the model, which an adapter cannot do; remove the adapter, or [data.conditions]"
        )
    };
    anyhow::ensure!(
        model.description().conditions == Conditions::default(),
        "[data.conditions] has no effect on a model that already takes conditions; remove it"
    );
    let config = spec.config.with_keys(keys).context("[data.conditions]")?;
    let policy = Policy::Whole(model.with_conditions(&config, file.seed)?);
    Ok(Loaded { spec: ModelSpec { config, codec: spec.codec }, policy, adapter, files })
}

/// What a run begins with.
enum Beginning<'a> {
    Model(&'a Path, Trained<'a>),
    New(&'a ModelSection),
}

impl<'a> Beginning<'a> {
    fn of(file: &'a PretrainFile) -> anyhow::Result<Self> {
        let sizes = match (&file.start, &file.model) {
            (Some(start), None) => {
                let (adapter, lora) = (file.adapter.as_deref(), file.lora.as_ref());
                let trained = Trained::of(adapter, lora, file.base_precision, file.seed)?;
                return Ok(Self::Model(start, trained));
            }
            (None, Some(sizes)) => sizes,
            (Some(_), Some(_)) => anyhow::bail!(
                "the configuration has both `start` and [model]; keep `start` to train an existing model, or [model] to create a new one"
            ),
            (None, None) => anyhow::bail!(
                "the configuration has neither [model] (sizes of a new model) nor `start` (an existing model folder); add one of them"
            ),
        };
        anyhow::ensure!(
            file.base_precision == WeightPrecision::F32,
            "base_precision requires an adapter on an existing model, but [model] creates a new one; remove base_precision"
        );
        anyhow::ensure!(
            file.adapter.is_none() && file.lora.is_none(),
            "an adapter requires an existing model; replace the [model] table with the key `start`, set to the model's folder"
        );
        Ok(Self::New(sizes))
    }
}

/// Says what to do if none of `examples` examples is held out.
fn remedy_without_validation(examples: usize, fraction: f64) -> String {
    match examples {
        0 | 1 => "use a file with at least 2".to_owned(),
        _ => {
            format!("increase data.validation_fraction (now {fraction}), or use a larger file")
        }
    }
}

/// Loads or creates the initial model.
fn starting_point(
    file: &PretrainFile,
    data: &DataSection<DataKeys>,
    tasks: &Tasks,
    device: &Device,
) -> anyhow::Result<Loaded> {
    let sizes = match Beginning::of(file)? {
        Beginning::Model(start, trained) => {
            let loaded = load(start, &tasks.formats(), trained, file.base_precision, device)
                .with_context(|| format!("start = \"{}\"", start.display()))?;
            return with_conditions(loaded, file, data);
        }
        Beginning::New(sizes) => sizes,
    };
    let spec = new_model(sizes, data)?;
    let policy = Policy::Whole(Transformer::random(&spec.config, file.seed, device)?);
    Ok(Loaded { spec, policy, adapter: None, files: Vec::new() })
}

/// Returns what builds the codec of a new model. Reads no data.
fn new_codec(data: &DataSection<DataKeys>) -> anyhow::Result<NewCodec<'_>> {
    data.reader.new_codec().with_context(|| {
        format!(
            "[model] creates models for molecules only (.smi or .csv); for the text in {}, set `start` to a model folder (`grpo init` creates one with random weights)",
            data.keys.file
        )
    })
}

/// Returns the configuration and the vocabulary of a new model.
fn new_model(sizes: &ModelSection, data: &DataSection<DataKeys>) -> anyhow::Result<ModelSpec> {
    let codec = new_codec(data)?(data.file())?;
    let config = data.reader.new_model(&NewModel {
        vocabulary: codec.token_count().unwrap_or(0),
        context: sizes.block_size,
        layers: sizes.n_layer,
        heads: sizes.n_head,
        width: sizes.n_embd,
    });
    let config = config.context("[model]")?;
    let more = data.reader.new_config(data.file())?;
    let config = config.with_keys(more).context("[data]")?;
    Ok(ModelSpec { config, codec })
}
