//! What a model remembers of the tokens that it has seen, while sampling.

use std::sync::Arc;

use burn::tensor::{Int, Tensor, TensorData};

use crate::TokenBatch;

/// Keys and values of the tokens seen so far, of each layer.
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    /// `[batch, key-value heads, positions, head width]` of each layer; empty before the first token.
    layers: Vec<(Tensor<4>, Tensor<4>)>,
    /// Vectors of a prefix at the front, which have no position of their own.
    prefix: usize,
    /// Columns in front of each row's first token, where there are any.
    starts: Option<Arc<[usize]>>,
}

impl KvCache {
    /// A cache that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Positions seen, a prefix and padding in front among them.
    pub fn positions(&self) -> usize {
        self.layers.first().map_or(0, |(keys, _)| keys.dims()[2])
    }

    /// Columns of tokens seen.
    pub(crate) fn columns(&self) -> usize {
        self.positions() - self.prefix
    }

    /// Columns in front of each row's first token, where there are any.
    pub(crate) fn starts(&self) -> Option<&Arc<[usize]>> {
        self.starts.as_ref()
    }

    /// Keeps the rows of the batch named by `rows`, in that order.
    pub fn select(&mut self, rows: &[usize]) {
        if let Some(starts) = &self.starts {
            self.starts = Some(rows.iter().map(|&row| starts[row]).collect());
        }
        let ids: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
        for (keys, values) in &mut self.layers {
            let ids: Tensor<1, Int> =
                Tensor::from_data(TensorData::new(ids.clone(), [ids.len()]), &keys.device());
            *keys = keys.clone().select(0, ids.clone());
            *values = values.clone().select(0, ids);
        }
    }

    /// Takes note of the layout of the first tokens, before they are appended.
    pub(crate) fn begin(&mut self, tokens: &TokenBatch, prefix: usize) {
        let columns = tokens.columns();
        assert!(
            tokens.spans().iter().all(|span| span.end == columns),
            "the rows of a cache end in the same column: pad on the left"
        );
        assert!(
            self.layers.is_empty() || !tokens.is_left_padded(),
            "only the first tokens of a cache are padded: what stood between tokens would be seen"
        );
        if self.layers.is_empty() {
            self.prefix = prefix;
            let starts = || tokens.spans().iter().map(|span| span.start).collect();
            self.starts = tokens.is_left_padded().then(starts);
        }
    }

    /// Adds new keys and values to those of `layer`, and gives all of them.
    pub(crate) fn append(
        &mut self,
        layer: usize,
        keys: Tensor<4>,
        values: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        if layer == self.layers.len() {
            self.layers.push((keys, values));
        } else {
            let (old_keys, old_values) = self.layers[layer].clone();
            self.layers[layer] =
                (Tensor::cat(vec![old_keys, keys], 2), Tensor::cat(vec![old_values, values], 2));
        }
        self.layers[layer].clone()
    }
}
