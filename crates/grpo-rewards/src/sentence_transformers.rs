//! Text embeddings from models in the sentence-transformers format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use grpo_data::{Shortened, TextTokenizer, regular_file};
use grpo_eval::{EmbedError, Embedder, TokenVectors};
use grpo_model::{
    BERT, ModelFolder, ModelFormats, SentenceEncoder, TokenBatch, weights_digest, weights_file,
};
use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An encoder in the sentence-transformers format (Reimers & Gurevych 2019, "Sentence-BERT").
/// Supports BERT models with mean pooling and normalization, e.g. all-MiniLM-L6-v2.
///
/// Text is processed the same way as in sentence-transformers: leading and trailing whitespace is
/// removed, and long texts are truncated while preserving the special tokens. Text that consists
/// only of whitespace is mapped to the zero vector. Texts are encoded individually rather than in
/// padded batches, so the vector for a text never depends on the rest of the batch.
pub struct SentenceTransformers {
    encoder: SentenceEncoder,
    tokenizer: TextTokenizer,
    /// Special tokens before and after a text.
    marks: [Vec<u32>; 2],
    lower_case: bool,
    /// Maximum length in tokens, including special tokens.
    longest: usize,
    width: usize,
    identity: String,
}

impl fmt::Debug for SentenceTransformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentenceTransformers")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The expected files, for use in error messages.
const FILES: &str = "modules.json, config.json, tokenizer.json, model.safetensors, 1_Pooling/config.json and usually sentence_bert_config.json";

const MODULES: &str = "modules.json";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const LENGTH: &str = "sentence_bert_config.json";
const PROMPTS: &str = "config_sentence_transformers.json";

