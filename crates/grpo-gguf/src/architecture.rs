//! The supported architectures, and the names of their tensors in GGUF and in transformers.

use crate::error::{Result, damaged, unsupported};

/// An architecture. All have the same names of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
}

/// Architecture, its name in both worlds, its class in transformers.
const ARCHITECTURES: [(Architecture, &str, &str); 3] = [
    (Architecture::Llama, "llama", "LlamaForCausalLM"),
    (Architecture::Qwen2, "qwen2", "Qwen2ForCausalLM"),
    (Architecture::Qwen3, "qwen3", "Qwen3ForCausalLM"),
];

/// Names outside of blocks: in GGUF, in transformers.
const OUTSIDE: [(&str, &str); 3] =
    [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Names inside of a block: in GGUF, in transformers.
const INSIDE: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

impl Architecture {
    /// Returns the architecture with this name. `place` says where the name stands.
    pub(crate) fn from_name(name: &str, place: &str) -> Result<Self> {
        match ARCHITECTURES.iter().find(|row| row.1 == name) {
            Some(row) => Ok(row.0),
            None => unsupported(format!(
                "{place} is `{}`, which is not supported; supported are llama, qwen2 and qwen3",
                name.escape_debug()
            )),
        }
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        ARCHITECTURES.iter().find(|row| row.0 == self).expect("the table lists all architectures")
    }

    /// Returns the name, which is the same in GGUF and in transformers.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the name of the class in transformers.
    pub(crate) fn class(self) -> &'static str {
        self.row().2
    }

    /// Returns the rows that llama.cpp has in another order.
    pub(crate) fn order(self, name: &str, heads: Heads) -> RowOrder {
        if self != Self::Llama {
            return RowOrder::Same;
        }
        match name.split('.').nth(2) {
            Some("attn_q") => RowOrder::Interleaved { heads: heads.queries },
            Some("attn_k") => RowOrder::Interleaved { heads: heads.keys },
            _ => RowOrder::Same,
        }
    }
}

/// How many heads an attention has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) queries: usize,
    pub(crate) keys: usize,
}

/// Returns transformers' name of a tensor.
pub(crate) fn to_hugging_face(name: &str) -> Option<String> {
    translated(name, "blk.", "model.layers.", |row| *row)
}

/// Returns the name in GGUF of a tensor of transformers.
pub(crate) fn to_gguf(name: &str) -> Option<String> {
    translated(name, "model.layers.", "blk.", |(gguf, other)| (other, gguf))
}

fn translated(
    name: &str,
    blocks: &str,
    new_blocks: &str,
    from_to: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) -> Option<String> {
    let (module, suffix) =
        name.rsplit_once('.').filter(|(_, end)| matches!(*end, "weight" | "bias"))?;
    let lookup = |table: &[(&'static str, &'static str)], name: &str| {
        table.iter().map(&from_to).find(|(from, _)| *from == name).map(|(_, to)| to)
    };
    if let Some(to) = lookup(&OUTSIDE, module) {
        return (suffix == "weight").then(|| format!("{to}.{suffix}"));
    }
    let (block, inner) = module.strip_prefix(blocks)?.split_once('.')?;
    // "01" would be another name of the same block.
    let block = block.parse::<u32>().ok().filter(|number| number.to_string() == block)?;
    let to = lookup(&INSIDE, inner)?;
    Some(format!("{new_blocks}{block}.{to}.{suffix}"))
}

/// The order of a matrix's rows in GGUF.
///
/// Rotary positions turn pairs of values. In transformers, a pair is value `i` of the first half of a
/// head and value `i` of the second; for the architecture `llama`, llama.cpp has them side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    Same,
    Interleaved { heads: usize },
}

impl RowOrder {
    /// Puts the rows of GGUF in the order of transformers.
    pub(crate) fn to_hugging_face(
        self,
        name: &str,
        rows: usize,
        values: Vec<f32>,
    ) -> Result<Vec<f32>> {
        self.reordered(name, rows, values, |half, i, pairs| (2 * i + half, half * pairs + i))
    }

    /// Puts the rows of transformers in the order of GGUF.
    pub(crate) fn to_gguf(self, name: &str, rows: usize, values: Vec<f32>) -> Result<Vec<f32>> {
        self.reordered(name, rows, values, |half, i, pairs| (half * pairs + i, 2 * i + half))
    }

    fn reordered(
        self,
        name: &str,
        rows: usize,
        values: Vec<f32>,
        from_to: impl Fn(usize, usize, usize) -> (usize, usize),
    ) -> Result<Vec<f32>> {
        let Self::Interleaved { heads } = self else { return Ok(values) };
        if heads == 0 || !rows.is_multiple_of(2 * heads) {
            return damaged(format!(
                "tensor `{name}` has {rows} rows, which {heads} heads cannot share"
            ));
        }
        let (width, per_head) = (values.len() / rows, rows / heads);
        let pairs = per_head / 2;
        let mut moved = vec![0.0; values.len()];
        for head in 0..heads {
            for half in 0..2 {
                for i in 0..pairs {
                    let (from, to) = from_to(half, i, pairs);
                    let (from, to) = (head * per_head + from, head * per_head + to);
                    moved[to * width..(to + 1) * width]
                        .copy_from_slice(&values[from * width..(from + 1) * width]);
                }
            }
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_in_both_directions() {
        for (gguf, other) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.11.attn_q.bias", "model.layers.11.self_attn.q_proj.bias"),
            ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
        ] {
            assert_eq!(to_hugging_face(gguf).as_deref(), Some(other));
            assert_eq!(to_gguf(other).as_deref(), Some(gguf));
        }
        for other in ["blk.01.attn_q.weight", "blk.0.attn_qkv.weight", "output", "blk.0.weight"] {
            assert_eq!(to_hugging_face(other), None, "{other}");
        }
    }

    #[test]
    fn rows_are_put_in_order_and_back() {
        let order = RowOrder::Interleaved { heads: 2 };
        let stored = [0., 1., 2., 3., 10., 11., 12., 13.].to_vec();
        let read = order.to_hugging_face("q", 8, stored.clone()).unwrap();
        assert_eq!(read, [0., 2., 1., 3., 10., 12., 11., 13.]);
        assert_eq!(order.to_gguf("q", 8, read).unwrap(), stored);
        assert!(order.to_gguf("q", 6, vec![0.; 6]).is_err());
    }
}
