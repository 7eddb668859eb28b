//! Folders with a model or an adapter and what transformers, sentence-transformers, PEFT and TRL computed of it.

use std::path::{Path, PathBuf};

use grpo_core::{RatioLevel, RewardScale};
use grpo_data::regular_file;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::SelftestError;

/// A folder with an `expected.json`.
#[derive(Clone, Debug)]
pub struct GoldenModel {
    /// The folder.
    pub path: PathBuf,
    /// Its name.
    pub name: String,
    /// What is expected.
    pub expected: Expected,
}

impl GoldenModel {
    /// What is wrong under a key of the `expected.json`.
    pub(crate) fn fault(&self, key: &str, problem: String) -> SelftestError {
        SelftestError::key(&self.path.join(FILE).display().to_string(), key, &problem)
    }
}

/// What a folder's `expected.json` is of; told by its keys.
#[derive(Clone, Debug)]
pub enum Expected {
    /// A causal language model.
    Policy(Vec<ExpectedSequence>),
    /// An encoder.
    Encoder(Vec<ExpectedSentence>),
    /// A folder of sentence-transformers.
    Embedder(Vec<ExpectedVector>),
    /// An infiller.
    Infiller(Vec<ExpectedBlanks>),
    /// A sequence scorer.
    Scorer(Vec<ExpectedScore>),
    /// A LoRA adapter.
    Adapter(ExpectedAdapter),
    /// Optimizer steps from the model in `before` to that in `after`.
    Training(Box<ExpectedTraining>),
}

/// Numbers of a prompt and its completion.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSequence {
    /// Ids in front.
    pub prompt: Vec<u32>,
    /// Ids behind.
    pub completion: Vec<u32>,
    /// Logits after the last token of both.
    pub last_logits: Vec<f64>,
    /// Of the completion's tokens, at temperature 1.
    #[serde(rename = "logprobs_t1.0")]
    pub logprobs: Vec<f64>,
    /// Of the completion's tokens, at temperature 1.
    #[serde(rename = "entropy_t1.0")]
    pub entropies: Vec<f64>,
    /// At temperature 0.8.
    #[serde(rename = "logprobs_t0.8")]
    pub cool_logprobs: Vec<f64>,
    /// At temperature 0.8.
    #[serde(rename = "entropy_t0.8")]
    pub cool_entropies: Vec<f64>,
    /// The most probable continuation of the prompt, token by token.
    pub greedy: Vec<u32>,
}

/// Vectors of a sentence.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSentence {
    /// Its ids.
    pub input_ids: Vec<u32>,
    /// Mean of the hidden states.
    pub mean_pooled: Vec<f64>,
    /// The same of length 1.
    pub unit: Vec<f64>,
}

/// The vector of a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedVector {
    /// The text.
    pub text: String,
    /// Its vector of length 1.
    pub vector: Vec<f64>,
}

/// Logits of a text with blanks.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedBlanks {
    /// Its ids.
    pub text: Vec<u32>,
    /// At each place.
    pub logits: Vec<Vec<f64>>,
    /// Of each place the logit that its character is wrong; nothing where the model has no critic.
    #[serde(default)]
    pub critic: Vec<f64>,
}

/// What a judge says of a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedScore {
    /// Its ids, perhaps with PAD, perhaps too many.
    pub text: Vec<u32>,
    /// 0 (natural) to 1 (corrupted).
    pub score: f64,
}

/// Logits of a model with an adapter.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedAdapter {
    /// The model's folder, beside the adapter's.
    pub base: String,
    /// A sequence.
    pub input_ids: Vec<u32>,
    /// After each token.
    pub logits: Vec<Vec<f64>>,
}

/// Optimizer steps on the completions of one rollout.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedTraining {
    /// The loss.
    pub config: TrainingSettings,
    /// AdamW, with decay on every parameter.
    pub optimizer: AdamW,
    /// Gradients are clipped to this norm.
    pub max_grad_norm: f64,
    /// Of each completion.
    pub prompts: Vec<Vec<u32>>,
    /// Group by group.
    pub completions: Vec<Vec<u32>>,
    /// Of each completion.
    pub advantages: Vec<f64>,
    /// Log-probabilities when sampled; what stands behind a completion's end is of no meaning.
    pub old_logprobs: Vec<Vec<f64>>,
    /// Of each optimizer step.
    pub steps: Vec<ExpectedStep>,
}

/// TRL's names.
#[derive(Clone, Debug, Deserialize)]
pub struct TrainingSettings {
    /// The preset.
    pub loss_type: String,
    /// β
    pub beta: f64,
    /// k
    pub num_generations: usize,
    /// ε_low, 0.2 where it is left out.
    pub epsilon: Option<f64>,
    /// ε_high, as ε_low where it is left out.
    pub epsilon_high: Option<f64>,
    /// δ, none where it is left out.
    pub delta: Option<f64>,
    /// Of tokens where it is left out.
    #[serde(default)]
    pub importance_sampling_level: RatioLevel,
    /// What rewards are divided by: their group's deviation where it is left out.
    #[serde(default)]
    pub scale_rewards: RewardScale,
    /// Logits were divided by it.
    pub temperature: f64,
    /// Of each completion.
    pub rewards: Vec<f64>,
}

