//! Default values of our keys in TOML notation. A test compares them with the program's defaults.

use toml::{Table, Value};

/// Keys that an import may write, with their defaults.
pub(super) const DEFAULTS: &[(&str, &str)] = &[
    ("base_precision", "\"f32\""),
    ("lora.dropout", "0.0"),
    ("lora.rslora", "false"),
    ("lora.dora", "false"),
    ("train.updates_per_rollout", "1"),
    ("train.activation_checkpointing", "false"),
    ("sampling.temperature", "1.0"),
    ("advantage.aggregation", "\"sum_then_normalize\""),
    ("loss.preset", "\"grpo\""),
    ("loss.kl_coef", "0.0"),
    ("loss.kl_bias_correction", "true"),
    ("optimizer.betas", "[0.9, 0.95]"),
    ("optimizer.epsilon", "1e-8"),
    ("optimizer.weight_decay", "0.1"),
    ("optimizer.max_grad_norm", "1.0"),
    ("schedule.warmup_steps", "0"),
    ("schedule.floor", "1.0"),
    ("eval.every", "0"),
    ("eval.group_size", "1"),
    ("save.every", "0"),
    ("save.keep_last", "2"),
    ("save.completions_every", "10"),
];

/// Returns a key's default, or `None` for required keys and for keys that are off when unset.
pub(super) fn default_of(key: &str) -> Option<Value> {
    let (_, text) = DEFAULTS.iter().find(|(name, _)| *name == key)?;
    let table: Table = toml::from_str(&format!("value = {text}")).ok()?;
    table.get("value").cloned()
}
