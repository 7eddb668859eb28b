//! Model and adapter folders with results of transformers, sentence-transformers, PEFT and TRL.

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
    /// Expected results.
    pub expected: Expected,
}

impl GoldenModel {
    /// Returns the error of a key in `expected.json`.
    pub(crate) fn fault(&self, key: &str, problem: String) -> SelftestError {
        SelftestError::key(&self.path.join(FILE).display().to_string(), key, &problem)
    }
}

/// Expected results of a folder; the keys of `expected.json` determine the kind.
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
    /// Optimizer steps from the model in `before` to the one in `after`.
    Training(Box<ExpectedTraining>),
}

/// Expected results for a prompt and completion.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSequence {
    /// Prompt ids.
    pub prompt: Vec<u32>,
    /// Completion ids.
    pub completion: Vec<u32>,
    /// Logits after the last token.
    pub last_logits: Vec<f64>,
    /// Log-probabilities of the completion at temperature 1.
    #[serde(rename = "logprobs_t1.0")]
    pub logprobs: Vec<f64>,
    /// Entropies at temperature 1.
    #[serde(rename = "entropy_t1.0")]
    pub entropies: Vec<f64>,
    /// Log-probabilities at temperature 0.8.
    #[serde(rename = "logprobs_t0.8")]
    pub cool_logprobs: Vec<f64>,
    /// Entropies at temperature 0.8.
    #[serde(rename = "entropy_t0.8")]
    pub cool_entropies: Vec<f64>,
    /// Greedy continuation of the prompt.
    pub greedy: Vec<u32>,
}

/// Expected vectors of a sentence.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedSentence {
    /// Its ids.
    pub input_ids: Vec<u32>,
    /// Mean hidden state.
    pub mean_pooled: Vec<f64>,
    /// The same, normalised.
    pub unit: Vec<f64>,
}

/// The expected vector of a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedVector {
    /// The text.
    pub text: String,
    /// Its vector of length 1.
    pub vector: Vec<f64>,
}

/// Expected logits of a text with blanks.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedBlanks {
    /// Its ids.
    pub text: Vec<u32>,
    /// Logits at each position.
    pub logits: Vec<Vec<f64>>,
    /// For each position, the logit that its character is wrong; empty without a critic.
    #[serde(default)]
    pub critic: Vec<f64>,
}

/// The expected score of a text.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedScore {
    /// Its ids, possibly with PAD or too long.
    pub text: Vec<u32>,
    /// 0 (natural) to 1 (corrupted).
    pub score: f64,
}

/// Expected logits of a model with an adapter.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedAdapter {
    /// Folder of the base model, next to the adapter's.
    pub base: String,
    /// A sequence.
    pub input_ids: Vec<u32>,
    /// Logits after each token.
    pub logits: Vec<Vec<f64>>,
}

/// Expected optimizer steps on the completions of a rollout.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedTraining {
    /// The loss.
    pub config: TrainingSettings,
    /// AdamW with weight decay on every parameter.
    pub optimizer: AdamW,
    /// Largest gradient norm.
    pub max_grad_norm: f64,
    /// Prompt of each completion.
    pub prompts: Vec<Vec<u32>>,
    /// Completions, group by group.
    pub completions: Vec<Vec<u32>>,
    /// Advantage of each completion.
    pub advantages: Vec<f64>,
    /// Log-probabilities when sampled; values after the end of a completion are meaningless.
    pub old_logprobs: Vec<Vec<f64>>,
    /// Results of each optimizer step.
    pub steps: Vec<ExpectedStep>,
}

/// Settings with TRL's names.
#[derive(Clone, Debug, Deserialize)]
pub struct TrainingSettings {
    /// The preset.
    pub loss_type: String,
    /// β
    pub beta: f64,
    /// k
    pub num_generations: usize,
    /// ε_low, by default 0.2.
    pub epsilon: Option<f64>,
    /// ε_high, by default ε_low.
    pub epsilon_high: Option<f64>,
    /// δ, by default none.
    pub delta: Option<f64>,
    /// Level of the importance ratio, by default tokens.
    #[serde(default)]
    pub importance_sampling_level: RatioLevel,
    /// Divisor of rewards, by default the group's deviation.
    #[serde(default)]
    pub scale_rewards: RewardScale,
    /// Divisor of the logits.
    pub temperature: f64,
    /// Reward of each completion.
    pub rewards: Vec<f64>,
}

/// Settings with PyTorch's names.
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
    /// Returns the largest possible change of a weight in this many steps, apart from decay.
    ///
    /// Step t moves it by `lr · m/√v` with `m = Σ aᵢgᵢ` and `v = Σ bᵢgᵢ²`, whose weights sum to 1.
    /// By Cauchy-Schwarz, `|m|/√v ≤ √(Σ aᵢ²/bᵢ)` for any gradients, which is barely more than 1 for
    /// usual β.
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
    /// Other metrics, by our names.
    #[serde(flatten)]
    pub metrics: std::collections::BTreeMap<String, f64>,
}

/// Returns the model folders in `folder`, sorted by name, or `folder` itself if it is one.
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

/// Checks the lengths of all lists.
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
