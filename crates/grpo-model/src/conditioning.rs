//! Vectors for the conditions that precede a sequence.

use burn::module::Module;
use burn::tensor::activation::{sigmoid, tanh};
use burn::tensor::{Device, Tensor, TensorData};
use grpo_data::Prefix;
use grpo_kernels::{Sequence, gather_rows, indices};

use crate::description::{ConditionIds, Conditions};
use crate::layers::{Embedding, Linear};
use crate::parameters::Parameters;
use crate::precision::dense;
use crate::{Dropout, ModelError, TokenBatch};

/// Dropout between the layers of an LSTM, as in the published code.
const LSTM_DROPOUT: f32 = 0.3;

/// The layers that turn conditions into vectors.
#[derive(Module, Debug)]
pub(crate) struct Conditioning {
    /// Projects the values.
    projection: Option<Linear>,
    lstm: Vec<LstmLayer>,
    #[module(skip)]
    of: Conditions,
}

/// A layer of an LSTM (Hochreiter & Schmidhuber 1997) with PyTorch's layout. The gates are
/// concatenated in the order input, forget, cell, output.
#[derive(Module, Debug)]
struct LstmLayer {
    input: Linear,
    hidden: Linear,
}

/// How the vectors of a pass are computed.
pub(crate) struct Reading<'a> {
    pub(crate) embedding: &'a Embedding,
    /// Whether each sequence is computed independently of the others.
    pub(crate) invariant: bool,
    pub(crate) device: &'a Device,
}

/// The rows of a pass that belong to the conditions and the tokens of each sequence.
pub(crate) struct Layout {
    /// The sequences including their conditions.
    pub(crate) sequences: Vec<Sequence>,
    /// Number of condition rows that precede each sequence.
    pub(crate) prefixes: Vec<usize>,
}

impl Layout {
    pub(crate) fn new(tokens: &TokenBatch, prefixes: &[usize]) -> Self {
        let mut start = 0;
        let sequence = |((length, behind), prefix): ((usize, Option<usize>), &usize)| {
            let rows = start..start + prefix + length;
            start = rows.end;
            Sequence { rows, behind }
        };
        let sequences = tokens.lengths().zip(tokens.behind()).zip(prefixes).map(sequence).collect();
        Self { sequences, prefixes: prefixes.to_vec() }
    }

    pub(crate) fn has_prefixes(&self) -> bool {
        self.prefixes.iter().any(|&prefix| prefix > 0)
    }

    /// Returns the total number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.sequences.last().map_or(0, |sequence| sequence.rows.end)
    }

    /// Returns the rows of the tokens, in order.
    pub(crate) fn token_rows(&self) -> impl Iterator<Item = usize> {
        let sequences = self.sequences.iter().zip(&self.prefixes);
        sequences.flat_map(|(sequence, prefix)| sequence.rows.start + prefix..sequence.rows.end)
    }
}

impl Conditions {
    /// Returns the number of vectors that precede a sequence.
    pub(crate) fn vectors(&self, prefix: &Prefix) -> usize {
        let of_ids = match self.ids {
            ConditionIds::Lstm { layers } if !prefix.ids.is_empty() => layers,
            _ => prefix.ids.len(),
        };
        of_ids + usize::from(!prefix.values.is_empty())
    }

    /// Checks that the conditions match what the model reads.
    pub(crate) fn check(&self, prefix: &Prefix, vocabulary: usize) -> Result<(), String> {
        if !prefix.ids.is_empty() && self.ids == ConditionIds::None {
            return Err("the model takes no token ids as a condition".to_owned());
        }
        if let Some(id) = prefix.ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(format!(
                "token id {id} of the condition is outside the vocabulary of {vocabulary} tokens"
            ));
        }
        if prefix.values.is_empty() {
            return Ok(());
        }
        if prefix.values.len() != self.values {
            return Err(format!(
                "the condition has {} values, but the model takes {}",
                prefix.values.len(),
                self.values
            ));
        }
        match prefix.values.contains(&None) && !self.partial {
            true => Err("the model requires a value for each of its conditions".to_owned()),
            false => Ok(()),
        }
    }
}

impl Conditioning {
    /// Creates the layers, or returns `None` if the model takes no conditions.
    pub(crate) fn new(
        parameters: &mut Parameters,
        of: Conditions,
        width: usize,
    ) -> Result<Option<Self>, ModelError> {
        if of == Conditions::default() {
            return Ok(None);
        }
        let inputs = of.values * if of.partial { 2 } else { 1 };
        let projection = match inputs {
            0 => None,
            _ => Some(Linear::new(parameters, "prefix.projection", [inputs, width], true)?),
        };
        let layers = match of.ids {
            ConditionIds::Lstm { layers } => layers,
            ConditionIds::None | ConditionIds::Tokens => 0,
        };
        let lstm = (0..layers)
            .map(|layer| {
                let mut linear = |read: &str| {
                    let name = format!("prefix.lstm.{layer}.{read}");
                    Linear::new(parameters, &name, [width, 4 * width], true)
                };
                Ok(LstmLayer { input: linear("input")?, hidden: linear("hidden")? })
            })
            .collect::<Result<_, ModelError>>()?;
        Ok(Some(Self { projection, lstm, of }))
    }

