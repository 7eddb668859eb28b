//! A family that is registered from outside of its crate. It has what those of the crate do not have:
//! separate projections with learned positions, a table of token types, an output layer of its own, and
//! conditions.

use grpo_model::{ConditionIds, Conditions, Description, FamilyKind, HeadKind, Names, TokenType};
/// The family.
pub(crate) static OTHER: FamilyKind = FamilyKind::new(
    "other",
    Names {
        prefix: "",
        blocks: "blocks.",
        outside: &[
            ("token_embedding", "tok_emb"),
            ("type_embedding", "type_emb"),
            ("position_embedding", "pos_emb!"),
            ("norm", "ln_f"),
            ("head", "head"),
            ("prefix.projection", "prop_nn"),
        ],
        inside: &[
            ("attention_norm", "ln1"),
            ("attention.inputs.0", "attn.query"),
            ("attention.inputs.1", "attn.key"),
            ("attention.inputs.2", "attn.value"),
            ("attention.output", "attn.proj"),
            ("mlp_norm", "ln2"),
            ("mlp.up", "mlp.0"),
            ("mlp.down", "mlp.2"),
        ],
        conv1d: false,
        ignored: |_| false,
    },
    |fields| {
        let (width, heads) = (fields.size("n_embd")?, fields.size("n_head")?);
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(format!("n_embd = {width} is not a multiple of n_head = {heads}"));
        }
        let values = fields.optional_size("num_props")?.unwrap_or(0);
        let ids = match (values, fields.optional_size("lstm_layers")?.unwrap_or(0)) {
            (0, _) => ConditionIds::None,
            (_, 0) => ConditionIds::Tokens,
            (_, layers) => ConditionIds::Lstm { layers },
        };
        Ok(Description {
            vocabulary: fields.size("vocab_size")?,
            context: fields.size("block_size")?,
            width,
            layers: fields.size("n_layer")?,
            heads,
            kv_heads: heads,
            head_width: width / heads,
            mlp_width: width.saturating_mul(4),
            token_type: Some(TokenType { rows: 2, token: 1 }),
            conditions: Conditions { values, partial: values > 0, ids },
            head: HeadKind::Own,
            ..Description::default()
        })
    },
);