impl SentenceTransformers {
    /// Loads an encoder.
    ///
    /// # Errors
    /// Returns an error if the folder or one of its files is missing or invalid. Encoders with a
    /// model other than BERT, pooling other than the mean, or additional layers are not supported
    /// and also result in an error.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, FolderError> {
        let fault = |fault: String| FolderError { folder: folder.to_owned(), fault };
        check_modules(folder)?;
        let ModelFolder { spec, model, .. } =
            ModelFolder::load(folder, &ModelFormats::default(), device)
                .map_err(|error| fault(error.to_string()))?;
        let family = spec.config.family();
        if *family != BERT {
            return Err(fault(format!(
                "its model family is {}; expected {}",
                family.name, BERT.name
            )));
        }
        let (width, context) = {
            let description = model.description();
            (description.width, description.context)
        };
        let weights = weights_digest(&model);
        let encoder = SentenceEncoder::new(model).map_err(|error| fault(error.to_string()))?;
        let tokenizer = TextTokenizer::from_file(&folder.join(TOKENIZER))
            .map_err(|error| fault(error.to_string()))?;
        let marks = marks(&tokenizer).map_err(fault)?;
        let lengths: Lengths = read(folder, LENGTH)?.unwrap_or_default();
        let of_tokenizer: OfTokenizer = read(folder, TOKENIZER_CONFIG)?.unwrap_or_default();
        let of_tokenizer = of_tokenizer.model_max_length.map(|longest| longest as usize);
        let longest = lengths.max_seq_length.or(of_tokenizer);
        let longest = longest.map_or(context, |longest| longest.min(context));
        let marked: usize = marks.iter().map(Vec::len).sum();
        if longest <= marked {
            return Err(fault(format!(
                "max_seq_length = {longest} in {LENGTH} is too small for the {marked} special tokens around a text"
            )));
        }
        let lower_case = lengths.do_lower_case;
        let identity = format!(
            "sentence_transformers:{weights}:{}:{longest}:{lower_case}",
            blake3::hash(
                &regular_file::read(&folder.join(TOKENIZER))
                    .map_err(|error| { fault(format!("cannot read {TOKENIZER}: {error}")) })?
            )
        );
        Ok(Self { encoder, tokenizer, marks, lower_case, longest, width, identity })
    }

    /// Returns the files that belong to the encoder in `folder`.
    ///
    /// # Errors
    /// Returns an error if the folder does not exist or contains no `modules.json`.
    pub fn files(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
        let pooling = check_modules(folder)?;
        let names = [MODULES, CONFIG, TOKENIZER, TOKENIZER_CONFIG, LENGTH, PROMPTS];
        let paths =
            names.iter().map(|name| folder.join(name)).chain(weights_file(folder)).chain([pooling]);
        Ok(paths.filter(|path| path.is_file()).collect())
    }

    /// Returns the token ids of a text, including special tokens, or `None` if it consists only of
    /// whitespace.
    fn ids(&self, text: &str) -> Result<Option<Vec<u32>>, EmbedError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Ok(None);
        }
        let lower = self.lower_case.then(|| trimmed.to_lowercase());
        let own = self.tokenizer.encode(lower.as_deref().unwrap_or(trimmed));
        let mut own = own.map_err(|error| embed_error(text, error.to_string()))?;
        let [front, back] = &self.marks;
        own.truncate(self.longest - front.len() - back.len());
        Ok(Some([front, &own, back].into_iter().flatten().copied().collect()))
    }

    /// Returns the last hidden states of the tokens of a text, each with length 1, for BERTScore.
    ///
    /// # Errors
    /// Returns an error if the text cannot be encoded.
    pub fn token_vectors(&self, text: &str) -> Result<TokenVectors, EmbedError> {
        let Some(ids) = self.ids(text)? else { return Ok(TokenVectors::default()) };
        let hidden = self.encoder.hidden(&TokenBatch::from_iter([ids.as_slice()])).into_data();
        let hidden =
            hidden.try_to_vec::<f32>().map_err(|error| embed_error(text, error.to_string()))?;
        let unit = |vector: &[f32]| {
            let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            vector.iter().map(|x| (f64::from(*x) / length) as f32).collect()
        };
        let vectors: Vec<Vec<f32>> = hidden.chunks(self.width).map(unit).collect();
        let [front, back] = &self.marks;
        let own = front.len()..vectors.len() - back.len();
        match vectors.iter().flatten().all(|number| number.is_finite()) {
            true => Ok(TokenVectors { vectors, own }),
            false => Err(embed_error(text, "its vectors are not finite".to_owned())),
        }
    }

    fn vector(&self, text: &str) -> Result<Vec<f32>, EmbedError> {
        let Some(ids) = self.ids(text)? else { return Ok(vec![0.0; self.width]) };
        let vector = self.encoder.unit(&TokenBatch::from_iter([ids.as_slice()])).into_data();
        let vector =
            vector.try_to_vec::<f32>().map_err(|error| embed_error(text, error.to_string()))?;
        match vector.iter().all(|number| number.is_finite()) {
            true => Ok(vector),
            false => Err(embed_error(text, "its vector is not finite".to_owned())),
        }
    }
}

impl Embedder for SentenceTransformers {
    fn width(&self) -> usize {
        self.width
    }

