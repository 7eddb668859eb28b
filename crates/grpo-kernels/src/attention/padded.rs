//! Attention over padded sequences.

use burn::tensor::{Int, Tensor, TensorData};

use crate::Scoring;
use crate::attention_softmax::capped_softmax;
use crate::matmul::batched_matmul;
use crate::packing::{Heads, Packing};
use crate::visible::Visible;

/// Computes [`attention`](crate::attention()) by padding sequences on the left.
///
/// This version is the reference for testing the fused implementation. It is also used for dropout
/// and on backends without fused attention. `on_weights` can modify the attention weights, which
/// have shape `[sequences, heads, queries, keys]`.
pub fn padded_attention(
    query: Tensor<2>,
    keys: Tensor<2>,
    values: Tensor<2>,
    heads: Heads,
    scoring: impl Into<Scoring>,
    packing: &Packing,
    on_weights: impl FnOnce(Tensor<4>) -> Tensor<4>,
) -> Tensor<2> {
    let scoring = scoring.into();
    scoring.assert_fits(packing.is_causal());
    let Heads { heads, kv_heads, width } = heads;
    let padded = Padded::new(packing);
    let (batch, queries, all) = (padded.starts.len(), padded.queries, padded.keys);
    let split = |x: Tensor<2>, rows: &[i32], columns: usize, heads: usize| -> Tensor<4> {
        take(x, rows).reshape([batch, columns, heads, width]).swap_dims(1, 2)
    };
    let query = split(query, &padded.query_rows, queries, heads); // [s, h, q, w]
    let keys = split(keys, &padded.key_rows, all, kv_heads); // [s, kv, k, w]
    let values = split(values, &padded.key_rows, all, kv_heads);
    let visible = if packing.is_causal() { Visible::causal() } else { Visible::all() };
    let visible = Visible { window: scoring.window, ..visible };
    let tokens: Vec<_> = padded.starts.iter().map(|&start| start..all).collect();
    // Heads that share keys are adjacent, so the product can treat them as additional rows instead
    // of copying the keys.
    let rows = heads / kv_heads * queries;
    let grouped = query.reshape([batch, kv_heads, rows, width]);
    let scores =
        batched_matmul(grouped, keys.swap_dims(2, 3)).reshape([batch, heads, queries, all]);
    let weights = on_weights(capped_softmax(scores, &scoring, &visible.within(tokens)));
    let grouped = weights.reshape([batch, kv_heads, rows, all]);
    let mixed = batched_matmul(grouped, values).reshape([batch, heads, queries, width]);
    take(mixed.swap_dims(1, 2).reshape([batch * queries, heads * width]), &padded.own_rows)
}

/// Row indices for left-padded sequences.
struct Padded {
    /// Length of the longest sequence, without and with the prefix it continues.
    queries: usize,
    keys: usize,
    /// Row at each padded position, `[sequences · queries]` and `[sequences · keys]`. Padding may
    /// use any row.
    query_rows: Vec<i32>,
    key_rows: Vec<i32>,
    /// Column of the first key of each sequence.
    starts: Vec<usize>,
    /// Position of each row among the padded queries.
    own_rows: Vec<i32>,
}

impl Padded {
    fn new(packing: &Packing) -> Self {
        let sequences = packing.sequences();
        let seen = |index: usize| packing.prefix(index).len() + sequences[index].rows.len();
        let queries = sequences.iter().map(|sequence| sequence.rows.len()).max().unwrap_or(0);
        let keys = (0..sequences.len()).map(seen).max().unwrap_or(0);
        let mut padded = Self {
            queries,
            keys,
            query_rows: Vec::new(),
            key_rows: Vec::new(),
            starts: Vec::new(),
            own_rows: Vec::new(),
        };
        for (index, sequence) in sequences.iter().enumerate() {
            let padding = |count: usize| std::iter::repeat_n(0, count);
            let own = sequence.rows.clone().map(|row| row as i32);
            padded.query_rows.extend(padding(queries - sequence.rows.len()).chain(own.clone()));
            let first = padded.query_rows.len() - sequence.rows.len();
            padded.own_rows.extend((first..padded.query_rows.len()).map(|place| place as i32));
            let prefix = packing.prefix(index).map(|row| row as i32);
            let start = keys - seen(index);
            padded.starts.push(start);
            padded.key_rows.extend(padding(start).chain(prefix).chain(own));
        }
        padded
    }
}

/// Selects `rows` of `x`. Returns `x` itself if that selects all rows in order.
fn take(x: Tensor<2>, rows: &[i32]) -> Tensor<2> {
    if x.dims()[0] == rows.len() && rows.iter().zip(0..).all(|(&row, place)| row == place) {
        return x;
    }
    let rows =
        Tensor::<1, Int>::from_data(TensorData::new(rows.to_vec(), [rows.len()]), &x.device());
    x.select(0, rows)
}
