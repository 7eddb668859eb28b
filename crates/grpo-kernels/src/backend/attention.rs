//! Attention over packed sequences: its tasks on the CPU, and its place on the tape.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as Tape;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use crate::attention::part::{
    Columns, Gradients, Inputs, NORMALIZERS, Part, Upstream, backward, forward,
};
use crate::{Heads, Packing};

/// What attention is besides its matrices.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) heads: Heads,
    pub(crate) scale: f32,
    pub(crate) packing: Packing,
}

pub(crate) fn attention(inputs: [Tensor<2>; 3], of: Attention) -> Tensor<2> {
    let [query, keys, values] = inputs.map(Tensor::into_dispatch);
    Tensor::from_dispatch(<Dispatch as FusedAttention>::fused_attention(query, keys, values, of))
}

pub(crate) fn joint_attention(inputs: Tensor<2>, of: Attention) -> Tensor<2> {
    let inputs = inputs.into_dispatch();
    Tensor::from_dispatch(<Dispatch as FusedAttention>::fused_joint_attention(inputs, of))
}

/// What a backend computes. `inputs` are queries, keys and values, or all three in one matrix.
pub(crate) trait AttentionKernels: Backend {
    /// The output, and of each query and head what its weights are normalised by.
    fn attention_kernel(inputs: &[FloatTensor<Self>], of: &Attention) -> [FloatTensor<Self>; 2];
    /// The gradient of each of `inputs`.
    fn attention_kernel_backward(
        inputs: &[FloatTensor<Self>],
        forward: &[FloatTensor<Self>; 2],
        dy: FloatTensor<Self>,
        of: &Attention,
    ) -> Vec<FloatTensor<Self>>;
}

/// What Burn dispatches by device.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait FusedAttention: Backend {
    fn fused_attention(
        query: FloatTensor<Self>,
        keys: FloatTensor<Self>,
        values: FloatTensor<Self>,
        of: Attention,
    ) -> FloatTensor<Self>;
    fn fused_joint_attention(inputs: FloatTensor<Self>, of: Attention) -> FloatTensor<Self>;
}

impl FusedAttention for Flex {
    fn fused_attention(
        query: FloatTensor<Self>,
        keys: FloatTensor<Self>,
        values: FloatTensor<Self>,
        of: Attention,
    ) -> FloatTensor<Self> {
        let [output, _] = Self::attention_kernel(&[query, keys, values], &of);
        output
    }

    fn fused_joint_attention(inputs: FloatTensor<Self>, of: Attention) -> FloatTensor<Self> {
        let [output, _] = Self::attention_kernel(&[inputs], &of);
        output
    }
}

impl<B: Backend + AttentionKernels, S: CheckpointStrategy> FusedAttention for Autodiff<B, S> {
    fn fused_attention(
        query: FloatTensor<Self>,
        keys: FloatTensor<Self>,
        values: FloatTensor<Self>,
        of: Attention,
    ) -> FloatTensor<Self> {
        on_tape::<B, S, 3>([query, keys, values], of)
    }

    fn fused_joint_attention(inputs: FloatTensor<Self>, of: Attention) -> FloatTensor<Self> {
        on_tape::<B, S, 1>([inputs], of)
    }
}