/// torch's names.
#[derive(Clone, Debug, Deserialize)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// β₁, β₂
    pub betas: [f64; 2],
    /// ε
    pub eps: f64,
    /// λ
    pub weight_decay: f64,
}

impl AdamW {
    /// The furthest that so many steps can move a weight, besides its decay.
    ///
    /// Step t moves it by `lr · m/√v` with `m = Σ aᵢgᵢ` and `v = Σ bᵢgᵢ²`, whose weights sum to 1 each. By Cauchy and
    /// Schwarz `|m|/√v ≤ √(Σ aᵢ²/bᵢ)`, whatever the gradients are; for usual β this is barely more than 1.
    pub(crate) fn reach(&self, steps: usize) -> f64 {
        let weight = |beta: f64, age: i32, step: i32| {
            (1.0 - beta) * beta.powi(age) / (1.0 - beta.powi(step))
        };
        let of_step = |step: i32| -> f64 {
            let term = |age| {
                let [a, b] = self.betas.map(|beta| weight(beta, age, step));
                if a == 0.0 { 0.0 } else { a * a / b }
            };
            (0..step).map(term).sum::<f64>().sqrt()
        };
        self.lr * (1..=steps as i32).map(of_step).sum::<f64>()
    }
}

/// Metrics of an optimizer step.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedStep {
    /// Loss.
    pub loss: f64,
    /// Norm before clipping.
    pub grad_norm: f64,
    /// The rest, by its name among our metrics.
    #[serde(flatten)]
    pub metrics: std::collections::BTreeMap<String, f64>,
}

/// The model folders in `folder`, in the order of their names; or `folder` itself, if it is one.
///
/// # Errors
/// A folder that cannot be read, or an `expected.json` that is not as it must be.
pub fn read_models(folder: &Path) -> Result<Vec<GoldenModel>, SelftestError> {
    if folder.join(FILE).is_file() {
        return Ok(vec![read_model(folder.to_owned())?]);
    }
    let unreadable = SelftestError::read(folder);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(&unreadable)? {
        let path = entry.map_err(&unreadable)?.path();
        if path.join(FILE).is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(read_model).collect()
}

const FILE: &str = "expected.json";

fn read_model(path: PathBuf) -> Result<GoldenModel, SelftestError> {
    let file = path.join(FILE);
    let text = regular_file::read_to_string(&file).map_err(SelftestError::read(&file))?;
    let shown = file.display().to_string();
    let whole: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| SelftestError::json(&shown, &error))?;
    let has = |key: &str| whole.get(key).is_some();
    let of_sequences = |key: &str| whole["sequences"][0].get(key).is_some();
    let sequences = whole["sequences"].clone();
    let expected = if has("steps") {
        Expected::Training(Box::new(checked(parse(whole, &shown)?, &shown)?))
    } else if has("base") {
        Expected::Adapter(parse(whole, &shown)?)
    } else if of_sequences("vector") {
        Expected::Embedder(parse(sequences, &shown)?)
    } else if of_sequences("logits") {
        Expected::Infiller(parse(sequences, &shown)?)
    } else if of_sequences("score") {
        Expected::Scorer(parse(sequences, &shown)?)
    } else if of_sequences("input_ids") {
        Expected::Encoder(parse(sequences, &shown)?)
    } else if of_sequences("completion") {
        Expected::Policy(parse(sequences, &shown)?)
    } else {
        return Err(SelftestError::Golden(format!(
            "`{shown}` has neither steps nor base nor sequences of a kind that is known"
        )));
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(GoldenModel { name: name.unwrap_or_default(), path, expected })
}

fn parse<T: DeserializeOwned>(value: serde_json::Value, file: &str) -> Result<T, SelftestError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        SelftestError::key(file, &error.path().to_string(), &error.inner().to_string())
    })
}

/// Refuses lists of other lengths than the completions.
fn checked(training: ExpectedTraining, file: &str) -> Result<ExpectedTraining, SelftestError> {
    let wrong = |key: &str, problem: String| Err(SelftestError::key(file, key, &problem));
    let n = training.completions.len();
    let lengths = [
        ("prompts", training.prompts.len()),
        ("advantages", training.advantages.len()),
        ("old_logprobs", training.old_logprobs.len()),
        ("config.rewards", training.config.rewards.len()),
    ];
    if let Some((key, found)) = lengths.into_iter().find(|(_, found)| *found != n) {
        return wrong(key, format!("{found} values, expected one for each of {n} completions"));
    }
    let k = training.config.num_generations;
    if n == 0 || k < 2 || !n.is_multiple_of(k) {
        return wrong("config.num_generations", format!("{n} completions in groups of {k}"));
    }
    for (key, lists) in [("prompts", &training.prompts), ("completions", &training.completions)] {
        if lists.iter().any(Vec::is_empty) {
            return wrong(key, "an empty list of ids".to_owned());
        }
    }
    for (row, (ids, old)) in training.completions.iter().zip(&training.old_logprobs).enumerate() {
        let usable = |logprob: &f64| logprob.is_finite() && *logprob <= 0.0;
        if old.len() < ids.len() || !old[..ids.len()].iter().all(usable) {
            return wrong(
                "old_logprobs",
                format!("row {row}: expected {} log-probabilities", ids.len()),
            );
        }
    }
    Ok(training)
}
