//! Splits attention over packed sequences into tasks.

mod part;
mod tiles;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use super::{ternary, unary};
use crate::chunks::zeros;
use crate::tape::Operation;
use crate::{Heads, Packing, Scoring};
use part::{Columns, Gradients, Inputs, NORMALIZERS, Part, Upstream, backward, forward};

/// Attention settings.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) heads: Heads,
    pub(crate) scoring: Scoring,
    pub(crate) packing: Packing,
}

pub(crate) fn attention([query, keys, values]: [Tensor<2>; 3], of: Attention) -> Tensor<2> {
    ternary(of, query, [keys, values])
}

pub(crate) fn joint_attention(inputs: Tensor<2>, of: Attention) -> Tensor<2> {
    unary(of, inputs)
}

/// Number of queries per task. Only the rounding of key and value gradients depends on it.
const QUERIES: usize = 128;

/// Attention with separate query, key and value matrices, or with a single matrix for all three.
impl<const N: usize> Operation<Flex, N> for Attention {
    type Saved = Saved<N>;

    fn forward(&self, inputs: [FlexTensor; N], _: [bool; N]) -> (FlexTensor, Saved<N>) {
        let rows_of = inputs.each_ref().map(Rows::new);
        let view = view(&rows_of, self);
        let (rows, heads) = (self.packing.rows(), self.heads.heads);
        let columns = [heads * self.heads.width, heads * NORMALIZERS];
        let [mut output, mut normalizers] = columns.map(|columns| zeros(rows * columns));
        let mut tasks = Vec::new();
        let (mut outputs, mut numbers) = (&mut output[..], &mut normalizers[..]);
        for part in parts(&self.packing, 0..self.packing.sequences().len()) {
            let queries = part.queries.len();
            let (of_part, rest) = outputs.split_at_mut(queries * columns[0]);
            let (normalizers, others) = numbers.split_at_mut(queries * columns[1]);
            (outputs, numbers) = (rest, others);
            tasks.push((part, of_part, normalizers));
        }
        tasks.into_par_iter().for_each(|(part, output, normalizers)| {
            forward(&view, &part, output, normalizers);
        });
        let [output, normalizers] = [output, normalizers].map(|values| tensor(values, rows));
        (output.clone(), Saved { inputs, output, normalizers })
    }

    fn backward(self, saved: Saved<N>, dy: FlexTensor, _: [bool; N]) -> [Option<FlexTensor>; N] {
        let rows_of = saved.inputs.each_ref().map(Rows::new);
        let inputs = view(&rows_of, &self);
        let dy = dy.to_contiguous();
        let upstream = Upstream {
            output: saved.output.storage::<f32>(),
            gradient: dy.storage::<f32>(),
            normalizers: saved.normalizers.storage::<f32>(),
        };
        let rows = self.packing.rows();
        let widths = rows_of.each_ref().map(|rows| rows.columns);
        let mut gradients = widths.map(|columns| zeros(rows * columns));
        let families = split_by_family(&mut gradients, &widths, &self);
        families.into_par_iter().for_each(|mut members| {
            let tasks: Vec<(Part, usize)> =
                parts(&self.packing, members.iter().map(|(index, _)| *index))
                    .flat_map(|part| (0..self.heads.kv_heads).map(move |head| (part.clone(), head)))
                    .collect();
            // A task's gradients cover all the keys it sees. Only a few tasks run at a time, so
            // memory grows linearly with the sequence length.
            for tasks in tasks.chunks(2 * rayon::current_num_threads()) {
                let of_tasks: Vec<Gradients> = tasks
                    .par_iter()
                    .map(|(part, kv_head)| backward(&inputs, part, *kv_head, &upstream))
                    .collect();
                // Sum in task order, regardless of the number of threads.
                for ((part, kv_head), gradients) in tasks.iter().zip(&of_tasks) {
                    add(&mut members, part, *kv_head, gradients);
                }
            }
        });
        gradients.map(|values| Some(tensor(values, rows)))
    }
}

/// State saved for the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Saved<const N: usize> {
    inputs: [FlexTensor; N],
    output: FlexTensor,
    /// Normalisers for each query and head.
    normalizers: FlexTensor,
}

/// Splits the gradient of each input into the rows of each sequence, grouped by family.
fn split_by_family<'a, const N: usize>(
    gradients: &'a mut [Vec<f32>; N],
    widths: &[usize; N],
    of: &Attention,
) -> Vec<Vec<(usize, OfSequence<'a>)>> {
    let mut rest: Vec<&mut [f32]> = gradients.iter_mut().map(|all| &mut all[..]).collect();
    let mut sequences = Vec::new();
    for sequence in of.packing.sequences() {
        let cut = rest.into_iter().zip(widths);
        let cut = cut.map(|(rest, columns)| rest.split_at_mut(sequence.rows.len() * columns));
        let (gradients, behind) = cut.unzip();
        sequences.push(Some(OfSequence { gradients, heads: of.heads }));
        rest = behind;
    }
    let mut take = |index: usize| sequences[index].take().map(|of| (index, of));
    let families = families(&of.packing).into_iter();
    families.map(|members| members.into_iter().filter_map(&mut take).collect()).collect()
}

/// Splits sequences into parts with at most [`QUERIES`] queries each.
fn parts(packing: &Packing, sequences: impl Iterator<Item = usize>) -> impl Iterator<Item = Part> {
    sequences.flat_map(|sequence| {
        let own = packing.sequences()[sequence].rows.clone();
        let prefix = packing.prefix(sequence);
        (0..own.len()).step_by(QUERIES).map(move |start| Part {
            sequence,
            prefix: prefix.clone(),
            queries: start..own.len().min(start + QUERIES),
            own: own.clone(),
        })
    })
}