    /// Embeds texts. Repeated texts are encoded only once.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let distinct: Vec<&str> =
            texts.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let vectors: Vec<Vec<f32>> =
            distinct.par_iter().map(|text| self.vector(text)).collect::<Result<_, _>>()?;
        let of: BTreeMap<&str, Vec<f32>> = distinct.into_iter().zip(vectors).collect();
        Ok(texts.iter().map(|text| of[text].clone()).collect())
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

fn embed_error(text: &str, fault: String) -> EmbedError {
    EmbedError { text: text.chars().take(40).collect(), fault }
}

/// Returns the special tokens before and after a text.
fn marks(tokenizer: &TextTokenizer) -> Result<[Vec<u32>; 2], String> {
    let ids = |text| -> Result<_, grpo_data::DataError> {
        Ok((tokenizer.encode(text)?, tokenizer.encode_with_special(text)?))
    };
    let (own, marked) = ids("a").map_err(|error| error.to_string())?;
    let at = marked.windows(own.len().max(1)).position(|window| window == own);
    match at {
        Some(at) => Ok([marked[..at].to_vec(), marked[at + own.len()..].to_vec()]),
        None => Err(format!(
            "its {TOKENIZER} changes the text instead of adding special tokens around it"
        )),
    }
}

/// Checks that the encoder consists of supported modules, and returns the path of the pooling
/// configuration.
fn check_modules(folder: &Path) -> Result<PathBuf, FolderError> {
    let fault = |fault: String| FolderError { folder: folder.to_owned(), fault };
    if !folder.is_dir() {
        return Err(fault(format!(
            "the folder does not exist; a sentence-transformers folder contains {FILES}"
        )));
    }
    let modules: Vec<ListedModule> = read(folder, MODULES)?.ok_or_else(|| {
        fault(format!("{MODULES} is missing; a sentence-transformers folder contains {FILES}"))
    })?;
    // The module path before the class name depends on the version of sentence-transformers.
    let kinds: Vec<&str> =
        modules.iter().map(|module| module.kind.rsplit('.').next().unwrap_or_default()).collect();
    let pooling = match (kinds.as_slice(), modules.as_slice()) {
        // A `Normalize` module is optional, because vectors are always normalized.
        (
            ["Transformer", "Pooling"] | ["Transformer", "Pooling", "Normalize"],
            [model, pooling, ..],
        ) if model.path.is_empty() => {
            if !is_name(&pooling.path) {
                return Err(fault(format!(
                    "{MODULES} has path '{}' for Pooling; expected the name of a subfolder, such as 1_Pooling",
                    Shortened(&pooling.path)
                )));
            }
            format!("{}/{CONFIG}", pooling.path)
        }
        _ => {
            return Err(fault(format!(
                "{MODULES} lists {}; supported: a Transformer in the folder itself, Pooling, and optionally Normalize",
                kinds.join(", ")
            )));
        }
    };
    let found: Pooling =
        read(folder, &pooling)?.ok_or_else(|| fault(format!("{pooling} is missing")))?;
    if let Some(other) = found.other_than_mean() {
        return Err(fault(format!("{pooling} has {other}; only mean pooling is supported")));
    }
    let prompts: Prompts = read(folder, PROMPTS)?.unwrap_or_default();
    if let Some(name) = prompts.default_prompt_name {
        return Err(fault(format!(
            "{PROMPTS} sets the default prompt '{name}', which is not supported"
        )));
    }
    Ok(folder.join(pooling))
}

/// Reads a JSON file. Returns `None` if it does not exist.
fn read<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Option<T>, FolderError> {
    let fault = |fault: String| FolderError { folder: folder.to_owned(), fault };
    match regular_file::read(&folder.join(name)) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(read) => Ok(Some(read)),
            Err(error) => {
                Err(fault(format!("cannot read {name}: {}", grpo_data::json_reason(&error))))
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault(format!("cannot read {name}: {error}"))),
    }
}

/// An entry in `modules.json`.
#[derive(Deserialize)]
struct ListedModule {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Returns `true` if a path in `modules.json` is a plain file name. The file is untrusted and must
/// not refer to folders outside the model folder.
fn is_name(path: &str) -> bool {
    Path::new(path).file_name() == Some(path.as_ref())
}

/// The pooling configuration. Recent versions have a name, and old versions have a Boolean for each
/// mode.
#[derive(Deserialize)]
struct Pooling {
    pooling_mode: Option<Value>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Pooling {
    fn other_than_mean(&self) -> Option<String> {
        if let Some(mode) = &self.pooling_mode {
            return (mode != "mean").then(|| format!("pooling_mode = {mode}"));
        }
        let mut switches = self.others.iter().filter(|(key, _)| key.starts_with("pooling_mode_"));
        let wrong =
            switches.find(|(key, on)| **on != Value::Bool(*key == "pooling_mode_mean_tokens"));
        match wrong {
            Some((key, on)) => Some(format!("{key} = {on}")),
            None if self.others.contains_key("pooling_mode_mean_tokens") => None,
            None => Some("no pooling_mode".to_owned()),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Lengths {
    max_seq_length: Option<usize>,
    do_lower_case: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfTokenizer {
    /// Some models use 1e30 for unlimited length.
    model_max_length: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Prompts {
    default_prompt_name: Option<String>,
}

/// Error for a folder that does not contain a supported encoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {} as a sentence encoder: {fault}", folder.display())]
pub struct FolderError {
    /// The folder of the encoder.
    pub folder: PathBuf,
    /// Why the encoder cannot be used.
    pub fault: String,
}

#[cfg(test)]
mod tests;