fn on_tape<B: Backend + AttentionKernels, S: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, S>>; N],
    of: Attention,
) -> FloatTensor<Autodiff<B, S>>
where
    Step: Backward<B, N, State = State<B, N>>,
{
    let nodes = inputs.each_ref().map(|input| input.node());
    let inputs = inputs.map(|input| input.into_primitive());
    let forward = B::attention_kernel(&inputs, &of);
    let output = forward[0].clone();
    match Step.prepare::<S>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(State { inputs, forward, of }, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

#[derive(Clone, Debug)]
struct State<B: Backend, const N: usize> {
    inputs: [FloatTensor<B>; N],
    forward: [FloatTensor<B>; 2],
    of: Attention,
}

#[derive(Debug)]
struct Step;

impl<B: AttentionKernels, const N: usize> Backward<B, N> for Step {
    type State = State<B, N>;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Tape,
        _checkpointer: &mut Checkpointer,
    ) {
        let dy = grads.consume::<B>(&ops.node);
        let State { inputs, forward, of } = ops.state;
        let gradients = B::attention_kernel_backward(&inputs, &forward, dy, &of);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Queries of one task. The results do not depend on it but, in the gradients of keys and values, by rounding.
const QUERIES: usize = 128;

impl AttentionKernels for Flex {
    fn attention_kernel(inputs: &[FlexTensor], of: &Attention) -> [FlexTensor; 2] {
        let rows_of = inputs.iter().map(Rows::new).collect::<Vec<_>>();
        let inputs = view(&rows_of, of);
        let (rows, heads) = (of.packing.rows(), of.heads.heads);
        let columns = [heads * of.heads.width, heads * NORMALIZERS];
        let [mut output, mut normalizers] = columns.map(|columns| vec![0.0; rows * columns]);
        let mut tasks = Vec::new();
        let (mut outputs, mut numbers) = (&mut output[..], &mut normalizers[..]);
        for part in parts(&of.packing, 0..of.packing.sequences().len()) {
            let queries = part.queries.len();
            let (of_part, rest) = outputs.split_at_mut(queries * columns[0]);
            let (normalizers, others) = numbers.split_at_mut(queries * columns[1]);
            (outputs, numbers) = (rest, others);
            tasks.push((part, of_part, normalizers));
        }
        tasks.into_par_iter().for_each(|(part, output, normalizers)| {
            forward(&inputs, &part, output, normalizers);
        });
        [tensor(output, rows), tensor(normalizers, rows)]
    }

    fn attention_kernel_backward(
        inputs: &[FlexTensor],
        [output, normalizers]: &[FlexTensor; 2],
        dy: FlexTensor,
        of: &Attention,
    ) -> Vec<FlexTensor> {
        let rows_of = inputs.iter().map(Rows::new).collect::<Vec<_>>();
        let inputs = view(&rows_of, of);
        let dy = dy.to_contiguous();
        let upstream = Upstream {
            output: output.storage::<f32>(),
            gradient: dy.storage::<f32>(),
            normalizers: normalizers.storage::<f32>(),
        };
        let rows = of.packing.rows();
        let widths: Vec<usize> = rows_of.iter().map(|rows| rows.columns).collect();
        let mut gradients: Vec<Vec<f32>> =
            widths.iter().map(|columns| vec![0.0; rows * columns]).collect();
        let mut rest: Vec<&mut [f32]> = gradients.iter_mut().map(|all| &mut all[..]).collect();
        let mut sequences = Vec::new();
        for sequence in of.packing.sequences() {
            let cut = rest.into_iter().zip(&widths);
            let cut = cut.map(|(rest, columns)| rest.split_at_mut(sequence.rows.len() * columns));
            let (gradients, behind) = cut.unzip();
            sequences.push(Some(OfSequence { gradients, heads: of.heads }));
            rest = behind;
        }
        let families: Vec<Vec<(usize, OfSequence<'_>)>> = families(&of.packing)
            .into_iter()
            .map(|members| {
                let take = |index: usize| sequences[index].take().map(|of| (index, of));
                members.into_iter().filter_map(take).collect()
            })
            .collect();
        families.into_par_iter().for_each(|mut members| {
            let tasks: Vec<(Part, usize)> =
                parts(&of.packing, members.iter().map(|(index, _)| *index))
                    .flat_map(|part| (0..of.heads.kv_heads).map(move |head| (part.clone(), head)))
                    .collect();
            // The gradients of a task are of all keys that it sees: those of a few tasks at a time, so that memory
            // grows with the length and not with its square.
            for tasks in tasks.chunks(2 * rayon::current_num_threads()) {
                let of_tasks: Vec<Gradients> = tasks
                    .par_iter()
                    .map(|(part, kv_head)| backward(&inputs, part, *kv_head, &upstream))
                    .collect();
                // In the order of all tasks, whatever the number of threads.
                for ((part, kv_head), gradients) in tasks.iter().zip(&of_tasks) {
                    add(&mut members, part, *kv_head, gradients);
                }
            }
        });
        gradients.into_iter().map(|values| tensor(values, rows)).collect()
    }
}

/// The parts of sequences, each of at most [`QUERIES`] queries.
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

/// Sequences that see each other's keys: one that continues none, and those that continue it in their order.
fn families(packing: &Packing) -> Vec<Vec<usize>> {
    let mut families: Vec<Vec<usize>> = vec![Vec::new(); packing.sequences().len()];
    for (index, sequence) in packing.sequences().iter().enumerate() {
        families[sequence.behind.unwrap_or(index)].push(index);
    }
    families.retain(|members| !members.is_empty());
    families
}

/// Adds what the queries of `part` give to the sequences of its family, of which the first is the one continued.
fn add(members: &mut [(usize, OfSequence<'_>)], part: &Part, kv_head: usize, of: &Gradients) {
    let place = members.iter().position(|(index, _)| *index == part.sequence);
    let place = place.expect("a task is of a member");
    let prefix = part.prefix.len() * of.padded;
    members[place].1.add_queries(part.queries.start, kv_head, &of.query);
    for (which, of_keys) in [(1, &of.keys), (2, &of.values)] {
        let (of_prefix, of_own) = of_keys.as_flattened().split_at(prefix);
        members[0].1.add_keys(which, kv_head, of_prefix, of.padded);
        members[place].1.add_keys(which, kv_head, of_own, of.padded);
    }
}

/// The rows of one sequence in the gradient of each input.
struct OfSequence<'a> {
    gradients: Vec<&'a mut [f32]>,
    heads: Heads,
}

impl OfSequence<'_> {
    fn add_queries(&mut self, first: usize, kv_head: usize, values: &[f32]) {
        let group = self.heads.query_columns() / self.heads.kv_heads;
        let (rows, stride, start) = self.columns(0);
        let rows = rows.chunks_exact_mut(stride).skip(first);
        add_rows(rows, start + kv_head * group, values.chunks_exact(group), group);
    }

    /// `which` is 1 for keys and 2 for values; rows behind the last one are padding.
    fn add_keys(&mut self, which: usize, kv_head: usize, values: &[f32], padded: usize) {
        let width = self.heads.width;
        let (rows, stride, start) = self.columns(which);
        let rows = rows.chunks_exact_mut(stride);
        add_rows(rows, start + kv_head * width, values.chunks_exact(padded), width);
    }

    /// The matrix that queries, keys or values stand in, its columns, and the first one of theirs.
    fn columns(&mut self, which: usize) -> (&mut [f32], usize, usize) {
        let (queries, keys) = (self.heads.query_columns(), self.heads.key_columns());
        match &mut self.gradients[..] {
            [joint] => (joint, queries + 2 * keys, [0, queries, queries + keys][which]),
            separate => (separate[which], [queries, keys, keys][which], 0),
        }
    }
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

/// A matrix whose rows may stand apart: a part of another one's columns needs no copy.
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
        other => unreachable!("attention is of one matrix or three, not {}", other.len()),
    };
    let causal = of.packing.is_causal();
    Inputs { query, keys, values, heads: of.heads, scale: of.scale, causal }
}

fn tensor(values: Vec<f32>, rows: usize) -> FlexTensor {
    let columns = values.len().checked_div(rows).unwrap_or(0);
    FlexTensor::from_data(TensorData::new(values, [rows, columns]))
}
