//! Model and adapter folders with results from transformers, sentence-transformers, PEFT and TRL.

use std::path::{Path, PathBuf};

use grpo_core::{RatioLevel, RewardScale};
use grpo_data::regular_file;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::SelftestError;

/// A folder that contains an `expected.json`.
#[derive(Clone, Debug)]
pub struct GoldenModel {
    /// Path to the folder.
    pub path: PathBuf,
    /// Name of the folder.
    pub name: String,
    /// Expected results.
    pub expected: Expected,
}

impl GoldenModel {
    /// Creates an error for a key in `expected.json`.
    pub(crate) fn fault(&self, key: &str, problem: String) -> SelftestError {
        SelftestError::key(&self.path.join(FILE).display().to_string(), key, &problem)
    }
}

/// Expected results for a folder. The variant is inferred from the keys in `expected.json`.
#[derive(Clone, Debug)]
pub enum Expected {
    /// A causal language model.
    Policy(Vec<ExpectedSequence>),
    /// An encoder.
    Encoder(Vec<ExpectedSentence>),
    /// A sentence-transformers folder.
    Embedder(Vec<ExpectedVector>),
    /// An infiller.
    Infiller(Vec<ExpectedBlanks>),
    /// A sequence scorer.
    Scorer(Vec<ExpectedScore>),
    /// A LoRA adapter.
    Adapter(ExpectedAdapter),
    /// Optimizer steps that turn the model in `before` into the one in `after`.
    Training(Box<ExpectedTraining>),
}

/// Expected results for a prompt and its completion.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSequence {
    /// Prompt ids.
    pub prompt: Vec<u32>,
    /// Completion ids.
    pub completion: Vec<u32>,
    /// Logits after the last token.
    pub last_logits: Vec<f64>,
    /// Log-probabilities of the completion tokens at temperature 1.
    #[serde(rename = "logprobs_t1.0")]
    pub logprobs: Vec<f64>,
    /// Entropies at temperature 1.
    #[serde(rename = "entropy_t1.0")]
    pub entropies: Vec<f64>,
    /// Log-probabilities of the completion tokens at temperature 0.8.
    #[serde(rename = "logprobs_t0.8")]
    pub cool_logprobs: Vec<f64>,
    /// Entropies at temperature 0.8.
    #[serde(rename = "entropy_t0.8")]
    pub cool_entropies: Vec<f64>,
    /// Greedy continuation of the prompt.
    pub greedy: Vec<u32>,
}

/// Expected vectors for a sentence.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSentence {
    /// Token ids of the sentence.
    pub input_ids: Vec<u32>,
    /// Mean hidden state.
    pub mean_pooled: Vec<f64>,
    /// Mean hidden state, normalised to unit length.
    pub unit: Vec<f64>,
}

/// Expected embedding of a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedVector {
    /// The text.
    pub text: String,
    /// Embedding, normalised to unit length.
    pub vector: Vec<f64>,
}

/// Expected logits for text with blanks.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedBlanks {
    /// Token ids of the text.
    pub text: Vec<u32>,
    /// Logits for each position.
    pub logits: Vec<Vec<f64>>,
    /// Critic logit for each position: whether the character is wrong. Empty if the model has no
    /// critic.
    #[serde(default)]
    pub critic: Vec<f64>,
}

/// Expected score for a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedScore {
    /// Token ids of the text, which may contain PAD or exceed the context length.
    pub text: Vec<u32>,
    /// Score between 0 (natural) and 1 (corrupted).
    pub score: f64,
}

/// Expected logits for a model with an adapter.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedAdapter {
    /// Name of the base model folder, in the same directory as the adapter folder.
    pub base: String,
    /// Input token ids.
    pub input_ids: Vec<u32>,
    /// Logits after each token.
    pub logits: Vec<Vec<f64>>,
}

/// Expected results of optimizer steps on the completions from one rollout.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedTraining {
    /// Loss settings.
    pub config: TrainingSettings,
    /// AdamW settings. Weight decay applies to all parameters.
    pub optimizer: AdamW,
    /// Maximum gradient norm.
    pub max_grad_norm: f64,
    /// Prompt for each completion.
    pub prompts: Vec<Vec<u32>>,
    /// Completions, ordered by group.
    pub completions: Vec<Vec<u32>>,
    /// Advantage for each completion.
    pub advantages: Vec<f64>,
    /// Log-probabilities at sampling time. Values after the end of a completion are undefined.
    pub old_logprobs: Vec<Vec<f64>>,
    /// Expected results for each optimizer step.
    pub steps: Vec<ExpectedStep>,
}

/// Training settings, named as in TRL.
#[derive(Clone, Debug, Deserialize)]
pub struct TrainingSettings {
    /// Loss preset.
    pub loss_type: String,
    /// KL coefficient β.
    pub beta: f64,
    /// Number of completions per group, k.
    pub num_generations: usize,
    /// ε_low. Defaults to 0.2.
    pub epsilon: Option<f64>,
    /// ε_high. Defaults to ε_low.
    pub epsilon_high: Option<f64>,
    /// δ. Disabled by default.
    pub delta: Option<f64>,
    /// Level of the importance ratio. Defaults to tokens.
    #[serde(default)]
    pub importance_sampling_level: RatioLevel,
    /// Reward scale. Defaults to the standard deviation of the group.
    #[serde(default)]
    pub scale_rewards: RewardScale,
    /// Softmax temperature.
    pub temperature: f64,
    /// Reward for each completion.
    pub rewards: Vec<f64>,
}

/// AdamW settings, named as in PyTorch.
#[derive(Clone, Debug, Deserialize)]
pub struct AdamW {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates β₁ and β₂.
    pub betas: [f64; 2],
    /// Numerical stability constant ε.
    pub eps: f64,
    /// Weight decay coefficient λ.
    pub weight_decay: f64,
}

impl AdamW {
    /// Returns an upper bound for the change of a weight in `steps` steps, excluding weight decay.
    ///
    /// In step t, a weight changes by `lr · m/√v`, where `m = Σ aᵢgᵢ`, `v = Σ bᵢgᵢ²`, and both sets
    /// of coefficients sum to 1. The Cauchy-Schwarz inequality gives `|m|/√v ≤ √(Σ aᵢ²/bᵢ)` for any
    /// gradients. For common values of β, this is only slightly larger than 1.
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

/// Expected metrics for an optimizer step.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedStep {
    /// Loss.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Additional metrics by the name used in this project.
    #[serde(flatten)]
    pub metrics: std::collections::BTreeMap<String, f64>,
}

/// Returns all model folders in `folder`, sorted by name. If `folder` is itself a model folder,
/// only that one is returned.
///
/// # Errors
/// Returns an error if a folder cannot be read or an `expected.json` is invalid.
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
            "`{shown}` contains no steps, no base and no recognized sequences"
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

/// Checks that all lists have the expected length.
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
        return wrong(key, format!("{found} values, expected one per completion ({n})"));
    }
    let k = training.config.num_generations;
    if n == 0 || k < 2 || !n.is_multiple_of(k) {
        return wrong(
            "config.num_generations",
            format!("{n} completions cannot be divided into groups of {k}"),
        );
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