    /// Returns the vectors of all sequences, `[vectors, width]`, and the rows of the vectors for
    /// each sequence, with those of the ids first and that of the values last.
    pub(crate) fn vectors(
        &self,
        prefixes: &[Prefix],
        reading: &Reading<'_>,
        dropout: &mut Dropout,
    ) -> (Tensor<2>, Vec<Vec<usize>>) {
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); prefixes.len()];
        let mut parts: Vec<Tensor<2>> = Vec::new();
        let mut next = 0;
        if prefixes.iter().any(|prefix| !prefix.ids.is_empty()) {
            let ids: Vec<i32> =
                prefixes.iter().flat_map(|prefix| &prefix.ids).map(|&id| id as i32).collect();
            let ids = TensorData::new(ids.clone(), [ids.len()]);
            let embedded = reading.embedding.forward(Tensor::from_data(ids, reading.device));
            if self.lstm.is_empty() {
                for (rows, prefix) in rows.iter_mut().zip(prefixes) {
                    rows.extend(next..next + prefix.ids.len());
                    next += prefix.ids.len();
                }
                parts.push(embedded);
            } else {
                let with_ids = prefixes.iter().enumerate().filter(|(_, p)| !p.ids.is_empty());
                let with_ids: Vec<usize> = with_ids.map(|(sequence, _)| sequence).collect();
                let lengths: Vec<usize> =
                    with_ids.iter().map(|&sequence| prefixes[sequence].ids.len()).collect();
                for states in self.last_states(dense(embedded), &lengths, reading, dropout) {
                    with_ids
                        .iter()
                        .zip(next..)
                        .for_each(|(&sequence, row)| rows[sequence].push(row));
                    next += with_ids.len();
                    parts.push(states);
                }
            }
        }
        let with_values = prefixes.iter().enumerate().filter(|(_, p)| !p.values.is_empty());
        let with_values: Vec<usize> = with_values.map(|(sequence, _)| sequence).collect();
        if let (Some(projection), false) = (&self.projection, with_values.is_empty()) {
            let inputs = with_values.iter().flat_map(|&row| self.inputs(&prefixes[row].values));
            let inputs: Vec<f32> = inputs.collect();
            let shape = [with_values.len(), inputs.len() / with_values.len()];
            let inputs = Tensor::from_data(TensorData::new(inputs, shape), reading.device);
            parts.push(projection.product_of_rows(inputs, reading.invariant));
            with_values.iter().zip(next..).for_each(|(&sequence, row)| rows[sequence].push(row));
        }
        (dense(Tensor::cat(parts, 0)), rows)
    }

    /// Returns the inputs of the projection.
    fn inputs(&self, values: &[Option<f32>]) -> Vec<f32> {
        let given = values.iter().map(|value| value.unwrap_or(0.0));
        let flags = values.iter().map(|value| f32::from(u8::from(value.is_some())));
        given.chain(flags.take(if self.of.partial { values.len() } else { 0 })).collect()
    }

    /// Runs the LSTM on sequences of the given lengths, whose rows are concatenated in `x`, and
    /// returns the last hidden state of each layer, `[sequences, width]`.
    fn last_states(
        &self,
        x: Tensor<2>,
        lengths: &[usize],
        reading: &Reading<'_>,
        dropout: &mut Dropout,
    ) -> Vec<Tensor<2>> {
        let starts: Vec<usize> = lengths
            .iter()
            .scan(0, |next, length| Some(std::mem::replace(next, *next + length)))
            .collect();
        let steps = lengths.iter().copied().max().unwrap_or(0);
        // A sequence that has ended repeats its last row, which the mask ignores.
        let mut inputs: Vec<Tensor<2>> = (0..steps)
            .map(|step| {
                let row = |(start, length): (&usize, &usize)| start + step.min(length - 1);
                let rows = starts.iter().zip(lengths).map(row);
                gather_rows(x.clone(), indices(rows, &x.device()))
            })
            .collect();
        let mask = |step: usize| {
            let running = lengths.iter().map(|&length| f32::from(u8::from(step < length)));
            let running = TensorData::new(running.collect::<Vec<_>>(), [lengths.len(), 1]);
            Tensor::<2>::from_data(running, reading.device)
        };
        let masks: Vec<Tensor<2>> = (0..steps).map(mask).collect();
        let mut states = Vec::new();
        for (index, layer) in self.lstm.iter().enumerate() {
            let zeros = Tensor::zeros([lengths.len(), x.dims()[1]], reading.device);
            let (mut hidden, mut cell) = (zeros.clone(), zeros);
            for (input, mask) in inputs.iter_mut().zip(&masks) {
                let next = layer.step(input.clone(), &hidden, &cell, reading.invariant);
                let ended = mask.clone().neg().add_scalar(1.0);
                hidden = next.0 * mask.clone() + hidden * ended.clone();
                cell = next.1 * mask.clone() + cell * ended;
                *input = hidden.clone();
            }
            states.push(hidden);
            if index + 1 < self.lstm.len() && dropout.is_on() {
                inputs = inputs.into_iter().map(|x| dropout.apply_at(LSTM_DROPOUT, x)).collect();
            }
        }
        states
    }
}

impl LstmLayer {
    /// Returns the next hidden state and cell state.
    fn step(
        &self,
        input: Tensor<2>,
        hidden: &Tensor<2>,
        cell: &Tensor<2>,
        invariant: bool,
    ) -> (Tensor<2>, Tensor<2>) {
        let width = hidden.dims()[1];
        let gates = self.input.product_of_rows(input, invariant)
            + self.hidden.product_of_rows(hidden.clone(), invariant);
        let gate = |index: usize| gates.clone().narrow(1, index * width, width);
        let kept = sigmoid(gate(1)) * cell.clone();
        let cell = kept + sigmoid(gate(0)) * tanh(gate(2));
        (sigmoid(gate(3)) * tanh(cell.clone()), cell)
    }
}