/// Groups sequences that share keys. Each group consists of a sequence that does not continue
/// another one, followed by its continuations in order.
fn families(packing: &Packing) -> Vec<Vec<usize>> {
    let mut families: Vec<Vec<usize>> = vec![Vec::new(); packing.sequences().len()];
    for (index, sequence) in packing.sequences().iter().enumerate() {
        families[sequence.behind.unwrap_or(index)].push(index);
    }
    families.retain(|members| !members.is_empty());
    families
}

/// Adds the gradients of `part` to its own sequence, and to the first sequence of the family, which
/// provides the prefix.
fn add(members: &mut [(usize, OfSequence<'_>)], part: &Part, kv_head: usize, of: &Gradients) {
    let place = members.iter().position(|(index, _)| *index == part.sequence);
    let place = place.expect("every task belongs to a member of the group");
    let prefix = part.prefix.len() * of.padded;
    members[place].1.add_queries(part.queries.start, kv_head, &of.query);
    for (which, of_keys) in [(1, &of.keys), (2, &of.values)] {
        let (of_prefix, of_own) = of_keys.as_flattened().split_at(prefix);
        members[0].1.add_keys(which, kv_head, of_prefix, of.padded);
        members[place].1.add_keys(which, kv_head, of_own, of.padded);
    }
}

/// Rows of a single sequence in the gradient of each input.
struct OfSequence<'a> {
    gradients: Vec<&'a mut [f32]>,
    heads: Heads,
}

impl OfSequence<'_> {
    fn add_queries(&mut self, first: usize, kv_head: usize, values: &[f32]) {
        let group = self.heads.query_columns() / self.heads.kv_heads;
        let InputColumns { gradient, stride, start } = self.columns(0);
        let rows = gradient.chunks_exact_mut(stride).skip(first);
        add_rows(rows, start + kv_head * group, values.chunks_exact(group), group);
    }

    /// Adds gradients of keys (`which` is 1) or values (`which` is 2). Extra rows at the end of
    /// `values` are padding and are ignored.
    fn add_keys(&mut self, which: usize, kv_head: usize, values: &[f32], padded: usize) {
        let width = self.heads.width;
        let InputColumns { gradient, stride, start } = self.columns(which);
        let rows = gradient.chunks_exact_mut(stride);
        add_rows(rows, start + kv_head * width, values.chunks_exact(padded), width);
    }

    /// Returns the gradient of queries, keys or values.
    fn columns(&mut self, which: usize) -> InputColumns<'_> {
        let (queries, keys) = (self.heads.query_columns(), self.heads.key_columns());
        match &mut self.gradients[..] {
            [joint] => InputColumns {
                gradient: joint,
                stride: queries + 2 * keys,
                start: [0, queries, queries + keys][which],
            },
            separate => InputColumns {
                gradient: separate[which],
                stride: [queries, keys, keys][which],
                start: 0,
            },
        }
    }
}

/// The columns of one input in a gradient.
struct InputColumns<'a> {
    gradient: &'a mut [f32],
    /// Number of columns in a row.
    stride: usize,
    /// The first column.
    start: usize,
}

fn add_rows<'a, 'b>(
    rows: impl Iterator<Item = &'a mut [f32]>,
    column: usize,
    values: impl Iterator<Item = &'b [f32]>,
    width: usize,
) {
    for (row, values) in rows.zip(values) {
        for (to, value) in row[column..column + width].iter_mut().zip(values) {
            *to += value;
        }
    }
}

/// A matrix with a row stride, which can refer to a range of another matrix's columns without a
/// copy.
struct Rows {
    tensor: FlexTensor,
    columns: usize,
    stride: usize,
}

impl Rows {
    fn new(tensor: &FlexTensor) -> Self {
        let layout = tensor.layout();
        let (rows, columns) = (layout.shape()[0], layout.shape()[1]);
        let is_row_by_row = |strides: &[isize]| strides[1] == 1 && strides[0] >= columns as isize;
        let tensor = match is_row_by_row(layout.strides()) || rows == 0 {
            true => tensor.clone(),
            false => tensor.to_contiguous(),
        };
        let stride = tensor.layout().strides()[0] as usize;
        Self { tensor, columns, stride }
    }

    fn columns_from(&self, first: usize) -> Columns<'_> {
        let start = self.tensor.layout().start_offset() + first;
        let values = self.tensor.storage::<f32>();
        Columns { values: &values[start.min(values.len())..], stride: self.stride }
    }
}

fn view<'a>(rows: &'a [Rows], of: &Attention) -> Inputs<'a> {
    let (queries, keys) = (of.heads.query_columns(), of.heads.key_columns());
    let [query, keys, values] = match rows {
        [joint] => [0, queries, queries + keys].map(|first| joint.columns_from(first)),
        [query, keys, values] => [query, keys, values].map(|rows| rows.columns_from(0)),
        other => unreachable!("attention takes one matrix or three, not {}", other.len()),
    };
    let causal = of.packing.is_causal();
    let Scoring { scale, window, cap } = of.scoring;
    let (scale, cap) = (scale as f32, cap.map(|cap| cap as f32));
    Inputs { query, keys, values, heads: of.heads, scale, window, cap, causal }
}

fn tensor(values: Vec<f32>, rows: usize) -> FlexTensor {
    let columns = values.len().checked_div(rows).unwrap_or(0);
    FlexTensor::from_data(TensorData::new(values, [rows, columns]))
}
