//! Refuses quantised checkpoints, by name.

use grpo_data::Shortened;

/// A way to quantise checkpoints: its name in `quantization_config.quant_method`, the name of the format, and
/// endings of tensors that no other checkpoint has.
struct Method {
    key: &'static str,
    name: &'static str,
    endings: &'static [&'static str],
}

/// The first whose ending fits names the format. GPTQ's have all of AWQ's endings.
const METHODS: [Method; 6] = [
    Method { key: "gptq", name: "GPTQ", endings: &[".g_idx"] },
    Method { key: "awq", name: "AWQ", endings: &[".qweight", ".qzeros"] },
    Method {
        key: "bitsandbytes",
        name: "bitsandbytes",
        endings: &[".weight.absmax", ".weight.quant_map", ".SCB"],
    },
    Method {
        key: "compressed-tensors",
        name: "compressed-tensors",
        endings: &[".weight_packed", ".weight_shape", ".weight_scale"],
    },
    Method { key: "fp8", name: "FP8", endings: &[".weight_scale_inv"] },
    Method { key: "hqq", name: "HQQ", endings: &[".W_q"] },
];

/// Refuses a checkpoint with tensors that only quantised weights have, although its `config.json` does not
/// say so.
pub(crate) fn refuse_quantised<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let method_of = |name: &str| {
        let fits = |method: &Method| method.endings.iter().any(|ending| name.ends_with(ending));
        METHODS.iter().position(fits)
    };
    let found = names.filter_map(|name| Some((method_of(name)?, name)));
    match found.min() {
        Some((method, name)) => {
            Err(format!("tensor '{name}' belongs to {}", fault(METHODS[method].name)))
        }
        None => Ok(()),
    }
}

/// Describes why weights with this `quant_method` are refused.
pub(crate) fn fault_of_method(method: Option<&str>) -> String {
    let known = METHODS.iter().find(|known| Some(known.key) == method).map(|known| known.name);
    let name = known.or(method).unwrap_or("by an unnamed method");
    format!("quantization_config describes {}", fault(&Shortened(name).to_string()))
}

fn fault(name: &str) -> String {
    format!(
        "weights that are quantised ({name}), which is not supported; use the model's bf16 or f32 weights, which a run can quantise in memory"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_the_names_that_users_know() {
        let check = |method: Option<&str>, expected: &str| {
            let found = fault_of_method(method);
            let start =
                format!("quantization_config describes weights that are quantised ({expected}), ");
            assert!(found.starts_with(&start), "{found}");
        };
        check(Some("awq"), "AWQ");
        check(Some("compressed-tensors"), "compressed-tensors");
        check(Some("fp8"), "FP8");
        check(Some("torchao"), "torchao");
        check(None, "by an unnamed method");
    }

    #[test]
    fn quantised_weights_are_recognised_by_their_tensors() {
        let check = |names: &[&str], expected: Option<&str>| {
            let found = refuse_quantised(names.iter().copied());
            let start = |expected| {
                format!("tensor '{}' belongs to weights that are quantised ({expected})", names[0])
            };
            match (found, expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => {
                    assert!(error.starts_with(&start(expected)), "{error}");
                }
                other => panic!("{names:?}: {other:?}"),
            }
        };
        check(
            &["model.layers.0.mlp.up_proj.g_idx", "model.layers.0.mlp.up_proj.qweight"],
            Some("GPTQ"),
        );
        check(&["q.qweight", "q.qzeros", "q.scales"], Some("AWQ"));
        check(&["q.weight.absmax", "q.weight"], Some("bitsandbytes"));
        check(&["q.SCB", "q.weight"], Some("bitsandbytes"));
        check(&["q.weight_packed", "q.weight_scale"], Some("compressed-tensors"));
        check(&["q.weight_scale_inv", "q.weight"], Some("FP8"));
        check(&["q.W_q"], Some("HQQ"));
        check(&["model.layers.0.mlp.up_proj.weight", "h.0.attn.bias", "scale"], None);
    }
}
