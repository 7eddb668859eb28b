//! Keys of `adapter_config.json` that decide what an adapter changes, and by how much.

use grpo_data::regex_reason;
use regex::Regex;
use serde_json::{Map, Value};

use super::excluded::Excluded;
use super::targets::Targets;

/// Prefix of module names in PEFT files.
pub(super) const PREFIX: &str = "base_model.model.";

/// Settings that determine which layers have a pair, and its rank and scale.
pub(super) struct Scales {
    pub(super) rank: usize,
    pub(super) alpha: f64,
    pub(super) dropout: f32,
    pub(super) rslora: bool,
    pub(super) dora: bool,
    /// Whether the file can have biases of the base.
    pub(super) trains_biases: bool,
    pub(super) modules_to_save: Vec<String>,
    pub(super) targets: Targets,
    pub(super) excluded: Excluded,
    pub(super) ranks: Vec<(Regex, usize)>,
    pub(super) alphas: Vec<(Regex, f64)>,
}

impl Scales {
    pub(super) fn of(json: &Map<String, Value>) -> Result<Self, String> {
        refuse_other_kinds(json)?;
        let rank = positive_whole(json.get("r").unwrap_or(&Value::Null), "r")?;
        let alpha = not_negative(json.get("lora_alpha").unwrap_or(&Value::Null), "lora_alpha")?;
        let dropout = match json.get("lora_dropout") {
            None | Some(Value::Null) => 0.0,
            // Check the f32 value, because numbers slightly below 1 round to 1.
            Some(value) => value
                .as_f64()
                .map(|value| value as f32)
                .filter(|value| (0.0..1.0).contains(value))
                .ok_or_else(|| format!("lora_dropout = {value} is out of range; expected 0 or more, and less than 1"))?,
        };
        let switch = |key: &str| match json.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(value) => {
                value.as_bool().ok_or_else(|| format!("{key} = {value}; expected true or false"))
            }
        };
        Ok(Self {
            rank,
            alpha,
            dropout,
            rslora: switch("use_rslora")?,
            dora: switch("use_dora")?,
            trains_biases: trains_biases(json)?,
            modules_to_save: modules_to_save(json)?,
            targets: Targets::from_json(json)?,
            excluded: Excluded::of(json)?,
            ranks: patterns(json, "rank_pattern", positive_whole)?,
            alphas: patterns(json, "alpha_pattern", not_negative)?,
        })
    }

    /// Returns the rank and α for the layer with this stored path.
    pub(super) fn of_layer(&self, stored: &str) -> (usize, f64) {
        let rank = self.ranks.iter().find(|(pattern, _)| pattern.is_match(stored));
        let alpha = self.alphas.iter().find(|(pattern, _)| pattern.is_match(stored));
        (rank.map_or(self.rank, |(_, rank)| *rank), alpha.map_or(self.alpha, |(_, alpha)| *alpha))
    }
}

fn trains_biases(json: &Map<String, Value>) -> Result<bool, String> {
    match json.get("bias") {
        None | Some(Value::Null) => Ok(false),
        Some(bias) if bias == "none" => Ok(false),
        Some(bias) if bias == "all" || bias == "lora_only" => Ok(true),
        Some(bias) => Err(format!(
            "bias = {bias} is not supported; supported: \"none\", \"all\", \"lora_only\""
        )),
    }
}

fn modules_to_save(json: &Map<String, Value>) -> Result<Vec<String>, String> {
    let names = match json.get("modules_to_save") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)),
        Some(other) => return Err(format!("modules_to_save = {other}; expected a list of names")),
    };
    let names: Option<Vec<String>> = names.collect();
    names.ok_or_else(|| {
        format!("modules_to_save = {}; expected a list of names", json["modules_to_save"])
    })
}

/// Rejects adapter types and extensions that are not supported.
fn refuse_other_kinds(json: &Map<String, Value>) -> Result<(), String> {
    let kind = json.get("peft_type").and_then(Value::as_str).unwrap_or("nothing");
    if kind != "LORA" {
        return Err(format!("peft_type = {kind} is not supported; supported: LORA"));
    }
    // The remaining methods (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) modify the base before training.
    let first = json.get("init_lora_weights").unwrap_or(&Value::Null);
    let beside_the_base = match first {
        Value::Null | Value::Bool(_) => true,
        other => ["gaussian", "orthogonal", "eva"].iter().any(|known| other == known),
    };
    if !beside_the_base {
        return Err(format!(
            "init_lora_weights = {first} is not supported: it modifies the base weights"
        ));
    }
    // Don't mistake adapter types from newer PEFT versions for plain LoRA.
    let unknown = |(key, value): &(&String, &Value)| {
        let is_known = ["use_rslora", "use_dora"].contains(&key.as_str());
        key.starts_with("use_") && !is_known && **value == true
    };
    if let Some((key, value)) = json.iter().find(unknown) {
        return Err(format!("{key} = {value} is not supported"));
    }
    let off = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    };
    let additions = [
        "use_qalora",
        "use_bdlora",
        "lora_bias",
        "ensure_weight_tying",
        "layer_replication",
        "trainable_token_indices",
        "target_parameters",
        "alora_invocation_tokens",
        "arrow_config",
        "kasa_config",
        "velora_config",
        "monteclora_config",
    ];
    match additions.into_iter().find(|key| json.get(*key).is_some_and(|value| !off(value))) {
        Some(key) => Err(format!("{key} = {} is not supported", json[key])),
        None => Ok(()),
    }
}

/// Reads module path patterns. As in PEFT, a pattern matches the entire path, or its end following
/// a dot.
fn patterns<T>(
    json: &Map<String, Value>,
    key: &str,
    number: fn(&Value, &str) -> Result<T, String>,
) -> Result<Vec<(Regex, T)>, String> {
    let entries = match json.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(other) => return Err(format!("{key} = {other}; expected an object")),
    };
    let pattern = |(pattern, value): (&String, &Value)| {
        let regex = Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$")).map_err(|error| {
            format!("{key}: invalid pattern '{pattern}': {}", regex_reason(&error))
        })?;
        Ok((regex, number(value, key)?))
    };
    entries.iter().map(pattern).collect()
}

fn positive_whole(value: &Value, key: &str) -> Result<usize, String> {
    let number = value.as_u64().filter(|value| (1..=65_536).contains(value));
    number
        .map(|value| value as usize)
        .ok_or_else(|| format!("{key} = {value} is out of range; expected 1 to 65536"))
}

/// Reads α. With 0, the adapter has no effect.
fn not_negative(value: &Value, key: &str) -> Result<f64, String> {
    let number = value.as_f64().filter(|value| *value >= 0.0 && value.is_finite());
    let number = number.ok_or_else(|| {
        format!("{key} = {value} is out of range; expected a number of at least 0")
    })?;
    // Adapters are scaled in f32.
    match number == 0.0 || (f32::MIN_POSITIVE.into()..=f32::MAX.into()).contains(&number) {
        true => Ok(number),
        false => Err(format!("{key} = {value} is out of range; expected 1.2e-38 to 3.4e38")),
    }
}
