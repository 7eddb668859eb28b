//! What can be wrong with a model on disk or with its description.

use std::path::PathBuf;

/// A model that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// `config.json` is not the description of a model that we know.
    #[error("{}: {message}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong and what was expected.
        message: String,
    },
    /// Sizes that do not fit together.
    #[error("{0}")]
    Sizes(String),
    /// The file is not safetensors, or is cut off.
    #[error("{} is not a whole safetensors file: {message}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A tensor that the model needs is not in the file.
    #[error("{} has no tensor '{name}'; is it a checkpoint of this model family?", path.display())]
    MissingTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor of another size than the configuration says.
    #[error(
        "{}: tensor '{name}' has shape {found:?}, but config.json asks for {expected:?}",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// From the configuration.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// A tensor of numbers that we do not read.
    #[error("{}: tensor '{name}' holds {found}; F32, BF16 and F16 are read", path.display())]
    DType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// In the file.
        found: String,
    },
    /// A tensor that holds NaN or infinity.
    #[error("{}: tensor '{name}' holds a number that is not finite", path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A tensor that the model has no place for.
    #[error("{}: tensor '{name}' has no place in this model family", path.display())]
    UnknownTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
    /// A setting of a new adapter that is out of its range.
    #[error("lora.{key} = {message}")]
    Lora {
        /// The key.
        key: &'static str,
        /// What it was and what would do.
        message: String,
    },
    /// A target of a new adapter that no layer has.
    #[error("lora.targets: no linear layer is called '{target}'; there are: {}", known.join(", "))]
    UnknownTarget {
        /// The target.
        target: String,
        /// The layers that there are.
        known: Vec<String>,
    },
    /// A tensor of an adapter for a layer that the base does not have.
    #[error(
        "{}: '{name}' has no layer in this model, whose linear layers are {}; was the adapter trained on another base?",
        path.display(), known.join(", ")
    )]
    OtherBase {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The layers that there are.
        known: Vec<String>,
    },
    /// A tensor of an adapter that does not fit the base or the adapter's own rank.
    #[error(
        "{}: tensor '{name}' has shape {found:?}, but the model and adapter_config.json ask for {expected:?}; was the adapter trained on another base?",
        path.display()
    )]
    AdapterShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// From the model and the adapter's settings.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// An adapter for other numbers of the same shapes.
    #[error(
        "{} was trained on another base: on {trained_on} with the weights {}, and {} has the weights {}; give the model that it was trained on",
        adapter.display(), short(expected), base.display(), short(found)
    )]
    OtherWeights {
        /// The adapter's folder.
        adapter: PathBuf,
        /// What the adapter calls its base.
        trained_on: String,
        /// The digest of that.
        expected: String,
        /// The folder of the base that was given.
        base: PathBuf,
        /// The digest of this.
        found: String,
    },
    /// An adapter without a single pair.
    #[error("{} has no LoRA matrices", path.display())]
    EmptyAdapter {
        /// The file.
        path: PathBuf,
    },
    /// A sentence vector of a model whose tokens do not see each other.
    #[error("a sentence encoder is a model like BERT, in which all tokens see each other")]
    NotAnEncoder,
    /// A model without a head that scores sequences.
    #[error("a judge is a model of the family sequence_scorer, which gives one number for a text")]
    NotAScorer,
    /// A scorer cannot begin as a model of other sizes.
    #[error(
        "the scorer cannot begin with the weights of this model: it has {trunk}, and the scorer {scorer}; only block_size may differ"
    )]
    OtherTrunk {
        /// Sizes of the model.
        trunk: String,
        /// Sizes of the scorer.
        scorer: String,
    },
    /// A model folder without weights that we read.
    #[error(
        "{} has neither model.safetensors nor model.safetensors.index.json; other formats are not read: let transformers write the model once with save_pretrained",
        folder.display()
    )]
    NoWeights {
        /// The folder.
        folder: PathBuf,
    },
    /// Targets of an adapter of which no layer of the base is one.
    #[error(
        "{}: its adapter_config.json targets {}, and the linear layers of this model are {}; was the adapter trained on another base?",
        path.display(), targets.join(", "), known.join(", ")
    )]
    OtherTargets {
        /// The file of the weights.
        path: PathBuf,
        /// The targets.
        targets: Vec<String>,
        /// The layers that there are.
        known: Vec<String>,
    },
    /// Matrices for a layer that the adapter's settings do not name.
    #[error(
        "{}: it has matrices for {layer}, which target_modules of adapter_config.json does not name; take both files from the same adapter",
        path.display()
    )]
    NoTarget {
        /// The file of the weights.
        path: PathBuf,
        /// The layer.
        layer: String,
    },
    /// More memory than can be had.
    #[error("tensor '{name}' of {numbers} numbers does not fit into memory")]
    Memory {
        /// The tensor.
        name: String,
        /// How many numbers it has.
        numbers: usize,
    },
}

/// The beginning of a digest, which tells models apart for people.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
