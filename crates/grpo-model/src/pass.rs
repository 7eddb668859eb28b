//! What one forward pass carries through the blocks.

use std::sync::Arc;

use burn::tensor::{Device, Int, Tensor, TensorData};
use grpo_kernels::Visible;

use crate::lora::Adapter;
use crate::rotary::Rotary;
use crate::{Dropout, KvCache, TokenBatch};

/// What one forward pass carries through the blocks.
pub(crate) struct Pass<'a> {
    pub(crate) frame: Frame,
    /// What is added to the linear layers.
    pub(crate) adapter: Option<&'a Adapter>,
    pub(crate) dropout: &'a mut Dropout,
}

/// What the places of a pass see, and how they are turned: the same in every block.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Rows.
    pub(crate) batch: usize,
    /// Which keys each query sees.
    pub(crate) visible: Visible,
    /// Turns of queries and keys, where positions are rotary.
    pub(crate) rotary: Option<Rotary>,
}

/// Where the tokens of a pass stand.
pub(crate) struct Places {
    /// Columns in front of those of the pass: the cache's.
    pub(crate) seen: usize,
    /// Columns in front of each row's first token, where there are any.
    pub(crate) starts: Option<Arc<[usize]>>,
    /// Position of each column, from 0 at a row's first token; one row serves all where no row is padded in
    /// front.
    pub(crate) positions: Vec<Vec<usize>>,
}

impl Places {
    pub(crate) fn new(tokens: &TokenBatch, cache: Option<&KvCache>) -> Self {
        let seen = cache.map_or(0, KvCache::columns);
        let padded = || tokens.spans().iter().map(|span| span.start).collect();
        let starts = match cache {
            Some(cache) if seen > 0 => cache.starts().cloned(),
            _ => tokens.is_left_padded().then(padded),
        };
        // What stands in front of a row's first token is seen by nobody; its position is of no meaning.
        let row = |start: usize| -> Vec<usize> {
            (seen..seen + tokens.columns()).map(|column| column.saturating_sub(start)).collect()
        };
        let positions = match &starts {
            None => vec![row(0)],
            Some(starts) => starts.iter().map(|&start| row(start)).collect(),
        };
        Self { seen, starts, positions }
    }

    /// Tokens of the longest row, those seen before among them.
    pub(crate) fn longest(&self) -> usize {
        self.positions.iter().flatten().max().map_or(0, |last| last + 1)
    }

    /// `[batch · columns]`
    pub(crate) fn flat_positions(&self, batch: usize, device: &Device) -> Tensor<1, Int> {
        let rows = self.positions.iter().cycle().take(batch);
        let flat: Vec<i32> = rows.flatten().map(|&position| position as i32).collect();
        let count = flat.len();
        Tensor::from_data(TensorData::new(flat, [count]), device)
    }
}
