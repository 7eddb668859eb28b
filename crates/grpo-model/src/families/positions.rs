//! Keys of positions and of layers with windows, as transformers 5 reads them.

use serde_json::{Map, Value};

use super::Fields;
use crate::description::{LayerAttention, RotaryConfig, RotaryScaling};

/// What families without windows refuse.
pub(super) const WINDOWS: &str = "windows, heads that are rotated in part, scalings of positions other than linear, llama3 and yarn";
/// What families with windows refuse.
pub(super) const PARTIAL: &str =
    "heads that are rotated in part, scalings of positions other than linear, llama3 and yarn";

/// Rejects models that rotate only a fraction of each head.
pub(super) fn refuse_partial_rotation(fields: &Fields<'_>) -> Result<(), String> {
    let mut all = vec![*fields];
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(parameters) = fields.object(key)? else { continue };
        let of_layers = parameters.json().values().filter_map(Value::as_object);
        all.extend(of_layers.map(Fields::new).chain([parameters]));
    }
    for fields in all {
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
/// The window of a configuration that does not say it.
const WINDOW: usize = 4096;

/// Reads `layer_types` and `sliding_window`, which is 4096 if it is missing. Without types, `is_sliding` says which of `layers` have a
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
    let is_missing = !fields.json().contains_key("sliding_window");
    let window = match fields.optional_size("sliding_window")? {
        Some(0) => return Err("sliding_window = 0 is out of range; expected 1 or more".to_owned()),
        Some(window) => window,
        None if is_missing => WINDOW,
        None => {
            return Err(
                "sliding_window = null, but there are layers with a window; expected 1 or more"
                    .to_owned(),
            );
        }
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

/// Reads the rotary positions of layers without and with a window: `rope_parameters` has both
/// (transformers 5), or `rope_scaling` is only that of the former (older checkpoints). Older files have
/// the base of the latter under `local_base`.
pub(super) fn two_rotaries(
    fields: &Fields<'_>,
    context: usize,
    [base, local]: [f64; 2],
    local_base: Option<&str>,
) -> Result<[RotaryConfig; 2], String> {
    refuse_partial_rotation(fields)?;
    let by_kind = fields.object("rope_parameters")?;
    let mut keys = by_kind.iter().flat_map(|by_kind| by_kind.json().keys());
    if let Some(key) = keys.find(|key| ![FULL, SLIDING].contains(&key.as_str())) {
        return Err(format!(
            "rope_parameters.{key} is not supported; expected {FULL} and {SLIDING}, each with the parameters of its layers"
        ));
    }
    let of_kind = |kind: &str| -> Result<Map<String, Value>, String> {
        let Some(by_kind) = &by_kind else { return Ok(Map::new()) };
        Ok(by_kind.object(kind)?.map(|found| found.json().clone()).unwrap_or_default())
    };
    let config = |parameters: &Map<String, Value>, base: f64| {
        let parameters = Fields::new(parameters);
        let base = base_of(parameters.positive("rope_theta", Some(base))?)?;
        let scaling = rotary_scaling(&parameters, context, None)?;
        Ok::<_, String>(RotaryConfig { base, scaling })
    };
    let (mut full, sliding) = (of_kind(FULL)?, of_kind(SLIDING)?);
    // As in transformers 5, the older key takes precedence.
    if let Some(older) = fields.object("rope_scaling")? {
        full.extend(older.json().clone());
    }
    let base = fields.positive("rope_theta", Some(base))?;
    let local = match local_base {
        Some(key) => fields.positive(key, Some(local))?,
        None => local,
    };
    Ok([config(&full, base)?, config(&sliding, local)?])
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
    let mut values = scaling.iter().flat_map(|scaling| scaling.json());
    if let Some((kind, _)) = values.find(|(_, value)| value.is_object()) {
        return Err(format!(
            "rope_parameters.{kind} is not supported; all layers of this family have the same parameters"
        ));
    }
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
            // As in transformers 5, this key takes precedence outside of the parameters.
            Some(scaling) => rotary_scaling(scaling, context, fields.optional_size(ORIGINAL)?)?,
            None => RotaryScaling::Default,
        },
    })
}

/// Context length before the extension.
const ORIGINAL: &str = "original_max_position_embeddings";

fn rotary_scaling(
    fields: &Fields<'_>,
    context: usize,
    original: Option<usize>,
) -> Result<RotaryScaling, String> {
    let kind = match fields.text("rope_type")? {
        Some(kind) => kind,
        None => fields.text("type")?.unwrap_or("default"),
    };
    let original_context = || -> Result<usize, String> {
        match original.or(fields.optional_size(ORIGINAL)?).unwrap_or(context) {
            0 => Err(format!("{ORIGINAL} = 0 is out of range; expected 1 or more")),
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
