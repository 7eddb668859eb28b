//! Keys of positions and of layers with windows, as transformers 5 reads them.

use super::Fields;
use crate::description::{LayerAttention, RotaryConfig, RotaryScaling};

/// What families without windows refuse.
pub(super) const WINDOWS: &str = "windows, heads that are rotated in part, scalings of positions other than linear, llama3 and yarn";
/// What families with windows refuse.
pub(super) const PARTIAL: &str =
    "heads that are rotated in part, scalings of positions other than linear, llama3 and yarn";

/// Rejects models that rotate only a fraction of each head.
pub(super) fn refuse_partial_rotation(fields: &Fields<'_>) -> Result<(), String> {
    let inner = fields.object("rope_parameters")?;
    for fields in inner.iter().chain([fields]) {
        match fields.optional_number("partial_rotary_factor")? {
            Some(factor) if factor != 1.0 => {
                return Err(format!("partial_rotary_factor = {factor} is not supported"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Name of a layer that sees all tokens before.
const FULL: &str = "full_attention";
/// Name of a layer that sees a window of them.
const SLIDING: &str = "sliding_attention";

/// Reads `layer_types` and `sliding_window`. Without types, `is_sliding` says which of `layers` have a
/// window. Returns an empty list if none has.
pub(super) fn windows(
    fields: &Fields<'_>,
    layers: usize,
    is_sliding: impl Fn(usize) -> bool,
) -> Result<Vec<LayerAttention>, String> {
    let sliding: Vec<bool> = match layer_types(fields)? {
        Some(kinds) if kinds.len() == layers => kinds,
        Some(kinds) => {
            let found = kinds.len();
            return Err(format!(
                "layer_types has {found} elements; expected one per layer, {layers}"
            ));
        }
        None => (0..layers).map(is_sliding).collect(),
    };
    if !sliding.contains(&true) {
        return Ok(Vec::new());
    }
    let window = match fields.optional_size("sliding_window")? {
        Some(0) => return Err("sliding_window = 0 is out of range; expected 1 or more".to_owned()),
        Some(window) => window,
        None => return Err("missing key 'sliding_window'".to_owned()),
    };
    let of = |is_sliding: bool| LayerAttention::default().within(is_sliding.then_some(window));
    Ok(sliding.into_iter().map(of).collect())
}

/// Returns whether each layer has a window, if `layer_types` is there.
fn layer_types(fields: &Fields<'_>) -> Result<Option<Vec<bool>>, String> {
    let kinds = match fields.json().get("layer_types") {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(kinds) => {
            kinds.as_array().ok_or_else(|| format!("layer_types = {kinds}; expected a list"))?
        }
    };
    let is_sliding = |kind: &serde_json::Value| match kind.as_str() {
        Some(FULL) => Ok(false),
        Some(SLIDING) => Ok(true),
        _ => Err(format!("layer type {kind} is not supported; supported: {FULL}, {SLIDING}")),
    };
    kinds.iter().map(is_sliding).collect::<Result<_, _>>().map(Some)
}

/// Rejects windows.
pub(super) fn refuse_windows(fields: &Fields<'_>) -> Result<(), String> {
    match layer_types(fields)? {
        Some(kinds) if kinds.contains(&true) => {
            Err(format!("layer type \"{SLIDING}\" is not supported; supported: {FULL}"))
        }
        _ => Ok(()),
    }
}

/// Reads the rotary positions of layers without and with a window. The latter are never scaled, and
/// have a base of their own under `local_base` in older files.
pub(super) fn two_rotaries(
    fields: &Fields<'_>,
    context: usize,
    [base, local]: [f64; 2],
    local_base: Option<&str>,
) -> Result<[RotaryConfig; 2], String> {
    let nested = |kind: &str| match fields.object("rope_parameters")? {
        Some(by_kind) if by_kind.json().values().any(serde_json::Value::is_object) => {
            by_kind.object(kind)
        }
        _ => Ok(None),
    };
    let of_kind = |kind: &str, default: f64| -> Result<Option<RotaryConfig>, String> {
        let Some(parameters) = nested(kind)? else { return Ok(None) };
        let base = base_of(parameters.positive("rope_theta", Some(default))?)?;
        Ok(Some(RotaryConfig { base, scaling: rotary_scaling(&parameters, context)? }))
    };
    let full = match of_kind(FULL, base)? {
        Some(full) => full,
        None => rotary(fields, context, base)?,
    };
    let sliding = match of_kind(SLIDING, local)? {
        Some(sliding) => sliding,
        None => {
            let base = match local_base {
                Some(key) => fields.positive(key, Some(local))?,
                None => local,
            };
            RotaryConfig { base: base_of(base)?, scaling: RotaryScaling::Default }
        }
    };
    Ok([full, sliding])
}

/// Checks the base of rotary positions.
fn base_of(base: f64) -> Result<f64, String> {
    match base > 1.0 {
        true => Ok(base),
        false => Err(format!("rope_theta = {base} is out of range; expected more than 1")),
    }
}

/// Reads `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (older
/// checkpoints). The base is `default_base` if neither says it.
pub(super) fn rotary(
    fields: &Fields<'_>,
    context: usize,
    default_base: f64,
) -> Result<RotaryConfig, String> {
    let newer = fields.object("rope_parameters")?;
    let older = fields.object("rope_scaling")?;
    // As in transformers 5, the older key takes precedence unless it is empty.
    let scaling = older.filter(|older| !older.json().is_empty()).or(newer);
    let inner_base = match &scaling {
        Some(scaling) => scaling.optional_number("rope_theta")?,
        None => None,
    };
    let base = match inner_base {
        Some(base) => base,
        None => fields.positive("rope_theta", Some(default_base))?,
    };
    Ok(RotaryConfig {
        base: base_of(base)?,
        scaling: match &scaling {
            Some(scaling) => rotary_scaling(scaling, context)?,
            None => RotaryScaling::Default,
        },
    })
}

fn rotary_scaling(fields: &Fields<'_>, context: usize) -> Result<RotaryScaling, String> {
    let kind = match fields.text("rope_type")? {
        Some(kind) => kind,
        None => fields.text("type")?.unwrap_or("default"),
    };
    let original_context = || -> Result<usize, String> {
        match fields.optional_size("original_max_position_embeddings")?.unwrap_or(context) {
            0 => Err("original_max_position_embeddings = 0 is out of range; expected 1 or more"
                .to_owned()),
            original => Ok(original),
        }
    };
    match kind {
        "default" => Ok(RotaryScaling::Default),
        "linear" => Ok(RotaryScaling::Linear { factor: fields.positive("factor", None)? }),
        "llama3" => {
            let low_frequency_factor = fields.positive("low_freq_factor", None)?;
            let high_frequency_factor = fields.positive("high_freq_factor", None)?;
            if high_frequency_factor <= low_frequency_factor {
                return Err(format!(
                    "high_freq_factor = {high_frequency_factor} must be greater than low_freq_factor = {low_frequency_factor}"
                ));
            }
            Ok(RotaryScaling::Llama3 {
                factor: fields.positive("factor", None)?,
                low_frequency_factor,
                high_frequency_factor,
                original_context: original_context()?,
            })
        }
        "yarn" => {
            let factor = fields.positive("factor", None)?;
            Ok(RotaryScaling::Yarn {
                factor,
                beta_fast: fields.positive("beta_fast", Some(32.0))?,
                beta_slow: fields.positive("beta_slow", Some(1.0))?,
                original_context: original_context()?,
                attention_factor: yarn_attention_factor(fields, factor)?,
                truncate: fields.flag("truncate", true)?,
            })
        }
        other => Err(format!(
            "rope_type = \"{other}\" is not supported; supported: default, linear, llama3, yarn"
        )),
    }
}

/// Returns the attention factor. The default is that of transformers:
/// `0.1 · mscale · ln(factor) + 1`.
fn yarn_attention_factor(fields: &Fields<'_>, factor: f64) -> Result<f64, String> {
    if let Some(given) = fields.optional_number("attention_factor")? {
        return Ok(given);
    }
    let scale = |mscale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 };
    let given = (fields.optional_number("mscale")?, fields.optional_number("mscale_all_dim")?);
    Ok(match given {
        (Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => scale(mscale) / scale(all),
        _ => scale(1.0),
    })
}
